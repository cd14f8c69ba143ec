"""`pal skills`: which there are, what each may do, what it needs, and getting that.

Listing is to be answered at once, so little is imported here: when the config says what it said last time, it is not
read again (skills/opening.py). Else the ordinary way is loaded by name.
"""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from palinurus.cli.kept import keep_answer, kept_place, look
from palinurus.cli.output import echo
from palinurus.cli.shell import Shell, with_json
from palinurus.cli.skills_text import check_text, info_text, list_text, plan_text
from palinurus.config.atomic import make_directory, write_atomic
from palinurus.config.shortcut import source_digest
from palinurus.domain.errors import StorageError
from palinurus.skills.opening import open_skills, read_note
from palinurus.skills.report import check_skills, list_skills, show_skill
from palinurus.skills.skills import Skills

ORDINARY = "palinurus.operations.skills"
# In modules that are imported when one of them is called.
ELSEWHERE = {
    **dict.fromkeys(("search", "install", "update", "verify", "publish"), "palinurus.cli.skills_registry"),
    **dict.fromkeys(("draft", "drafts", "accept"), "palinurus.cli.skills_drafts"),
}


class SkillsGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *ELSEWHERE]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if module := ELSEWHERE.get(cmd_name):
            command: click.Command = getattr(importlib.import_module(module), cmd_name)
            return command
        return super().get_command(ctx, cmd_name)


@click.group(cls=SkillsGroup)
def skills() -> None:
    """Show which skills there are, what they need and what they may do; get more, and give away your own."""


of_agent = click.option("--agent", default="", metavar="ID", help="Whose skills. Default: the default agent's.")


@skills.command("list")
@of_agent
@click.option("--eligible", is_flag=True, help="Only those that can be used here and now.")
@click.option("-v", "--verbose", is_flag=True, help="Also those that were left out, and why.")
@with_json
@click.pass_obj
def list_command(shell: Shell, agent: str, eligible: bool, verbose: bool) -> None:
    """List the skills, where they come from, and whether they can be used.

    \b
    Examples:
      pal skills list
      pal skills list --eligible
      pal skills list -v --json
    """
    config = look(str(shell.home.config_path))
    skills = _skills(shell, agent)
    found = list_skills(skills)
    if eligible:
        found = type(found)(tuple(s for s in found.skills if s.usable), found.shadowed, found.left_out, found.prompt)
    text = shell.text(found, lambda: list_text(found, shell.dim, verbose=verbose))
    echo(text)
    _keep(shell, text, skills, config)


@skills.command("info")
@click.argument("name")
@of_agent
@with_json
@click.pass_obj
def info(shell: Shell, name: str, agent: str) -> None:
    """Show all that is known about one skill, and what it may use.

    \b
    Examples:
      pal skills info git-helper
      pal skills info read-pdf --json
    """
    found = show_skill(_skills(shell, agent), name)
    shell.show(found, lambda: info_text(found))


@skills.command("check")
@of_agent
@with_json
@click.pass_obj
def check(shell: Shell, agent: str) -> int:
    """Show which skills cannot be used, and why. Exit code 1 when one could not even be read.

    \b
    Examples:
      pal skills check
      pal skills check --agent home --json
    """
    found = check_skills(_skills(shell, agent))
    shell.show(found, lambda: check_text(found))
    return 1 if found.left_out else 0


@skills.command("install-deps")
@click.argument("name")
@of_agent
@click.option("--yes", is_flag=True, help="Run the commands without asking. They are shown all the same.")
@click.option("--dry-run", is_flag=True, help="Show the commands and run none.")
@with_json
@click.pass_obj
def install_deps(shell: Shell, name: str, agent: str, yes: bool, dry_run: bool) -> int:
    """Install the programs that a skill needs: the exact commands are shown, and run only after a yes.

    Downloads are done only when the skill names their sha256. Exit code 1 when something is still missing.

    \b
    Examples:
      pal skills install-deps video-frames --dry-run
      pal skills install-deps video-frames
    """
    ordinary = importlib.import_module(ORDINARY)
    ground = _ground(shell)
    plan = ordinary.plan_install(ground, ordinary.skills_on(ground, agent), name)
    shell.show(plan, lambda: plan_text(plan))
    if dry_run or not plan.steps:
        return 1 if plan.missing else 0
    if not yes and not _agreed(shell):
        return 1
    for step in plan.steps:
        ordinary.do_step(step)
    standing = importlib.import_module("palinurus.skills.report").standing_of(ordinary.skills_on(ground, agent), name)
    for reason in standing.verdict.reasons:
        shell.warn(f"{name}: {reason}")
    return 0 if standing.verdict.usable else 1


def _keep(shell: Shell, text: str, skills: Skills, config: str | None) -> None:
    """So that the next one who asks the same is answered at once. Where nothing can be written, he is not."""
    argv, home = sys.argv[1:], shell.home
    place = kept_place(argv, os.environ, str(home.root))
    if place is None or source_digest(home) is None or not home.root.is_dir():
        return
    rests = skills.rests_on()
    if rests is None:
        return
    paths: dict[str, str | None] = {mark.path: mark.looks for mark in rests.marks}
    paths |= {path: look(path) for path in (str(home.root / "tools"), *rests.programs)}
    paths[str(home.config_path)] = config
    data = keep_answer(argv, os.environ, text, paths, rests.variables)
    if data is not None:
        with suppress(OSError, StorageError):
            make_directory(Path(place).parent)
            write_atomic(Path(place), data)


def _agreed(shell: Shell) -> bool:
    if shell.as_json or not sys.stdin.isatty():
        shell.warn("nothing was run: nobody is there to say yes (--yes runs what was shown)")
        return False
    return click.confirm("Run this?", default=False)


def _skills(shell: Shell, agent: str) -> Skills:
    """By the note of the last one who read the config, if it still holds."""
    note = read_note(shell.home)
    if note is not None and (known := note.agents.get(agent.strip().lower() or note.default_agent)):
        return open_skills(shell.home, known, os.environ)
    found: Skills = importlib.import_module(ORDINARY).skills_on(_ground(shell), agent)
    return found


def _ground(shell: Shell) -> Any:
    return importlib.import_module("palinurus.operations.config").Ground(shell.home, os.environ)
