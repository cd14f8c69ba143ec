"""Plugins as people ask for them: list them, read one, enable and disable it. No tool of an agent can do this."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Struct

from palinurus.config.home import Home
from palinurus.config.load import LoadedConfig, load_config
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.extensions.plugins.find import FoundPlugin, find_plugins, read_plugin, workspace_roots
from palinurus.extensions.plugins.host import PLUGIN_HOST
from palinurus.extensions.plugins.index import (
    HealthFile,
    InstalledPlugin,
    Tier,
    change_index,
    digest_of,
    load_index,
)
from palinurus.extensions.plugins.install import install_staged, read_panel, remove_plugin, stage_plugin
from palinurus.extensions.plugins.manifest import ServerRow
from palinurus.extensions.plugins.scaffold import write_scaffold
from palinurus.extensions.plugins.settings import PluginEntry
from palinurus.operations.config import set_option
from palinurus.operations.operation import operation
from palinurus.operations.services import Services
from palinurus.runtime.checks.check import Check, bad, ok, warning
from palinurus.text.words import nearest

PluginId = Annotated[str, "Its id."]


class PluginInfo(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A plugin as people see it."""

    id: str
    name: str
    version: str
    tier: str
    state: str  # on, running (something of it was used), failed, off, refused, disabled
    format: str = "palinurus"
    description: str = ""
    folder: str = ""
    reasons: tuple[str, ...] = ()  # why it is not used
    isolation: str = "none"
    slots: tuple[str, ...] = ()  # that it has
    lost: dict[str, str] = {}  # slots that it wants and another has, and why
    asks: tuple[str, ...] = ()  # what it may do, a line each
    unsupported: tuple[str, ...] = ()
    failures: int = 0
    trouble: str = ""
    seconds: float = 0.0  # that loading it took
    hooks: tuple[str, ...] = ()  # in the order in which they are called
    digest: str = ""
    data: str = ""  # where it keeps its own files
    panels: dict[str, str] = {}  # its pages on the dashboard -> their titles


class PluginPanel(Struct, frozen=True):
    """A page of a plugin, for a frame that reaches nothing but the plugin."""

    title: str
    html: str
    operations: tuple[str, ...]  # that it may call


class PluginChecks(Struct, frozen=True):
    checks: tuple[Check, ...]


class PluginList(Struct, frozen=True):
    plugins: tuple[PluginInfo, ...]


def plugin_info(home: Home, found: FoundPlugin) -> PluginInfo:
    manifest = found.manifest
    live = PLUGIN_HOST.loaded.get(found.id) if PLUGIN_HOST.home and PLUGIN_HOST.home.root == home.root else None
    state = "on" if live is None else "running" if live.phase == "registered" else "failed"
    if found.reasons:
        state = "disabled" if found.health.disabled else "refused" if found.is_refused else "off"
    data = home.root / "plugins" / "data" / found.id
    return PluginInfo(
        found.id, manifest.title, manifest.version, found.tier, state, manifest.format, manifest.description,
        str(found.folder), found.reasons, "process" if found.is_isolated else "none", found.slots, found.lost,
        asks(found), manifest.unsupported, found.health.failures, found.health.trouble,
        round(live.seconds, 3) if live else 0.0, manifest.capabilities.hooks, found.digest,
        str(data) if data.is_dir() else "", {key: page.title for key, page in manifest.capabilities.panels.items()},
    )  # fmt: skip


def asks(found: FoundPlugin) -> tuple[str, ...]:
    """What a plugin may do when it is used, in words."""
    manifest, has = found.manifest, found.manifest.capabilities
    lines = [
        ("tools", has.tools), ("operations", has.operations), ("commands", tuple(has.commands)),
        ("slash commands", tuple(f"/{name}" for name in has.slash_commands)), ("hooks", has.hooks), ("jobs", has.jobs),
        ("providers of models", has.providers), ("channels", tuple(manifest.channels)), ("slots", manifest.slots),
        ("pages on the dashboard", tuple(has.panels)), ("skills", manifest.skills),
        ("MCP servers", tuple(_server(name, each) for name, each in manifest.mcp_servers.items())),
        ("hosts", manifest.hosts), ("programs", manifest.requires.bins), ("variables", manifest.requires.env),
    ]  # fmt: skip
    flags = [("HTTP routes", has.routes), ("services", has.services), ("text in prompts", has.prompt_sections)]
    made = [f"{what}: {', '.join(names)}" for what, names in lines if names]
    made += [what for what, given in flags if given]
    if (manifest.module or any(row.command for row in manifest.mcp_servers.values())) and not found.is_isolated:
        made.append("runs outside the sandbox: it can do whatever you can")
    if found.is_isolated:
        made.append("runs in a sandbox of its own: no files of yours, no variables, no network but its hosts")
    return tuple(made)


