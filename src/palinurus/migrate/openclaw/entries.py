"""One line of a transcript, read as far as we must know it and kept as it was written.

Lines are typed entries (`{"type": "message", "id": …, "message": {…}}`, versions 1 to 4) or bare messages
(`{"role": …, "content": …}`). The common case is one decode into a small struct, which skips what it does not name;
whatever does not fit that shape is looked at again with patience before it is given up.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.migrate.foreign import ForeignEntry
from palinurus.sessions.transcript import Row

FLAT = "flat:"  # before the role of a bare message: its type
LONGEST_NAME = 200  # of a type, a role or an id that we take for one


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
        return _patiently(data, number)
    if not 0 < len(line.type) + len(line.role) <= LONGEST_NAME or len(line.id) > LONGEST_NAME:
        return _patiently(data, number)
    said = line.message
    if line.type:
        kind = line.type
        role, content = (said.role, said.content) if said is not None else (line.role, line.content)
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


def _patiently(data: bytes, number: int) -> ForeignEntry | str:
    """The same for lines of odd shape: a content that is an object, an id that is a number, half a surrogate pair."""
    try:
        payload = data.decode()
        value = json.loads(payload)
    except UnicodeDecodeError:
        return "it is not UTF-8 text"
    except (ValueError, RecursionError) as error:
        return f"it is not JSON: {_brief(error)}"
    if not isinstance(value, dict):
        return "it is no JSON object"
    message = value.get("message")
    said = message if isinstance(message, dict) else value
    kind, role = _name(value.get("type")), _name(said.get("role"))
    if not kind and message is None and role:
        kind = FLAT + role
    if not kind:
        return "it is neither an entry nor a message"
    if not kind.startswith(FLAT) and kind != "message":
        role = ""
    entry_id = _identity(value.get("id")) or f"line-{number}"
    row = Row(entry_id, _identity(value.get("parentId")) or None, payload)
    text = _patient_text(said.get("content")) if role else ""
    return ForeignEntry(row, kind, role, text, number, _scalar(value.get("timestamp")))


def _patient_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    blocks = [content] if isinstance(content, dict) else content if isinstance(content, list) else []
    texts = [block.get("text") for block in blocks if isinstance(block, dict) and block.get("type", "text") == "text"]
    return "\n".join(text for text in texts if isinstance(text, str))


def _name(value: Any) -> str:
    """A type or a role, if it can be one: they become keys of the report and a column of the store."""
    return value if isinstance(value, str) and len(value) <= LONGEST_NAME and _whole(value) else ""


def _identity(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)[:LONGEST_NAME]
    return _name(value)


def _scalar(value: Any) -> str | float | None:
    return value if isinstance(value, str | float | int) and not isinstance(value, bool) else None


def _whole(text: str) -> bool:
    """Half a surrogate pair can be stored nowhere."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _brief(error: Exception) -> str:
    return "nested too deep" if isinstance(error, RecursionError) else str(error)[:120]
