"""`pal sessions`: look at conversations, name them, start them over, end them."""

from __future__ import annotations

import sys
from datetime import datetime

import click

from palinurus.cli.derived import ask, command_of
from palinurus.cli.sessions_moving import export_command, import_command
from palinurus.cli.shell import Shell, with_json
from palinurus.cli.terminal.spans import harmless
from palinurus.domain.clock import random_id
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.domain.messages import AssistantMessage, Message, ToolResult, UserMessage
from palinurus.operations.session_changes import PatchSession, WasReset, delete_session, patch_session, reset_session
from palinurus.operations.session_cleanup import CleanedUp, clean_up_sessions
from palinurus.operations.session_compaction import WasCompacted, compact_session
from palinurus.operations.sessions import (
    Found,
    SessionList,
    Transcript,
    list_sessions,
    search_sessions,
    show_session,
)
from palinurus.sessions.transcript import CompactionEntry, Entry, MessageEntry, ResetEntry


@click.group()
def sessions() -> None:
    """List, show, search and tidy conversations."""


@sessions.command("rename")
@click.argument("key", metavar="KEY|NAME|ID")
@click.argument("name")
@with_json
@click.pass_obj
def rename(shell: Shell, key: str, name: str) -> None:
    """Give a conversation a name; an empty one takes it away.

    \b
    Example:
      pal sessions rename agent:main:main "The boat"
    """
    done = ask(shell, patch_session, PatchSession(key, label=name, idempotency_key=random_id()))
    called = f"is called {done.entry.label!r}" if done.entry.label else "has no name"
    shell.show(done, lambda: f"{done.key} {called}.")


@sessions.command("delete")
@click.argument("key", metavar="KEY|NAME|ID")
@click.option("--yes", is_flag=True, help="Do not ask whether it is meant.")
@with_json
@click.pass_obj
def delete(shell: Shell, key: str, yes: bool) -> None:
    """End a conversation and stop what runs in it. Its words are archived; the key begins a new one.

    \b
    Example:
      pal sessions delete agent:main:direct:anna --yes
    """
    if not yes:
        if not sys.stdin.isatty():
            raise BadRequest(f"nobody is here to be asked whether to end {key}", hint="say --yes")
        click.confirm(f"End {key}? What was said there stays, and can be searched.", abort=True, err=True)
    done = ask(shell, delete_session, delete_session.params(key, idempotency_key=random_id()))
    if not done.deleted:
        raise NotFound(f"{done.key} had ended before", hint="`pal sessions list` shows those that go on")
    shell.show(done, lambda: f"{done.key} has ended; its words are archived.")


def _reset_text(_: Shell, done: WasReset) -> str:
    return f"{done.key} starts over with the next message."


def _compacted_text(_: Shell, done: WasCompacted) -> str:
    if not done.compacted:
        return f"There is nothing to sum up in {done.key} yet."
    tokens = f"{done.tokens_before:,} → {done.tokens_after:,} tokens"
    return f"{done.messages} messages of {done.key} became a summary, {tokens}.\n\n{done.summary}"


def _cleaned_text(_: Shell, done: CleanedUp) -> str:
    if not done.stale:
        return "No conversation is stale."
    lines = [f"{each.key}: {each.why}" for each in done.stale]
    told = f"{len(done.archived)} archived." if done.enforced else "Nothing was done: --enforce archives them."
    return "\n".join([*lines, *done.failed, told])


def _list_text(_: Shell, listed: SessionList) -> str:
    if not listed.sessions:
        return "No conversation yet. `pal chat` starts one."
    width = max(len(session.key) for session in listed.sessions)
    rows = [f"{'session':<{width}}  {'last spoken':<16}  {'entries':>7}  {'tokens':>9}  model, name"]
    for session in listed.sessions:
        when = datetime.fromtimestamp(session.updated_at / 1000).astimezone()
        model = f"{session.provider}/{session.model}" if session.model else "-"
        name = f"  {one_line(session.label)}" if session.label else ""
        counts = f"{session.entry_count:>7,}  {session.total_tokens:>9,}"
        ended = f"  archived ({session.id})" if session.archived_at is not None else ""
        rows.append(f"{session.key:<{width}}  {when:%Y-%m-%d %H:%M}  {counts}  {model}{name}{ended}")
    return "\n".join(rows)


def one_line(text: str) -> str:
    """What somebody else wrote, for a row of a list."""
    return " ".join(harmless(text).split())[:80]


def _show_text(shell: Shell, transcript: Transcript) -> str:
    session = transcript.session
    about = [f"—— {session.key}{f' ({one_line(session.label)})' if session.label else ''}, archived ({session.id}) ——"]
    archived = [shell.dim(line) for line in about] if session.archived_at is not None else []
    blocks = [block for entry in transcript.entries if (block := _entry_text(shell, entry))]
    if transcript.broken:
        blocks.append(shell.dim(f"({len(transcript.broken)} entries cannot be read; they are kept as they are)"))
    return "\n\n".join([*archived, *blocks]) if blocks else "Nothing was said yet."


def _entry_text(shell: Shell, entry: Entry) -> str:
    match entry:
        case MessageEntry():
            return f"{shell.dim(entry.timestamp[:16].replace('T', ' '))}  {_message_text(shell, entry.message)}"
        case ResetEntry():
            return shell.dim(f"—— a fresh start ({entry.reason or 'reset'}) ——")
        case CompactionEntry():
            return shell.dim("—— summary ——\n") + entry.summary
        case _:
            return ""


def _message_text(shell: Shell, message: Message) -> str:
    match message:
        case UserMessage():
            return f"you: {message.text}"
        case ToolResult():
            first = message.text.splitlines()[0] if message.text else ""
            return shell.dim(f"{message.tool_name} → {first[:160]}")
        case AssistantMessage():
            wanted = ", ".join(call.name for call in message.calls)
            said = message.text or (shell.dim(f"calls {wanted}") if wanted else "(no reply)")
            return f"agent: {said}" + (f" [{message.error_message}]" if message.error_message else "")


def _found_text(shell: Shell, found: Found) -> str:
    if not found.hits:
        return "Nothing was said about that."
    return "\n".join(
        f"{shell.dim(hit.timestamp[:16].replace('T', ' '))}  {hit.session_key}  {hit.role}: {hit.snippet}"
        for hit in found.hits
    )


sessions.add_command(command_of(list_sessions, _list_text))
sessions.add_command(command_of(show_session, _show_text))
sessions.add_command(command_of(search_sessions, _found_text))
sessions.add_command(command_of(reset_session, _reset_text))
sessions.add_command(command_of(clean_up_sessions, _cleaned_text, exit_code=lambda done: 1 if done.failed else 0))
sessions.add_command(command_of(compact_session, _compacted_text))
sessions.add_command(export_command)
sessions.add_command(import_command)
