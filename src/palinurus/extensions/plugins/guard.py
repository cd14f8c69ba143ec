"""Watches plugins that run in our own process, and names the one that does what it should not.

It is no wall: code in our process can do whatever we can, and whoever is not trusted runs isolated. What is noticed is
told with the plugin's name and counted as its failure, so that it is disabled now or at the next start:

    patches     a function or class of ours is another one after a plugin was loaded, or is the plugin's own later
    reads       it opens a file of the home that is not its own; starts a program that its manifest does not name
    holds       the event loop does not come round, and the plugin is on its stack
    grows       the process has too much memory, and most of what is added now is allocated by the plugin

The last two end the process, because nothing else stops them; a service manager starts it again, without the plugin.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any

from msgspec import Struct

from palinurus.runtime.watchdog import stack_of

log = logging.getLogger(__name__)
EXIT_CODE = 75  # "try again later", as of sysexits.h
LOOK_SECONDS = 1.0
TRACED_SECONDS = 2.0
LOOKS_AT_CODE = 10  # each so many looks, and when it closes: this one takes milliseconds
_SPAWNS = frozenset({"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty"})
_PACKAGE = str(Path(__file__).parents[2])


class WatchedPlugin(Struct, frozen=True):
    id: str
    root: str
    own: tuple[str, ...]  # places of the home that it may open
    bins: tuple[str, ...]


class GuardLimits(Struct, frozen=True):
    blocked_seconds: float = 30.0
    memory_mb: int = 2048


class PluginGuard:
    """One of a process. `blame(plugin, what, fatal)` is told; after a fatal one `end` is called."""

    def __init__(
        self,
        home: Path,
        workspaces: Iterable[str],
        limits: GuardLimits,
        blame: Callable[[str, str, bool], None],
        end: Callable[[int], Any] = os._exit,
    ) -> None:
        self._home = f"{os.path.realpath(home)}/"
        self._workspaces = tuple(f"{each}/" for each in workspaces)
        self._limits = limits
        self._blame = blame
        self._end = end
        self._plugins: dict[str, WatchedPlugin] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._owner = 0
        self._asked: float | None = None  # when the loop was asked, and has not answered
        self._blamed: set[tuple[str, str]] = set()
        self._local = threading.local()
        self._over = False

    def watch(self, plugin: WatchedPlugin) -> None:
        """Called on the thread of the event loop, before the plugin is loaded."""
        if not self._plugins:
            sys.addaudithook(self._audit)
        self._plugins[plugin.id] = plugin
        if self._loop is None:
            try:
                self._loop = asyncio.get_running_loop()
            except RuntimeError:
                return  # a command that loads it for its help
            self._owner = threading.get_ident()
            threading.Thread(target=self._look_on, name="pal-plugins", daemon=True).start()

    def close(self) -> None:
        """It watches nothing any more; a hook of Python cannot be taken away, so it stays and does nothing."""
        if not self._over:
            self._look_at_code()
        self._over = True
        self._plugins = {}

    def _look_on(self) -> None:
        pause, looks = min(LOOK_SECONDS, self._limits.blocked_seconds / 4), 0
        while not self._over:
            time.sleep(pause)
            looks += 1
            self._look_at_loop()
            self._look_at_memory()
            if looks % LOOKS_AT_CODE == 0:
                self._look_at_code()

    def _look_at_loop(self) -> None:
        asked, now = self._asked, time.monotonic()
        if asked is None:
            self._asked = now
            try:
                assert self._loop is not None  # noqa: S101  the thread was started with it
                self._loop.call_soon_threadsafe(self._answer)
            except RuntimeError:  # it is closed
                self._over = True
        elif now - asked > self._limits.blocked_seconds:
            culprit = self.at_fault(stack_of(self._owner))
            if culprit is not None:
                plugin, frame = culprit
                where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
                self._finish(plugin, f"it held the event loop for {now - asked:.0f} s ({where})")

    def _answer(self) -> None:
        self._asked = None

    def _look_at_memory(self) -> None:
        if _memory_mb() <= self._limits.memory_mb:
            return
        tracemalloc.start(8)
        time.sleep(TRACED_SECONDS)
        snapshot = tracemalloc.take_snapshot()
        tracemalloc.stop()
        grown: dict[str, int] = dict.fromkeys(self._plugins, 0)
        for each in snapshot.statistics("traceback"):
            for plugin in self._plugins.values():
                if any(frame.filename.startswith(f"{plugin.root}/") for frame in each.traceback):
                    grown[plugin.id] += each.size
        worst = max(grown, key=lambda name: grown[name], default="")
        if worst and grown[worst] > 100_000:
            self._finish(worst, f"the process has {_memory_mb():,} MB, and it goes on growing")

    def _look_at_code(self) -> None:
        """Names who has put its own functions in the place of ours since it was loaded."""
        for module, key, part in _parts_of_ours():
            function = getattr(part, "fget", None) or getattr(part, "__func__", part)
            file = function.__code__.co_filename if isinstance(function, FunctionType) else ""
            for plugin in self._plugins.values():
                if file.startswith(f"{plugin.root}/"):
                    self._name(plugin.id, f"it replaced code of Palinurus: {module}.{key}")

    def _name(self, plugin: str, what: str) -> None:
        if (plugin, what) not in self._blamed:
            self._blamed.add((plugin, what))
            self._blame(plugin, what, False)

    def _finish(self, plugin: str, what: str) -> None:
        self._over = True
        self._blame(plugin, what, True)
        self._end(EXIT_CODE)

    def at_fault(self, stack: Iterable[FrameType]) -> tuple[str, FrameType] | None:
        """The innermost frame of a plugin; none where our own code or another library of ours is further in."""
        for frame in stack:
            file = frame.f_code.co_filename
            for plugin in self._plugins.values():
                if file.startswith(f"{plugin.root}/"):
                    return plugin.id, frame
        return None

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._plugins or getattr(self._local, "inside", False):
            return
        if event == "open":
            self._check_open(arguments)
        elif event in _SPAWNS:
            self._check_program(event, arguments)

    def _check_open(self, arguments: tuple[Any, ...]) -> None:
        path = arguments[0]
        if not isinstance(path, str | bytes):
            return
        place = os.path.realpath(os.fsdecode(path))
        if not place.startswith(self._home) or place.startswith(self._workspaces):
            return
        plugin = self._caller()
        if plugin is not None and not place.startswith(plugin.own):
            self._refuse(plugin, f"it opened {place.removeprefix(self._home)} of the home, which is not its own")

    def _check_program(self, event: str, arguments: tuple[Any, ...]) -> None:
        plugin = self._caller()
        if plugin is None:
            return
        first = arguments[0] if arguments else ""
        words = first if isinstance(first, str | bytes) else os.fspath(first) if hasattr(first, "__fspath__") else ""
        program = Path(os.fsdecode(words).split()[0] if event == "os.system" and words else os.fsdecode(words)).name
        if program not in plugin.bins:
            self._refuse(plugin, f"it started {program or 'a program'}, which its manifest does not name")

    def _caller(self) -> WatchedPlugin | None:
        """The plugin whose own code asks for this: not ours, which it may have called."""
        frame: FrameType | None = sys._getframe(2)  # noqa: SLF001  an audit hook has no other way
        while frame is not None:
            file = frame.f_code.co_filename
            for plugin in self._plugins.values():
                if file.startswith(f"{plugin.root}/"):
                    return plugin
            if (file.startswith(_PACKAGE) and file != __file__) or "importlib" in file:
                return None
            frame = frame.f_back
        return None

    def _refuse(self, plugin: WatchedPlugin, what: str) -> None:
        self._local.inside = True
        try:
            self._name(plugin.id, what)
        finally:
            self._local.inside = False
        raise PermissionError(f"the plugin {plugin.id}: {what}")


def _parts_of_ours() -> Iterator[tuple[str, str, Any]]:
    """Every function and class of Palinurus that is loaded, and what is in the classes."""
    for name, module in list(sys.modules.items()):
        if not name.startswith("palinurus.") or module is None:
            continue
        for key, value in list(vars(module).items()):
            if isinstance(value, FunctionType | type):
                yield name, key, value
                if isinstance(value, type) and value.__module__ == name:
                    for inner, part in list(vars(value).items()):
                        if isinstance(part, FunctionType | property | classmethod | staticmethod):
                            yield name, f"{key}.{inner}", part


def code_of_ours() -> dict[tuple[str, str], int]:
    """To be compared later."""
    return {(module, key): id(part) for module, key, part in _parts_of_ours()}


def patched(before: dict[tuple[str, str], int]) -> list[str]:
    after = code_of_ours()
    return sorted(".".join(key) for key, value in before.items() if key in after and after[key] != value)


def _memory_mb() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError):  # not Linux
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") // (1 << 20)
