"""The workspace's markdown as text: which files a prompt begins with, which are private, and what has not changed."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from palinurus.domain.errors import NotFound, WorkspaceError
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.file_origins import FileOrigins

Mode = Literal["full", "subagent", "heartbeat"]

HEARTBEAT = "HEARTBEAT.md"
IDENTITY = "IDENTITY.md"
CACHED_BYTES = 8 * 1024 * 1024
_SETTLED_NS = 50_000_000
"""Within one tick of the file system's clock a second write may leave size and mtime as they were. So a file is kept
only when its last write lies further back than any tick."""


class BootstrapSlot(Struct, frozen=True):
    """A file that every workspace may have, and when a prompt shows it."""

    name: str
    private: bool = False  # only the owner's own sessions see it: promise 17
    interactive: bool = False  # it is of use in the owner's own conversations alone
    subagents: bool = False
    heartbeat_only: bool = False  # and read anew each time
    may_lack: bool = False  # its absence is worth no word
    front_matter: bool = False  # shown with its YAML block, which says as much as the text
    older: str = ""  # another name, which counts where this one is missing or an empty file


# Order: OpenClaw's table of 2026.3 to 2026.7 (AGENTS 10, SOUL 20 … MEMORY 70); 2026.2 loaded TOOLS before IDENTITY.
# Private: OpenClaw filters MEMORY for groups since 2026.8, and shows BOOTSTRAP in interactive runs only; USER is ours.
# Subagents: AGENTS and TOOLS, as 2026.3 has it. `memory.md` counted until 2026.3.
BOOTSTRAP: tuple[BootstrapSlot, ...] = (
    BootstrapSlot("AGENTS.md", subagents=True),
    BootstrapSlot("SOUL.md"),
    BootstrapSlot(IDENTITY, front_matter=True),
    BootstrapSlot("USER.md", private=True),
    BootstrapSlot("TOOLS.md", subagents=True),
    BootstrapSlot("BOOTSTRAP.md", interactive=True, may_lack=True),  # only until the first conversation is over
    BootstrapSlot("MEMORY.md", private=True, may_lack=True, older="memory.md"),
    BootstrapSlot(HEARTBEAT, heartbeat_only=True),
)
_NAMES = tuple(slot.name for slot in BOOTSTRAP)

# `.git` and `.pal` are here because they hold earlier versions of the other three.
PRIVATE_FILES = frozenset({"memory.md", "user.md"})
PRIVATE_DIRECTORIES = frozenset({"memory", ".git", ".pal"})


class FileText(Struct, frozen=True):
    """A text file as it was read. `path` is where it really lies, links followed; `body` lacks the front matter."""

    path: str
    text: str
    body: str
    digest: str  # of the body: 16 hex digits of SHA-256


class Missing(Struct, frozen=True):
    path: str


class Unreadable(Struct, frozen=True):
    path: str
    reason: str


class BootstrapFile(Struct, frozen=True):
    """A workspace file for a prompt. Of an unreadable file `text` is the reason; of the other absent ones it is empty.

    The digest changes whenever what a prompt would show changes, a missing file becoming an unreadable one included.
    """

    name: str
    state: Literal["present", "missing", "unreadable", "empty"]  # empty: it has front matter and no text
    text: str = ""
    digest: str = ""
    raw_chars: int = 0


class WorkspaceFiles:
    """Reads of one workspace, cached by (device, inode, size, mtime). Safe to use from several threads."""

    def __init__(self, boundary: Boundary, origins: FileOrigins | None = None) -> None:
        self.boundary = boundary
        self.origins = origins or FileOrigins()
        self._cache = _Cache()

    def read(self, path: str, *, fresh: bool = False) -> FileText | Missing | Unreadable:
        """A text file; every trouble with it is an answer, not an error. `fresh` goes past the cache."""
        try:
            return self.load(path, fresh=fresh)
        except NotFound:
            return Missing(path)
        except WorkspaceError as error:
            return Unreadable(path, error.message)

    def load(self, path: str, *, fresh: bool = False) -> FileText:
        """As `read`, but raises NotFound, OutsideWorkspace or WorkspaceError, for a caller that passes them on."""
        with self.boundary.open_file(path) as file:
            key = _key(file.stat)
            kept = None if fresh else self._cache.get(key)
            if kept is not None and kept.path == file.path:
                return kept
            read_at = time.time_ns()
            found = _decode(file.path, file.read())
            after = os.fstat(file.fd)
        if not fresh and _key(after) == key and read_at - after.st_mtime_ns > _SETTLED_NS:
            self._cache.put(key, found)
        return found

    def sources_of(self, place: str) -> tuple[str, ...]:
        """Where the words of a file come from, as far as that is outside: see file_origins.py."""
        return self.origins.sources_of(self.boundary, place)

    def bootstrap_files(self, mode: Mode, private: bool, extra: Sequence[str] = ()) -> list[BootstrapFile]:
        """What a prompt shows of the workspace, in order. Blank files are left out, as are those not meant for it."""
        stats = dict(zip(_NAMES, self.boundary.stat_names(_NAMES), strict=True))
        slots = [slot for slot in BOOTSTRAP if _shown(slot, mode, private)]
        found = [self._slot(slot, stats[slot.name], private) for slot in slots]
        if mode != "subagent":
            there = {file.name for file in found if file is not None}
            found += [self._present(name, self.read(name), private) for name in _extras(extra) if name not in there]
        return [file for file in found if file is not None]

    def _slot(self, slot: BootstrapSlot, seen: os.stat_result | None, private: bool) -> BootstrapFile | None:
        name = slot.name
        if slot.older and (seen is None or not seen.st_size):
            (older,) = self.boundary.stat_names((slot.older,))
            name, seen = (slot.older, older) if older is not None else (name, seen)
        if seen is None:
            return None if slot.may_lack else _missing(slot.name)
        # The usual case costs one stat: a plain file in the root whose identity is known. All else is opened.
        kept = None
        if stat.S_ISREG(seen.st_mode) and not slot.heartbeat_only:
            kept = self._cache.get(_key(seen))
        if kept is None or kept.path != name:
            return self._present(name, self.read(name, fresh=slot.heartbeat_only), private, slot.front_matter)
        return self._present(name, kept, private, slot.front_matter)

    def _present(
        self, name: str, found: FileText | Missing | Unreadable, private: bool, front_matter: bool = False
    ) -> BootstrapFile | None:
        if not private and (is_private(found.path) or is_private(name)):
            return None
        match found:
            case Missing():
                return _missing(name)
            case Unreadable(reason=reason):
                return BootstrapFile(name, "unreadable", reason, _digest(reason))
        if not found.text.strip():
            return None
        if front_matter:
            return BootstrapFile(name, "present", found.text, _digest(found.text), len(found.text))
        if not found.body.strip():
            return BootstrapFile(name, "empty", digest="empty", raw_chars=len(found.text))
        return BootstrapFile(name, "present", found.body, found.digest, len(found.text))


def is_private(path: str) -> bool:
    """Whether a workspace path belongs to the owner alone: MEMORY.md, USER.md, memory/, and older copies of them."""
    parts = [part for part in path.casefold().split("/") if part not in ("", ".")]
    if not parts:
        return False
    return parts[0] in PRIVATE_DIRECTORIES or (len(parts) == 1 and parts[0] in PRIVATE_FILES)


def strip_front_matter(text: str) -> str:
    """The text without a YAML block at its very beginning. A block that never ends is text."""
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        return text
    for index, line in enumerate(lines[1:], start=1):
        if line.rstrip() in ("---", "..."):
            return "\n".join(lines[index + 1 :]).lstrip("\r\n")
    return text


def _shown(slot: BootstrapSlot, mode: Mode, private: bool) -> bool:
    if (slot.private or slot.interactive) and not private:
        return False
    if slot.heartbeat_only:
        return mode == "heartbeat"
    return slot.subagents if mode == "subagent" else True


def _extras(names: Sequence[str]) -> list[str]:
    """By base name, then path; a name that has a slot of its own is not shown twice."""
    wanted = {name.removeprefix("./") for name in names} - set(_NAMES)
    return sorted(wanted, key=lambda name: (name.rpartition("/")[2], name))


def _decode(path: str, data: bytes) -> FileText:
    if b"\0" in data:
        raise WorkspaceError(f"{path} is not a text file", hint="only text is read here")
    # A stray byte of another encoding should cost one character, not the file.
    text = data.decode("utf-8-sig", errors="replace")
    body = strip_front_matter(text)
    return FileText(path, text, body, _digest(body))


def _missing(name: str) -> BootstrapFile:
    return BootstrapFile(name, "missing", digest="missing")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_Key = tuple[int, int, int, int]


def _key(found: os.stat_result) -> _Key:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


class _Cache:
    """The texts used last, up to a total size."""

    def __init__(self) -> None:
        self._texts: OrderedDict[_Key, FileText] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: _Key) -> FileText | None:
        with self._lock:
            found = self._texts.get(key)
            if found is not None:
                self._texts.move_to_end(key)
            return found

    def put(self, key: _Key, text: FileText) -> None:
        with self._lock:
            if key not in self._texts:
                self._bytes += key[2]
            self._texts[key] = text
            self._texts.move_to_end(key)
            while self._bytes > CACHED_BYTES:
                gone, _ = self._texts.popitem(last=False)
                self._bytes -= gone[2]
