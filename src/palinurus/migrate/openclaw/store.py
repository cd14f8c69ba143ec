"""`sessions.json`: which transcript stands under which key, as an object of keys or as a list.

Each row is kept word for word beside the few fields that we read, so that what we do not know goes along unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.domain.errors import BadRequest
from palinurus.domain.keys import SessionKey
from palinurus.migrate.openclaw.files import read_whole
from palinurus.migrate.report import Losses
from palinurus.migrate.times import time_ms

MAX_BYTES = 128 * 1024 * 1024
FILE = "sessions.json"
SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+-]{0,199}")


class StoredRow(Struct, frozen=True):
    key: str  # as we write it
    session_id: str
    details: str  # the row as it was written
    label: str = ""
    updated_at: int = 0
    file: str = ""  # the name of its transcript, if the row says one
    archived_at: int | None = None


def read_store(folder: Path, shown: str, agent: str, losses: Losses) -> list[StoredRow]:
    """The rows that can be used, in their order."""
    name = f"{shown}/{FILE}"
    data = read_whole(folder / FILE, name, losses, MAX_BYTES)
    if data is None:
        return []
    pairs = _pairs(data)
    if isinstance(pairs, str):
        losses.add(name, 0, f"{pairs}; its transcripts are taken without it")
        return []
    rows = (read_row(agent, key, details, name, losses) for key, details in pairs)
    return [row for row in rows if row is not None]


def read_row(agent: str, key: str, details: str, where: str, losses: Losses) -> StoredRow | None:
    """One row under its key; a row of the list form has an empty one."""
    value = _loaded(details)
    if not isinstance(value, dict):
        losses.add(where, 0, f"the row {key[:80]!r} is no object")
        return None
    session_id = value.get("sessionId") or value.get("id")
    if not isinstance(session_id, str) or not SESSION_ID.fullmatch(session_id):
        losses.add(where, 0, f"the row {key[:80]!r} names no session")
        return None
    try:
        written = agent_key(agent, key or f"explicit:{session_id}")
    except BadRequest as error:
        losses.add(where, 0, f"{error.message}; its transcript is taken without it")
        return None
    archived = value.get("archivedAt")
    return StoredRow(
        key=written,
        session_id=session_id,
        details=details,
        label=_label(value),
        updated_at=_moment(value.get("updatedAt", value.get("updated_at"))),
        file=_file_name(value.get("sessionFile")),
        archived_at=_moment(archived) or None,
    )


def agent_key(agent: str, key: str) -> str:
    """A key as we write it; those without `agent:` belong to the agent whose store they are in. Raises BadRequest."""
    return str(SessionKey.parse(key if key.lower().startswith("agent:") else f"agent:{agent}:{key}"))


def _pairs(data: bytes) -> Iterator[tuple[str, str]] | str:
    """Key and text of each row, or what is wrong."""
    try:
        rows = msgspec.json.decode(data, type=dict[str, msgspec.Raw] | list[msgspec.Raw])
        texts = rows.items() if isinstance(rows, dict) else (("", row) for row in rows)
        return iter([(key, bytes(row).decode()) for key, row in texts])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        value = json.loads(data)  # which knows halves of surrogate pairs
    except (ValueError, RecursionError) as error:
        return f"it is not JSON: {str(error)[:120]}"
    if not isinstance(value, dict | list):
        return "it is neither an object nor a list"
    items = value.items() if isinstance(value, dict) else (("", row) for row in value)
    return iter([(_whole(key), json.dumps(row)) for key, row in items])


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _label(value: dict[str, Any]) -> str:
    found = (value.get(name) for name in ("label", "name", "displayName", "subject", "groupChannel"))
    return next((_whole(text)[:500] for text in found if isinstance(text, str) and text.strip()), "")


def _moment(value: Any) -> int:
    return (time_ms(value) or 0) if isinstance(value, str | int | float) and not isinstance(value, bool) else 0


def _file_name(value: Any) -> str:
    """Only its name: where the home was then says nothing about where it is now."""
    return PurePath(value.replace("\\", "/")).name if isinstance(value, str) and "\0" not in value else ""


def _whole(text: str) -> str:
    return text.encode(errors="replace").decode()