def _server(name: str, row: ServerRow) -> str:
    words = " ".join((row.command or row.url or "", *row.args))
    return f"{name} ({words[:2000]}{f' and {len(words) - 2000:,} characters more' if len(words) > 2000 else ''})"


@operation("plugins.list", scope="read")
async def list_plugins(services: Services) -> PluginList:
    """List plugins: which are used, which are not and why, which have failed.

    Examples:
      pal plugins list
      pal plugins list --json
    """
    found = await _find_all(services)
    return PluginList(tuple(plugin_info(services.home, each) for each in found))


@operation("plugins.info", scope="read")
async def info_plugin(services: Services, plugin: PluginId) -> PluginInfo:
    """Show a plugin: what it is, what it may do, how it does.

    Example:
      pal plugins info weather
    """
    return plugin_info(services.home, await find_plugin(services, plugin))


@operation("plugins.panel", scope="read")
async def show_panel(
    services: Services, plugin: PluginId, page: Annotated[str, "The page, by its name in the manifest."]
) -> PluginPanel:
    """Read a page that a plugin has on the dashboard, and which operations it may call.

    Example:
      pal gateway call plugins.panel --params '{"plugin": "tides", "page": "today"}'
    """
    found = await find_plugin(services, plugin)
    shown = found.manifest.capabilities.panels.get(page)
    if shown is None or not found.is_used:
        raise NotFound(f"the plugin {found.id} has no page {page[:80]!r}", hint=f"`pal plugins info {found.id}`")
    html = await asyncio.to_thread(read_panel, found, shown.file)
    return PluginPanel(shown.title, html, found.manifest.capabilities.operations)


@operation("plugins.enable", scope="admin")
async def enable_plugin(services: Services, plugin: PluginId) -> PluginInfo:
    """Use a plugin that is installed, or try one again that was disabled because it failed.

    Example:
      pal plugins enable weather
    """
    found = await find_plugin(services, plugin)
    await asyncio.to_thread(_switch, services, found, on=True)
    return plugin_info(services.home, await find_plugin(services, found.id))


@operation("plugins.disable", scope="admin")
async def disable_plugin(services: Services, plugin: PluginId) -> PluginInfo:
    """Do not use a plugin. It stays installed.

    Example:
      pal plugins disable weather
    """
    found = await find_plugin(services, plugin)
    await asyncio.to_thread(_switch, services, found, on=False)
    return plugin_info(services.home, await find_plugin(services, found.id))


def _switch(services: Services, found: FoundPlugin, *, on: bool) -> None:
    """In the index if it was installed; in the config where that says something, or is the only place."""
    installed = load_index(services.home).plugins.get(found.id)
    if installed is not None:
        change_index(services.home, found.id, msgspec.structs.replace(installed, enabled=on))
    if found.entry.enabled is not None or installed is None:
        set_option(services, f'plugins.entries."{found.id}".enabled', on)
    if on:
        HealthFile(services.home).reset(found.id)
        PLUGIN_HOST.disabled.pop(found.id, None)
        PLUGIN_HOST.loaded.pop(found.id, None)


async def find_plugin(services: Services, plugin: str) -> FoundPlugin:
    """Raises NotFound."""
    found = await _find_all(services)
    for each in found:
        if plugin.strip() in (each.id, str(each.folder)):
            return each
    near = nearest(plugin, [each.id for each in found])
    raise NotFound(
        f"there is no plugin {plugin[:80]!r}", hint=f"did you mean {near}?" if near else "`pal plugins list`"
    )


async def _find_all(services: Services) -> list[FoundPlugin]:
    loaded = await asyncio.to_thread(load_config, services.home, services.env)  # it may have just been changed
    return await asyncio.to_thread(find_plugins, services.home, loaded, thorough=True)


class PluginPreview(Struct, frozen=True):
    """What would be installed, before anything of it has run."""

    plugin: PluginInfo
    digest: str
    source: str
    replaces: str = ""  # the version that is installed now
    more: tuple[str, ...] = ()  # what it asks for and that one does not


class RemovedPlugin(Struct, frozen=True):
    id: str
    data: str = ""  # what it has stored, which is kept
    config: str = ""  # what the config still says of it


class PinnedPlugin(Struct, frozen=True):
    id: str
    version: str
    source: str
    sha256: str
    holds: bool  # whether its files still have this digest


class PluginLock(Struct, frozen=True):
    plugins: tuple[PinnedPlugin, ...]


class CreatedPlugin(Struct, frozen=True):
    folder: str
    files: tuple[str, ...]


@operation("plugins.prepare", scope="admin", local=True)
def prepare_plugin(services: Services, source: Annotated[str, "A folder, a wheel, or a name."]) -> PluginPreview:
    """Fetch a plugin and show what it asks for. Nothing of it is run, and nothing is installed yet."""
    staged = stage_plugin(services.home, source)
    found = read_plugin(staged.folder, _tier_of(services, source))
    if found.reasons:
        raise BadRequest("; ".join(found.reasons))
    before = load_index(services.home).plugins.get(found.id)
    info = plugin_info(services.home, found)
    known = asks(FoundPlugin(before.manifest, before.tier, found.folder, None)) if before else ()
    more = tuple(each for each in info.asks if each not in known) if before else ()
    return PluginPreview(info, staged.digest, source, before.manifest.version or "?" if before else "", more)


