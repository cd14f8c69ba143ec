"""All skills of one agent: every root looked at, names settled by place, and nothing done twice.

Asking is cheap: when nothing on disk has changed, the answer is the very same object as before.
"""

from __future__ import annotations

import threading
import time
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from palinurus.config.offering import SkillLimit
from palinurus.domain.errors import NotFound
from palinurus.skills.cache import SkillCache
from palinurus.skills.discovery import Scanned, looks_the_same, scan
from palinurus.skills.roots import Root
from palinurus.skills.skill import LeftOut, Shadowed, Skill

if TYPE_CHECKING:  # only a process that stays has a watch, and the quick ones need not wait for asyncio
    from palinurus.skills.watch import SkillWatch

BELIEVED_SECONDS = 0.25  # one turn asks several times; OpenClaw's watcher waits as long before it tells of a change


class Catalogued(Struct, frozen=True):
    """What there is, by name. `shadowed` and `left_out` are for people: why something is not there."""

    skills: tuple[Skill, ...] = ()
    shadowed: tuple[Shadowed, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    def get(self, name: str) -> Skill:
        """Raises NotFound, with the reason if the skill is there and was left out."""
        wanted = same_name(name)
        for skill in self.skills:
            if same_name(skill.name) == wanted or same_name(skill.key) == wanted:
                return skill
        for each in self.left_out:
            if f"/{wanted}/" in f"{same_name(each.path)}/":
                raise NotFound(f"the skill {name} was left out: {each.reason}", hint=each.path)
        raise NotFound(f"there is no skill {name!r}", hint="`pal skills list` shows them")


class Catalog:
    """Safe to use from several threads."""

    def __init__(
        self,
        roots: tuple[Root, ...],
        limits: SkillLimit,
        cache: SkillCache,
        targets: tuple[str, ...] = (),
        *,
        home: Path | None = None,
        now: Callable[[], float] = time.monotonic,
        scanned: Callable[[Root], None] = lambda _: None,
        watch: SkillWatch | None = None,
    ) -> None:
        self._roots = roots
        if watch is not None:
            watch.cover(root.path for root in roots)
        self._limits = limits
        self._cache = cache
        self._targets = targets
        self._home = home  # it has the pins of what was installed from a registry
        self._now = now
        self._looked = -1.0
        self._told = scanned  # hears of each root that had to be walked
        self._lock = threading.Lock()
        self._watch = watch
        self._known: dict[str, Scanned] = {}
        self._stamps: dict[str, int | None] = {}  # of the watch, when the root was last looked at
        self._last: Catalogued | None = None

    def look(self) -> Catalogued:
        with self._lock:
            began = self._now()
            if self._last is not None and 0 <= began - self._looked < BELIEVED_SECONDS:
                return self._last
            changed = [self._renew(root) for root in self._roots]
            if any(changed):
                self._cache.put(self._known.values(), self._limits, self._targets)
                self._last = None
            if self._last is None:
                self._last = settle(self._known[root.path] for root in self._roots)
            self._looked = began
            return self._last

    def known(self) -> tuple[Scanned, ...]:
        """What the last look found below each root."""
        with self._lock:
            return tuple(self._known.values())

    def _renew(self, root: Root) -> bool:
        """Whether the root had to be walked and was found different from what is kept on disk."""
        known = self._known.get(root.path)
        stamp = self._watch.stamp(root.path) if self._watch else None  # before the look: what comes later shows
        if known is not None and known.settled and stamp is not None and stamp == self._stamps.get(root.path):
            return False
        self._stamps[root.path] = stamp
        if known is None:
            self._last = None
            known = self._cache.get(root, self._limits, self._targets)
        if known is not None and looks_the_same(known):
            self._known[root.path] = known
            return False
        self._told(root)
        found = scan(root, self._limits, self._targets, known, self._home)
        self._known[root.path] = found
        return found != known


def settle(roots: Iterable[Scanned]) -> Catalogued:
    """Who has which name. Pure; the roots come with the one that wins first."""
    taken: dict[str, Skill] = {}
    shadowed: list[Shadowed] = []
    left_out: list[LeftOut] = []
    for scanned in roots:
        left_out += scanned.left_out
        for skill in scanned.skills():
            winner = taken.setdefault(same_name(skill.name), skill)
            if winner is not skill:
                shadowed.append(Shadowed(skill.name, skill.tier, skill.location, winner.location))
    return Catalogued(tuple(taken[name] for name in sorted(taken)), tuple(shadowed), tuple(left_out))


def same_name(name: str) -> str:
    """Names that look alike are the same: a skill must not pass for another one by its capitals."""
    if name.isascii():  # nearly always, and a thousand times in a row
        return name.lower().strip()
    return unicodedata.normalize("NFKC", name).casefold().strip()
