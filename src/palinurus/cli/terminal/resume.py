"""Going on with another conversation: which ones there are, which one is meant, and what was said there last. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from palinurus.cli.terminal.markdown import render_text
from palinurus.cli.terminal.spans import Line, clip, harmless, wrap
from palinurus.domain.errors import NotFound
from palinurus.domain.messages import AssistantMessage, UserMessage
from palinurus.operations.sessions import Transcript
from palinurus.sessions.session import Session
from palinurus.sessions.transcript import MessageEntry, ResetEntry

EXCHANGES = 3
PAST_ROWS = 12  # of one old reply


def session_lines(sessions: Sequence[Session], current: str, width: int) -> list[Line]:
    if not sessions:
        return [[("dim", "no conversation yet")]]
    longest = min(max(len(session.key) for session in sessions), max(20, width - 40))
    lines: list[Line] = []
    for number, session in enumerate(sessions, start=1):
        when = datetime.fromtimestamp(session.updated_at / 1000).astimezone()
        here = " ← here" if session.key == current else ""
        name = f"  {harmless(session.label)}" if session.label else ""
        told = clip(
            f"  {when:%Y-%m-%d %H:%M}  {session.entry_count:,} entries{here}{name}", max(20, width - longest - 4)
        )
        lines.append([("dim", f"{number:>2}  "), ("", f"{clip(session.key, longest):<{longest}}"), ("dim", told)])
    return [*lines, [("dim", "/resume NUMBER, a name or a part of the key")]]


def wanted_session(name: str, sessions: Sequence[Session]) -> str:
    """The key that is meant: a number of the list, a key, a name, or a part of exactly one key. Raises NotFound."""
    keys = [session.key for session in sessions]
    if name.isdigit() and 1 <= int(name) <= len(keys):
        return keys[int(name) - 1]
    low = name.lower()
    if low in keys or low.startswith("agent:"):
        return low
    found = (
        [key for key in keys if low == key.rpartition(":")[2]]
        or [session.key for session in sessions if low == session.label.lower()]
        or [key for key in keys if low in key]
    )
    if len(found) == 1:
        return found[0]
    if not found:
        raise NotFound(f"there is no conversation {name!r}", hint="/resume lists them")
    raise NotFound(f"{name!r} may be {', '.join(found[:4])}", hint="say more of the key")


def past_lines(shown: Transcript, width: int) -> list[Line]:
    """A line with the session's name, then its last exchanges."""
    key = shown.session.key
    lines: list[Line] = [[], [("dim", f"── {key} " + "─" * max(4, min(60, width) - len(key) - 4))]]
    for said in _last_exchanges(shown):
        if isinstance(said, UserMessage):
            lines += [[], *wrap([("you", harmless(clip(said.text, 400)))], width, [("mark", "› ")], [("", "  ")])]
        else:
            reply: list[Line] = [[("", "  "), *line] if line else [] for line in render_text(said.text, width - 2)]
            cut: list[Line] = [[("dim", "  …")]] if len(reply) > PAST_ROWS else []
            lines += [[], *reply[:PAST_ROWS], *cut]
    return lines


def _last_exchanges(shown: Transcript) -> list[UserMessage | AssistantMessage]:
    said: list[UserMessage | AssistantMessage] = []
    for entry in shown.entries:
        match entry:
            case ResetEntry():
                said.clear()  # what stands before a fresh start is not read any more
            case MessageEntry(message=UserMessage() | AssistantMessage() as message) if message.text.strip():
                said.append(message)
    spoken = [index for index, message in enumerate(said) if isinstance(message, UserMessage)]
    return said[spoken[-EXCHANGES] if len(spoken) >= EXCHANGES else 0 :]
