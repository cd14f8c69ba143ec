"""Manifests of plugins: what a plugin is and asks for, as data. Reading one runs nothing.

palinurus.plugin.json         ours
openclaw.plugin.json          OpenClaw's: skills and MCP servers are used; its JavaScript is not
.claude-plugin/plugin.json    bundles of skills and .mcp.json; also plugin.json and .codex-plugin/plugin.json
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from palinurus.domain.errors import BadRequest

API = 1  # of the interface that plugins are written for: a plugin of a higher one is refused
FILES: Mapping[str, Literal["palinurus", "openclaw", "bundle"]] = {
    "palinurus.plugin.json": "palinurus",
    "openclaw.plugin.json": "openclaw",
    ".claude-plugin/plugin.json": "bundle",
    ".codex-plugin/plugin.json": "bundle",
    "plugin.json": "bundle",
}
SLOTS = ("memory", "contextEngine", "sandbox", "browser")
LARGEST = 256_000  # bytes of a manifest
_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_KINDS = {"memory": "memory", "context-engine": "contextEngine"}
_USED = frozenset({
    "id", "configSchema", "config", "defaults", "name", "description", "version", "author", "homepage", "kind", "slots",
    "skills", "mcpServers", "requires", "$schema", "enabledByDefault", "uiHints", "legacyPluginIds",
})  # fmt: skip


class SlashHelp(Struct, frozen=True):
    usage: str = ""
    about: str = ""


class PanelPage(Struct, frozen=True):
    """A page on the dashboard: a file of the plugin, shown in a frame that can reach nothing but the plugin."""

    title: str
    file: str  # HTML, in the plugin's folder


class PluginCapabilities(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """What a plugin registers. What it does not name here is refused when it registers it."""

    tools: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    commands: dict[str, str] = {}  # `pal NAME` -> its line in the help
    slash_commands: dict[str, SlashHelp] = {}
    hooks: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    routes: bool = False
    services: bool = False
    prompt_sections: bool = False
    doctor_checks: bool = False
    providers: tuple[str, ...] = ()  # wires of models
    embedders: tuple[str, ...] = ()
    panels: dict[str, PanelPage] = {}


class PluginRequires(Struct, frozen=True, omit_defaults=True):
    palinurus: str = ""  # such as ">=0.1,<2"
    openclaw: str = ""
    bins: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()


class PluginManifest(Struct, frozen=True, rename="camel", omit_defaults=True):
    id: str
    format: Literal["palinurus", "openclaw", "bundle"] = "palinurus"
    name: str = ""
    version: str = ""
    description: str = ""
    author: str = ""
    homepage: str = ""
    api: int = API
    module: str = ""  # that has register(app); empty: it runs no code of ours
    config_schema: dict[str, Any] = {}
    capabilities: PluginCapabilities = PluginCapabilities()
    slots: tuple[str, ...] = ()
    requires: PluginRequires = PluginRequires()
    hosts: tuple[str, ...] = ()  # that it speaks to
    isolation: Literal["none", "process"] = "none"
    skills: tuple[str, ...] = ()  # folders
    mcp_servers: dict[str, dict[str, Any]] = {}
    channels: dict[str, dict[str, Any]] = {}  # networks, as extensions/channels/networks.py describes one
    unsupported: tuple[str, ...] = ()  # what it has and we do not use

    @property
    def title(self) -> str:
        return self.name or self.id


class _OurManifest(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """palinurus.plugin.json."""

    id: str
    schema: str = field(default="", name="$schema")
    name: str = ""
    version: str = ""
    description: str = ""
    author: str = ""
    homepage: str = ""
    api: int = API
    module: str = ""
    config_schema: dict[str, Any] = {}
    capabilities: PluginCapabilities = PluginCapabilities()
    slots: tuple[str, ...] = ()
    requires: PluginRequires = PluginRequires()
    hosts: tuple[str, ...] = ()
    isolation: Literal["none", "process"] = "none"
    skills: tuple[str, ...] = ()
    mcp_servers: dict[str, dict[str, Any]] = {}
    channels: dict[str, dict[str, Any]] = {}


def find_manifest(folder: Path) -> Path | None:
    """The manifest of a folder, ours first."""
    return next((folder / name for name in FILES if (folder / name).is_file()), None)


def read_manifest(folder: Path) -> PluginManifest:
    """Raises BadRequest."""
    path = find_manifest(folder)
    if path is None:
        raise BadRequest(f"{folder} has no manifest", hint=f"a plugin has one of {', '.join(FILES)}")
    name = str(path.relative_to(folder))
    data = _read_object(path)
    try:
        if FILES[name] == "palinurus":
            found = PluginManifest(**_fields(msgspec.convert(data, _OurManifest)))
        elif FILES[name] == "openclaw":
            found = _from_openclaw(folder, data)
        else:
            found = _from_bundle(folder, data)
    except msgspec.ValidationError as error:
        raise BadRequest(f"{path}: {error}") from None
    for wrong in _mistakes(found, folder):
        raise BadRequest(f"{path}: {wrong}")
    return found


def _fields(own: _OurManifest) -> dict[str, Any]:
    return {name: getattr(own, name) for name in own.__struct_fields__ if name != "schema"}


def _read_object(path: Path) -> dict[str, Any]:
    try:
        data = path.read_bytes() if path.stat().st_size <= LARGEST else None
    except OSError as error:
        raise BadRequest(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    if data is None:
        raise BadRequest(f"{path} is larger than {LARGEST:,} bytes")
    try:
        found: dict[str, Any] = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadRequest(f"{path} is not a JSON object: {error}") from None
    return found


def _mistakes(found: PluginManifest, folder: Path) -> Iterator[str]:
    if not _ID.fullmatch(found.id):
        yield f"the id {found.id[:80]!r} is not lower-case letters, digits, dots and dashes"
    if found.module and not _MODULE.fullmatch(found.module):
        yield f"the module {found.module[:80]!r} is no name of a Python module"
    if unknown := [slot for slot in found.slots if slot not in SLOTS]:
        yield f"there is no slot {unknown[0]!r}; there are {', '.join(SLOTS)}"
    if found.api > API:
        yield f"it is written for interface {found.api}, and this Palinurus has {API}"
    pages = [page.file for page in found.capabilities.panels.values()]
    for place in (*found.skills, *pages):
        if Path(place).is_absolute() or ".." in Path(place).parts:
            yield f"{place[:80]!r} leads out of the plugin"
        elif place in pages and not (folder / place).is_file():
            yield f"there is no file {place[:80]!r}"


def _from_openclaw(folder: Path, data: dict[str, Any]) -> PluginManifest:
    config = data.get("configSchema") or (data.get("config") or {}).get("schema") or {}
    defaults = (data.get("config") or {}).get("defaults") or {}
    properties = {**config.get("properties", {})} if isinstance(config, dict) else {}
    for key, value in defaults.items():
        properties[key] = {**properties.get(key, {}), "default": value}
    kinds = data.get("kind") or ()
    slots = [_KINDS[each] for each in ([kinds] if isinstance(kinds, str) else kinds) if each in _KINDS]
    unsupported = sorted(key for key in data if key not in _USED)
    if (folder / "package.json").is_file() or list(folder.glob("index.[jt]s")):
        unsupported.append("its JavaScript")
    unsupported += [f"the slot {slot}" for slot in slots]
    return PluginManifest(
        str(data.get("id") or data.get("name") or ""),
        "openclaw",
        **_about(data),
        config_schema={**config, "properties": properties} if config or properties else {},
        requires=_requires(data),
        skills=_paths(folder, data.get("skills")),
        mcp_servers=_servers(folder, data.get("mcpServers")),
        unsupported=tuple(unsupported),
    )


def _from_bundle(folder: Path, data: dict[str, Any]) -> PluginManifest:
    said = data.get("mcpServers")
    source = folder / (said if isinstance(said, str) else ".mcp.json")
    servers = said if isinstance(said, dict) else _read_object(source) if source.is_file() else {}
    unsupported = [name for name in ("agents", "commands", "hooks") if name in data or (folder / name).is_dir()]
    skills = _paths(folder, data.get("skills")) or (("skills",) if (folder / "skills").is_dir() else ())
    return PluginManifest(
        str(data.get("name") or data.get("id") or "").lower().replace(" ", "-"),
        "bundle",
        **_about(data),
        skills=skills,
        mcp_servers=_servers(folder, servers.get("mcpServers", servers)),
        unsupported=tuple(unsupported),
    )


def _about(data: Mapping[str, Any]) -> dict[str, Any]:
    author = data.get("author") or ""
    told = {**data, "author": author.get("name", "") if isinstance(author, dict) else author}
    return {key: str(told.get(key) or "") for key in ("name", "version", "description", "author", "homepage")}


def _requires(data: Mapping[str, Any]) -> PluginRequires:
    said = data.get("requires")
    known = PluginRequires.__struct_fields__
    return msgspec.convert(
        {k: v for k, v in said.items() if k in known} if isinstance(said, dict) else {}, PluginRequires
    )


def _paths(folder: Path, said: Any) -> tuple[str, ...]:
    places = [said] if isinstance(said, str) else said if isinstance(said, list) else []
    return tuple(os.path.normpath(each) for each in places if isinstance(each, str))


def _servers(folder: Path, said: Any) -> dict[str, dict[str, Any]]:
    """Their entries as they stand in `mcp.servers`, with the plugin's folder filled in."""
    if not isinstance(said, dict):
        return {}
    known = ("command", "args", "env", "cwd", "url", "headers", "timeoutSeconds")
    root = str(folder)

    def filled(value: Any) -> Any:
        if isinstance(value, str):
            return re.sub(r"\$\{(CLAUDE_PLUGIN_ROOT|PLUGIN_ROOT|pluginDir)\}", lambda _: root, value)
        if isinstance(value, list):
            return [filled(each) for each in value]
        return {key: filled(each) for key, each in value.items()} if isinstance(value, dict) else value

    entries = {str(name): entry for name, entry in said.items() if isinstance(entry, dict)}
    return {name: {key: filled(entry[key]) for key in known if key in entry} for name, entry in entries.items()}
