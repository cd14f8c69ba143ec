"""Find the skills below one root: a bounded walk that never leaves it, and a note of how everything looked.

The note (`marks`) is what makes the next look cheap: as long as no folder on the way and no SKILL.md looks different,
nothing is listed, opened or parsed. Files are opened by the workspace's boundary, which resolves links step by step, so
what is read lies inside the root whatever happens to the tree meanwhile.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import Struct

from palinurus.config.offering import SkillLimit
from palinurus.domain.errors import BadRequest, NotFound, OutsideWorkspace, WorkspaceError
from palinurus.skills.manifest import read_manifest
from palinurus.skills.registry.drift import drift
from palinurus.skills.registry.lock import Pins, lock_path, read_pins
from palinurus.skills.roots import Root
from palinurus.skills.skill import SKILL_FILE, LeftOut, Manifest, Skill
from palinurus.workspace.boundary import Boundary

MAX_DEPTH = 6
MAX_ENTRIES = 10_000  # of one folder
SETTLED_NS = 50_000_000  # a second change within one tick of the file system's clock could leave the mark as it was
_SKIPPED = frozenset({"node_modules", "__pycache__"})
REGISTRIES = (".clawhub", ".clawdhub")  # the second is the older name
LOCK, ORIGIN = "lock.json", "origin.json"


class Mark(Struct, frozen=True, array_like=True, gc=False):
    """How a place looked; all noughts when nothing was there."""

    path: str
    inode: int = 0
    size: int = 0
    modified: int = 0
    changed: int = 0

    @property
    def looks(self) -> str:
        """In one word, as cli/kept.py compares it."""
        return f"{self.inode} {self.size} {self.modified} {self.changed}" if self.inode else "-"


class Read(Struct, frozen=True, array_like=True, gc=False):
    """What one SKILL.md was found to say: a manifest, or the reason why it is none."""

    mark: Mark
    digest: str
    about: Manifest | None = None
    reason: str = ""
    registry: str = ""


class Scanned(Struct, frozen=True):
    root: Root
    marks: tuple[Mark, ...] = ()  # besides those of the reads
    reads: tuple[Read, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    settled: bool = True  # False: something changed so recently that its mark cannot be trusted

    def skills(self) -> list[Skill]:
        cut = len(SKILL_FILE) + 1
        return [
            Skill(read.about, read.mark.path[:-cut], self.root.tier, read.digest, read.registry)
            for read in self.reads
            if read.about is not None and not read.reason
        ]


def looks_the_same(scanned: Scanned) -> bool:
    """One stat for each mark. This is all that a turn pays when nothing has changed."""
    if not scanned.settled:
        return False
    return all(map(_unchanged, scanned.marks)) and all(_unchanged(read.mark) for read in scanned.reads)


def _unchanged(mark: Mark) -> bool:
    try:
        seen = os.stat(mark.path)  # noqa: PTH116  a thousand of these in a row
    except (OSError, ValueError):
        return not mark.inode
    return (
        seen.st_mtime_ns == mark.modified
        and seen.st_ctime_ns == mark.changed
        and seen.st_size == mark.size
        and seen.st_ino == mark.inode
    )


def scan(
    root: Root,
    limits: SkillLimit,
    targets: tuple[str, ...] = (),
    known: Scanned | None = None,
    home: Path | None = None,
) -> Scanned:
    """Walk the root. What `known` has read and looks the same is not read again, and equal bytes are not parsed.

    `home` has the pins of what was installed from a registry: what differs from its pin is left out.
    """
    began = time.time_ns()
    pinned = mark_of(str(lock_path(home))) if home else None
    walk = _Walk(root, limits, targets, known, read_pins(home) if home else Pins())
    walk.enter(root.path, 0)
    walk.marks += [pinned] if pinned else []
    for name in REGISTRIES:  # what a registry's client has installed is written down beside the root
        walk.marks.append(mark_of(os.path.join(os.path.dirname(root.path), name, LOCK)))  # noqa: PTH118, PTH120
    marks = (*walk.marks, *(read.mark for read in walk.reads))
    settled = all(began - mark.changed > SETTLED_NS for mark in marks)
    return Scanned(root, tuple(walk.marks), tuple(walk.reads), tuple(walk.left_out), settled=settled)


def mark_of(path: str) -> Mark:
    try:
        seen = os.stat(path)  # noqa: PTH116  as above
    except (OSError, ValueError):
        return Mark(path)
    return Mark(path, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)


class _Walk:
    def __init__(
        self, root: Root, limits: SkillLimit, targets: tuple[str, ...], known: Scanned | None, pins: Pins
    ) -> None:
        self._root = root
        self._pins = pins
        self._limits = limits
        self._inside = (os.path.realpath(root.path), *map(os.path.realpath, targets))
        self._known = {read.mark.path: read for read in known.reads} if known else {}
        self._trusted = known is not None and known.settled
        self._locked = _installed(root)
        self._visited: set[tuple[int, int]] = set()
        self._folders = self._skills = 0
        self.marks: list[Mark] = []
        self.reads: list[Read] = []
        self.left_out: list[LeftOut] = []

    def enter(self, folder: str, depth: int) -> None:
        if self._folders > self._limits.folders:
            return
        self._folders += 1
        if self._folders > self._limits.folders:
            self._leave(folder, f"more than {self._limits.folders} folders below {self._root.path}: not looked at")
            return
        before = mark_of(folder)  # what comes after this look will show
        try:
            with os.scandir(folder) as found:
                entries = sorted(islice(found, MAX_ENTRIES), key=lambda entry: entry.name)
        except NotADirectoryError:
            self._leave(folder, "it is no folder")
            entries = []
        except OSError as error:
            if before.inode:
                self._leave(folder, f"it cannot be looked into: {(error.strerror or str(error)).lower()}")
            entries = []
        if any(entry.name == SKILL_FILE for entry in entries):
            self._take(folder)
            return
        self.marks.append(before)
        for entry in entries if depth < MAX_DEPTH else ():
            if not entry.name.startswith(".") and entry.name not in _SKIPPED:
                self._step(entry, depth)

    def _step(self, entry: os.DirEntry[str], depth: int) -> None:
        try:
            link = entry.is_symlink()
            if not entry.is_dir():
                return
            seen = entry.stat()
        except OSError:
            return
        if link:
            self.marks.append(mark_of(entry.path))
            if not _within(os.path.realpath(entry.path), self._inside):
                self._leave(entry.path, f"it is a link that leads out of {self._root.path}")
                return
        if (seen.st_dev, seen.st_ino) in self._visited:
            return  # a link to what was seen already, perhaps in a circle
        self._visited.add((seen.st_dev, seen.st_ino))
        self.enter(entry.path, depth + 1)

    def _take(self, folder: str) -> None:
        path = f"{folder}/{SKILL_FILE}"
        read = self._read(path)
        if read.about is not None:
            read = self._judged(read, folder)
        self.reads.append(read)
        if read.reason:
            self._leave(path, read.reason)

    def _judged(self, read: Read, folder: str) -> Read:
        """With where it came from, and with the reason if it may not be used for that, or for want of room."""
        registry = _registry(folder, self._locked)
        if (held := drift(folder, self._pins, registry)) is not None:
            # Any change in the folder counts then. One made meanwhile shows: the root is not settled.
            self.marks += [mark_of(place) for place in held.places]
            if held.reason:
                return msgspec.structs.replace(read, reason=held.reason, registry=held.registry)
            registry = held.registry
        self._skills += 1
        over = self._skills > self._limits.skills
        why = f"{self._root.path} holds more than {self._limits.skills} skills" if over else ""
        return msgspec.structs.replace(read, reason=why, registry=registry)

    def _read(self, path: str) -> Read:
        mark, known = mark_of(path), self._known.get(path)
        if known is not None and self._trusted and known.mark == mark:
            return known
        try:
            data = self._bytes(path)
        except (NotFound, WorkspaceError) as error:
            return Read(mark, "", reason=_unreadable(error, self._root.path, self._limits.file_bytes))
        digest = hashlib.sha256(data).hexdigest()
        if known is not None and known.digest == digest:
            return msgspec.structs.replace(known, mark=mark)
        try:
            return Read(mark, digest, about=read_manifest(data, os.path.basename(os.path.dirname(path))))  # noqa: PTH119, PTH120
        except BadRequest as error:
            return Read(mark, digest, reason=error.message)

    def _bytes(self, path: str) -> bytes:
        """From inside the root, or from inside a folder that links may lead to."""
        try:
            with Boundary(Path(self._root.path)).open_file(path) as file:
                return file.read(self._limits.file_bytes)
        except OutsideWorkspace:
            real = os.path.realpath(path)
            for target in self._inside[1:]:
                if _within(real, (target,)):
                    with Boundary(Path(target)).open_file(real) as file:
                        return file.read(self._limits.file_bytes)
            raise

    def _leave(self, path: str, reason: str) -> None:
        self.left_out.append(LeftOut(path, self._root.tier, reason))


def _within(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == each or path.startswith(each.rstrip("/") + "/") for each in folders)


def _unreadable(error: WorkspaceError | NotFound, root: str, limit: int) -> str:
    if isinstance(error, OutsideWorkspace):
        return f"its {SKILL_FILE} is a link that leads out of {root}"
    if " bytes; " in error.message:
        return f"its {SKILL_FILE} is larger than {limit:,} bytes"
    return f"its {SKILL_FILE} cannot be read: {error.message}"


def lock_files(root: str) -> tuple[str, ...]:
    """The files beside a root that say what a registry's client has installed there."""
    return tuple(str(Path(root).parent / name / LOCK) for name in REGISTRIES)


