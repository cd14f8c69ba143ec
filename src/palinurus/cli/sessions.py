"""`pal sessions`: list, show and search conversations. What changes them is in session_changes.py."""

from __future__ import annotations

import click

from palinurus.cli.command import add_operation
from palinurus.cli.shell import LazyGroup, Shell, moment
from palinurus.cli.terminal.spans import harmless
from palinurus.domain.messages import AssistantMessage, Message, ToolResult, UserMessage
from palinurus.operations import sessions as operations
from palinurus.operations.sessions import SessionHits, SessionList, Transcript
from palinurus.sessions.transcript import CompactionEntry, Entry, MessageEntry, ResetEntry


@click.group(cls=LazyGroup)
def sessions() -> None:
    """List, show, search and clean up sessions."""


def _list_text(_: Shell, listed: SessionList) -> str:
    if not listed.sessions:
        return "No sessions yet. `pal chat` starts one."
    width = max(len(session.key) for session in listed.sessions)
    rows = [f"{'session':<{width}}  {'last active':<16}  {'entries':>7}  {'tokens':>9}  model, name"]
    for session in listed.sessions:
        model = f"{session.provider}/{session.model}" if session.model else "-"
        name = f"  {one_line(session.label)}" if session.label else ""
        counts = f"{session.entry_count:>7,}  {session.total_tokens:>9,}"
        ended = f"  archived ({session.id})" if session.archived_at is not None else ""
        rows.append(f"{session.key:<{width}}  {moment(session.updated_at)}  {counts}  {model}{name}{ended}")
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
    return "\n\n".join([*archived, *blocks]) if blocks else "No messages yet."


def _entry_text(shell: Shell, entry: Entry) -> str:
    match entry:
        case MessageEntry():
            return f"{shell.dim(entry.timestamp[:16].replace('T', ' '))}  {_message_text(shell, entry.message)}"
        case ResetEntry():
            return shell.dim(f"—— session reset ({entry.reason or 'reset'}) ——")
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


def _found_text(shell: Shell, found: SessionHits) -> str:
    if not found.hits:
        return "No messages match."
    return "\n".join(
        f"{shell.dim(hit.timestamp[:16].replace('T', ' '))}  {hit.session_key}  {hit.role}: {hit.snippet}"
        for hit in found.hits
    )


add_operation(sessions, operations.list_sessions, _list_text)
add_operation(sessions, operations.show_session, _show_text)
add_operation(sessions, operations.search_sessions, _found_text)
