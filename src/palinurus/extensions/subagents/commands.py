"""`pal subagents`: a tree of subagents, also live; stop one, send one a message."""

from __future__ import annotations

from contextlib import suppress

import click

from palinurus.cli.command import add_operation, call_operation, complete_sessions, print_feed
from palinurus.cli.shell import CommandGroup, Shell, run_async, with_shell
from palinurus.domain.events import visible
from palinurus.extensions.subagents.operations import (
    MOST_LISTED,
    SubagentInfo,
    SubagentList,
    line_of,
    list_subagents,
    send_to_subagent,
    stop_subagent,
    watch_subagents,
)


@click.group(cls=CommandGroup)
def subagents() -> None:
    """List subagents; stop or steer one."""


@subagents.command("list")
@click.option(
    "--session", metavar="KEY|NAME|ID", default="", shell_complete=complete_sessions, help="Only those below it."
)
@click.option("--limit", type=click.IntRange(1, MOST_LISTED), default=50, show_default=True, help="Maximum number.")
@click.option("--watch", is_flag=True, help="Show them live until Ctrl-C.")
@with_shell
def list_(shell: Shell, session: str, limit: int, watch: bool) -> None:
    """List subagents as a tree: state, step, time, tokens and cost.

    \b
    Examples:
      pal subagents list
      pal subagents list --watch
      pal subagents list --session main --json
    """
    if watch:
        with suppress(KeyboardInterrupt):
            run_async(print_feed(shell, watch_subagents, watch_subagents.params(session, limit), _again))
        return
    found = call_operation(shell, list_subagents, session=session, limit=limit)
    shell.show(found, lambda: tree_text(shell, found))


def _again(shell: Shell, found: SubagentList) -> str:
    if shell.color:
        click.clear()
    return tree_text(shell, found)


def tree_text(shell: Shell, found: SubagentList) -> str:
    """Each below its parent, in the order in which they were started."""
    if not found.subagents:
        return "There are no subagents."
    known = {each.key for each in found.subagents}
    below: dict[str, list[SubagentInfo]] = {}
    for each in sorted(found.subagents, key=lambda each: each.started_at):
        below.setdefault(each.parent, []).append(each)
    lines: list[str] = []

    def add(parent: str) -> None:
        for each in below.get(parent, ()):
            lines.append(visible(line_of(each)))
            if each.text:
                lines.append(f"{'  ' * each.depth}{shell.dim(visible(each.text))}")
            add(each.key)

    for root in dict.fromkeys(each.parent for each in found.subagents if each.parent not in known):
        lines.append(visible(root))
        add(root)
    return "\n".join(lines)


add_operation(
    subagents, stop_subagent, lambda _, done: f"Stopped {done.key}." if done.runs else f"{done.key} was not running."
)
add_operation(subagents, send_to_subagent, lambda _, done: f"{done.key}: {done.outcome}.", name="steer")
