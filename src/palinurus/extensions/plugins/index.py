"""The plugins of a home that a person has installed, as files in `<home>/plugins`, which no tool of an agent reaches.

plugins.json     what is installed, each with its manifest and the digest of its files: all that a start reads
state.json       how often each has failed, and what was disabled because of it
<id>/            the files of one
starting/        a file for each plugin that some process is loading: what is left over has ended that process
"""

import hashlib
import os
import time
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palinurus.config.atomic import make_directory, write_atomic
from palinurus.config.home import Home
from palinurus.domain.errors import BadRequest
from palinurus.extensions.plugins.manifest import PluginManifest
from palinurus.runtime.extensions import PLUGIN_INDEX
from palinurus.storage.transaction import decoded
from palinurus.workspace.walk import walk_tree

Tier = Literal["config", "workspace", "global"]
MOST_FILES, MOST_BYTES = 50_000, 2_000_000_000  # of one plugin, with what it brings along
FAILURES = 3  # in a row, then it is disabled


class InstalledPlugin(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a person has installed, and the content that they agreed to."""

    manifest: PluginManifest
    folder: str  # of the manifest
    root: str  # where Python finds its module
    digest: str = ""  # of everything below the root; empty: it is a package of our own Python
    tier: Tier = "global"
    source: str = ""  # what was installed, as the person named it
    enabled: bool = True
    installed_at: int = 0
    specs: tuple[dict[str, object], ...] = ()  # of an isolated plugin: the tools that it registered


class PluginIndex(Struct, frozen=True, rename="camel"):
    version: int = 1
    plugins: dict[str, InstalledPlugin] = {}


class PluginHealth(Struct, frozen=True, rename="camel", omit_defaults=True):
    failures: int = 0  # in a row
    trouble: str = ""  # why the last one failed
    disabled: bool = False
    at: int = 0  # milliseconds


def plugins_folder(home: Home) -> Path:
    return home.root / "plugins"


def load_index(home: Home) -> PluginIndex:
    """Raises StorageDamaged."""
    path = home.root / PLUGIN_INDEX
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return PluginIndex()
    return decoded(data, PluginIndex, str(path))


def save_index(home: Home, index: PluginIndex) -> None:
    path = home.root / PLUGIN_INDEX
    make_directory(path.parent)
    write_atomic(path, msgspec.json.format(msgspec.json.encode(index)) + b"\n")


def change_index(home: Home, plugin_id: str, record: InstalledPlugin | None) -> None:
    others = {name: each for name, each in load_index(home).plugins.items() if name != plugin_id}
    save_index(home, PluginIndex(plugins={**others, **({plugin_id: record} if record else {})}))


class HealthRecords(Struct, frozen=True):
    plugins: dict[str, PluginHealth] = {}


class HealthFile:
    """state.json. May be used by several threads and processes: a lost count is counted again at the next failure."""

    def __init__(self, home: Home) -> None:
        self._path = plugins_folder(home) / "state.json"
        self._starting = plugins_folder(home) / "starting"

    def load(self) -> dict[str, PluginHealth]:
        try:
            return decoded(self._path.read_bytes(), HealthRecords, str(self._path)).plugins
        except FileNotFoundError:
            return {}

    def get(self, plugin_id: str) -> PluginHealth:
        return self.load().get(plugin_id, PluginHealth())

    def fail(self, plugin_id: str, trouble: str, now_ms: int, *, disable: bool = False) -> PluginHealth:
        """Counts a failure. After several in a row, or at once with `disable`, the plugin is not used any more."""
        before = self.get(plugin_id)
        count = before.failures + 1
        health = PluginHealth(count, trouble[:500], before.disabled or disable or count >= FAILURES, now_ms)
        self._save({**self.load(), plugin_id: health})
        return health

    def succeed(self, plugin_id: str) -> None:
        """Failures before do not count any more; one that is disabled stays so."""
        known = self.load()
        if (before := known.get(plugin_id)) is not None and before.failures and not before.disabled:
            self._save({**known, plugin_id: replace(before, failures=0)})

    def reset(self, plugin_id: str) -> None:
        if plugin_id in (known := self.load()):
            self._save({name: each for name, each in known.items() if name != plugin_id})

    def begin(self, plugin_id: str) -> Path:
        """A mark that a plugin is being loaded: it is still there when that has ended the process."""
        make_directory(self._starting)
        mark = self._starting / f"{plugin_id}.{os.getpid()}"
        mark.touch()
        return mark

    def load_with_killed(self) -> dict[str, PluginHealth]:
        """The same, after those whose loading has ended a process were disabled."""
        for mark in self._starting.iterdir() if self._starting.is_dir() else ():
            plugin_id, _, pid = mark.name.rpartition(".")
            if not _is_alive(int(pid)):
                mark.unlink(missing_ok=True)
                self.fail(plugin_id, "loading it ended the process", time.time_ns() // 1_000_000, disable=True)
        return self.load()

    def _save(self, known: dict[str, PluginHealth]) -> None:
        make_directory(self._path.parent)
        write_atomic(self._path, msgspec.json.format(msgspec.json.encode(HealthRecords(known))) + b"\n")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # of another user, who has its number now
    return True


def digest_of(root: Path) -> str:
    """Of all files below a folder. Raises BadRequest for what cannot be a plugin."""
    taken, left = hashlib.sha256(), MOST_BYTES
    entries = walk_tree(str(root), skip=_is_cache, on_error=_refuse, max_entries=MOST_FILES)
    for count, (path, entry) in enumerate(entries):
        if entry.is_symlink():
            raise BadRequest(f"it has a link: {path}")
        is_folder = entry.is_dir(follow_symlinks=False)
        size = 0 if is_folder else entry.stat(follow_symlinks=False).st_size
        left -= size
        if left <= 0 or count == MOST_FILES:
            raise BadRequest(f"it is larger than {MOST_FILES:,} files or {MOST_BYTES:,} bytes")
        taken.update(f"{path}\0{size}\0".encode("utf-8", "surrogateescape"))
        if not is_folder:
            with os.fdopen(
                os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb"
            ) as file:
                while block := file.read(1 << 20):
                    taken.update(block)
    return taken.hexdigest()


def _is_cache(_: str, entry: os.DirEntry[str]) -> bool:
    return entry.name == "__pycache__"


def _refuse(path: str, error: OSError) -> None:
    raise BadRequest(f"{path} cannot be read: {(error.strerror or str(error)).lower()}")
