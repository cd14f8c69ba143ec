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
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from palinurus.extensions.migrate.files import open_plain
from palinurus.extensions.migrate.foreign import FLAT, ForeignEntry, as_stamp, load_line, text_of_blocks
from palinurus.extensions.migrate.import_store import stored_kind
from palinurus.sessions.session import Session
from palinurus.sessions.transcript import VERSION, Row

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
    message = line.message
    if line.type:
        kind = line.type
        role, content = (message.role, message.content) if message is not None else (line.role, line.content)
        if kind != "message":
            role = ""
    else:
        kind, role, content = FLAT + line.role, line.role, line.content
    row = Row(line.id or f"line-{number}", line.parent_id, payload)
    return ForeignEntry(row, kind, role, _text(content) if role else "", number, line.timestamp)


def _text(content: _Content) -> str:
    if isinstance(content, str):
        return content
    if not content:
        return ""
    if len(content) == 1:
        return content[0].text if content[0].type == "text" else ""
    return "\n".join([block.text for block in content if block.type == "text"])


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
    if not isinstance(value, str) or len(value) > LONGEST_NAME:
        return ""
    try:
        value.encode()
    except UnicodeEncodeError:
        return ""
    return value


def _id(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)[:LONGEST_NAME]
    return _name(value)


TYPE = "palinurus:colophon"
HEADER = "session"
STAND_IN = "palinurus:unreadable"
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
    numbers: tuple[
        tuple[int, int], ...
    ] = ()  # (index of an entry, the line number it had): lines after it are counted from there
    odd: tuple[Odd, ...] = ()


class _ColophonLine(Struct, rename="camel"):
    type: str = ""
    custom_type: str = ""
    data: Colophon | None = None


_colophon_decoder = msgspec.json.Decoder(_ColophonLine)


def colophon_line(colophon: Colophon, parent: str | None, stamp: str) -> bytes:
    entry: dict[str, Any] = {"type": "custom", "customType": TYPE, "id": f"colophon-{colophon.digest[:16]}"}
    return msgspec.json.encode({**entry, "parentId": parent, "timestamp": stamp, "data": colophon})


def is_colophon(entry: ForeignEntry) -> bool:
    return entry.kind == "custom" and MARK in entry.row.payload[:200]


def read_colophon(path: Path) -> Colophon | None:
    """The colophon of a file; None when its last line is none, also because another program has added lines."""
    try:
        data = _last_line(path)
        line = _colophon_decoder.decode(data) if data else None
    except (OSError, msgspec.DecodeError, RecursionError):
        return None
    return line.data if line is not None and line.custom_type == TYPE else None


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


class Oddities(Struct):
    """Collects, while a transcript is written, what its lines do not say."""

    ours: bool = False  # its header lacks what OpenClaw must read
    cwd: str = ""
    numbers: list[tuple[int, int]] = field(default_factory=list)
    odd: list[Odd] = field(default_factory=list)
    _behind: int = 0
    _before: str | None = None
    _index: int = 0

    def line(self, row: Row, kind: str) -> bytes:
        """The next entry as exactly one line."""
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
        read = read_entry(line, number + self._behind)
        whole = line == payload and not isinstance(read, str)
        if isinstance(read, str) or not whole or self._differs(read, row, kind):
            self.odd.append(Odd(index, row.id, row.parent_id, kind, None if whole else row.payload))
        self._before = row.id
        return line

    def _differs(self, read: ForeignEntry, row: Row, kind: str) -> bool:
        parent = read.row.parent_id
        if parent is None and read.kind.startswith(FLAT):
            parent = self._before
        return (read.row.id, parent, stored_kind(read)) != (row.id, row.parent_id, kind)


def _header(line: bytes, cwd: str) -> bytes:
    """With a version, without which OpenClaw takes a transcript for one of the first version, and with a folder."""
    value: dict[str, Any] = msgspec.json.decode(line)
    return msgspec.json.encode({"type": HEADER, "version": VERSION, **value, "cwd": value.get("cwd") or cwd})


def _one_line(row: Row, payload: bytes) -> bytes:
    """The payload, with blanks for line breaks between its tokens; or a stand-in for what is no entry."""
    line = payload.replace(b"\r", b" ").replace(b"\n", b" ").strip()
    if isinstance(read_entry(line, 1), ForeignEntry) and not line.startswith(b"\xef\xbb\xbf"):
        return line
    return msgspec.json.encode({"type": "custom", "customType": STAND_IN, "id": row.id, "parentId": row.parent_id})


def _line_number(entry_id: str) -> int | None:
    """The number in an id that was made of a line number."""
    head, _, number = entry_id.partition("-")
    return int(number) if head == "line" and number.isdecimal() and len(number) < 12 else None


def _last_line(path: Path) -> bytes:
    """Empty when it is no colophon."""
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
