"""What `pal skills` says to people."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from palinurus.cli.kept import columns
from palinurus.skills.report import ListedSkill, ListSize, SkillCheck, SkillInfo, SkillList
from palinurus.skills.skill import LeftOut, Shadowed

if TYPE_CHECKING:  # only one command installs, and the quick ones need not wait for it
    from palinurus.skills.installing import Plan, Step


def list_text(found: SkillList, dim: Callable[[str], str], *, verbose: bool = False) -> str:
    if not found.skills and not found.left_out:
        return "There are no skills."
    names = min(32, max((len(each.name) for each in found.skills), default=0))
    room = max(20, columns(os.environ) - names - 18)
    lines = [_row(each, names, room, dim) for each in found.skills]
    usable = sum(each.usable for each in found.skills)
    lines.append(f"{usable} of {len(found.skills)} can be used; {_cost(found.prompt)}.")
    if verbose:
        lines += [*_shadowed(found.shadowed), *_left_out(found.left_out)]
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
    lines += _section("Something is missing", found.waiting)
    lines += _section("Not wanted here", found.unwanted)
    lines += _shadowed(found.shadowed)
    lines += _left_out(found.left_out)
    if found.remarks:
        lines += ["", "Odd:", *(f"  {each.name}: {each.what}" for each in found.remarks)]
    return "\n".join(lines)


def plan_text(plan: Plan) -> str:
    if not plan.steps and not plan.missing and not plan.refused:
        return f"{plan.skill} needs no program that is not there."
    lines = [f"{plan.skill}:"]
    for step in plan.steps:
        lines += [f"  {step.label}", f"    $ {_command(step)}"]
    lines += [f"  not taken: {each}" for each in plan.refused]
    if plan.missing:
        lines.append(f"  no way is known to get {', '.join(plan.missing)}: install by hand")
    return "\n".join(lines)


def _command(step: Step) -> str:
    if step.download is None:
        return shlex.join(step.argv)
    what = "download and unpack" if step.download.archive else "download"
    return f"{what} {step.download.url} into {step.download.target} (sha256 {step.download.sha256})"


def _row(skill: ListedSkill, names: int, room: int, dim: Callable[[str], str]) -> str:
    said = skill.description if skill.usable else "; ".join(skill.reasons)
    sign = "yes" if skill.usable else "no"
    return f"{sign:<3}  {skill.name:<{names}}  {skill.tier:<9}  {dim(_clip(said, room))}"


def _cost(size: ListSize) -> str:
    if not size.listed:
        return "none is listed in the prompt"
    how = {"full": "", "names": ", by name only", "cut": f", {size.total - size.listed} do not fit"}[size.form]
    return f"{size.listed} listed in the prompt{how}: {size.characters:,} characters"


def _section(title: str, skills: tuple[ListedSkill, ...]) -> Iterator[str]:
    if skills:
        yield from ("", f"{title}:")
        yield from (f"  {each.name}: {'; '.join(each.reasons)}{_way(each)}" for each in skills)


def _way(skill: ListedSkill) -> str:
    return f" (`pal skills install-deps {shlex.quote(skill.name)}`)" if skill.missing.bins and skill.install else ""


def _shadowed(found: tuple[Shadowed, ...]) -> Iterator[str]:
    if found:
        yield from ("", "Shadowed by another of the same name:")
        yield from (f"  {each.name}: {each.path}, because of {each.by}" for each in found)


def _left_out(found: tuple[LeftOut, ...]) -> Iterator[str]:
    if found:
        yield from ("", "Left out:")
        yield from (f"  {each.path}: {each.reason}" for each in found)


def _clip(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
