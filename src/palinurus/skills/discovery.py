"""Finds skills: the roots, and a bounded walk below each that never leaves it.

The roots (`skill_roots`, the one that wins first) inside a workspace are also guarded by this list: see
workspace/instructions.py and runtime/tools.py.

For every file and folder that counted, its `stat` result is stored (`marks`), which makes the next scan cheap: as long
as all of them are equal, nothing is listed, opened or parsed. Files are opened through the workspace's boundary, which
resolves links step by step, so what is read is inside the root even if the tree changes meanwhile.

All skills of one agent: every root is scanned, and of two skills with one name the one from the higher root is used.

What was found below each root is cached in one file on disk, with one `stat` result for each file and folder that
counts. As long as those are equal, nothing is listed, opened or parsed, in this process or the next. The cache file may
be deleted at any time; if it cannot be read or written, the roots are scanned.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import Struct

from palinurus import __version__
from palinurus.config.atomic import make_directory, write_atomic
from palinurus.config.home import Home
from palinurus.domain.errors import BadRequest, NotFound, OutsideWorkspace, StorageError, WorkspaceError
from palinurus.skills.manifest import read_manifest
from palinurus.skills.pins import Pins, client_installs, client_locks, find_drift, lock_path, read_pins, registry_of
from palinurus.skills.settings import SkillsSettings
from palinurus.skills.skill import SKILL_FILE, OmittedSkill, ShadowedSkill, Skill, SkillManifest, Tier
from palinurus.workspace.boundary import PROJECT_SKILLS, SKILLS, Boundary

BUNDLED = Path(__file__).parent / "bundled"
MAX_DEPTH = 6
MAX_ENTRIES = 10_000  # of one folder
SETTLED_NS = 50_000_000  # a second change within one tick of the file system's clock could leave the mark unchanged
_SKIPPED = frozenset({"node_modules", "__pycache__"})


class Root(Struct, frozen=True):
    tier: Tier
    path: str  # absolute


def skill_roots(workspace: Path, home: Home, settings: SkillsSettings, bundled: Path = BUNDLED) -> tuple[Root, ...]:
    """Returns all roots, whether they exist or not. A folder with two roles has the higher one."""
    found: list[tuple[Tier, Path]] = [("workspace", workspace / SKILLS), ("project", workspace / PROJECT_SKILLS)]
    if not home.profile:  # another profile does not share the user's own folder
        found.append(("personal", home.user_home / ".agents" / "skills"))
    found += [("managed", home.root / "skills"), ("bundled", bundled)]
    found += [("extra", each) for each in settings.extra_dirs]
    roots: dict[str, Root] = {}
    for tier, path in found:
        roots.setdefault(os.path.realpath(path), Root(tier, os.path.abspath(path)))  # noqa: PTH100  as its owner names it
    return tuple(roots.values())


class Mark(Struct, frozen=True, array_like=True, gc=False):
    """The state of a path; all zeros if nothing was there."""

    path: str
    inode: int = 0
    size: int = 0
    modified: int = 0
    changed: int = 0


class SkillFileScan(Struct, frozen=True, array_like=True, gc=False):
    """The content of one SKILL.md: a manifest, or the reason why it is invalid."""

    mark: Mark
    digest: str
    about: SkillManifest | None = None
    reason: str = ""
    registry: str = ""


class RootScan(Struct, frozen=True):
    root: Root
    marks: tuple[Mark, ...] = ()  # in addition to those of the reads
    reads: tuple[SkillFileScan, ...] = ()
    left_out: tuple[OmittedSkill, ...] = ()
    settled: bool = True  # False: something changed so recently that its mark cannot be trusted

    def skills(self) -> list[Skill]:
        return [
            Skill(read.about, read.mark.path.removesuffix(f"/{SKILL_FILE}"), self.root.tier, read.digest, read.registry)
            for read in self.reads
            if read.about is not None and not read.reason
        ]


def looks_the_same(scanned: RootScan) -> bool:
    """Compares one stat for each mark. This is the whole cost of a turn if nothing has changed."""
    marks = (*scanned.marks, *(read.mark for read in scanned.reads))
    return scanned.settled and all(mark_of(mark.path) == mark for mark in marks)


def scan(root: Root, settings: SkillsSettings, known: RootScan | None = None, home: Path | None = None) -> RootScan:
    """Walks the root. What `known` has read and is unchanged is not read again, and equal bytes are not parsed.

    `home` has the pins of what was installed from a registry: what differs from its pin is left out.
    """
    began = time.time_ns()
    pinned = mark_of(str(lock_path(home))) if home else None
    walk = _Walk(root, settings, known, read_pins(home) if home else Pins())
    walk.enter(root.path, 0)
    walk.marks += [pinned] if pinned else []
    walk.marks += map(mark_of, client_locks(root.path))
    marks = (*walk.marks, *(read.mark for read in walk.reads))
    settled = all(began - mark.changed > SETTLED_NS for mark in marks)
    return RootScan(root, tuple(walk.marks), tuple(walk.reads), tuple(walk.left_out), settled=settled)


def mark_of(path: str) -> Mark:
    try:
        seen = os.stat(path)  # noqa: PTH116  a thousand of these in a row
    except (OSError, ValueError):
        return Mark(path)
    return Mark(path, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)


class _Walk:
    def __init__(self, root: Root, settings: SkillsSettings, known: RootScan | None, pins: Pins) -> None:
        self._root = root
        self._pins = pins
        self._limits = settings.limits
        self._inside = (os.path.realpath(root.path), *map(os.path.realpath, settings.link_targets))
        self._known = {read.mark.path: read for read in known.reads} if known else {}
        self._trusted = known is not None and known.settled
        self._listed = client_installs(root.path)
        self._visited: set[tuple[int, int]] = set()
        self._folders = self._skills = 0
        self.marks: list[Mark] = []
        self.reads: list[SkillFileScan] = []
        self.left_out: list[OmittedSkill] = []

    def enter(self, folder: str, depth: int) -> None:
        self._folders += 1
        if self._folders > self._limits.folders:
            if self._folders == self._limits.folders + 1:
                self._leave(folder, f"more than {self._limits.folders} folders below {self._root.path}: not searched")
            return
        before = mark_of(folder)  # later changes will show
        entries: list[os.DirEntry[str]] = []
        try:
            with os.scandir(folder) as found:
                entries = sorted(islice(found, MAX_ENTRIES), key=lambda entry: entry.name)
        except NotADirectoryError:
            self._leave(folder, "it is not a folder")
        except OSError as error:
            if before.inode:
                self._leave(folder, f"it cannot be read: {(error.strerror or str(error)).lower()}")
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
            return  # a link to a folder that was visited already, perhaps in a circle
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

    def _judged(self, read: SkillFileScan, folder: str) -> SkillFileScan:
        """Returns the skill with its origin, or the reason why it may not be used."""
        registry = registry_of(folder, self._listed)
        if (held := find_drift(folder, self._pins, registry)) is not None:
            # Then any change in the folder counts. A change made meanwhile is detected: the root is not settled.
            self.marks += [mark_of(place) for place in held.places]
            if held.reason:
                return msgspec.structs.replace(read, reason=held.reason, registry=held.registry)
            registry = held.registry
        self._skills += 1
        over = self._skills > self._limits.skills
        why = f"{self._root.path} has more than {self._limits.skills} skills" if over else ""
        return msgspec.structs.replace(read, reason=why, registry=registry)

    def _read(self, path: str) -> SkillFileScan:
        mark, known = mark_of(path), self._known.get(path)
        if known is not None and self._trusted and known.mark == mark:
            return known
        try:
            data = self._bytes(path)
        except (NotFound, WorkspaceError) as error:
            return SkillFileScan(mark, "", reason=_unreadable(error, self._root.path, self._limits.file_bytes))
        digest = hashlib.sha256(data).hexdigest()
        if known is not None and known.digest == digest:
            return msgspec.structs.replace(known, mark=mark)
        try:
            return SkillFileScan(mark, digest, about=read_manifest(data, os.path.basename(os.path.dirname(path))))  # noqa: PTH119, PTH120
        except BadRequest as error:
            return SkillFileScan(mark, digest, reason=error.message)

    def _bytes(self, path: str) -> bytes:
        """Reads from inside the root, or from inside a folder that links may lead to."""
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
        self.left_out.append(OmittedSkill(path, self._root.tier, reason))


def _within(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == each or path.startswith(each.rstrip("/") + "/") for each in folders)


def _unreadable(error: WorkspaceError | NotFound, root: str, limit: int) -> str:
    if isinstance(error, OutsideWorkspace):
        return f"its {SKILL_FILE} is a link that leads out of {root}"
    if " bytes; " in error.message:
        return f"its {SKILL_FILE} is larger than {limit:,} bytes"
    return f"its {SKILL_FILE} cannot be read: {error.message}"


FORMAT = f"3 {__version__}"
MAX_ROOTS = 512
MAX_BYTES = 64 * 1024 * 1024
# One turn needs the list several times; OpenClaw's watcher waits as long before it reports a change.
BELIEVED_SECONDS = 0.25


class CachedRoots(Struct, frozen=True):
    format: str
    roots: dict[str, RootScan]


class SkillCache:
    """One file for all agents of a home. Read once, written when something has changed."""

    def __init__(self, path: Path | None) -> None:
        self._path = path  # None: nothing is cached
        self._roots: dict[str, RootScan] | None = None

    def get(self, root: Root, settings: SkillsSettings) -> RootScan | None:
        if self._roots is None:
            self._roots = self._load()
        return self._roots.get(_key(root, settings))

    def put(self, found: Iterable[RootScan], settings: SkillsSettings) -> None:
        """Stores entries, newest first, as many as fit."""
        newest = {_key(each.root, settings): each for each in found}
        others = {key: each for key, each in self._load().items() if key not in newest}
        self._roots = dict(list({**newest, **others}.items())[:MAX_ROOTS])
        if self._path is None:
            return
        data = msgspec.msgpack.encode(CachedRoots(FORMAT, self._roots))
        with suppress(OSError, StorageError):
            make_directory(self._path.parent)
            write_atomic(self._path, data)

    def _load(self) -> dict[str, RootScan]:
        if self._path is None:
            return self._roots or {}
        try:
            if self._path.stat().st_size > MAX_BYTES:
                return {}
            cached = msgspec.msgpack.decode(self._path.read_bytes(), type=CachedRoots)
        except (OSError, msgspec.DecodeError):
            return {}
        return cached.roots if cached.format == FORMAT else {}


def _key(root: Root, settings: SkillsSettings) -> str:
    limits = settings.limits
    bounds = (limits.folders, limits.skills, limits.file_bytes, *settings.link_targets)
    return "\0".join((root.tier, root.path, *map(str, bounds)))


class SkillSet(Struct, frozen=True):
    """The skills by name. `shadowed` and `left_out` tell people why something is missing."""

    skills: tuple[Skill, ...] = ()
    shadowed: tuple[ShadowedSkill, ...] = ()
    left_out: tuple[OmittedSkill, ...] = ()

    def get(self, name: str) -> Skill:
        """Returns a skill. Raises NotFound, with the reason if the skill exists and was left out."""
        wanted = same_name(name)
        for skill in self.skills:
            if same_name(skill.name) == wanted or same_name(skill.key) == wanted:
                return skill
        for each in self.left_out:
            if f"/{wanted}/" in f"{same_name(each.path)}/":
                raise NotFound(f"the skill {name} was left out: {each.reason}", hint=each.path)
        raise NotFound(f"there is no skill {name!r}", hint="`pal skills list` shows them")


class SkillCatalog:
    """The skills below some roots, the root that wins first. Thread-safe."""

    def __init__(
        self,
        roots: tuple[Root, ...],
        settings: SkillsSettings,
        cache: SkillCache,
        *,
        home: Path | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._roots = roots
        self._settings = settings
        self._cache = cache
        self._home = home  # the home has the pins of skills that were installed from a registry
        self._now = now
        self._looked = -1.0
        self._lock = threading.Lock()
        self._scans: list[RootScan] = []
        self._last: SkillSet | None = None

    def look(self) -> SkillSet:
        """Returns the skills; the same object as before if nothing on disk has changed."""
        with self._lock:
            began = self._now()
            if self._last is not None and 0 <= began - self._looked < BELIEVED_SECONDS:
                return self._last
            known = [self._cache.get(root, self._settings) for root in self._roots]
            scans = [
                before if before and looks_the_same(before) else self._scan(root, before)
                for root, before in zip(self._roots, known, strict=True)
            ]
            if scans != known:
                self._cache.put(scans, self._settings)
            if self._last is None or scans != self._scans:
                self._scans, self._last = scans, settle(scans)
            self._looked = began
            return self._last

    def _scan(self, root: Root, known: RootScan | None) -> RootScan:
        return scan(root, self._settings, known, self._home)


def settle(roots: Iterable[RootScan]) -> SkillSet:
    """Decides which skill has which name. Pure; the root that wins comes first."""
    taken: dict[str, Skill] = {}
    shadowed: list[ShadowedSkill] = []
    left_out: list[OmittedSkill] = []
    for scanned in roots:
        left_out += scanned.left_out
        for skill in scanned.skills():
            winner = taken.setdefault(same_name(skill.name), skill)
            if winner is not skill:
                shadowed.append(ShadowedSkill(skill.name, skill.tier, skill.location, winner.location))
    return SkillSet(tuple(taken[name] for name in sorted(taken)), tuple(shadowed), tuple(left_out))


def same_name(name: str) -> str:
    """Names that look alike are equal: a skill must not imitate another one by its case."""
    if name.isascii():  # the common case, checked a thousand times in a row
        return name.lower().strip()
    return unicodedata.normalize("NFKC", name).casefold().strip()
