"""Records what a command names at inspection time: files, folders, and the matches of its patterns.

An approval may take half an hour, and what runs then must be what the person was shown. So everything is checked again
just before the start, and a change is a refusal that says what changed. While the approval is pending, descriptors stay
open: a folder or file that is removed meanwhile cannot come back with the same inode number.

Words that may name files are read as a shell would read them, and as a program might. No shell is run here, so the
result is an estimate on the safe side: a superfluous word is only checked. Quoted text is read once more, because it
may be a command for another shell (`sh -c 'rm *.log'`). Linear in the length of the text.

That a folder or link was moved, replaced or removed is detected even if it has come back since. Two checks cannot
detect this: if a folder is swapped a thousand times a second, both checks may find the good one and the program the
other. So the kernel records such changes (inotify). On other systems than Linux, and where the kernel has no watches
left, only the two checks are done.
"""

from __future__ import annotations

import ctypes
import os
import re
import stat
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cache
from itertools import chain, islice
from typing import NamedTuple, TypeAlias

from palinurus.domain.errors import BadRequest
from palinurus.tools.commands.judge import CommandLocation
from palinurus.tools.commands.programs import LONGEST_PATH, path_parts
from palinurus.tools.commands.shell import quote_word

MOST_WATCHED = 1_000
_ATTRIB, _DELETE_SELF, _MOVE_SELF = 0x4, 0x400, 0x800
_DONT_FOLLOW = 0x02000000
_EVENT = struct.Struct("iIII")
DEEPEST = 3  # quotes in quotes
_TOKEN = re.compile(
    r"""
      (?P<gap> [\s|&;<>()]++ )
    | ' (?P<single> [^']*+ ) '
    | " (?P<double> (?: [^"\\] | \\. )*+ ) "
    | \\ (?P<escaped> . )
    | (?P<plain> [^\s|&;<>()'"\\]++ )
    | (?P<stray> ['"\\] )
    """,
    re.VERBOSE | re.DOTALL,
)

_ESCAPED_MARK = re.compile(r"\[[*?\[]\]")
_COMMAND = re.compile(r"-[a-z]*c|eval")  # a shell's own string follows
_SETTING = re.compile(r"""(?<![\w$])([A-Za-z_]\w*)=(?:'([^']*)'|"([^"$`\\]*)"|([^\s;&|<>()$`'"\\]+))""")
_USE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))|(?<![^\s=:])~(?=/|\s|$)")
MOST_HELD = 8  # descriptors for one approval, of which at most 50 are pending
MOST_NAMED = 20_000
MOST_FOLDERS = 32  # that one command may enter
MOST_MATCHES = 10_000  # of one pattern
MOST_ENTRIES = 100_000  # in folders that are searched for one pattern
MOST_SHOWN = 20  # names that one pattern matches
_ENTERING = frozenset({"cd", "pushd", "chdir", "-C", "--directory", "--chdir"})
_PART = re.compile(r"[^\s|&;<>()$`\\\"'=:@,*?\[\]{}]+")
_MARK = re.compile(r"[*?\[]")
Place: TypeAlias = tuple[str, str]  # a folder, and a pattern in it


