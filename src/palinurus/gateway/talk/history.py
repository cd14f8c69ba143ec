"""What was said in a session, a page at a time, from the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import NotFound
from palinurus.gateway.talk.methods import Talk
from palinurus.sessions.transcript import Broken, CompactionEntry, Entry, MessageEntry, ResetEntry, Row, decode_row

MESSAGES = 200
MAX_MESSAGES = 1_000
MAX_BYTES = 6 * 1024 * 1024
MOST_OF_A_SUMMARY = 4_000


class AskHistory(Struct, frozen=True, rename="camel"):
    session_key: str
    limit: int = MESSAGES
    before: str = ""  # the id of a message: only what was said before it
    marks: bool = False  # also where the model's view begins anew: `{role: "mark", kind: "reset" | "compaction"}`


class History(Struct, frozen=True, rename="camel"):
    session_key: str
    session_id: str
    messages: tuple[dict[str, Any], ...]
    thinking_level: str = ""
    has_more: bool = False  # there are older ones


async def history(talk: Talk, params: AskHistory) -> History:
    house = talk.desk.house
    key = await house.dispatcher.place(Inbound("", "", session_key=params.session_key))
    talk.desk.hub.listen(talk.listener, str(key))
    session = await house.sessions.find(key)
    if session is None:
        return History(str(key), "", ())
    limit = min(max(params.limit, 1), MAX_MESSAGES)
    rows = _until(await house.sessions.rows(session.id), params.before)
    shown = _within(islice(_newest_first(rows, marks=params.marks), limit), MAX_BYTES)
    thinking = (await house.turns.view_of(key)).thinking
    older = _until(rows, shown[0]["id"]) if shown else ()
    has_more = next(_newest_first(older, marks=params.marks), None) is not None
    return History(str(key), session.id, shown, thinking, has_more)


def _until(rows: Sequence[Row], before: str) -> Sequence[Row]:
    """The rows before one of them. Raises NotFound when it is not there."""
    if not before:
        return rows
    found = next((index for index in range(len(rows) - 1, -1, -1) if rows[index].id == before), None)
    if found is None:
        raise NotFound(f"there is no message {before[:80]!r} in this session", hint="ask without `before`")
    return rows[:found]


def _newest_first(rows: Sequence[Row], *, marks: bool) -> Iterator[dict[str, Any]]:
    """From the end. A row is decoded when it is come to: transcripts are long."""
    for row in reversed(rows):
        if told := _told(decode_row(row), marks=marks):
            yield told


def _told(entry: Entry | Broken, *, marks: bool) -> dict[str, Any] | None:
    match entry:
        case MessageEntry():
            return {"id": entry.id, **msgspec.to_builtins(entry.message)}
        case ResetEntry() if marks:
            return _mark(entry, "reset", entry.reason)
        case CompactionEntry() if marks:
            return _mark(entry, "compaction", entry.summary) | {"tokensBefore": entry.tokens_before}
        case _:
            return None


def _mark(entry: ResetEntry | CompactionEntry, kind: str, text: str) -> dict[str, Any]:
    cut = text if len(text) <= MOST_OF_A_SUMMARY else f"{text[: MOST_OF_A_SUMMARY - 1]}…"
    return {"id": entry.id, "role": "mark", "kind": kind, "text": cut, "timestamp": _milliseconds(entry.timestamp)}


def _milliseconds(timestamp: str) -> int:
    try:
        return round(datetime.fromisoformat(timestamp).timestamp() * 1000)
    except ValueError:  # an imported line
        return 0


def _within(said: Iterator[dict[str, Any]], room: int) -> tuple[dict[str, Any], ...]:
    """As many as there is room for, the oldest first. One that is too large by itself is shown without its content."""
    found: list[dict[str, Any]] = []
    for message in said:
        size = len(msgspec.json.encode(message))
        if size > room and not found:
            message, size = {**message, "content": f"({size:,} bytes: too large to be shown here)"}, 0  # noqa: PLW2901
        if size > room:
            break
        room -= size
        found.append(message)
    return tuple(reversed(found))
