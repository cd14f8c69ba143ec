"""Reads manifests. Whoever wrote one is a stranger: it is parsed as a whole, and refused if anything does not fit."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from palinurus.domain.errors import BadRequest
from palinurus.extensions.plugins.manifest import (
    API,
    FILES,
    SLOTS,
    ChannelRow,
    PluginCapabilities,
    PluginManifest,
    PluginRequires,
    ServerRow,
    find_manifest,
)

LARGEST = 256_000  # bytes of a manifest
_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_TOOL = re.compile(r"[A-Za-z0-9_-]{1,64}")  # as every provider of models takes it
_PLAIN = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}( [a-z0-9][a-z0-9_-]{0,31})?")
_DOTTED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
_DULL = ("server", "mcp", "main", "default")  # names of MCP servers that say nothing without the plugin's
_KINDS = {"memory": "memory", "context-engine": "contextEngine"}
_USED = frozenset({
    "id", "configSchema", "config", "defaults", "name", "description", "version", "author", "homepage", "kind", "slots",
    "skills", "mcpServers", "requires", "$schema", "enabledByDefault", "uiHints", "legacyPluginIds",
})  # fmt: skip


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
    mcp_servers: dict[str, ServerRow] = {}
    channels: dict[str, ChannelRow] = {}


class _ForeignConfig(Struct, frozen=True):
    schema: dict[str, Any] = {}
    defaults: dict[str, Any] = {}


class _ForeignManifest(Struct, frozen=True, rename="camel"):
    """What is used of openclaw.plugin.json, and of the manifest of a bundle."""

    id: str = ""
    name: str = ""
    version: str = ""
    description: str = ""
    author: str | dict[str, Any] = ""
    homepage: str = ""
    kind: str | tuple[str, ...] = ()
    config_schema: dict[str, Any] = {}
    config: _ForeignConfig = _ForeignConfig()
    requires: PluginRequires = PluginRequires()
    skills: str | tuple[str, ...] = ()
    mcp_servers: str | dict[str, ServerRow] = {}

    @property
    def about(self) -> dict[str, Any]:
        author = str(self.author.get("name", "")) if isinstance(self.author, dict) else self.author
        return {
            "name": self.name, "version": self.version, "description": self.description, "author": author,
            "homepage": self.homepage,
        }  # fmt: skip

    @property
    def skill_folders(self) -> tuple[str, ...]:
        return tuple(map(os.path.normpath, (self.skills,) if isinstance(self.skills, str) else self.skills))


class _Schema(Struct, rename="camel"):
    """What the values of the keywords must be."""

    type: str | tuple[str, ...] = ()
    properties: dict[str, _Schema | bool] = {}
    required: tuple[str, ...] = ()
    additional_properties: _Schema | bool = True
    items: _Schema | bool = True
    enum: tuple[Any, ...] = ()
    any_of: tuple[_Schema | bool, ...] = ()
    one_of: tuple[_Schema | bool, ...] = ()
    all_of: tuple[_Schema | bool, ...] = ()
    ref: str = field(default="", name="$ref")
    defs: dict[str, _Schema | bool] = field(default_factory=dict, name="$defs")
    definitions: dict[str, _Schema | bool] = {}


def check_schema(schema: dict[str, Any]) -> None:
    """Raises BadRequest if it is none."""
    try:
        msgspec.convert(schema, _Schema)
    except (msgspec.ValidationError, RecursionError) as error:
        raise BadRequest(f"its configSchema is not a JSON Schema: {error}") from None


def read_manifest(folder: Path) -> PluginManifest:
    """Raises BadRequest."""
    path = find_manifest(folder)
    if path is None:
        raise BadRequest(f"{folder} has no manifest", hint=f"a plugin has one of {', '.join(FILES)}")
    name = str(path.relative_to(folder))
    read = _read_object(path)
    try:
        data = _filled(read, str(folder))
        if FILES[name] == "palinurus":
            found = PluginManifest(**_fields(msgspec.convert(data, _OurManifest)))
        elif FILES[name] == "openclaw":
            found = _from_openclaw(folder, data, msgspec.convert(data, _ForeignManifest))
        else:
            found = _from_bundle(folder, data, msgspec.convert(data, _ForeignManifest))
        check_schema(found.config_schema)
    except (msgspec.ValidationError, BadRequest, RecursionError) as error:
        raise BadRequest(f"{path}: {error}") from None
    for wrong in _mistakes(found, folder):
        raise BadRequest(f"{path}: {wrong}")
    servers = {f"{found.id}-{key}" if key in _DULL else key: row for key, row in found.mcp_servers.items()}
    return msgspec.structs.replace(found, mcp_servers=servers)


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
    has = found.capabilities
    dotted = (has.operations, has.hooks, has.jobs, has.providers, has.embedders, has.panels, found.mcp_servers)
    names = [
        (_TOOL, has.tools), (_PLAIN, [*has.slash_commands, *has.commands, *found.channels]),
        *((_DOTTED, each) for each in dotted),
    ]  # fmt: skip
    for pattern, given in names:
        yield from (
            f"{name[:80]!a} is no name: plain letters, digits and -" for name in given if not pattern.fullmatch(name)
        )
    pages = [page.file for page in has.panels.values()]
    for place in (*found.skills, *pages):
        if not _is_inside(place):
            yield f"{place[:80]!r} leads out of the plugin"
        elif place in pages and not (folder / place).is_file():
            yield f"there is no file {place[:80]!r}"


def _is_inside(place: str) -> bool:
    path = Path(place)
    return len(place) < 250 and place.isprintable() and not path.is_absolute() and ".." not in path.parts


def _from_openclaw(folder: Path, data: dict[str, Any], said: _ForeignManifest) -> PluginManifest:
    config = said.config_schema or said.config.schema
    check_schema(config)
    properties: dict[str, Any] = {**config.get("properties", {})}
    for key, value in said.config.defaults.items():
        known = properties.get(key)
        properties[key] = {**(known if isinstance(known, dict) else {}), "default": value}
    kinds = (said.kind,) if isinstance(said.kind, str) else said.kind
    slots = [_KINDS[each] for each in kinds if each in _KINDS]
    unsupported = sorted(key for key in data if key not in _USED)
    if (folder / "package.json").is_file() or list(folder.glob("index.[jt]s")):
        unsupported.append("its JavaScript")
    unsupported += [f"the slot {slot}" for slot in slots]
    return PluginManifest(
        said.id or said.name,
        "openclaw",
        **said.about,
        config_schema={**config, "properties": properties} if config or properties else {},
        requires=said.requires,
        skills=said.skill_folders,
        mcp_servers=said.mcp_servers if isinstance(said.mcp_servers, dict) else {},
        unsupported=tuple(unsupported),
    )


def _from_bundle(folder: Path, data: dict[str, Any], said: _ForeignManifest) -> PluginManifest:
    servers = said.mcp_servers or ".mcp.json"
    if isinstance(servers, str):
        if not _is_inside(servers):
            raise BadRequest(f"{servers[:80]!r} leads out of the plugin")
        source = folder / servers
        listed = _filled(_read_object(source), str(folder)) if source.is_file() else {}
        servers = msgspec.convert(listed.get("mcpServers", listed), dict[str, ServerRow])
    unsupported = [name for name in ("agents", "commands", "hooks") if name in data or (folder / name).is_dir()]
    return PluginManifest(
        (said.name or said.id).lower().replace(" ", "-"),
        "bundle",
        **said.about,
        skills=said.skill_folders or (("skills",) if (folder / "skills").is_dir() else ()),
        mcp_servers=servers,
        unsupported=tuple(unsupported),
    )


def _filled(value: Any, root: str) -> Any:
    """With the plugin's folder where its manifest means that."""
    if isinstance(value, str):
        return re.sub(r"\$\{(CLAUDE_PLUGIN_ROOT|PLUGIN_ROOT|pluginDir)\}", lambda _: root, value)
    if isinstance(value, list):
        return [_filled(each, root) for each in value]
    return {key: _filled(each, root) for key, each in value.items()} if isinstance(value, dict) else value
