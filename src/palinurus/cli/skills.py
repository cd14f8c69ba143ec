"""`pal skills`: which there are, what each may do, what it needs, and getting that.

Looking needs no runtime, only the config and the files, so it works while another process holds the home.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click
import msgspec

from palinurus.cli.shell import LazyGroup, Shell, shorten, with_shell
from palinurus.skills import skills as report
from palinurus.skills.skills import ListedSkill, ListSize, SkillCheck, SkillInfo, SkillList, Skills, read_skills

if TYPE_CHECKING:  # only one command installs, and the quick ones need not wait for it
    from palinurus.skills.dependencies import InstallPlan, InstallStep


def list_text(found: SkillList, dim: Callable[[str], str], *, verbose: bool = False) -> str:
    if not found.skills and not found.left_out:
        return "There are no skills."
    names = min(32, max((len(each.name) for each in found.skills), default=0))
    room = max(20, shutil.get_terminal_size((100, 24)).columns - names - 18)
    lines = [_row(each, names, room, dim) for each in found.skills]
    usable = sum(each.usable for each in found.skills)
    lines.append(f"{usable} of {len(found.skills)} can be used; {_cost(found.prompt)}.")
    if verbose:
        lines += _unused(found)
    elif found.left_out or found.shadowed:
        lines.append(f"{len(found.left_out)} left out, {len(found.shadowed)} shadowed: `pal skills check` says why.")
    return "\n".join(lines)


def info_text(found: SkillInfo) -> str:
    skill, about = found.skill, found.about
    rows = {
        "what": about.description,
        "where": f"{skill.location} ({skill.tier}{f', from {skill.registry}' if skill.registry else ''})",
        "state": "can be used" if skill.usable else "; ".join(skill.reasons),
        "offered": "yes" if skill.offered else "only when asked for by name" if skill.usable else "no",
        "command": f"/{skill.command}" if skill.command else "none",
        "may use": found.may_use,
        "programs": ", ".join((*about.requires.bins, *(f"{name}?" for name in about.requires.any_bins))),
        "variables": ", ".join(dict.fromkeys((*about.requires.env, *filter(None, (about.primary_env,))))),
        "config": ", ".join(about.requires.config),
        "install": "; ".join(f"{each.kind} {each.package or each.url}" for each in about.install),
        "homepage": about.homepage,
        "version": about.version,
        "license": about.license,
        "digest": f"sha256:{found.digest}",
        "remarks": "; ".join(about.remarks),
    }
    title = f"{about.emoji} {skill.name}".strip()
    return "\n".join([title, *(f"  {key:<10} {value}" for key, value in rows.items() if value)])


def check_text(found: SkillCheck) -> str:
    lines = [f"{len(found.usable)} can be used; {_cost(found.prompt)}."]
    lines += _section("Missing requirements", map(_reasons, found.waiting))
    lines += _section("Turned off", map(_reasons, found.unwanted))
    lines += _unused(found)
    lines += _section("Odd", (f"{each.name}: {each.what}" for each in found.remarks))
    return "\n".join(lines)


def plan_text(plan: InstallPlan) -> str:
    if not plan.steps and not plan.missing and not plan.refused:
        return f"{plan.skill} has all the programs it needs."
    lines = [f"{plan.skill}:"]
    for step in plan.steps:
        lines += [f"  {step.label}", f"    $ {_command(step)}"]
    lines += [f"  not taken: {each}" for each in plan.refused]
    if plan.missing:
        lines.append(f"  no known way to install {', '.join(plan.missing)}: install by hand")
    return "\n".join(lines)


def _command(step: InstallStep) -> str:
    if step.download is None:
        return shlex.join(step.argv)
    what = "download and unpack" if step.download.archive else "download"
    return f"{what} {step.download.url} into {step.download.target} (sha256 {step.download.sha256})"


def _row(skill: ListedSkill, names: int, room: int, dim: Callable[[str], str]) -> str:
    said = skill.description if skill.usable else "; ".join(skill.reasons)
    sign = "yes" if skill.usable else "no"
    return f"{sign:<3}  {skill.name:<{names}}  {skill.tier:<9}  {dim(shorten(said, room))}"


def _cost(size: ListSize) -> str:
    if not size.listed:
        return "none is listed in the prompt"
    how = {"full": "", "names": ", by name only", "cut": f", {size.total - size.listed} do not fit"}[size.form]
    return f"{size.listed} listed in the prompt{how}: {size.characters:,} characters"


def _section(title: str, rows: Iterable[str]) -> list[str]:
    listed = [f"  {row}" for row in rows]
    return ["", f"{title}:", *listed] if listed else []


def _reasons(skill: ListedSkill) -> str:
    can_install = skill.missing.bins and skill.install
    way = f" (`pal skills install-deps {shlex.quote(skill.name)}`)" if can_install else ""
    return f"{skill.name}: {'; '.join(skill.reasons)}{way}"


def _unused(found: SkillList | SkillCheck) -> list[str]:
    shadowed = (f"{each.name}: {each.path}, because of {each.by}" for each in found.shadowed)
    left_out = (f"{each.path}: {each.reason}" for each in found.left_out)
    return [*_section("Shadowed by another of the same name", shadowed), *_section("Left out", left_out)]


@click.group(cls=LazyGroup)
def skills() -> None:
    """List skills, what they need and what they may do; install more, and publish your own."""


of_agent = click.option("--agent", default="", metavar="ID", help="Whose skills. Default: the default agent's.")


@skills.command("list")
@of_agent
@click.option("--eligible", is_flag=True, help="Only those that can be used here and now.")
@click.option("-v", "--verbose", is_flag=True, help="Also show skills that were left out, and why.")
@with_shell
def list_command(shell: Shell, agent: str, eligible: bool, verbose: bool) -> None:
    """List the skills, where they come from, and whether they can be used.

    \b
    Examples:
      pal skills list
      pal skills list --eligible
      pal skills list -v --json
    """
    found = report.list_skills(_skills(shell, agent))
    if eligible:
        found = msgspec.structs.replace(found, skills=tuple(each for each in found.skills if each.usable))
    shell.show(found, lambda: list_text(found, shell.dim, verbose=verbose))


@skills.command("info")
@click.argument("name")
@of_agent
@with_shell
def info(shell: Shell, name: str, agent: str) -> None:
    """Show everything known about one skill, and what it may use.

    \b
    Examples:
      pal skills info git-helper
      pal skills info read-pdf --json
    """
    found = report.show_skill(_skills(shell, agent), name)
    shell.show(found, lambda: info_text(found))


@skills.command("check")
@of_agent
@with_shell
def check(shell: Shell, agent: str) -> int:
    """Show which skills cannot be used, and why. Exit code 1 when one could not even be read.

    \b
    Examples:
      pal skills check
      pal skills check --agent home --json
    """
    found = report.check_skills(_skills(shell, agent))
    shell.show(found, lambda: check_text(found))
    return 1 if found.left_out else 0


@skills.command("install-deps")
@click.argument("name")
@of_agent
@click.option("--yes", is_flag=True, help="Do not ask for confirmation. The commands are still shown.")
@click.option("--dry-run", is_flag=True, help="Show the commands and run none.")
@with_shell
def install_deps(shell: Shell, name: str, agent: str, yes: bool, dry_run: bool) -> int:
    """Install the programs that a skill needs. The exact commands are shown, and run only after confirmation.

    Downloads are done only when the skill names their sha256. Exit code 1 when something is still missing.

    \b
    Examples:
      pal skills install-deps video-frames --dry-run
      pal skills install-deps video-frames
    """
    from palinurus.skills.dependencies import do_step, plan_for  # archives and processes, for this command alone

    plan = plan_for(_skills(shell, agent), name, shell.home)
    shell.show(plan, lambda: plan_text(plan))
    if dry_run or not plan.steps:
        return 1 if plan.missing else 0
    if not yes and not _agreed(shell):
        return 1
    for step in plan.steps:
        do_step(step)
    state = report.find_state(_skills(shell, agent), name)
    for reason in state.verdict.reasons:
        shell.warn(f"{name}: {reason}")
    return 0 if state.verdict.usable else 1


def _agreed(shell: Shell) -> bool:
    if shell.as_json or not sys.stdin.isatty():
        shell.warn("nothing was run: this needs a terminal; use --yes")
        return False
    return click.confirm("Run this?", default=False)


def _skills(shell: Shell, agent: str) -> Skills:
    return read_skills(shell.home, os.environ, agent)
