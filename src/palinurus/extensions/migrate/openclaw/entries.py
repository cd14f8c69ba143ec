"""One line of a transcript: decoded as far as we need it, stored as it was written.

Lines are typed entries (`{"type": "message", "id": …, "message": {…}}`, versions 1 to 4) or bare messages
(`{"role": …, "content": …}`). The common case is one decode into a small struct, which skips unknown fields; lines that
do not fit it are decoded again by slower and more tolerant code.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from palinurus.extensions.migrate.foreign import (
    FLAT,
    ForeignEntry,
    as_stamp,
    load_line,
    replace_surrogates,
    text_of_blocks,
)
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
