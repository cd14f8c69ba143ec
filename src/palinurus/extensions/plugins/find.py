"""The plugins of a home, in the order of their precedence, with every reason why one is not used.

    config      a folder of plugins.load.paths: the owner's own choice, used as it is
    workspace   installed from <workspace>/plugins: the content that a person has enabled, copied from there
    global      installed by `pal plugins install`

A start reads the index and the manifests of plugins.load.paths; nothing of a plugin is run to find it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from palinurus import __version__
from palinurus.config.agents import agent_ids, agent_settings
from palinurus.config.home import Home
from palinurus.config.load import LoadedConfig
from palinurus.domain.errors import BadRequest
from palinurus.extensions.plugins.index import HealthFile, InstalledPlugin, PluginHealth, Tier, digest_of, load_index
from palinurus.extensions.plugins.manifest import PluginManifest, find_manifest
from palinurus.extensions.plugins.schema import check_settings
from palinurus.extensions.plugins.settings import PluginEntry, PluginSettings
from palinurus.parts import COMMANDS, EXTENSIONS, OPERATIONS, SLASH_WORDS, WIRES
from palinurus.tools.tool_names import ALIASES, BUILT_IN, GROUPS

BROWSER_TOOLS = ("browser", "web_browse")  # names that only the owner of the slot may take
BUILTIN = ("builtin", "none", "legacy", "memory-core")  # of plugins.slots: no plugin
# Families of methods that only the gateway has: no operations, but a plugin's page could call them by these names.
METHODS = (
    *("approval", "commands", "device", "health", "logs", "node", "openclaw", "plugin", "question", "system-presence"),
)
CHANNEL_PARTS = ("defaults", "accounts")  # of the section channels: no network
EMBEDDERS = ("embedded", "none", "auto", "local")
_ORDER: Mapping[Tier, int] = {"config": 0, "workspace": 1, "global": 2}
LONGEST_RANGE = 100  # characters; it is read at each start
_SPECIFIER = re.compile(r"\s*(>=|<=|==|!=|>|<|~=|\^)?\s*v?(\d+(?:\.\d+)*)\S*\s*")


class FoundPlugin(Struct, frozen=True):
    manifest: PluginManifest
    tier: Tier
    folder: Path
    root: Path | None  # where Python finds its module; None: installed as a package beside us
    digest: str = ""  # that its files must have; empty: they are used as they are
    source: str = ""
    entry: PluginEntry = PluginEntry()
    reasons: tuple[str, ...] = ()  # why it is not used
    is_refused: bool = False  # it never can be, as it is
    health: PluginHealth = PluginHealth()
    slots: tuple[str, ...] = ()  # that it has
    lost: dict[str, str] = {}  # slots that another has, and why
    specs: tuple[dict[str, object], ...] = ()

    @property
    def id(self) -> str:
        return self.manifest.id

    @property
    def is_used(self) -> bool:
        return not self.reasons

    @property
    def is_isolated(self) -> bool:
        return (self.entry.isolation or self.manifest.isolation) == "process"


def find_plugins(home: Home, loaded: LoadedConfig, *, thorough: bool = False) -> list[FoundPlugin]:
    """All that are installed or named in the config; `thorough`: those in workspaces as well, none of which is used.

    Raises StorageDamaged.
    """
    settings = loaded.config.section(PluginSettings)
    found = sorted(_all(home, loaded, settings, thorough), key=lambda each: (_ORDER[each.tier], each.id))
    if not found:
        return []
    health = HealthFile(home).load_with_killed()
    judged: list[FoundPlugin] = []
    taken = _Names()
    for plugin in found:
        entry, past = settings.entries.get(plugin.id, PluginEntry()), health.get(plugin.id, PluginHealth())
        each = msgspec.structs.replace(plugin, entry=entry, health=past)
        off = [*each.reasons, *_why_off(each, settings), *_why_unmet(each, loaded)]
        refused = [] if off else list(taken.conflicts(each))
        if not off and not refused:
            taken.add(each)
        reasons = tuple(off or refused)
        judged.append(msgspec.structs.replace(each, reasons=reasons, is_refused=each.is_refused or bool(refused)))
    return _with_slots(_with_requirements(judged), settings)


def workspace_roots(home: Home, loaded: LoadedConfig) -> list[str]:
    """The real paths of all workspaces: where agents can write."""
    workspaces = (agent_settings(loaded.config, home, each).workspace for each in agent_ids(loaded.config))
    return list(dict.fromkeys(map(os.path.realpath, workspaces)))


def _all(home: Home, loaded: LoadedConfig, settings: PluginSettings, thorough: bool) -> Iterator[FoundPlugin]:
    workspaces = workspace_roots(home, loaded)
    base = home.root if home.ours else home.config_path.parent
    for place in settings.paths:
        for folder in plugin_folders(home.expand(place, base)):
            inside = any(f"{os.path.realpath(folder)}/".startswith(f"{each}/") for each in workspaces)
            why = f"an agent can write there: `pal plugins install {folder}` takes it as it is now"
            yield read_plugin(folder, "config", (why,) if inside else ())
    installed = load_index(home).plugins
    yield from map(_from_index, installed.values())
    for place in workspaces if thorough else ():
        for folder in plugin_folders(Path(place, "plugins")) if Path(place, "plugins").is_dir() else ():
            yield from _in_workspace(folder, installed)


def plugin_folders(place: Path) -> list[Path]:
    """The folder itself if it has a manifest, else those in it that have one."""
    if find_manifest(place) is not None or not place.is_dir():
        return [place]
    return sorted(each for each in place.iterdir() if each.is_dir() and find_manifest(each) is not None)[:200]


def read_plugin(folder: Path, tier: Tier, reasons: tuple[str, ...] = ()) -> FoundPlugin:
    from palinurus.extensions.plugins.manifest_file import read_manifest  # a start reads those in the index only

    try:
        manifest = read_manifest(folder)
    except BadRequest as error:
        broken = PluginManifest(re.sub(r"[^a-z0-9._-]+", "-", folder.name.lower()).lstrip("-._")[:64] or "unnamed")
        return FoundPlugin(broken, tier, folder, folder, reasons=(error.message,), is_refused=True)
    return FoundPlugin(manifest, tier, folder, folder, source=str(folder), reasons=reasons)


def _from_index(installed: InstalledPlugin) -> FoundPlugin:
    return FoundPlugin(
        installed.manifest, installed.tier, Path(installed.folder), Path(installed.root) if installed.root else None,
        installed.digest, installed.source, reasons=() if installed.enabled else (_switch_on(installed.manifest.id),),
        specs=installed.specs,
    )  # fmt: skip


def _in_workspace(folder: Path, installed: Mapping[str, InstalledPlugin]) -> Iterator[FoundPlugin]:
    """One that nobody has enabled, or that is another one now."""
    found = read_plugin(folder, "workspace")
    known = installed.get(found.id)
    how = f"`pal plugins install {folder}` shows what it asks for and takes exactly this content"
    if known is None:
        yield msgspec.structs.replace(found, reasons=(*found.reasons, f"an agent may have written it: {how}"))
    elif known.source == str(folder):
        try:
            same = digest_of(folder) == known.digest
        except BadRequest:
            same = False
        if not same:
            yield msgspec.structs.replace(found, reasons=(f"changed since it was installed: {how}",))


def _switch_on(plugin_id: str) -> str:
    return f"switched off: `pal plugins enable {plugin_id}`"


def _why_off(found: FoundPlugin, settings: PluginSettings) -> Iterator[str]:
    if not settings.enabled:
        yield "plugins.enabled is false"
    if found.id in settings.deny:
        yield "plugins.deny names it"
    if settings.allow is not None and found.id not in settings.allow:
        yield "plugins.allow does not name it"
    if found.entry.enabled is False:
        yield f"switched off (plugins.entries.{found.id}.enabled)"
    if found.health.disabled:
        cure = f"`pal plugins enable {found.id}` tries it again, `pal plugins uninstall {found.id}` removes it"
        yield f"disabled after it failed ({found.health.trouble}): {cure}"


def _beyond_isolation(manifest: PluginManifest) -> list[str]:
    """What works in our own process only."""
    from palinurus.domain.hooks import BEFORE_TOOL, BOOTSTRAP  # a start with plugins that are not isolated needs none

    has = manifest.capabilities
    more = {
        "operations": has.operations, "commands": has.commands, "jobs": has.jobs, "routes": has.routes,
        "services": has.services, "text in prompts": has.prompt_sections, "doctor checks": has.doctor_checks,
        "providers": has.providers, "embedders": has.embedders, "slots": manifest.slots, "channels": manifest.channels,
        "MCP servers": manifest.mcp_servers,
    }  # fmt: skip
    return [what for what, given in more.items() if given] + [
        each for each in has.hooks if each in (BEFORE_TOOL, BOOTSTRAP)
    ]


def _why_unmet(found: FoundPlugin, loaded: LoadedConfig) -> Iterator[str]:
    needs = found.manifest.requires
    if found.is_isolated and (more := _beyond_isolation(found.manifest)):
        yield f"isolated plugins have tools, slash commands and hooks that observe; it also has {', '.join(more)}"
    if needs.palinurus and not fits_version(__version__, needs.palinurus):
        yield f"it needs Palinurus {needs.palinurus}, and this is {__version__}"
    if needs.bins:
        from shutil import which  # it imports compressors, and few plugins need a program

        if bins := [name for name in needs.bins if which(name, path=loaded.env.get("PATH")) is None]:
            yield f"missing programs: {', '.join(bins)}"
    if unset := [name for name in needs.env if not loaded.env.get(name)]:
        yield f"variables that are not set: {', '.join(unset)}"
    try:
        wrong = check_settings(found.manifest.config_schema, found.entry.config)
    except BadRequest as error:
        wrong = [error.message]
    if wrong:
        yield f"plugins.entries.{found.id}.config: {'; '.join(wrong[:5])}"


def fits_version(version: str, wanted: str) -> bool:
    """Whether a version is in a range such as `>=0.1,<2`. What cannot be read fits nothing."""
    if len(wanted) > LONGEST_RANGE:
        return False
    have = _numbers(version)
    for part in filter(None, re.split(r"[,\s]+(?=[<>=!~^])", wanted.strip())):
        match = _SPECIFIER.fullmatch(part)
        if match is None:
            return False
        sign, limit = match[1] or ">=", _numbers(match[2])
        size = max(len(have), len(limit))
        one, other = (each + (0,) * (size - len(each)) for each in (have, limit))
        upper = (*limit[:-2], limit[-2] + 1) if len(limit) > 1 else (limit[0] + 1,)
        holds = {
            ">=": one >= other, "<=": one <= other, ">": one > other, "<": one < other, "==": one == other,
            "!=": one != other, "~=": one >= other and have < upper, "^": one >= other and have[0] == limit[0],
        }[sign]  # fmt: skip
        if not holds:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version.partition("+")[0])[:4]))


_CORE = "Palinurus itself"


class _Names:
    """The names that are taken: by the core and our extensions, then by plugins of a higher precedence."""

    def __init__(self) -> None:
        core = _CORE
        self._folders: dict[str, Path] = {}
        families = {*OPERATIONS, *METHODS, *(name.partition(".")[0] for each in EXTENSIONS for name in each.operations)}
        self._owners: dict[tuple[str, str], str] = {
            **{("plugin", name): core for name in (*BUILTIN, *GROUPS, "openclaw", *(each.name for each in EXTENSIONS))},
            **{("tool", name): core for name in (*BUILT_IN, *ALIASES, *BROWSER_TOOLS)},
            **{("operation", name): core for name in families},
            **{
                ("command", name): core
                for name in (*COMMANDS, *(name for each in EXTENSIONS for name in each.commands))
            },
            **{("slash command", name): core for name in SLASH_WORDS},
            **{("slash command", name): core for each in EXTENSIONS for name in each.slash_commands},
            **{("job", name): core for each in EXTENSIONS for name in each.jobs},
            **{("provider", name): core for name in (*WIRES, *(name for each in EXTENSIONS for name in each.wires))},
            **{
                ("embedder", name): core
                for name in (*EMBEDDERS, *(name for each in EXTENSIONS for name in each.embedders))
            },
            **{("channel", name): core for name in CHANNEL_PARTS},
            **{
                ("channel", place.split(".")[1]): core
                for each in EXTENSIONS
                for places in each.config.values()
                for place in places
                if place.startswith("channels.")
            },
        }

    def conflicts(self, found: FoundPlugin) -> Iterator[str]:
        if self._owners.get(("plugin", found.id), _CORE) != _CORE:
            yield f"another folder has a plugin of this id, and comes first: {self._folders[found.id]}"
            return
        for kind, name in _names_of(found):
            if (owner := self._owners.get((kind, name))) is not None:
                allowed = kind == "tool" and name in BROWSER_TOOLS and "browser" in found.manifest.slots
                if not allowed:
                    yield f"its {kind} {name!r} is of {owner}: a plugin cannot replace it"

    def add(self, found: FoundPlugin) -> None:
        self._folders[found.id] = found.folder
        for each in _names_of(found):
            self._owners[each] = f"the plugin {found.id}"


def _names_of(found: FoundPlugin) -> Iterator[tuple[str, str]]:
    has = found.manifest.capabilities
    yield "plugin", found.id
    yield from (("tool", name) for name in has.tools)
    yield from (("operation", family) for family in dict.fromkeys(name.partition(".")[0] for name in has.operations))
    yield from (("command", name) for name in dict.fromkeys(name.partition(" ")[0] for name in has.commands))
    yield from (("slash command", name) for name in has.slash_commands)
    yield from (("job", name) for name in has.jobs)
    yield from (("provider", name) for name in has.providers)
    yield from (("embedder", name) for name in has.embedders)
    yield from (("channel", name) for name in found.manifest.channels)
    yield from (("MCP server", name) for name in found.manifest.mcp_servers)


def _with_requirements(found: list[FoundPlugin]) -> list[FoundPlugin]:
    """Without those whose requirements are not used, or that require each other."""
    while True:
        used = {each.id: each for each in found if each.is_used}
        changed = [_unmet(each, used) if each.is_used else each for each in found]
        if changed == found:
            return found
        found = changed


def _unmet(found: FoundPlugin, used: Mapping[str, FoundPlugin]) -> FoundPlugin:
    for name in found.manifest.requires.plugins:
        if name not in used:
            return msgspec.structs.replace(found, reasons=(f"it needs the plugin {name}, which is not used",))
    if circle := _circle(found.id, used):
        return msgspec.structs.replace(
            found, reasons=(f"plugins need each other: {' → '.join(circle)}",), is_refused=True
        )
    return found


def _circle(start: str, used: Mapping[str, FoundPlugin]) -> list[str]:
    """A way from a plugin through its requirements back to it."""
    waiting, seen = [[start]], set[str]()
    while waiting:
        way = waiting.pop()
        for name in used[way[-1]].manifest.requires.plugins if way[-1] in used else ():
            if name == start:
                return [*way, start]
            if name not in seen:
                seen.add(name)
                waiting.append([*way, name])
    return []


def _with_slots(found: list[FoundPlugin], settings: PluginSettings) -> list[FoundPlugin]:
    """With the slots that each has. Who comes first has it, unless the config names another."""
    choices = {
        slot: getattr(settings.slots, name)
        for slot, name in zip(_SLOT_KEYS, settings.slots.__struct_fields__, strict=True)
    }
    won: dict[str, list[str]] = {}
    lost: dict[str, dict[str, str]] = {}
    for slot, chosen in choices.items():
        claims = [each for each in found if each.is_used and slot in each.manifest.slots]
        owner = chosen or (claims[0].id if claims else "")
        why = f"plugins.slots.{slot} is {chosen}" if chosen else f"{owner} comes first ({_place(owner, claims)})"
        for each in claims:
            if each.id == owner:
                won.setdefault(each.id, []).append(slot)
            else:
                lost.setdefault(each.id, {})[slot] = why
    return [
        msgspec.structs.replace(each, slots=tuple(won.get(each.id, ())), lost=lost.get(each.id, {})) for each in found
    ]


_SLOT_KEYS = ("memory", "contextEngine", "sandbox", "browser")


def _place(owner: str, claims: Iterable[FoundPlugin]) -> str:
    tier = next((each.tier for each in claims if each.id == owner), "global")
    same = [each.id for each in claims if each.tier == tier]
    return "config before workspace before global" + (", then by id" if len(same) > 1 else "")
