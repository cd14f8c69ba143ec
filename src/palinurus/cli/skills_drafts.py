"""`pal skills draft|drafts|accept`: from a conversation to a skill, with a person's look at it in between."""

from __future__ import annotations

import click

from palinurus.cli.entrance import open_door
from palinurus.cli.shell import Shell, run_async, with_json
from palinurus.operations.skill_drafts import DRAFT, Drafted, DraftSkill
from palinurus.skills.drafting.drafts import Waiting, waiting
from palinurus.skills.drafting.drafts import accept as accept_draft


@click.command("draft")
@click.argument("session")
@click.option("--name", default="", help="What to call it. Default: the first words of what was asked for.")
@click.option("--polish", is_flag=True, help="Have the agent's model word it better. That is one call of the model.")
@with_json
@click.pass_obj
def draft(shell: Shell, session: str, name: str, polish: bool) -> None:
    """Turn a past session into a skill that waits for your review.

    It holds what was asked for, the steps that worked with blanks for what was given, what went wrong and how it was
    mended, and as capabilities only the tools that were used. No agent sees it before `pal skills accept`.

    \b
    Examples:
      pal skills draft agent:main:main --name tide-table
      pal skills draft main --polish
    """

    async def ask() -> Drafted:
        async with open_door(shell) as door:
            return await door.call(DRAFT, DraftSkill(session, name, polish))

    found = run_async(ask())
    shell.show(found, lambda: _draft_text(found))


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


def _draft_text(found: Drafted) -> str:
    lines = [found.text.rstrip(), "", f"Drafted {found.name}, {found.steps} steps: {found.path}"]
    lines += [f"  look: {note}" for note in found.notes]
    return "\n".join([*lines, f"Edit it as you like; then `pal skills accept {found.name}`."])


def _row(each: Waiting) -> str:
    return f"{each.name}  {each.trouble or each.description}\n  {each.path}"
