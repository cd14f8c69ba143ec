"""All skills of one agent: every root is scanned, and of two skills with one name the one from the higher root is used.

What was found below each root is cached in one file on disk, with one `stat` result for each file and folder that
counts. As long as those are equal, nothing is listed, opened or parsed, in this process or the next. The cache file may
be deleted at any time; if it cannot be read or written, the roots are scanned.
"""

from __future__ import annotations

import threading
import time
import unicodedata
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from palinurus import __version__
from palinurus.config.atomic import make_directory, write_atomic
from palinurus.domain.errors import NotFound, StorageError
from palinurus.skills.discovery import Root, RootScan, looks_the_same, scan
from palinurus.skills.settings import SkillsSettings
from palinurus.skills.skill import OmittedSkill, ShadowedSkill, Skill

FORMAT = f"3 {__version__}"
MAX_ROOTS = 512
MAX_BYTES = 64 * 1024 * 1024
BELIEVED_SECONDS = (
    0.25  # one turn needs the list several times; OpenClaw's watcher waits as long before it reports a change
)


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
                before if before is not None and looks_the_same(before) else self._scan(root, before)
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
