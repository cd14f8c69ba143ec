"""`pal sessions`: name conversations, sum them up, start them over, end them."""

from __future__ import annotations

import click

from palinurus.cli.command import call_operation, command_of
from palinurus.cli.shell import Shell, confirm, with_shell
from palinurus.domain.errors import NotFound
from palinurus.operations.session_changes import PatchSession, delete_session, patch_session, reset_session
from palinurus.operations.session_maintenance import CleanupReport, CompactedSession, clean_up_sessions, compact_session


@click.command("rename")
@click.argument("key", metavar="KEY|NAME|ID")
@click.argument("name")
@with_shell
def rename(shell: Shell, key: str, name: str) -> None:
    """Give a session a name; an empty name removes it.

    \b
    Example:
      pal sessions rename agent:main:main "The boat"
    """
    done = call_operation(shell, patch_session, PatchSession(key, label=name))
    called = f"is now named {done.entry.label!r}" if done.entry.label else "has no name"
    shell.show(done, lambda: f"{done.key} {called}.")


@click.command("delete")
@click.argument("key", metavar="KEY|NAME|ID")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_shell
def delete(shell: Shell, key: str, yes: bool) -> None:
    """End a session and stop its run. Its transcript is archived; the key can be used for a new session.

    \b
    Example:
      pal sessions delete agent:main:direct:anna --yes
    """
    if not yes:
        confirm("pal sessions delete", f"End {key}? Its transcript is archived and can still be searched.")
    done = call_operation(shell, delete_session, key=key)
    if not done.deleted:
        raise NotFound(f"{done.key} had ended before", hint="`pal sessions list` shows open sessions")
    shell.show(done, lambda: f"{done.key} has ended; its transcript is archived.")


def _compacted_text(_: Shell, done: CompactedSession) -> str:
    if not done.compacted:
        return f"There is nothing to compact in {done.key} yet."
    tokens = f"{done.tokens_before:,} → {done.tokens_after:,} tokens"
    return f"{done.messages} messages of {done.key} became a summary, {tokens}.\n\n{done.summary}"


def _cleaned_text(_: Shell, done: CleanupReport) -> str:
    if not done.stale:
        return "No session is unused."
    lines = [f"{each.key}: {each.why}" for each in done.stale]
    told = f"{len(done.archived)} archived." if done.enforced else "Nothing was done: --enforce archives them."
    return "\n".join([*lines, *done.failed, told])


reset = command_of(reset_session, lambda _, done: f"{done.key} is reset.")
cleanup = command_of(clean_up_sessions, _cleaned_text, exit_code=lambda done: 1 if done.failed else 0)
compact = command_of(compact_session, _compacted_text)
