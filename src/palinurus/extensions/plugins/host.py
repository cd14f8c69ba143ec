"""The plugins of the home that this process works in: which there are, how each does, and loading them.

A plugin is loaded when something of it is used, in a thread that is left behind if it hangs. What it registers is taken
as a whole or not at all. Failures are counted in a file of the home, so that the next start knows them.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import time
from collections.abc import Collection, Mapping
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from palinurus.config.home import Home
from palinurus.config.load import Config, LoadedConfig
from palinurus.config.section import dig
from palinurus.domain.errors import BadRequest, PalinurusError
from palinurus.extensions.plugins.find import FoundPlugin, find_plugins, workspace_roots
from palinurus.extensions.plugins.index import HealthFile, PluginHealth, digest_of, plugins_folder
from palinurus.extensions.plugins.settings import PluginSettings
from palinurus.parts import Extension
from palinurus.runtime.extensions import LOADED, App, FoundRows

if TYPE_CHECKING:
    from palinurus.extensions.plugins.guard import PluginGuard

log = logging.getLogger(__name__)
HOST = f"{__name__}:load_plugin"
CHANNEL_SETTINGS = "palinurus.extensions.plugins.settings:PluginChannelSettings"


class PluginMisbehaved(Exception):
    """What a plugin did is reason enough to disable it at once."""


class LoadedPlugin(Struct, frozen=True):
    """How far a plugin has come in this process."""

    phase: str  # registered, failed
    seconds: float = 0.0  # that it took
    trouble: str = ""


class PluginHost:
    """Implements Reports. There is one, as there is one set of extensions."""

    def __init__(self) -> None:
        self.plugins: dict[str, FoundPlugin] = {}  # those that are used, by id
        self.loaded: dict[str, LoadedPlugin] = {}
        self.disabled: dict[str, str] = {}  # in this process, and why
        self.home: Home | None = None
        self.env: Mapping[str, str] = {}
        self._config: Config | None = None
        self.settings = PluginSettings()
        self._guard: PluginGuard | None = None
        self._workspaces: list[str] = []

    def find_rows(self, home: Home, loaded: LoadedConfig) -> FoundRows:
        used = {each.id: each for each in find_plugins(home, loaded) if each.is_used}
        self.loaded = {name: each for name, each in self.loaded.items() if used.get(name) == self.plugins.get(name)}
        self.plugins, self.home, self.env = used, home, loaded.env
        self._config = loaded.config
        self.settings = loaded.config.section(PluginSettings)
        self._workspaces = workspace_roots(home, loaded) if used else []
        files = tuple(path for each in used.values() for path in self._watched(each))
        settled = tuple(msgspec.structs.replace(each, health=PluginHealth()) for each in used.values())
        stamp = (settled, tuple(map(_changed_at, files)), dig(loaded.config.data, ("tools", "web", "fetch")))
        return FoundRows(tuple(map(_row, used.values())), _config_of(used.values(), loaded.config.data), stamp, files)

    def _watched(self, found: FoundPlugin) -> list[Path]:
        """The files of a plugin in development, if it is loaded again when one of them changes."""
        if not self.settings.reload or found.tier != "config":
            return []
        return sorted(each for kind in ("*.py", "*.json") for each in found.folder.rglob(kind))[:500]

    def load(self, plugin_id: str) -> App:
        """What it registers; nothing if it fails. Does not raise."""
        found = self.plugins.get(plugin_id)
        if found is None or self.home is None:
            return App()
        for name in found.manifest.requires.plugins:
            LOADED.load(partial(_is_row_of, name))
        started = time.monotonic()
        mark = HealthFile(self.home).begin(plugin_id)
        try:
            app = self._register(found)
        except BaseException as error:  # noqa: BLE001  the edge of a plugin: SystemExit in its thread is its own end
            self._note(plugin_id, started, error)
            return App()
        finally:
            mark.unlink(missing_ok=True)
        self.loaded[plugin_id] = LoadedPlugin("registered", time.monotonic() - started)
        return app

    def _register(self, found: FoundPlugin) -> App:
        home = self.home
        assert home is not None  # noqa: S101  asked by load
        data_folder = plugins_folder(home) / "data" / found.id

        if not found.is_isolated:
            self._watch(home, found)

        from palinurus.extensions.plugins.app import GuardedParts, plugin_app, run_with_limit, undeclared
        from palinurus.extensions.plugins.guard import code_of_ours, patched
        from palinurus.tools.settings import FetchSettings

        assert self._config is not None  # noqa: S101  asked by load
        own = plugin_app(found, data_folder, self._config.section(FetchSettings).allow_private)

        def work() -> App:
            if found.digest and found.root is not None and digest_of(found.root) != found.digest:
                raise BadRequest(
                    "its files have changed since it was installed",
                    hint=f"`pal plugins update {found.id}` shows what it asks for now",
                )
            if found.is_isolated:
                from palinurus.extensions.plugins.isolation import register_isolated  # only where there is one

                register_isolated(home, found, self.env, own, self.settings.start_seconds - 1)
            else:
                before = code_of_ours()
                import_plugin(found).register(own)
                if changed := patched(before):
                    raise PluginMisbehaved(f"it replaced code of Palinurus: {', '.join(changed[:5])}")
            if more := sorted(undeclared(found, own)):
                raise BadRequest(f"it registers what its manifest does not declare: {', '.join(more)}")
            return GuardedParts(found, self, self.settings.call_seconds).of(own)

        try:
            return run_with_limit(work, self.settings.start_seconds, f"plugin {found.id}")
        except TimeoutError as error:
            raise PluginMisbehaved(f"it was not registered within {self.settings.start_seconds:g} s") from error

    def _watch(self, home: Home, found: FoundPlugin) -> None:
        from palinurus.extensions.plugins.guard import GuardLimits, PluginGuard, WatchedPlugin

        if self._guard is None:
            limits = GuardLimits(self.settings.blocked_seconds, self.settings.memory_mb)
            self._guard = PluginGuard(home.root, self._workspaces, limits, self._blamed)
        data = str(plugins_folder(home) / "data" / found.id)
        derived = f"{os.path.realpath(home.root)}/derived/{found.id}/"  # of a memory backend
        own = (os.path.realpath(data), derived, *((f"{os.path.realpath(found.root)}/",) if found.root else ()))
        root = os.path.realpath(found.root or found.folder)
        self._guard.watch(WatchedPlugin(found.id, root, own, found.manifest.requires.bins))

    def _blamed(self, plugin_id: str, what: str, fatal: bool) -> None:
        """Called by the guard, also on its own thread."""
        if self.home is None:
            return
        health = HealthFile(self.home).fail(plugin_id, what, now_ms(), disable=True)
        self.disabled[plugin_id] = health.trouble
        ends = "; this process ends, and the next one does not use it" if fatal else ""
        log.critical("the plugin %s is disabled: %s%s", plugin_id, what, ends)

    def leave(self) -> None:
        if self._guard is not None:
            self._guard.close()
        if self.settings.reload:
            _forget_modules([each.folder for each in self.plugins.values() if each.tier == "config"])
        self._guard, self.loaded, self.disabled = None, {}, {}

    def _note(self, plugin_id: str, started: float, error: BaseException) -> None:
        self.loaded[plugin_id] = LoadedPlugin("failed", time.monotonic() - started, told(error))
        self.failed(plugin_id, "loading it", error)

    def failed(self, plugin_id: str, what: str, error: BaseException) -> None:
        if self.home is None:
            return
        trouble = f"{what}: {told(error)}"
        at_once = isinstance(error, PluginMisbehaved)
        health = HealthFile(self.home).fail(plugin_id, trouble, now_ms(), disable=at_once)
        log.warning("the plugin %s failed: %s", plugin_id, trouble, exc_info=error)
        if health.disabled:
            self.disabled[plugin_id] = trouble

    def succeeded(self, plugin_id: str) -> None:
        if self.home is not None and plugin_id not in self.disabled:
            HealthFile(self.home).succeed(plugin_id)

    def is_disabled(self, plugin_id: str) -> str:
        return self.disabled.get(plugin_id, "")


PLUGIN_HOST = PluginHost()


def find_rows(home: Home, loaded: LoadedConfig) -> FoundRows:
    """Named in runtime/extensions.py."""
    return PLUGIN_HOST.find_rows(home, loaded)


def leave_rows() -> None:
    """Named in runtime/extensions.py: the home is closed, or its plugins have changed."""
    PLUGIN_HOST.leave()


def load_plugin(extension: Extension) -> App:
    """Named in each row."""
    return PLUGIN_HOST.load(extension.name)


def import_plugin(found: FoundPlugin) -> Any:
    """Its module, from its own folder and no other. Raises what the import raises."""
    name = found.manifest.module
    top = name.partition(".")[0]
    if found.root is not None:
        root = str(found.root)
        here = PathFinder.find_spec(top, [root])
        if here is None:
            raise BadRequest(f"there is no module {top} in {root}")
        known = sys.modules.get(top)
        if known is not None and not _is_in(known, found.root):
            raise BadRequest(f"its module has the name of another one: {top}", hint="rename the module")
        if root not in sys.path:
            sys.path.append(root)  # behind everything else: it shadows nothing
            importlib.invalidate_caches()
    module = importlib.import_module(name)
    if found.root is not None and not _is_in(sys.modules[top], found.root):
        raise BadRequest(f"its module has the name of another one: {top}", hint="rename the module")
    if not callable(getattr(module, "register", None)):
        raise BadRequest(f"the module {name} has no function register(app)")
    return module


def _forget_modules(folders: list[Path]) -> None:
    """What is imported from there is imported again."""
    for name, module in list(sys.modules.items()):
        if any(_is_in(module, folder) for folder in folders):
            del sys.modules[name]
    importlib.invalidate_caches()


def _changed_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _is_row_of(name: str, extension: Extension) -> bool:
    return extension.name == name and bool(extension.host)


def _is_in(module: Any, root: Path) -> bool:
    places = [getattr(module, "__file__", None) or "", *getattr(module, "__path__", ())]
    return any(each and Path(each).is_relative_to(root) for each in places)


def _row(found: FoundPlugin) -> Extension:
    manifest, has = found.manifest, found.manifest.capabilities
    channels = manifest.channels
    places = tuple(place for name in channels for place in (f"channels.{name}", f"channels.{name}.accounts.*"))
    if not manifest.module:
        return Extension(found.id, "", host=HOST)
    return Extension(
        found.id,
        manifest.module,
        commands=has.commands,
        operations=has.operations,
        routes="*" if has.routes else "",
        tools="*" if has.tools else "",
        config={CHANNEL_SETTINGS: places} if places else {},
        jobs=has.jobs,
        slash_commands={name: (each.usage or f"/{name}", each.about) for name, each in has.slash_commands.items()},
        hooks=has.hooks,
        configured_by=("*",) if has.services or has.prompt_sections else (),
        wires=has.providers,
        embedders=has.embedders,
        channels=msgspec.to_builtins(channels),
        slots=found.slots,
        tool_names=has.tools,
        host=HOST,
    )


def _config_of(used: Collection[FoundPlugin], own: dict[str, Any]) -> dict[str, Any]:
    """What plugins add to the config. An MCP server that the owner has is the owner's alone."""
    owners = dig(own, ("mcp", "servers")) or {}
    skills = [str(each.folder / place) for each in used for place in each.manifest.skills]
    servers = {
        name: msgspec.to_builtins(row)
        for each in used if not each.is_isolated
        for name, row in each.manifest.mcp_servers.items()
        if name not in owners
    }  # fmt: skip
    memory = next((each.id for each in used if "memory" in each.slots), "")
    return {
        **({"plugins": {"slots": {"memory": memory}}} if memory else {}),
        **({"skills": {"load": {"extraDirs": skills}}} if skills else {}),
        **({"mcp": {"servers": servers}} if servers else {}),
    }


def told(error: BaseException) -> str:
    return str(error) if isinstance(error, PalinurusError) and str(error) else f"{type(error).__name__}: {error}"[:500]


def now_ms() -> int:
    return time.time_ns() // 1_000_000