@operation("plugins.install", scope="admin", local=True)
async def install_plugin(
    services: Services,
    source: Annotated[str, "A folder, a wheel, or a name."],
    digest: Annotated[str, "Of what was shown by plugins.prepare."],
) -> PluginInfo:
    """Install what was prepared and shown, and use it."""
    tier = _tier_of(services, source)
    now = services.clock.now_ms()
    record = await asyncio.to_thread(install_staged, services.home, digest, source, tier, now)
    return plugin_info(services.home, await find_plugin(services, record.manifest.id))


@operation("plugins.uninstall", scope="admin", local=True)
async def uninstall_plugin(services: Services, plugin: PluginId) -> RemovedPlugin:
    """Remove a plugin that was installed. What it has stored is kept, and named.

    Example:
      pal plugins uninstall weather
    """
    found = await find_plugin(services, plugin)
    data = await asyncio.to_thread(remove_plugin, services.home, found.id)
    said = f"plugins.entries.{found.id}" if found.entry != PluginEntry() else ""
    return RemovedPlugin(found.id, str(data or ""), said)


@operation("plugins.lock", scope="read")
async def lock_plugins(services: Services) -> PluginLock:
    """Show what is installed with the digest of its files, and whether they still have it.

    Examples:
      pal plugins lock
      pal plugins lock --json > plugins.lock.json
    """
    installed = await asyncio.to_thread(load_index, services.home)
    return PluginLock(tuple([await asyncio.to_thread(_pinned, each) for each in installed.plugins.values()]))


@operation("plugins.new", scope="admin", local=True, needs_home=False)
def new_plugin(
    services: Services,
    name: Annotated[str, "Its name: lower-case letters, digits and _."],
    folder: Annotated[str, "Where it is written. Default: a folder of its name, here."] = "",
) -> CreatedPlugin:
    """Write a new plugin that works as it is: a manifest, a module with a tool and a slash command, and tests.

    Example:
      pal plugins new tides
    """
    place = Path(folder or name).absolute()
    return CreatedPlugin(str(place), tuple(write_scaffold(place, name)))


@operation("plugins.doctor", scope="read")
async def check_all_plugins(services: Services) -> PluginChecks:
    """Say what is wrong with plugins, which is at fault, and what helps.

    Example:
      pal plugins doctor
    """
    loaded = await asyncio.to_thread(load_config, services.home, services.env)
    return PluginChecks(tuple(await asyncio.to_thread(check_plugins, services.home, loaded)))


def _pinned(each: InstalledPlugin) -> PinnedPlugin:
    try:
        holds = digest_of(Path(each.root or each.folder)) == each.digest
    except BadRequest:
        holds = False
    return PinnedPlugin(each.manifest.id, each.manifest.version, each.source, each.digest, holds)


def _tier_of(services: Services, source: str) -> Tier:
    """A folder in a workspace is what an agent may have written."""
    real = os.path.realpath(source)
    loaded = load_config(services.home, services.env)
    inside = [root for root in workspace_roots(services.home, loaded) if f"{real}/".startswith(f"{root}/")]
    return "workspace" if inside else "global"


def check_plugins(home: Home, loaded: LoadedConfig | None) -> list[Check]:
    """For `pal doctor` and `pal plugins doctor`: who is at fault, and what helps."""
    found = find_plugins(home, loaded) if loaded is not None else []
    checks = [each for plugin in found for each in _check(plugin)]
    on = [each.id for each in found if each.is_used]
    return checks or ([ok("plugins", f"{len(on)} on: {', '.join(on)}")] if on else [])


def _check(found: FoundPlugin) -> list[Check]:
    cure = f"`pal plugins disable {found.id}`, or `pal plugins update {found.id}`"
    if found.health.disabled or found.is_refused:
        return [bad("plugins", f"{found.id}: {'; '.join(found.reasons)}", str(found.folder), cure)]
    if found.health.failures:
        return [warning("plugins", f"{found.id} has failed: {found.health.trouble}", str(found.folder), cure)]
    if found.lost:
        why = "; ".join(f"{slot}: {each}" for slot, each in found.lost.items())
        return [
            warning("plugins", f"{found.id} has no slot {why}", str(found.folder), "`pal config set plugins.slots`")
        ]
    if found.digest and found.root is not None:
        try:
            changed = digest_of(found.root) != found.digest
        except BadRequest as error:
            return [bad("plugins", f"{found.id}: {error.message}", str(found.folder), cure)]
        if changed:
            return [
                bad("plugins", f"{found.id}: its files have changed since it was installed", str(found.folder), cure)
            ]
    return []
