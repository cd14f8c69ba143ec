"""Conversations of Hermes since 0.19: rows of `state.db`, one for each message.

A row is no line of a file, so a line is made of it: the message in OpenAI's form, which is what Hermes sends to models.
All that was said is taken: also what a compaction has put away, and as a note what the user has undone. A first line
holds what never changes about the conversation. The system prompt, which Hermes makes anew, and counters are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from palinurus.extensions.migrate.files import Line
from palinurus.extensions.migrate.foreign import load_json, replace_surrogates
from palinurus.extensions.migrate.openclaw.database import Damage, ForeignDatabase, open_database
from palinurus.extensions.migrate.report import Losses
from palinurus.sessions.transcript import timestamp

FILE = "state.db"
LATEST = 1e11  # seconds
_STABLE = ("id", "source", "user_id", "chat_id", "chat_type", "thread_id", "parent_session_id", "started_at", "cwd")
_SAID = ("tool_call_id", "tool_name", "finish_reason", "reasoning", "reasoning_content", "platform_message_id")
_LISTS = ("tool_calls", "reasoning_details", "codex_reasoning_items", "codex_message_items")
_MESSAGE = ("id", "role", "content", "timestamp")
_FLAGS = ("active", "compacted")
_PARTS = "\x00json:"  # before a content that is a list of parts


def open_state(root: Path, scratch: Path, losses: Losses) -> ForeignDatabase | None:
    """None when there is no such file, or when it has no conversations."""
    database = open_database(root / FILE, FILE, scratch, losses)
    if database is None or (database.has("sessions", "id", "source") and database.has("messages", *_MESSAGE)):
        return database
    losses.add(FILE, 0, "it has no tables of conversations that can be read")
    return None


def conversations(database: ForeignDatabase) -> Iterator[tuple[dict[str, Any], str]]:
    """What never changes about each one, the oldest first, and its title."""
    columns = [name for name in (*_STABLE, "title", "display_name") if database.has("sessions", name)]
    sql = f"SELECT {', '.join(columns)} FROM sessions ORDER BY rowid"  # noqa: S608  # names of ours
    for row in database.read(sql, "the table of conversations"):
        known = {name: value for name, value in zip(columns, row, strict=True) if value not in (None, "")}
        titles = [known.pop(name, "") for name in ("title", "display_name")]
        if isinstance(known.get("id"), str):
            yield known, replace_surrogates(str(titles[0] or titles[1]))[:200]


def conversation_lines(database: ForeignDatabase, known: dict[str, Any], shown: str) -> Iterator[Line]:
    """One line for what is known of it, and one for each message. Damage ends them and is a loss."""
    yield 1, json.dumps({"_type": "metadata", **known}).encode()
    columns = [*_MESSAGE, *(name for name in (*_SAID, *_LISTS, *_FLAGS) if database.has("messages", name))]
    sql = f"SELECT {', '.join(columns)} FROM messages WHERE session_id = ? ORDER BY id"  # noqa: S608  # names of ours
    number = 1
    try:
        for number, row in enumerate(database.rows(sql, (known["id"],)), start=2):
            yield number, json.dumps(_line(dict(zip(columns, row, strict=True)))).encode()
    except Damage as error:
        database.losses.add(shown, number + 1, f"from here on it is damaged: {error}")


def _line(row: dict[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {"role": row["role"], "content": _content(row["content"])}
    said |= {name: row[name] for name in _SAID if row.get(name)}
    said |= {name: found for name in _LISTS if (found := load_json(row.get(name) or "null"))}
    if at := row["timestamp"]:
        said["timestamp"] = timestamp(int(at * 1000)) if isinstance(at, int | float) and 0 < at < LATEST else str(at)
    if row.get("tool_name"):
        said["name"] = row["tool_name"]
    if row.get("active") == 0 and not row.get("compacted"):
        return {"type": "custom", "customType": "hermes:undone", "data": said, "timestamp": said.get("timestamp")}
    return said


def _content(stored: Any) -> Any:
    if isinstance(stored, str) and stored.startswith(_PARTS):
        parts = load_json(stored.removeprefix(_PARTS))
        return stored if parts is None else parts
    return stored.decode(errors="replace") if isinstance(stored, bytes) else stored
