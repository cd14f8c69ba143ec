"""`pal status`, `pal context` and `pal doctor`: the state of the home, what the prompt costs, what is wrong."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from palinurus import __version__
from palinurus.cli.command import command_of, complete_agents, make_on_first_run, with_home
from palinurus.cli.jobs import counts_text
from palinurus.cli.shell import Shell, run_async, with_shell
from palinurus.context.report import render
from palinurus.domain.errors import ConfigError, HomeHeld, StorageError, WorkspaceError
from palinurus.operations.agents import AgentSummary
from palinurus.operations.status import Status, show_context, show_status
from palinurus.runtime.checks.check import Check
from palinurus.runtime.doctor import examine
from palinurus.runtime.home_access import HomeAccess


@click.command()
@click.option(
    "--agent", "agent_id", default="", shell_complete=complete_agents, help="Which agent. Default: the default agent."
)
@with_shell
def status(shell: Shell, agent_id: str) -> int:
    """Show home, workspace, model and sessions. Exit code 1 when the agent cannot work.

    \b
    Example:
      pal status --json
    """

    async def ask(home: HomeAccess) -> tuple[Status, bool]:
        return await home.call(show_status, show_status.params(agent_id)), home.holds

    try:
        make_on_first_run(shell)
        report, held_here = with_home(shell, ask)
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
        *(("other", _other_text(each)) for each in report.others),
        *(("session", f"{session.key} · {session.total_tokens:,} tokens") for session in report.sessions),
        *(("delivery", told) for told in (counts_text(report.deliveries),) if told),
        *((name, told) for name, _, told in (line.partition(": ") for line in report.extensions)),
        *(("warning", warning) for warning in report.warnings),
        *(("problem", trouble) for trouble in report.troubles),
    ]
    return "\n".join(f"{name:<10} {value}" for name, value in rows if value)


def _other_text(agent: AgentSummary) -> str:
    title = "" if agent.identity.title == agent.id else agent.identity.title
    told = (agent.id, title, agent.workspace, agent.model.primary, *agent.bindings)
    return " · ".join(each for each in told if each)


def _identity_text(report: Status) -> str:
    """Empty for an agent that has not been told who it is."""
    said = report.identity
    title = "" if said.title == report.agent else said.title
    return " · ".join(each for each in (title, said.traits) if each)


SIGNS = {"ok": ("✓", "green"), "mended": ("✓", "cyan"), "warning": ("!", "yellow"), "bad": ("×", "red")}


@click.command()
@click.option("--fix", is_flag=True, help="Fix what needs no decision: file modes, a damaged index.")
@click.option("--no-model", is_flag=True, help="Do not test the model.")
@with_shell
def doctor(shell: Shell, fix: bool, no_model: bool) -> int:
    """Check for problems and say how to fix them. Exit code 1 when there are any.

    Works with a broken config and while another process holds the home. The model is sent one tiny request.

    \b
    Examples:
      pal doctor
      pal doctor --fix --no-model
    """
    checks = run_async(examine(shell.home, os.environ, fix=fix, ask_model=not no_model))
    broken = any(check.state == "bad" for check in checks)
    shell.show({"ok": not broken, "checks": checks}, lambda: _text(shell, checks))
    return 1 if broken else 0


def _text(shell: Shell, checks: Sequence[Check]) -> str:
    width = max(len(check.name) for check in checks)
    lines: list[str] = []
    for check in checks:
        sign, color = SIGNS[check.state]
        mark = click.style(sign, fg=color) if shell.color else sign
        where = shell.dim(f"  {check.where}") if check.where and check.where not in check.what else ""
        lines.append(f"{mark} {check.name:<{width}}  {check.what}{where}")
        if check.todo and check.state in ("warning", "bad"):
            lines.append(f"  {'':<{width}}  → {check.todo}")
    bad = sum(check.state == "bad" for check in checks)
    odd = sum(check.state == "warning" for check in checks)
    lines.append(f"{bad} error(s), {odd} warning(s)." if bad or odd else "No problems found.")
    return "\n".join(lines)
