"""What was said in a session, a page at a time: from the end, or around one of its messages.

A message that was found by a search may stand in a conversation that has ended; its key may belong to another by now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import NotFound
from palinurus.domain.keys import SessionKey
from palinurus.gateway.talk.methods import Talk
from palinurus.operations.house import House
from palinurus.sessions.session import Session
from palinurus.sessions.transcript import Broken, CompactionEntry, Entry, MessageEntry, ResetEntry, Row, decode_row

MESSAGES = 200
MAX_MESSAGES = 1_000
MAX_BYTES = 6 * 1024 * 1024
MOST_OF_A_SUMMARY = 4_000


class AskHistory(Struct, frozen=True, rename="camel"):
    session_key: str
    limit: int = MESSAGES
    before: str = ""  # the id of a message: only what was said before it
    after: str = ""  # only what was said after it
    around: str = ""  # what was said around it, itself in the middle
    marks: bool = False  # also where the model's view begins anew: `{role: "mark", kind: "reset" | "compaction"}`


class History(Struct, frozen=True, rename="camel"):
    session_key: str
    session_id: str
    messages: tuple[dict[str, Any], ...]
    thinking_level: str = ""
    has_more: bool = False  # there are older ones
    has_newer: bool = False
    ended: bool = False  # it is an earlier conversation of this key


async def history(talk: Talk, params: AskHistory) -> History:
    house = talk.desk.house
    key = await house.dispatcher.place(Inbound("", "", session_key=params.session_key))
    talk.desk.hub.listen(talk.listener, str(key))
    session, rows, at = await _found(house, key, params.around or params.before or params.after)
    if session is None:
        return History(str(key), "", ())
    limit = min(max(params.limit, 1), MAX_MESSAGES)
    told = _Told(rows, marks=params.marks)
    if params.around:
        newer = told.within(range(at, len(rows)), limit - limit // 2, MAX_BYTES // 2)
        shown = [*told.within(range(at - 1, -1, -1), limit // 2, MAX_BYTES // 2)[::-1], *newer]
    elif params.after and not params.before:
        shown = told.within(range(at + 1, len(rows)), limit, MAX_BYTES)
    else:
        shown = told.within(range(at - 1, -1, -1), limit, MAX_BYTES)[::-1]
    thinking = (await house.turns.view_of(key)).thinking
    first, last = (shown[0][0], shown[-1][0]) if shown else (0, len(rows))
    return History(
        str(key),
        session.id,
        tuple(message for _, message in shown),
        thinking,
        has_more=told.any(range(first - 1, -1, -1)),
        has_newer=told.any(range(last + 1, len(rows))),
        ended=session.archived_at is not None,
    )


async def _found(house: House, key: SessionKey, entry: str) -> tuple[Session | None, Sequence[Row], int]:
    """The conversation, its rows and the place of an entry in them, or of the end. Raises NotFound."""
    session = await house.sessions.find(key)
    if not entry:
        rows = await house.sessions.rows(session.id) if session else []
        return session, rows, len(rows)
    for each in ([session] if session else []) + await house.sessions.archived(key):
        rows = await house.sessions.rows(each.id)
        at = next((index for index in range(len(rows) - 1, -1, -1) if rows[index].id == entry), None)
        if at is not None:
            return each, rows, at
    raise NotFound(f"there is no message {entry[:80]!r} in this session", hint="ask without naming one")


class _Told:
    """Rows as messages. A row is decoded when it is come to: transcripts are long."""

    def __init__(self, rows: Sequence[Row], *, marks: bool) -> None:
        self._rows = rows
        self._marks = marks

    def any(self, places: Iterable[int]) -> bool:
        return next(self._walk(places), None) is not None

    def within(self, places: Iterable[int], limit: int, room: int) -> list[tuple[int, dict[str, Any]]]:
        """As many as there is room for. One that is too large by itself is shown without its content."""
        found: list[tuple[int, dict[str, Any]]] = []
        for at, message in islice(self._walk(places), limit):
            size = len(msgspec.json.encode(message))
            if size > room and not found:
                message, size = {**message, "content": f"({size:,} bytes: too large to be shown here)"}, 0  # noqa: PLW2901
            if size > room:
                break
            room -= size
            found.append((at, message))
        return found

    def _walk(self, places: Iterable[int]) -> Iterator[tuple[int, dict[str, Any]]]:
        for at in places:
            if told := _told(decode_row(self._rows[at]), marks=self._marks):
                yield at, told


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
