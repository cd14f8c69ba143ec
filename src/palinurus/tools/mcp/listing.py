"""What tools a server says it has: read with suspicion, bounded, and kept on the disk for the next start.

The kept listing is what lets a turn begin before the server runs. It is derived: without it the server is asked again.

    <home>/derived/mcp/<digest of the settings>.json
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.config.atomic import make_directory, write_atomic
from palinurus.domain.errors import StorageError
from palinurus.tools.web.outside import harmless

MAX_TOOLS = 128
MAX_NAME = 200
MAX_DESCRIPTION = 1_000
MAX_SCHEMA = 16_000  # bytes of JSON: every one of them is sent with every request
MAX_DEPTH = 24
MAX_FILE = 4 * 1024 * 1024
OPEN: dict[str, Any] = {"type": "object", "properties": {}}
"""Takes anything: what stands for a schema that cannot be used."""

_CHOICES = ("oneOf", "anyOf", "allOf", "not", "$schema")  # refused by providers at the top of a schema, or of no use

log = logging.getLogger(__name__)


class ListedTool(Struct, frozen=True):
    name: str
    description: str
    parameters: dict[str, Any]
    read_only: bool = False  # whether its server says that it changes nothing


class Listing(Struct, frozen=True):
    """The tools of a server, sorted by name. `left_out`: how many more it named."""

    at: int  # milliseconds
    tools: tuple[ListedTool, ...]
    left_out: int = 0


def read_listing(named: Sequence[Any], *, at: int) -> Listing:
    """Of what a server sent as its tools: those that have a name. Never raises for JSON."""
    tools: dict[str, ListedTool] = {}
    for each in named:
        if isinstance(each, Mapping) and isinstance(name := each.get("name"), str) and 0 < len(name) <= MAX_NAME:
            tools.setdefault(name, _tool(name, each))
    kept = sorted(tools.values(), key=lambda tool: tool.name)[:MAX_TOOLS]
    return Listing(at, tuple(kept), max(len(named) - len(kept), 0))


def _tool(name: str, said: Mapping[str, Any]) -> ListedTool:
    parameters = _schema(said.get("inputSchema"))
    words = next((text for key in ("description", "title") if isinstance(text := said.get(key), str) and text), "")
    description = _cut(harmless(words).strip(), MAX_DESCRIPTION) or name
    hints = said.get("annotations")
    read_only = isinstance(hints, Mapping) and hints.get("readOnlyHint") is True
    if parameters is None:
        return ListedTool(name, f"{description} (takes a JSON object; its schema cannot be shown)", OPEN, read_only)
    return ListedTool(name, description, parameters, read_only)


def _schema(sent: Any) -> dict[str, Any] | None:
    """The schema as every provider takes it; None when it is too large, too deep, or no JSON."""
    if not isinstance(sent, Mapping):
        return OPEN
    schema = {key: value for key, value in sent.items() if key not in _CHOICES}
    schema["type"] = "object"
    if not isinstance(schema.get("properties"), Mapping):
        schema["properties"] = {}
    if not isinstance(schema.get("required", []), list):
        del schema["required"]
    if _deeper_than(schema, MAX_DEPTH):
        return None
    try:
        data = msgspec.json.encode(schema)
        # As it will be read again from the disk and from a stored epoch.
        return msgspec.json.decode(data, type=dict[str, Any]) if len(data) <= MAX_SCHEMA else None
    except (OverflowError, UnicodeError, msgspec.MsgspecError):  # a number or a character that JSON cannot carry
        return None


def _deeper_than(value: Any, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    children = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_deeper_than(child, levels - 1) for child in children)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


class Shelf(Struct, frozen=True):
    """Where listings are kept. Its methods do file work: call them in a thread."""

    root: Path
    redact: Callable[[str], str]

    def load(self, fingerprint: str) -> Listing | None:
        path = self._path(fingerprint)
        try:
            if path.stat().st_size > MAX_FILE:
                return None
            return msgspec.json.decode(path.read_bytes(), type=Listing)
        except (OSError, msgspec.MsgspecError):  # none yet, or one of another release
            return None

    def keep(self, fingerprint: str, listing: Listing) -> Listing:
        """Have it on the disk without secrets, and give back what is there. Not being able to is no misfortune."""
        text = msgspec.json.encode(listing).decode()
        if (clean := self.redact(text)) != text:
            listing = self._read(clean, listing)
        try:
            make_directory(self.root)
            write_atomic(self._path(fingerprint), msgspec.json.encode(listing))
        except StorageError as error:
            log.info("the tools of an MCP server were not kept: %s", error)
        return listing

    def _read(self, text: str, listing: Listing) -> Listing:
        try:
            return msgspec.json.decode(text, type=Listing)
        except msgspec.MsgspecError:  # a secret that is part of the form
            return Listing(listing.at, (), len(listing.tools) + listing.left_out)

    def _path(self, fingerprint: str) -> Path:
        return self.root / f"{fingerprint}.json"
