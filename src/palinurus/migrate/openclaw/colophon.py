"""The last line of a transcript that we wrote out: what the lines themselves cannot say.

A transcript is written as OpenClaw writes its own, each entry word for word on a line. Behind them stands one entry
more, of a type that other programs pass over. It holds the key, the session's row and the fields of other homes that we
do not know, so that one file is enough to bring a conversation back as it was. Who reads a transcript leaves it out.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from palinurus.migrate.foreign import ForeignEntry
from palinurus.migrate.openclaw.entries import FLAT, read_entry
from palinurus.migrate.openclaw.files import open_plain
from palinurus.sessions.session import Session
from palinurus.sessions.transcript import VERSION, Row

TYPE = "palinurus:colophon"
HEADER = "session"
STAND_IN = "palinurus:unreadable"
MARK = f'"customType":"{TYPE}"'
MOST = 64 * 1024 * 1024  # of a last line that we take for one
_MARK = MARK.encode()


class Odd(Struct, frozen=True, array_like=True):
    """An entry that its line does not tell whole: what was stored."""

    index: int
    id: str
    parent_id: str | None
    kind: str
    payload: str | None = None  # None: as the line says


class Colophon(Struct, frozen=True, rename="camel", omit_defaults=True):
    key: str
    session: Session
    entries: int
    digest: str
    extra: str = ""  # a JSON object, word for word
    numbers: tuple[tuple[int, int], ...] = ()  # from this entry on, lines were counted from this number
    odd: tuple[Odd, ...] = ()


class _Line(Struct, rename="camel"):
    type: str = ""
    custom_type: str = ""
    data: Colophon | None = None


_decoder = msgspec.json.Decoder(_Line)


def colophon_line(colophon: Colophon, parent: str | None, stamp: str) -> bytes:
    entry: dict[str, Any] = {"type": "custom", "customType": TYPE, "id": f"colophon-{colophon.digest[:16]}"}
    return msgspec.json.encode({**entry, "parentId": parent, "timestamp": stamp, "data": colophon})


def is_colophon(entry: ForeignEntry) -> bool:
    return entry.kind == "custom" and MARK in entry.row.payload[:200]


def read_colophon(path: Path) -> Colophon | None:
    """What the last line of a file says; None when it is none of ours, or when somebody has written on."""
    try:
        data = _last_line(path)
        line = _decoder.decode(data) if data else None
    except (OSError, msgspec.DecodeError, RecursionError):
        return None
    return line.data if line is not None and line.custom_type == TYPE else None


class Restorer:
    """Gives the entries of such a file their ids, links and words again. One for each reading."""

    def __init__(self, colophon: Colophon) -> None:
        self._numbers = dict(colophon.numbers)
        self._odd = {odd.index: odd for odd in colophon.odd}
        self._index = -1
        self._behind = 0  # how far our lines stand behind the numbers they had

    def number(self, line: int) -> int:
        """The number that this line had, whose turn it is now."""
        self._index += 1
        if (was := self._numbers.get(self._index)) is not None:
            self._behind = was - line
        return line + self._behind

    def entry(self, read: ForeignEntry | str, number: int) -> ForeignEntry | str:
        odd = self._odd.get(self._index)
        if odd is None:
            return read
        if odd.payload is not None:
            read = read_entry(odd.payload.encode(), number)
        if isinstance(read, str):
            return ForeignEntry(Row(odd.id, odd.parent_id, odd.payload or ""), odd.kind, "", "", number)
        payload = read.row.payload if odd.payload is None else odd.payload
        kind = read.kind if _stored_kind(read) == odd.kind else odd.kind
        return msgspec.structs.replace(read, row=Row(odd.id, odd.parent_id, payload), kind=kind)


class Oddities(Struct):
    """Finds out, while a transcript is written, what its lines do not tell."""

    ours: bool = False  # its header is in our form, which leaves out what OpenClaw must read
    cwd: str = ""
    numbers: list[tuple[int, int]] = field(default_factory=list)
    odd: list[Odd] = field(default_factory=list)
    _behind: int = 0
    _before: str | None = None
    _index: int = 0

    def line(self, row: Row, kind: str) -> bytes:
        """The line of the next entry, on one line whatever its words are."""
        index, number = self._index, self._index + 1
        self._index += 1
        payload = row.payload.encode()
        line = _one_line(row, payload)
        if self.ours and index == 0 and kind == HEADER:
            line = _header(line, self.cwd)
        was = _line_number(row.id)
        if was is not None and was != number + self._behind:
            self._behind = was - number
            self.numbers.append((index, was))
        told = read_entry(line, number + self._behind)
        whole = line == payload and not isinstance(told, str)
        if not whole or self._differs(told, row, kind):
            self.odd.append(Odd(index, row.id, row.parent_id, kind, None if whole else row.payload))
        self._before = row.id
        return line

    def _differs(self, told: ForeignEntry | str, row: Row, kind: str) -> bool:
        assert not isinstance(told, str)  # noqa: S101  # asked before
        parent = told.row.parent_id
        if parent is None and told.kind.startswith(FLAT):
            parent = self._before
        return (told.row.id, parent, _stored_kind(told)) != (row.id, row.parent_id, kind)


def _header(line: bytes, cwd: str) -> bytes:
    """With its version, without which OpenClaw takes a transcript for one of the first, and with its folder."""
    value: dict[str, Any] = msgspec.json.decode(line)
    return msgspec.json.encode({"type": HEADER, "version": VERSION, **value, "cwd": value.get("cwd") or cwd})


def _stored_kind(entry: ForeignEntry) -> str:
    return "message" if entry.role or entry.kind.startswith(FLAT) else entry.kind


def _one_line(row: Row, payload: bytes) -> bytes:
    """As it is; without its line breaks, which are none of its words; or something in its place."""
    line = payload.replace(b"\r", b" ").replace(b"\n", b" ").strip()
    if isinstance(read_entry(line, 1), ForeignEntry) and not line.startswith(b"\xef\xbb\xbf"):
        return line
    return msgspec.json.encode({"type": "custom", "customType": STAND_IN, "id": row.id, "parentId": row.parent_id})


def _line_number(entry_id: str) -> int | None:
    """The number in an id that was made of the line's place."""
    head, _, number = entry_id.partition("-")
    return int(number) if head == "line" and number.isdecimal() and len(number) < 12 else None


def _last_line(path: Path) -> bytes:
    """Empty when it does not look like ours."""
    with open_plain(path) as file:
        end = file.seek(0, os.SEEK_END)
        size = 4096
        while True:
            start = max(0, end - size)
            file.seek(start)
            data = file.read(end - start).rstrip(b"\n")
            at = data.rfind(b"\n")
            if at >= 0 or start == 0:
                line = data[at + 1 :]
                return line if _MARK in line[:200] else b""
            if size >= MOST:
                return b""
            size *= 8