def _installed(root: Root) -> Mapping[str, str]:
    """Folder names that the lock file of a registry's client lists, with the registry."""
    found: dict[str, str] = {}
    for name in REGISTRIES:
        for slug in _slugs(Path(root.path).parent / name / LOCK):
            found[slug] = name.removeprefix(".")
    return found


def _slugs(lock: Path) -> Iterator[str]:
    with suppress(OSError, msgspec.DecodeError):
        data = lock.read_bytes()[: 4 * 1024 * 1024]
        skills = msgspec.json.decode(data, type=dict[str, msgspec.Raw]).get("skills")
        if skills is not None:
            yield from (slug.rsplit("/", 1)[-1] for slug in msgspec.json.decode(skills, type=dict[str, msgspec.Raw]))


def _registry(folder: str, locked: Mapping[str, str]) -> str:
    """Where it was installed from; either record is enough."""
    for name in REGISTRIES:
        try:
            with open(f"{folder}/{name}/{ORIGIN}", "rb") as file:  # noqa: PTH123  as above
                data = file.read(65_536)
        except OSError:
            continue
        with suppress(msgspec.DecodeError):
            told = msgspec.json.decode(data, type=dict[str, object]).get("registry")
            return str(told)[:200] if told else name.removeprefix(".")
        return name.removeprefix(".")
    return locked.get(os.path.basename(folder), "")  # noqa: PTH119  as above
