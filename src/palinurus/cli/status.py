"""`pal status` and `pal context`: how things stand, and what the prompt costs."""

from __future__ import annotations

import click

from palinurus import __version__
from palinurus.cli.delivery import standing_text
from palinurus.cli.derived import command_of
from palinurus.cli.entrance import make_on_first_run, open_door
from palinurus.cli.shell import Shell, run_async, with_json
from palinurus.context.report import render
from palinurus.domain.errors import ConfigError, HomeHeld, StorageError, WorkspaceError
from palinurus.operations.status import Status, show_context, show_status


@click.command()
@click.option("--agent", "agent_id", default="", help="Which agent; the default one when left out.")
@with_json
@click.pass_obj
def status(shell: Shell, agent_id: str) -> int:
    """Show how things stand: home, workspace, model, sessions. Exit code 1 when something keeps the agent from work.

    \b
    Example:
      pal status --json
    """

    async def ask() -> tuple[Status, bool]:
        async with open_door(shell) as door:
            return await door.call(show_status, show_status.params(agent_id)), door.holds

    try:
        make_on_first_run(shell)
        report, held_here = run_async(ask())
        code = 1 if report.troubles else 0
    except (ConfigError, HomeHeld, StorageError, WorkspaceError) as error:  # that is how things stand
        troubles = tuple(str(error).splitlines())
        report = Status(__version__, str(shell.home.root), str(shell.home.config_path), troubles=troubles)
        held_here, code = True, error.exit_code
    shell.show(report, lambda: _status_text(report, held_here=held_here))
    return code


context = command_of(show_context, lambda _, report: render(report), name="context", makes_home=True)


def _status_text(report: Status, *, held_here: bool) -> str:
    rows = [
        ("version", report.version),
        ("home", report.home + ("" if held_here else f" (held by pid {report.holder_pid}, {report.busy} running)")),
        ("config", report.config),
        ("agent", f"{report.agent} (of {', '.join(report.agents)})" if len(report.agents) > 1 else report.agent),
        *(("identity", told) for told in (_identity_text(report),) if told),
        ("workspace", report.workspace),
        ("model", f"{report.model} ({report.model_reason})" if report.model_reason else report.model),
        *(("session", f"{session.key} · {session.total_tokens:,} tokens") for session in report.sessions),
        *(("delivery", told) for told in (standing_text(report.deliveries),) if told),
        *(("warning", warning) for warning in report.warnings),
        *(("trouble", trouble) for trouble in report.troubles),
    ]
    return "\n".join(f"{name:<10} {value}" for name, value in rows if value)


def _identity_text(report: Status) -> str:
    """Empty for an agent that has not been told who it is."""
    said = report.identity
    title = "" if said.title == report.agent else said.title
    return " · ".join(each for each in (title, said.traits) if each)
