"""Which tools a server says it has: checked, bounded, named, and stored on disk for the next start.

With the stored listing a turn can begin before the server runs. It is derived: without it the server is queried again.

    <home>/derived/mcp/<digest of the settings>.json

A tool is called `<server>__<tool>`, in characters that every model provider accepts.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.config.atomic import make_directory, write_atomic
from palinurus.domain.errors import StorageError
from palinurus.domain.messages import harmless

MAX_TOOLS = 128
MAX_NAME = 200
MAX_DESCRIPTION = 1_000
MAX_SCHEMA = 16_000  # bytes of JSON: every one of them is sent with every request
MAX_DEPTH = 24
MAX_FILE = 4 * 1024 * 1024
OPEN: dict[str, Any] = {"type": "object", "properties": {}}
"""Accepts anything: the replacement for a schema that cannot be used."""
_CHOICES = ("oneOf", "anyOf", "allOf", "not", "$schema")  # refused by providers at the top of a schema, or not useful
log = logging.getLogger(__name__)
LONGEST = 64
_UNFIT_CHARACTERS = re.compile(r"[^a-zA-Z0-9_-]")
_DIGEST = 8


class RemoteTool(Struct, frozen=True):
    name: str
    description: str
    parameters: dict[str, Any]
    read_only: bool = False  # whether its server says that it changes nothing


class RemotePrompt(Struct, frozen=True):
    name: str
    description: str = ""
    arguments: tuple[str, ...] = ()  # those that it needs first


class ToolListing(Struct, frozen=True):
    """The tools of a server, sorted by name, and its prompts. `left_out`: how many more tools it listed."""

    at: int  # milliseconds
    tools: tuple[RemoteTool, ...]
    left_out: int = 0
    prompts: tuple[RemotePrompt, ...] = ()
    has_resources: bool = False


def read_prompts(named: Sequence[Any]) -> tuple[RemotePrompt, ...]:
    """Reads a server's list of prompts. Never raises for JSON."""
    found: dict[str, RemotePrompt] = {}
    for each in named:
        match each:
            case {"name": str(name)} if 0 < len(name) <= MAX_NAME and name.isprintable():
                said, wants = each.get("description"), each.get("arguments")
                about = harmless(said)[:MAX_DESCRIPTION] if isinstance(said, str) else ""
                found.setdefault(name, RemotePrompt(name, about, _arguments(wants if isinstance(wants, list) else [])))
    return tuple(sorted(found.values(), key=lambda prompt: prompt.name)[:MAX_TOOLS])


def _arguments(sent: list[Any]) -> tuple[str, ...]:
    named = [each for each in sent[:MAX_TOOLS] if isinstance(each, Mapping) and isinstance(each.get("name"), str)]
    return tuple(each["name"][:MAX_NAME] for each in sorted(named, key=lambda each: each.get("required") is not True))


def read_listing(named: Sequence[Any], *, at: int) -> ToolListing:
    """Reads a server's tool list: those that have a name. Never raises for JSON."""
    tools: dict[str, RemoteTool] = {}
    for each in named:
        if isinstance(each, Mapping) and isinstance(name := each.get("name"), str) and 0 < len(name) <= MAX_NAME:
            if _needs_task(each):
                continue
            tools.setdefault(name, _tool(name, each))
    chosen = sorted(tools.values(), key=lambda tool: tool.name)[:MAX_TOOLS]
    return ToolListing(at, tuple(chosen), max(len(named) - len(chosen), 0))


def _tool(name: str, sent: Mapping[str, Any]) -> RemoteTool:
    parameters = _schema(sent.get("inputSchema"))
    words = next((said for key in ("description", "title") if isinstance(said := sent.get(key), str) and said), "")
    text = harmless(words).strip()
    description = (text if len(text) <= MAX_DESCRIPTION else f"{text[: MAX_DESCRIPTION - 1]}…") or name
    hints = sent.get("annotations")
    read_only = isinstance(hints, Mapping) and hints.get("readOnlyHint") is True
    if parameters is None:
        parameters, description = OPEN, f"{description} (takes a JSON object; its schema cannot be shown)"
    return RemoteTool(name, description, parameters, read_only)