class Moves:
    """Watches these folders and links for moves and replacements, until `close`."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._names: dict[int, str] = {}
        libc = _libc()
        self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC) if libc else -1
        if libc is None or self._fd < 0:
            return
        for path in islice(paths, MOST_WATCHED):
            # A removed link is reported as a change of its link count; for a folder that is any permission change.
            mask = _MOVE_SELF | _DELETE_SELF | _DONT_FOLLOW | (_ATTRIB if os.path.islink(path) else 0)  # noqa: PTH114
            number = libc.inotify_add_watch(self._fd, os.fsencode(path), mask)
            if number >= 0:
                self._names.setdefault(number, path)

    def first(self) -> str:
        """Returns the first one that was changed or replaced in between; empty if there is none."""
        try:
            data = os.read(self._fd, 65_536) if self._fd >= 0 else b""
        except OSError:  # nothing happened
            return ""
        at = 0
        while at < len(data):
            number, mask, _, length = _EVENT.unpack_from(data, at)
            if mask & (_MOVE_SELF | _DELETE_SELF | _ATTRIB):
                return self._names.get(number, "a folder")
            at += _EVENT.size + length
        return ""

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


@cache
def _libc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    return libc if hasattr(libc, "inotify_init1") else None


class NamedWord(NamedTuple):
    text: str
    pattern: str = ""  # for file names; quoted parts are written as `[*]`; empty: it is no pattern
    before: str = ""  # the word before it
    depth: int = 0  # how many levels of quotes are around it
    quoted: bool = False  # it may be plain text; not what follows `-c`


def read_words(text: str, variables: Mapping[str, str]) -> list[NamedWord]:
    """Returns each word once. `variables` have known values; the text may set more."""
    known = {**variables, **{each[1]: each[2] or each[3] or each[4] or "" for each in _SETTING.finditer(text)}}

    def value(use: re.Match[str]) -> str:
        return known.get(use[1] or use[2] or "HOME", use[0])

    texts = dict.fromkeys((text, _USE.sub(value, text)))
    return list(dict.fromkeys(word for each in texts for word in _words(each)))


def _words(text: str, depth: int = 0, *, quoted: bool = False) -> Iterator[NamedWord]:
    literal, pattern, before = list[str](), list[str](), ""
    quotes: list[tuple[str, bool]] = []
    for token in _TOKEN.finditer(f"{text}\n"):
        kind = str(token.lastgroup)
        value = token[kind]
        if kind != "gap":
            literal.append(value)
            pattern.append(value if kind == "plain" else _MARK.sub(r"[\g<0>]", value))
            if kind in ("single", "double"):
                quotes.append((value, quoted or not _COMMAND.fullmatch(before)))
        elif literal:
            text, found = "".join(literal), "".join(pattern)
            yield NamedWord(text, found if _is_pattern(found) else "", before, depth, quoted)
            literal, pattern, before = [], [], text
    for value, is_text in quotes if depth < DEEPEST else ():
        yield from _words(value, depth + 1, quoted=is_text)


def _is_pattern(text: str) -> bool:
    """Returns whether it can be a file pattern: no file name is as long as some words."""
    plain = _ESCAPED_MARK.sub("", text) if len(text) < LONGEST_PATH else ""
    return "*" in plain or "?" in plain or "]" in plain.partition("[")[2]


class FileState(NamedTuple):
    """The state of a file. `whole`: its content counts, not only its identity."""

    real: str  # the target path, links resolved
    mark: tuple[int, ...] = ()  # empty: nothing is there
    whole: bool = True


class Snapshot:
    """The recorded `files`, `patterns` and times of `folders`; `ways` lead to what is named."""

    def __init__(
        self,
        files: Mapping[str, FileState],
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
            with suppress(OSError, ValueError):  # without inotify: inode number and times are compared
                self._held.append(os.open(path, getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK) | os.O_CLOEXEC))

    def change(self) -> str:
        """Returns what has changed; empty if nothing has. Raises BadRequest if there is too much to compare."""
        for path, state in sorted(self._files.items(), key=lambda each: len(each[0])):  # a folder before its entries
            if look_at(path, whole=state.whole) != state:
                return f"{os.path.normpath(path)} has changed since it was inspected"
        for (base, pattern), names in self._patterns.items():
            now = expand(base, pattern)
            if name := min(now ^ names, default=""):
                which = "is new" if name in now else "is gone"
                return f"{pattern} now matches other files than when it was inspected: {name} {which}"
        for folder, times in self._folders.items():
            if _times(folder) != times:
                place = os.path.normpath(folder)
                return f"{place}, where a shell will look for files, has changed since it was inspected"
        moved = self._moves.first()
        return f"{moved} was moved or replaced since it was inspected" if moved else ""

    def shown_patterns(self, cwd: str) -> tuple[str, ...]:
        """Returns what each pattern matches, for a person who knows where the command starts."""
        return tuple(
            _shown_pattern(pattern if base == cwd else f"{pattern} in {base}", sorted(names))
            for (base, pattern), names in self._patterns.items()
            if names
        )

    def release(self) -> None:
        """Closes the descriptors and watches."""
        self._moves.close()
        while self._held:
            os.close(self._held.pop())

    def __del__(self) -> None:
        self.release()


def take_snapshot(
    deciding: Iterable[str], command: str, where: CommandLocation, env: Mapping[str, str], *, shown: bool, shell: bool
) -> Snapshot:
    """Records the files that decide what is done and, if a person is shown the command, everything it names. Raises
    BadRequest if that is too much to compare.

    `shell`: a shell runs the command and expands its patterns itself, a moment after we have compared them. So that no
    file can appear and disappear in that moment, nothing else may be created or removed in its folder either.
    """
    files = {path: look_at(path) for path in dict.fromkeys((where.cwd, *deciding))}
    words = read_words(command, env)
    roots = tuple(map(os.path.realpath, where.writable))
    named = dict.fromkeys(part for word in words for part in _parts(word.text))
    patterns: dict[Place, frozenset[str]] = {}
    folders: dict[str, tuple[int, ...]] = {}
    passed: dict[str, str] = {}
    for base in _folders(words, where.cwd):
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
        files |= {path: look_at(path) for path in _programs(named, where.path) if path not in files}
    passed |= {path: state.real for path, state in files.items()}
    return Snapshot(files, patterns, folders, _ways(passed, roots))


def look_at(path: str, *, whole: bool = True) -> FileState:
    """Returns the state of a path. Its ctime cannot be set back. A folder's entries may change, its identity may
    not."""
    mark: tuple[int, ...] = ()
    if found := stat_path(path):
        mark = found.st_dev, found.st_ino
        if whole and stat.S_ISREG(found.st_mode):
            mark += (found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    return FileState(os.path.realpath(path), mark, whole)


def stat_path(path: str) -> os.stat_result | None:
    with suppress(OSError, ValueError):
        return os.stat(path)  # noqa: PTH116  a Path of odd text raises
    return None


def expand(base: str, pattern: str) -> frozenset[str]:
    """Returns what a shell in this folder would replace the pattern by. Raises BadRequest if that is too much."""
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
                raise BadRequest(f"{pattern} matches too many files to watch", hint="name the folder instead")
    return frozenset(each for each in found if os.path.lexists(os.path.join(base, each)))  # noqa: PTH118


def _expanded(base: str, word: NamedWord) -> frozenset[str] | None:
    """Expands the pattern. Returns None for quoted text with too many matches: it is seldom meant for a shell."""
    try:
        return expand(base, word.pattern)
    except BadRequest:
        if word.quoted:
            return None
        raise


def _searched(base: str, pattern: str, names: Iterable[str]) -> set[str]:
    """Returns the folders where names for a pattern were found, or where the search began."""
    beginning = _MARK.split(pattern, maxsplit=1)[0]
    return {os.path.join(base, os.path.dirname(each)) for each in (beginning, *names)}  # noqa: PTH118, PTH120


def _times(folder: str) -> tuple[int, ...]:
    """Returns the times that change when an entry is created, removed or renamed."""
    found = stat_path(folder)
    return (found.st_mtime_ns, found.st_ctime_ns) if found else ()


def _ways(passed: Mapping[str, str], roots: Sequence[str]) -> list[str]:
    """Returns the folders and links on the path to these, by name and resolved, as far as the agent could move them."""
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
    return not hidden and fnmatchcase(name, pattern.replace("[^", "[!"))


def _folders(words: Iterable[NamedWord], cwd: str) -> list[str]:
    """Returns the folders that may be current when the command names something: its start and every folder it may
    enter."""
    folders = {cwd: None}
    for word in words:
        if word.before in _ENTERING:
            going = [os.path.realpath(os.path.join(each, word.text)) for each in folders]  # noqa: PTH118
            folders |= {each: None for each in going if os.path.isdir(each)}  # noqa: PTH112
        if len(folders) > MOST_FOLDERS:
            raise BadRequest("the command enters too many folders to watch", hint="give workdir instead")
    return list(folders)


def _programs(names: Iterable[str], path: str) -> Iterator[str]:
    """Returns where a shell would find those words that are programs, and where another file would take precedence."""
    places = [place for place in path.split(":") if place.startswith("/")]
    known = [frozenset(_entries(place)) for place in places]
    for name in names:
        last = max((at for at, programs in enumerate(known) if name in programs), default=-1)
        yield from (os.path.join(place, name) for place in places[: last + 1])  # noqa: PTH118


def _parts(text: str) -> list[str]:
    """Returns the parts of a word that may be a path."""
    return sorted(each for each in {*path_parts(text), *_PART.findall(text)} if each and len(each) < LONGEST_PATH)


def _look_at_named(path: str, roots: Sequence[str]) -> FileState:
    """Records a named path. Outside the writable paths only its identity counts: a log there may grow."""
    state = look_at(path)
    is_near = _is_within(os.path.normpath(path), roots) or _is_within(state.real, roots)
    return state if is_near else look_at(path, whole=False)


def _shown_pattern(pattern: str, names: Sequence[str]) -> str:
    shown = ", ".join(map(quote_word, names[:MOST_SHOWN]))
    more = f" and {len(names) - MOST_SHOWN:,} more" if len(names) > MOST_SHOWN else ""
    return f"{pattern} matches {len(names):,}: {shown}{more}"
