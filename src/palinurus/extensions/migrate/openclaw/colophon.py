"""The last line of an exported transcript: what its other lines do not say.

A transcript is exported as OpenClaw writes its own, each entry on a line. Then follows one more entry, the colophon, of
a type that other programs ignore. It holds the key, the session's row and the fields of other homes that we do not
know, so that one file is enough to import the session as it was. Readers of a transcript leave it out.

Another program may go on behind it, and it links its first entry to the colophon. It may also write the header anew.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.extensions.migrate.files import open_plain
from palinurus.extensions.migrate.foreign import ForeignEntry, as_object
from palinurus.extensions.migrate.import_store import stored_kind
from palinurus.extensions.migrate.openclaw.entries import read_entry
from palinurus.sessions.session import Session
from palinurus.sessions.transcript import Row

TYPE = "palinurus:colophon"
MARK = f'"customType":"{TYPE}"'
ID = "colophon-"
MOST = 64 * 1024 * 1024  # bytes of a colophon
PIECE = 1024 * 1024
_MARK = MARK.encode()
_RESULT = b'"role":"toolResult"'


class Odd(Struct, frozen=True, array_like=True):
    """What was stored of an entry, where its line alone does not say it."""

    index: int
    id: str
    parent_id: str | None
    kind: str
    payload: str | None = None  # None: the line itself


class Colophon(Struct, frozen=True, rename="camel", omit_defaults=True):
    key: str
    session: Session
    entries: int
    digest: str
    extra: str = ""  # a JSON object, unchanged
    # Index of an entry, and the line number it had: lines after it are counted from there.
    numbers: tuple[tuple[int, int], ...] = ()
    odd: tuple[Odd, ...] = ()
    results: tuple[int, ...] = ()  # indexes of tool results that are stored in the short form


class _ColophonLine(Struct, rename="camel"):
    custom_type: str = ""
    data: Colophon | None = None


_decoder = msgspec.json.Decoder(_ColophonLine)


def is_colophon(entry: ForeignEntry) -> bool:
    return entry.kind == "custom" and MARK in entry.row.payload[:200]


def decode_colophon(line: bytes) -> Colophon | None:
    with suppress(msgspec.DecodeError, RecursionError):
        found = _decoder.decode(line) if _MARK in line[:200] else _ColophonLine()
        return found.data if found.custom_type == TYPE else None
    return None


def read_colophon(path: Path) -> Colophon | None:
    """The colophon of a file; None when its last line is none, also because another program has added lines."""
    with suppress(OSError):
        return decode_colophon(_last_line(path))
    return None


def find_colophon(path: Path) -> Colophon | None:
    """The same also when another program has added lines."""
    if (colophon := read_colophon(path)) is not None:
        return colophon
    with suppress(OSError), open_plain(path) as file:
        return decode_colophon(_marked_line(file))
    return None


def _marked_line(file: Any) -> bytes:
    """The last line with the mark; empty when there is none. Reads it once, piece by piece."""
    found, place, kept = -1, 0, b""
    while piece := file.read(PIECE):
        data = kept + piece
        if (at := data.rfind(_MARK)) >= 0:
            found = place - len(kept) + at
        place += len(piece)
        kept = data[-len(_MARK) + 1 :]
    if found < 0:
        return b""
    start = max(0, found - 200)
    file.seek(start)
    before = file.read(found - start)
    file.seek(start + before.rfind(b"\n") + 1)
    return bytes(file.readline(MOST)).rstrip(b"\n")


def _last_line(path: Path) -> bytes:
    """Empty when it is no colophon."""
    with open_plain(path) as file:
        end = file.seek(0, os.SEEK_END)
        start = size = 4096
        while start and size < 8 * MOST:
            start = max(0, end - size)
            file.seek(start)
            _, found, line = file.read(end - start).rstrip(b"\n").rpartition(b"\n")
            if found or not start:
                return line if _MARK in line[:200] else b""
            size *= 8
    return b""


def result_line(payload: bytes) -> bytes:
    """A tool result as OpenClaw reads it: a list of blocks, and whether it failed. Other entries stay as they are."""
    entry, message = _result_in(payload)
    if entry is None or ("isError" in message and isinstance(message.get("content"), list)):
        return payload
    if isinstance(message.get("content"), str):
        message["content"] = [{"type": "text", "text": message["content"]}]
    message.setdefault("isError", False)
    return msgspec.json.encode(entry)


def short_result(line: bytes) -> bytes:
    """The reverse: as this home stores it, with a text for a single block."""
    entry, message = _result_in(line)
    if entry is None:
        return line
    content = message.get("content")
    if isinstance(content, list) and len(content) == 1 and as_object(content[0]).keys() == {"type", "text"}:
        message["content"] = content[0]["text"]
    if message.get("isError") is False:
        del message["isError"]
    return msgspec.json.encode(entry)


def _result_in(line: bytes) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    entry = decode_object(line) if _RESULT in line else {}
    message = as_object(entry.get("message"))
    return (entry, message) if entry.get("type") == "message" and message.get("role") == "toolResult" else (None, {})


def decode_object(line: bytes) -> dict[str, Any]:
    """An object that can be encoded again; empty for any other line, such as one with half of a surrogate pair."""
    with suppress(msgspec.DecodeError, RecursionError):
        return as_object(msgspec.json.decode(line))
    return {}


class Restorer:
    """Gives the entries of such a file the ids, links and texts that were stored. One for each reading."""

    def __init__(self, colophon: Colophon) -> None:
        self._numbers = dict(colophon.numbers)
        self._odd = {odd.index: odd for odd in colophon.odd}
        self._results = frozenset(colophon.results)
        self._index = -1
        self._behind = 0  # difference between the number that a line had and its number now

    def number(self, line: int) -> int:
        """The number that the next line had."""
        self._index += 1
        if (was := self._numbers.get(self._index)) is not None:
            self._behind = was - line
        return line + self._behind

    def entry(self, read: ForeignEntry | str, number: int) -> ForeignEntry | str:
        if self._index in self._results and not isinstance(read, str):
            read = read_entry(short_result(read.row.payload.encode()), number)
        odd = self._odd.get(self._index)
        if odd is None:
            return read
        if odd.payload is not None:
            read = read_entry(odd.payload.encode(), number)
        if isinstance(read, str):
            return ForeignEntry(Row(odd.id, odd.parent_id, odd.payload or ""), odd.kind, "", "", number)
        payload = read.row.payload if odd.payload is None else odd.payload
        kind = read.kind if stored_kind(read) == odd.kind else odd.kind
        return msgspec.structs.replace(read, row=Row(odd.id, odd.parent_id, payload), kind=kind)