def _needs_task(sent: Mapping[str, Any]) -> bool:
    """Whether it can be called only as a task, which we do not do."""
    how = sent.get("execution")
    return isinstance(how, Mapping) and how.get("taskSupport") == "required"


def _schema(sent: Any) -> dict[str, Any] | None:
    """Returns the schema in a form that every provider accepts; None if it is too large, too deep, or not JSON."""
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
        # In the form in which it is read again from disk and from a stored epoch.
        return msgspec.json.decode(data, type=dict[str, Any]) if len(data) <= MAX_SCHEMA else None
    except (OverflowError, UnicodeError, msgspec.MsgspecError):  # a number or a character that JSON cannot represent
        return None


def _deeper_than(value: Any, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    children = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_deeper_than(child, levels - 1) for child in children)


class ListingCache(Struct, frozen=True):
    """Stores listings. Its methods block: call them in a thread."""

    root: Path
    redact: Callable[[str], str]

    def load(self, fingerprint: str) -> ToolListing | None:
        path = self._path(fingerprint)
        try:
            if path.stat().st_size > MAX_FILE:
                return None
            return msgspec.json.decode(path.read_bytes(), type=ToolListing)
        except (OSError, msgspec.MsgspecError):  # none yet, or one of another release
            return None

    def keep(self, fingerprint: str, listing: ToolListing) -> ToolListing:
        """Writes it to the disk without secrets, and returns what was written. A failed write is only logged."""
        try:
            clean = self.redact(msgspec.json.encode(listing).decode())
            listing = msgspec.json.decode(clean, type=ToolListing)
        except msgspec.MsgspecError:  # a secret that is part of the form
            listing = ToolListing(listing.at, (), len(listing.tools) + listing.left_out)
        try:
            make_directory(self.root)
            write_atomic(self._path(fingerprint), msgspec.json.encode(listing))
        except StorageError as error:
            log.info("the tools of an MCP server were not stored: %s", error)
        return listing

    def _path(self, fingerprint: str) -> Path:
        return self.root / f"{fingerprint}.json"


class NamedTool(Struct, frozen=True):
    server: str
    tool: str
    name: str


def name_tools(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[NamedTool, ...], tuple[str, ...]]:
    """Returns a name for each (server, tool), and a line for each that could not have the plain one.

    The result does not depend on the order. A tool that needs no change keeps its name; of the others the
    alphabetically first does, and the rest get a digest suffix. Names that differ only in case count as equal, because
    policies ignore case.
    """
    taken: set[str] = set()
    named: list[NamedTool] = []
    remarks: list[str] = []
    for server, tool in sorted(set(pairs), key=lambda pair: (_plain(*pair) != f"{pair[0]}__{pair[1]}", pair)):
        name = _plain(server, tool)
        if name.casefold() in taken:
            name = _with_digest(name, server, tool)
            remarks.append(f"mcp: the tool {tool[:80]!r} of {server} is called {name}: its plain name is taken")
        taken.add(name.casefold())
        named.append(NamedTool(server, tool, name))
    return tuple(sorted(named, key=lambda each: each.name)), tuple(remarks)


def _plain(server: str, tool: str) -> str:
    whole = _UNFIT_CHARACTERS.sub("_", f"{server}__{tool}")
    if not (whole[0].isalpha() or whole[0] == "_"):  # one provider requires a letter there
        whole = f"_{whole}"
    return whole if len(whole) <= LONGEST else _with_digest(whole, server, tool)


def _with_digest(name: str, server: str, tool: str) -> str:
    digest = hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    return f"{name[: LONGEST - _DIGEST - 1]}_{digest}"
