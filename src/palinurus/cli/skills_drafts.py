"""`pal skills draft|drafts|accept`: from a conversation to a skill, with a person's look at it in between."""

from __future__ import annotations

import click

from palinurus.cli.derived import command_of
from palinurus.cli.shell import Shell, with_json
from palinurus.operations.skill_drafts import Drafted, draft_skill
from palinurus.skills.drafting.drafts import Waiting, waiting
from palinurus.skills.drafting.drafts import accept as accept_draft


@click.command("drafts")
@with_json
@click.pass_obj
def drafts(shell: Shell) -> None:
    """List the drafts that wait for review.

    \b
    Example:
      pal skills drafts
    """
    found = waiting(shell.home)
    shell.show(found, lambda: "\n".join(map(_row, found)) or "No draft waits.")


@click.command("accept")
@click.argument("name")
@with_json
@click.pass_obj
def accept(shell: Shell, name: str) -> None:
    """Make a draft a skill: from now on agents are offered it. Nothing is replaced.

    \b
    Example:
      pal skills accept tide-table
    """
    place = accept_draft(shell.home, name)
    shell.show({"name": place.parent.name, "path": str(place)}, lambda: f"{place.parent.name} is a skill now: {place}")


def _draft_text(_: Shell, found: Drafted) -> str:
    lines = [found.text.rstrip(), "", f"Drafted {found.name}, {found.steps} steps: {found.path}"]
    lines += [f"  look: {note}" for note in found.notes]
    return "\n".join([*lines, f"Edit it as you like; then `pal skills accept {found.name}`."])


def _row(each: Waiting) -> str:
    return f"{each.name}  {each.trouble or each.description}\n  {each.path}"


draft = command_of(draft_skill, _draft_text)
