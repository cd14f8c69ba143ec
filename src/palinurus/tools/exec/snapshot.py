"""What a command names, as it was when it was looked at: files, folders, and what its patterns stand for.

Somebody may take half an hour to say yes, and what runs then has to be what they were shown. So all of it is looked at
again just before the start, and a change is a refusal that says what changed. While the question waits, descriptors are
held: a folder or file that is removed meanwhile cannot come back under the same number.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import translate
from functools import lru_cache
from itertools import chain, islice
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from palinurus.domain.errors import BadRequest
from palinurus.tools.commands.resolve import LONGEST_PATH, parts
from palinurus.tools.commands.script import quoted
from palinurus.tools.exec.moves import Moves
from palinurus.tools.exec.words import Word, read_words

MOST_HELD = 8  # descriptors of one question, of which at most 50 wait
MOST_NAMED = 20_000
MOST_FOLDERS = 32  # that one command may go to
MOST_MATCHES = 10_000  # of one pattern
MOST_ENTRIES = 100_000  # of folders that are searched for one pattern
MOST_SHOWN = 20  # names that one pattern stands for
_ENTERING = frozenset({"cd", "pushd", "chdir", "-C", "--directory", "--chdir"})
_PART = re.compile(r"[^\s|&;<>()$`\\\"'=:@,*?\[\]{}]+")
_MARK = re.compile(r"[*?\[]")

Place: TypeAlias = tuple[str, str]  # a folder, and a pattern in it


class State(NamedTuple):
    """`whole`: of a file its content counts, not only which one it is."""

    real: str  # where the name leads, links followed
    mark: tuple[int, ...] = ()  # empty: nothing is there
    whole: bool = True


class Ground(Struct, frozen=True):
    """Where names are looked up, those of programs in `path`. `writable`: where the agent may write, and anybody."""

    cwd: str
    path: str
    writable: Sequence[str]
    variables: Mapping[str, str] = {}


class Snapshot:
    """`files`, `patterns` and the times of `folders` as they were; `ways` lead to what is named."""

    def __init__(
        self,
        files: Mapping[str, State],
        patterns: Mapping[Place, frozenset[str]],
        folders: Mapping[str, tuple[int, ...]],
        ways: Iterable[str],
    ) -> None:
        self._files = files
        self._patterns = patterns
        self._folders = folders
        self._moves = Moves(ways)
        self._held: list[int] = []
        for path in [each for each, state in files.items() if state.mark][:MOST_HELD]:
            with suppress(OSError, ValueError):  # then its number and times have to do
                self._held.append(os.open(path, getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK) | os.O_CLOEXEC))

    def change(self) -> str:
        """What is no longer as it was; empty when all of it is. Raises BadRequest when that is too much to compare."""
        for path, state in sorted(self._files.items(), key=lambda each: len(each[0])):  # a folder before what is in it
            if look_at(path, whole=state.whole) != state:
                return f"{os.path.normpath(path)} was changed since it was looked at"
        for (base, pattern), names in self._patterns.items():
            now = expand(base, pattern)
            if name := min(now ^ names, default=""):
                which = "is new" if name in now else "is gone"
                return f"{pattern} stands for other files than when it was looked at: {name} {which}"
        for folder, times in self._folders.items():
            if _times(folder) != times:
                return f"{os.path.normpath(folder)}, where a shell will look for files, was changed since"
        moved = self._moves.first()
        return f"{moved} was moved or replaced since it was looked at" if moved else ""

    def told(self, cwd: str) -> tuple[str, ...]:
        """What each pattern stands for, for a person who knows where the command starts."""
        return tuple(
            _told(pattern if base == cwd else f"{pattern} in {base}", sorted(names))
            for (base, pattern), names in self._patterns.items()
            if names
        )

    def release(self) -> None:
        """Nobody needs it any more."""
        self._moves.close()
        while self._held:
            os.close(self._held.pop())

    def __del__(self) -> None:
        self.release()


def take_snapshot(deciding: Iterable[str], command: str, ground: Ground, *, shown: bool, shell: bool) -> Snapshot:
    """Of the files that decide what is done and, where the command is shown to somebody, of whatever it names. Raises
    BadRequest where that is more than can be compared.

    `shell`: the command is for one, which expands its patterns itself, a moment after we have compared them. A file
    that comes and goes must not be able to hit that moment, so nothing else may come or go in its folder either.
    """
    files = {path: look_at(path) for path in dict.fromkeys((ground.cwd, *deciding))}
    words = read_words(command, ground.variables)
    roots = tuple(map(os.path.realpath, ground.writable))
    named = dict.fromkeys(part for word in words for part in _parts(word.text))
    patterns: dict[Place, frozenset[str]] = {}
    folders: dict[str, tuple[int, ...]] = {}
    passed: dict[str, str] = {}
    for base in _folders(words, ground.cwd):
        matches: dict[str, None] = {}
        for word in words if shown else ():
            if word.pattern and (names := _expanded(base, word)) is not None:
                patterns[base, word.pattern] = names
                matches |= dict.fromkeys(sorted(names))
                if not word.quoted and (shell or word.depth):
                    folders |= {each: _times(each) for each in sorted(_searched(base, word.pattern, names))}
        for path in (os.path.join(base, name) for name in (*named, *matches)):  # noqa: PTH118
            if shown:
                files.setdefault(path, _look_at_named(path, roots))
            passed[path] = files[path].real if path in files else os.path.realpath(path)
            if len(passed) > MOST_NAMED:
                raise BadRequest("the command names too many files to watch", hint="write a script and run that")
    if shown:
        files |= {path: look_at(path) for path in _programs(named, ground.path) if path not in files}
    passed |= {path: state.real for path, state in files.items()}
    return Snapshot(files, patterns, folders, _ways(passed, roots))


def look_at(path: str, *, whole: bool = True) -> State:
    """The time of its last change nobody can set back. What is in a folder may change, which folder it is may not."""
    try:
        found = os.stat(path)  # noqa: PTH116  a Path of odd text raises
    except (OSError, ValueError):
        return State(os.path.realpath(path), (), whole)
    mark: tuple[int, ...] = (found.st_dev, found.st_ino)
    if whole and stat.S_ISREG(found.st_mode):
        mark += (found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    return State(os.path.realpath(path), mark, whole)


def expand(base: str, pattern: str) -> frozenset[str]:
    """What a shell in this folder would put in the place of the pattern. Raises BadRequest where that is too much."""
    found, searched = [""], 0
    for place, name in enumerate(pattern.split("/")):
        starts = [f"{each}/" for each in found] if place else [""]
        if not _MARK.search(name):
            found = [f"{start}{name}" for start in starts]
            continue
        found = []
        for start in starts:
            entries = _entries(os.path.join(base, start))  # noqa: PTH118
            searched += len(entries)
            found += [f"{start}{entry}" for entry in entries if _matches(name, entry)]
            if searched > MOST_ENTRIES or len(found) > MOST_MATCHES:
                raise BadRequest(f"{pattern} stands for too many files to watch", hint="name their folder instead")
    return frozenset(each for each in found if os.path.lexists(os.path.join(base, each)))  # noqa: PTH118


def _expanded(base: str, word: Word) -> frozenset[str] | None:
    """None for a text between quotes that stands for very much: few of those are meant for a shell."""
    try:
        return expand(base, word.pattern)
    except BadRequest:
        if word.quoted:
            return None
        raise


def _searched(base: str, pattern: str, names: Iterable[str]) -> set[str]:
    """Where names for a pattern were found, or where the search for them began."""
    beginning = _MARK.split(pattern, maxsplit=1)[0]
    return {os.path.join(base, os.path.dirname(each)) for each in (beginning, *names)}  # noqa: PTH118, PTH120


def _times(folder: str) -> tuple[int, ...]:
    """What changes when something in it is made, removed or renamed."""
    try:
        found = os.stat(folder)  # noqa: PTH116
    except (OSError, ValueError):
        return ()
    return found.st_mtime_ns, found.st_ctime_ns


def _ways(passed: Mapping[str, str], roots: Sequence[str]) -> list[str]:
    """The folders and links that lead to these, by name and in reality, as far as the agent could move them."""
    found: dict[str, None] = {}
    for place in chain(map(os.path.normpath, passed), passed.values()):
        while place not in found and _is_within(place, roots) and place not in roots:
            found[place] = None
            place = os.path.dirname(place)  # noqa: PTH120, PLW2901
    return [way for way in found if os.path.islink(way) or os.path.isdir(way)]  # noqa: PTH112, PTH114


def _is_within(path: str, roots: Iterable[str]) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in roots)


def _entries(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in islice(entries, MOST_ENTRIES + 1)]
    except (OSError, ValueError):
        return []


def _matches(pattern: str, name: str) -> bool:
    hidden = name.startswith(".") and not pattern.startswith((".", "[.]"))
    return not hidden and bool(_compiled(pattern).match(name))


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern.replace("[^", "[!")))


def _folders(words: Iterable[Word], cwd: str) -> list[str]:
    """Where the command may be when it names something: where it starts, and every folder that it may go to."""
    folders = {cwd: None}
    for word in words:
        if word.before in _ENTERING:
            going = [os.path.realpath(os.path.join(each, word.text)) for each in folders]  # noqa: PTH118
            folders |= {each: None for each in going if os.path.isdir(each)}  # noqa: PTH112
        if len(folders) > MOST_FOLDERS:
            raise BadRequest("the command goes to too many folders to watch", hint="give workdir instead")
    return list(folders)


def _programs(names: Iterable[str], path: str) -> Iterator[str]:
    """Where a shell would find those of them that are programs, and where another one would come before."""
    places = [place for place in path.split(":") if place.startswith("/")]
    known = [frozenset(_entries(place)) for place in places]
    for name in names:
        last = max((at for at, programs in enumerate(known) if name in programs), default=-1)
        yield from (os.path.join(place, name) for place in places[: last + 1])  # noqa: PTH118


def _parts(text: str) -> list[str]:
    """What of a word may be a path."""
    return sorted(each for each in {*parts(text), *_PART.findall(text)} if each and len(each) < LONGEST_PATH)


def _look_at_named(path: str, roots: Sequence[str]) -> State:
    """Outside of what the agent can write it only counts which file it is: a log there may go on growing."""
    state = look_at(path)
    is_near = _is_within(os.path.normpath(path), roots) or _is_within(state.real, roots)
    return state if is_near else look_at(path, whole=False)


def _told(pattern: str, names: Sequence[str]) -> str:
    shown = ", ".join(map(quoted, names[:MOST_SHOWN]))
    more = f" and {len(names) - MOST_SHOWN:,} more" if len(names) > MOST_SHOWN else ""
    return f"{pattern} stands for {len(names):,}: {shown}{more}"
