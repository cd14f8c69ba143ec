"""The workspace's markdown as text: the files of a prompt, which are private, a cache, and the agent's identity from
IDENTITY.md.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import time
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from palinurus.domain.errors import NotFound, WorkspaceError
from palinurus.domain.identity import AgentIdentity
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.file_origins import FileOrigins

Mode = Literal["full", "subagent", "heartbeat", "unattended"]
HEARTBEAT = "HEARTBEAT.md"
CORE_FILE = ".pal/core.md"
CORE = "Core memory"
IDENTITY = "IDENTITY.md"
CACHED_BYTES = 8 * 1024 * 1024
_SETTLED_NS = 50_000_000
"""A second write within one tick of the file system's clock may leave size and mtime unchanged. So a file is cached
only if its last write is older than any tick.
"""

# `.git` and `.pal` are included because they hold earlier versions of the others; `bank` is made of memory.
PRIVATE_FILES = frozenset({"memory.md", "user.md", "dreams.md"})
PRIVATE_DIRECTORIES = frozenset({"memory", "bank", ".git", ".pal"})
_Key = tuple[int, int, int, int]
_LABELS = frozenset(AgentIdentity.__struct_fields__)
_MARKUP = " \t\r*_`"


class BootstrapSlot(Struct, frozen=True):
    """A file that every workspace may have, and when a prompt shows it."""

    name: str
    private: bool = False  # only in the owner's sessions: promise 17
    interactive: bool = False  # useful only in the owner's own sessions
    subagents: bool = False
    heartbeat_only: bool = False  # and never cached
    may_lack: bool = False  # not reported if missing
    front_matter: bool = False  # shown with its front matter, which is part of the content
    older: str = ""  # another file name, used if this one is missing or empty


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


class TextFile(Struct, frozen=True):
    """A text file as read. `path` is its path after links; `body` lacks the front matter."""

    path: str
    text: str
    body: str
    digest: str  # of the body: 16 hex digits of SHA-256


class MissingFile(Struct, frozen=True):
    path: str


class Unreadable(Struct, frozen=True):
    path: str
    reason: str


class BootstrapFile(Struct, frozen=True):
    """A workspace file for a prompt. Of an unreadable file `text` is the reason; of the other absent ones it is empty.

    The digest changes whenever what a prompt would show changes, a missing file becoming an unreadable one included.
    """

    name: str
    state: Literal["present", "missing", "unreadable", "empty"]  # empty: front matter without text
    text: str = ""
    digest: str = ""
    raw_chars: int = 0


class WorkspaceFiles:
    """Reads of one workspace, cached by (device, inode, size, mtime). Thread-safe."""

    def __init__(self, boundary: Boundary, origins: FileOrigins | None = None) -> None:
        self.boundary = boundary
        self.origins = origins or FileOrigins()
        self._cache: dict[_Key, TextFile] = {}
        self._cached_bytes = 0
        self._lock = threading.Lock()

    def read(self, path: str, *, fresh: bool = False) -> TextFile | MissingFile | Unreadable:
        """A text file; every error is part of the result and not raised. `fresh` bypasses the cache."""
        try:
            return self.load(path, fresh=fresh)
        except NotFound:
            return MissingFile(path)
        except WorkspaceError as error:
            return Unreadable(path, error.message)

    def load(self, path: str, *, fresh: bool = False) -> TextFile:
        """As `read`, but raises NotFound, OutsideWorkspace or WorkspaceError."""
        with self.boundary.open_file(path) as file:
            key = _key(file.stat)
            cached = None if fresh else self._cache.get(key)
            if cached is not None and cached.path == file.path:
                return cached
            read_at = time.time_ns()
            found = _decode(file.path, file.read())
            after = os.fstat(file.fd)
        if not fresh and _key(after) == key and read_at - after.st_mtime_ns > _SETTLED_NS:
            self._remember(key, found)
        return found

    def _remember(self, key: _Key, text: TextFile) -> None:
        size = key[2]
        with self._lock:
            if self._cached_bytes + size > CACHED_BYTES:
                self._cache, self._cached_bytes = {}, 0
            self._cached_bytes += size if key not in self._cache else 0
            self._cache[key] = text

    def sources_of(self, place: str) -> tuple[str, ...]:
        """The outside sources of a file's text: see file_origins.py."""
        return self.origins.sources_of(self.boundary, place)

    def bootstrap_files(self, mode: Mode, private: bool, extra: Sequence[str] = ()) -> list[BootstrapFile]:
        """The workspace files of a prompt, in order, without blank files and those not meant for it."""
        stats = dict(zip(_NAMES, self.boundary.stat_names(_NAMES), strict=True))
        slots = [slot for slot in BOOTSTRAP if _shown(slot, mode, private)]
        found = [self._slot(slot, stats[slot.name], private) for slot in slots]
        if private and mode != "subagent" and isinstance(core := self.read(CORE_FILE), TextFile) and core.body.strip():
            found.append(BootstrapFile(CORE, "present", core.body, core.digest, len(core.text)))
        if mode != "subagent":
            there = {file.name for file in found if file is not None}
            found += [self.extra_file(name, private) for name in _extras(extra) if name not in there]
        return [file for file in found if file is not None]

    def extra_file(self, name: str, private: bool) -> BootstrapFile | None:
        """A file that is in a prompt because somebody names it; None if it is blank, or too private for it."""
        return self._present(name, self.read(name), private)

    def _slot(self, slot: BootstrapSlot, seen: os.stat_result | None, private: bool) -> BootstrapFile | None:
        name = slot.name
        if slot.older and (seen is None or not seen.st_size):
            (older,) = self.boundary.stat_names((slot.older,))
            name, seen = (slot.older, older) if older is not None else (name, seen)
        if seen is None:
            return None if slot.may_lack else _missing(slot.name)
        found = self.read(name, fresh=True) if slot.heartbeat_only else self.read_seen(name, seen)
        return self._present(name, found, private, slot.front_matter)

    def read_seen(self, name: str, seen: os.stat_result | None) -> TextFile | MissingFile | Unreadable:
        """A file in the root whose stat was just taken. A cached file costs no further read."""
        cached = self._cache.get(_key(seen)) if seen is not None and stat.S_ISREG(seen.st_mode) else None
        return cached if cached is not None and cached.path == name else self.read(name)

    def _present(
        self, name: str, found: TextFile | MissingFile | Unreadable, private: bool, front_matter: bool = False
    ) -> BootstrapFile | None:
        if not private and (is_private(found.path) or is_private(name)):
            return None
        match found:
            case MissingFile():
                return _missing(name)
            case Unreadable(reason=reason):
                return BootstrapFile(name, "unreadable", reason, text_digest(reason))
        if not found.text.strip():
            return None
        if front_matter:
            return BootstrapFile(name, "present", found.text, text_digest(found.text), len(found.text))
        if not found.body.strip():
            return BootstrapFile(name, "empty", digest="empty", raw_chars=len(found.text))
        return BootstrapFile(name, "present", found.body, found.digest, len(found.text))


