"""One line of a transcript: decoded as far as we need it, stored as it was written. And the colophon of exports.

Lines are typed entries (`{"type": "message", "id": …, "message": {…}}`, versions 1 to 4) or bare messages
(`{"role": …, "content": …}`). The common case is one decode into a small struct, which skips unknown fields; lines that
do not fit it are decoded again by slower and more tolerant code.

A transcript is exported as OpenClaw writes its own, each entry unchanged on a line. Then follows one more entry, the
colophon, of a type that other programs ignore. It holds the key, the session's row and the fields of other homes that
we do not know, so that one file is enough to import the session as it was. Readers of a transcript leave it out.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.extensions.migrate.files import open_plain
from palinurus.extensions.migrate.foreign import (
    FLAT,
    ForeignEntry,
    as_stamp,
    load_line,
    replace_surrogates,
    text_of_blocks,
)
from palinurus.extensions.migrate.import_store import stored_kind
from palinurus.sessions.session import Session
from palinurus.sessions.transcript import Row

LONGEST_NAME = 200  # of a type, a role or an id


class _Block(Struct, gc=False):
    type: str = ""
    text: str = ""


_Content = str | list[_Block] | None


class _Message(Struct, gc=False):
    role: str = ""
    content: _Content = ""


class _Line(Struct, rename="camel", gc=False):
    type: str = ""
    id: str = ""
    parent_id: str | None = None
    timestamp: str | float | None = None
    message: _Message | None = None
    role: str = ""
    content: _Content = ""


_decoder = msgspec.json.Decoder(_Line)


def read_entry(data: bytes, number: int) -> ForeignEntry | str:
    """The entry, or the reason why there is none."""
    try:
        line = _decoder.decode(data)
        payload = data.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _read_tolerantly(data, number)
    if not 0 < len(line.type) + len(line.role) <= LONGEST_NAME or len(line.id) > LONGEST_NAME:
        return _read_tolerantly(data, number)
    holder = line.message if line.type and line.message is not None else line
    kind = line.type or FLAT + line.role
    role = holder.role if line.type in ("", "message") else ""
    row = Row(line.id or f"line-{number}", line.parent_id, payload)
    return ForeignEntry(row, kind, role, _text(holder.content) if role else "", number, line.timestamp)


def _text(content: _Content) -> str:
    if isinstance(content, str):
        return content
    return "\n".join([block.text for block in content or () if block.type == "text"])


def _read_tolerantly(data: bytes, number: int) -> ForeignEntry | str:
    """For odd lines: a content that is an object, an id that is a number, half of a surrogate pair."""
    loaded = load_line(data)
    if isinstance(loaded, str):
        return loaded
    payload, value = loaded
    message = value.get("message")
    holder = message if isinstance(message, dict) else value
    kind, role = _name(value.get("type")), _name(holder.get("role"))
    if not kind and message is None and role:
        kind = FLAT + role
    if not kind:
        return "it is neither an entry nor a message"
    if not kind.startswith(FLAT) and kind != "message":
        role = ""
    row = Row(_id(value.get("id")) or f"line-{number}", _id(value.get("parentId")) or None, payload)
    text = text_of_blocks(holder.get("content")) if role else ""
    return ForeignEntry(row, kind, role, text, number, as_stamp(value.get("timestamp")))


def _name(value: Any) -> str:
    """A type or a role; empty for what cannot be one, such as half of a surrogate pair, which cannot be stored."""
    is_name = isinstance(value, str) and len(value) <= LONGEST_NAME and replace_surrogates(value) == value
    return value if is_name else ""


def _id(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)[:LONGEST_NAME]
    return _name(value)


TYPE = "palinurus:colophon"
MARK = f'"customType":"{TYPE}"'
MOST = 64 * 1024 * 1024  # bytes of a colophon
_MARK = MARK.encode()


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


class _ColophonLine(Struct, rename="camel"):
    custom_type: str = ""
    data: Colophon | None = None


_colophon_decoder = msgspec.json.Decoder(_ColophonLine)


def is_colophon(entry: ForeignEntry) -> bool:
    return entry.kind == "custom" and MARK in entry.row.payload[:200]


def read_colophon(path: Path) -> Colophon | None:
    """The colophon of a file; None when its last line is none, also because another program has added lines."""
    with suppress(OSError, msgspec.DecodeError, RecursionError):
        line = _colophon_decoder.decode(_last_line(path))
        return line.data if line.custom_type == TYPE else None
    return None


class Restorer:
    """Gives the entries of such a file the ids, links and texts that were stored. One for each reading."""

    def __init__(self, colophon: Colophon) -> None:
        self._numbers = dict(colophon.numbers)
        self._odd = {odd.index: odd for odd in colophon.odd}
        self._index = -1
        self._behind = 0  # difference between the number that a line had and its number now

    def number(self, line: int) -> int:
        """The number that the next line had."""
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
        kind = read.kind if stored_kind(read) == odd.kind else odd.kind
        return msgspec.structs.replace(read, row=Row(odd.id, odd.parent_id, payload), kind=kind)


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
