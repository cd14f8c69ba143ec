"""One line of another agent's transcript, kept as it was written. How it is understood stands in sessions/others.py."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from palinurus.migrate.foreign import ForeignEntry
from palinurus.migrate.openclaw.entries import LONGEST_NAME
from palinurus.migrate.openclaw.lines import file_lines
from palinurus.migrate.report import Losses
from palinurus.sessions.others import message_of
from palinurus.sessions.transcript import Row

PLAIN_ROLES = ("user", "assistant", "system", "human")


def entries_of_file(path: Path, shown: str, losses: Losses) -> Callable[[], Iterator[ForeignEntry]]:
    return lambda: _entries(path, shown, losses)


def _entries(path: Path, shown: str, losses: Losses) -> Iterator[ForeignEntry]:
    """A bad line costs that line and is told. One without a link follows the one before it."""
    before = None
    for number, data in file_lines(path, shown, losses):
        entry = read_line(data, number, before)
        if isinstance(entry, str):
            losses.add(shown, number, entry)
            continue
        before = entry.row.id
        yield entry


def read_line(data: bytes, number: int, before: str | None) -> ForeignEntry | str:
    """The entry, or the reason why there is none."""
    try:
        payload = data.decode()
        value = json.loads(payload)
    except UnicodeDecodeError:
        return "it is not UTF-8 text"
    except (ValueError, RecursionError) as error:
        return f"it is not JSON: {'nested too deep' if isinstance(error, RecursionError) else str(error)[:120]}"
    if not isinstance(value, dict):
        return "it is no JSON object"
    message = message_of(value)
    if not message and value.get("role") in PLAIN_ROLES and "type" not in value:
        message = value
    role = str(message.get("role") or "")
    row = Row(_name(value.get("uuid")) or f"line-{number}", _name(value.get("parentUuid")) or before, payload)
    stamp = value.get("timestamp")
    told = stamp if isinstance(stamp, str | int | float) and not isinstance(stamp, bool) else None
    return ForeignEntry(row, _kind(value, role), role, _text(message.get("content")), number, told)


def _kind(value: dict[str, Any], role: str) -> str:
    return _name(value.get("type")) or _name(value.get("_type")) or (f"flat:{role}" if role else "unknown")


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    texts = [block.get("text") for block in blocks if isinstance(block, dict) and block.get("type", "text") == "text"]
    return "\n".join(text for text in texts if isinstance(text, str))


def _name(value: Any) -> str:
    """What can be an id or a type: half a surrogate pair can be stored nowhere."""
    if not isinstance(value, str) or len(value) > LONGEST_NAME:
        return ""
    return value if value.isascii() else value.encode(errors="replace").decode()