def is_private(path: str) -> bool:
    """Whether a workspace path is private to the owner: MEMORY.md, USER.md, DREAMS.md, memory/, bank/, and backups."""
    parts = [part for part in path.casefold().split("/") if part not in ("", ".")]
    if not parts:
        return False
    return parts[0] in PRIVATE_DIRECTORIES or (len(parts) == 1 and parts[0] in PRIVATE_FILES)


def strip_front_matter(text: str) -> str:
    """The text without a YAML block at its start. An unclosed block counts as text."""
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
    if slot.interactive and mode == "unattended":
        return False
    if slot.heartbeat_only:
        return mode == "heartbeat"
    return slot.subagents if mode == "subagent" else True


def _extras(names: Sequence[str]) -> list[str]:
    """Extra files by base name, then path; a name that has a slot is not shown twice."""
    wanted = {name.removeprefix("./") for name in names} - set(_NAMES)
    return sorted(wanted, key=lambda name: (name.rpartition("/")[2], name))


def _decode(path: str, data: bytes) -> TextFile:
    if b"\0" in data:
        raise WorkspaceError(f"{path} is not a text file", hint="only text is read here")
    # An invalid byte costs one character, not the file.
    text = data.decode("utf-8-sig", errors="replace")
    body = strip_front_matter(text)
    return TextFile(path, text, body, text_digest(body))


def _missing(name: str) -> BootstrapFile:
    return BootstrapFile(name, "missing", digest="missing")


def text_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _key(found: os.stat_result) -> _Key:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def parse_identity(text: str) -> AgentIdentity:
    """Any `label: value` line counts, plain, bulleted, bold or YAML. The last value of each known label wins, and
    placeholders in parentheses count as nothing."""
    found: dict[str, str] = {}
    for line in text.split("\n"):
        label, value = labelled(line)
        if label in _LABELS and value:
            found[label] = value
    return AgentIdentity(**found)


def labelled(line: str) -> tuple[str, str]:
    """Label and value of one line. The value is empty if missing or a placeholder; both are empty without a label."""
    label, colon, value = line.strip().removeprefix("- ").partition(":")
    return (label.strip(_MARKUP).lower(), _value(value)) if colon else ("", "")


def _value(text: str) -> str:
    value = text.strip(_MARKUP)
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1].strip(_MARKUP)
    return "" if value.startswith("(") and value.endswith(")") else value


def read_identity(files: WorkspaceFiles) -> AgentIdentity:
    """The identity from the workspace's file; empty if it is missing or unreadable."""
    found = files.read(IDENTITY)
    return parse_identity(found.text) if isinstance(found, TextFile) else AgentIdentity()
