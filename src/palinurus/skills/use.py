"""The files of skills, and how the use of one is noticed: by the path that a call names, or by its text.

A location may be written `~/…`, absolute, from the workspace, or as `skill:NAME/…`. Most skills are outside the
workspace, where file tools do not reach; they are read here, and only what is in a skill's own folder.

A call need not name the file that it shows: there are globs, links, variables, and programs that open files
themselves. So tool results are compared with the instructions of the skills that have restrictions. Sequences of
words are compared, without digits, punctuation and line breaks: line numbers, other indentation or capitals change
nothing. 23 words in a row are enough, or 12 at the beginning of a line; a program that changes the words it shows is
not recognised.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from msgspec import Struct

from palinurus.domain.errors import BadRequest, NotFound, WorkspaceError
from palinurus.domain.messages import Origin
from palinurus.skills.discovery import same_name
from palinurus.skills.manifest import body_of
from palinurus.skills.skill import SKILL_FILE, Skill
from palinurus.workspace.boundary import Boundary

BASE = "{baseDir}"
SCHEME = "skill:"
MAX_BYTES = 512 * 1024
# Tools that show a file, with the name of the argument that names it.
_SHOWS = {"read": "path", "grep": "path", "edit": "path", "apply_patch": "path", "image": "path", "view_image": "path"}
_BREAKS = re.compile(r"[\s'\"`;|&<>()=,]+")
LENGTH = 12  # words of a run: sentences share fewer by chance
TELLING = 9  # different words among them; `import a import b …` occurs in many files
MOST = 1_000  # runs per skill; a longer text is known by this many, evenly spread
_PLAIN = re.compile(r"[a-z]+")
_EAST = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"  # scripts without spaces between words
WordRun = tuple[str, ...]
ReadSkill = Callable[[Skill], bytes]


class SkillPlace(Struct, frozen=True):
    skill: Skill
    inner: str  # inside its folder; "." is the folder itself


class SkillFiles:
    """The folders of some skills."""

    def __init__(self, skills: Iterable[Skill], workspace: str, user_home: str) -> None:
        self._folders = {os.path.normpath(skill.folder): skill for skill in skills}
        self._longest = max(map(len, self._folders), default=0)
        self._workspace = workspace
        self._home = user_home

    @cached_property
    def _named(self) -> Mapping[str, str]:
        return {same_name(skill.name): folder for folder, skill in self._folders.items()}

    def find(self, path: str) -> SkillPlace | None:
        """Returns the skill of a file. Nothing is looked up on disk."""
        if "\0" in path:
            return None
        whole = os.path.normpath(os.path.join(self._workspace, self._expanded(path)))  # noqa: PTH118
        whole = f"/{whole.lstrip('/')}"  # to normpath `//` is a separate root
        place = whole if len(whole) <= self._longest else whole[: whole.rfind("/", 0, self._longest + 1)]
        while len(place) > 1:
            if skill := self._folders.get(place):
                return SkillPlace(skill, os.path.relpath(whole, place))
            place = os.path.dirname(place)  # noqa: PTH120  of a text, not of a file
        return None

    def used_by(self, tool: str, arguments: Mapping[str, Any]) -> tuple[Skill, ...]:
        """Returns the skills whose files this call shows or runs."""
        found = (self.find(path) for path in _paths(tool, arguments))
        return tuple(dict.fromkeys(place.skill for place in found if place is not None))

    def _expanded(self, path: str) -> str:
        if path.startswith(SCHEME):
            name, _, inner = path.removeprefix(SCHEME).partition("/")
            folder = self._named.get(same_name(name))
            return os.path.join(folder, inner or SKILL_FILE) if folder else path  # noqa: PTH118  as above
        return f"{self._home}{path[1:]}" if path.startswith("~/") else path


class SkillText(Struct, frozen=True):
    """What a model reads of a skill, and its origin."""

    path: str
    text: str
    origin: Origin
    source: str


def read_file(place: SkillPlace) -> SkillText:
    """Returns a skill's file, with its folder in place of `{baseDir}`. Raises NotFound or WorkspaceError."""
    shown = f"{place.skill.name}/{place.inner}"
    with Boundary(Path(place.skill.folder)).open_file(place.inner) as file:
        data = file.read(MAX_BYTES)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise WorkspaceError(f"{shown} is not text", hint="a script of the skill may know how to read it") from None
    return SkillText(shown, text.replace(BASE, place.skill.folder), origin_of(place.skill), source_of(place.skill))


def instructions(skill: Skill) -> str:
    """Returns a whole SKILL.md as a model reads it. Raises NotFound if it was removed since it was found."""
    try:
        return read_file(SkillPlace(skill, SKILL_FILE)).text
    except WorkspaceError as error:
        raise NotFound(f"the skill {skill.name} cannot be read: {error.message}") from None


def origin_of(skill: Skill) -> Origin:
    """A skill from a registry is text from outside, whoever installed it (promise 18)."""
    return Origin.OUTSIDE if skill.registry else Origin.OWNER


def source_of(skill: Skill) -> str:
    return f"skill:{skill.name}"


def _paths(tool: str, arguments: Mapping[str, Any]) -> Iterator[str]:
    if tool == "exec":
        yield from _words(arguments)
    elif argument := _SHOWS.get(tool):
        value = arguments.get(argument)
        if isinstance(value, str):
            yield value.partition("#")[0]


def _words(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Returns everything in a command that could be a path, also relative to the command's folder."""
    folder = arguments.get("workdir")
    start = folder if isinstance(folder, str) else ""
    argv = arguments.get("argv")
    texts = [arguments.get("command"), *(argv if isinstance(argv, list | tuple) else ())]
    for text in texts:
        for word in _BREAKS.split(text) if isinstance(text, str) else ():
            if word:
                yield word if word.startswith("~/") else os.path.join(start, word)  # noqa: PTH118
    if start:
        yield start


class Recogniser:
    """Recognises some skills by their text. The files are read when the first long enough text comes."""

    def __init__(self, skills: Iterable[Skill], read: ReadSkill | None = None) -> None:
        self.skills = tuple(skills)
        self._read = read or _skill_file

    def among(self, text: str) -> tuple[Skill, ...]:
        """Returns the skills whose instructions are in the text. One pass, however many skills there are."""
        words = words_of(text)
        if len(words) < LENGTH or not self.skills:
            return ()
        known = self._known
        sliding = zip(*(words[at:] for at in range(LENGTH)), strict=False)
        hits = (known[run] for run in sliding if run in known)
        return tuple({skill.name: skill for skills in hits for skill in skills}.values())

    @cached_property
    def _known(self) -> Mapping[WordRun, tuple[Skill, ...]]:
        """Text shared by two skills identifies neither, unless one has nothing else."""
        found = [self._runs(skill) for skill in self.skills]
        count = Counter(run for runs in found for run in runs)
        known: dict[WordRun, tuple[Skill, ...]] = {}
        for skill, runs in zip(self.skills, found, strict=True):
            for run in {each for each in runs if count[each] == 1} or runs:
                known[run] = (*known.get(run, ()), skill)
        return known

    def _runs(self, skill: Skill) -> frozenset[WordRun]:
        try:
            return frozenset(telling_runs(self._read(skill)))
        except (NotFound, WorkspaceError, BadRequest):  # removed or broken since it was found: the next list says so
            return frozenset()


def telling_runs(data: bytes) -> Sequence[WordRun]:
    """Returns the runs that identify a SKILL.md. Pure; raises BadRequest for an invalid one."""
    body = body_of(data)
    words = [sys.intern(word) for word in words_of(body)]
    if len(words) < LENGTH:  # too short to be identified by its body alone
        words = words_of(data.decode(errors="replace"))[-LENGTH:]
    found = dict.fromkeys((*_cut(words), *_line_starts(body)))
    runs = [run for run in found if len(set(run)) >= TELLING] or list(found)
    return runs[:: -(-len(runs) // MOST)] if runs else ()


def words_of(text: str) -> list[str]:
    plain = text.replace("\\n", "\n").lower()  # line breaks as in JSON
    return (_PLAIN if plain.isascii() else _any_word()).findall(plain)


@cache
def _any_word() -> re.Pattern[str]:
    """Compiling it takes longer than importing this module, and most texts do not need it."""
    return re.compile(rf"[^\W\d_{_EAST}]+|[{_EAST}]{{1,2}}")


def _cut(words: Sequence[str]) -> Iterator[WordRun]:
    """Returns consecutive runs, across line breaks; the last one ends with the last word."""
    last = len(words) - LENGTH
    if last < 0:
        return
    for at in (*range(0, last, LENGTH), last):
        yield tuple(words[at : at + LENGTH])


def _line_starts(body: str) -> Iterator[WordRun]:
    for line in body.splitlines():
        words = words_of(line)
        if len(words) >= LENGTH:
            yield tuple(map(sys.intern, words[:LENGTH]))


def _skill_file(skill: Skill) -> bytes:
    with Boundary(Path(skill.folder)).open_file(SKILL_FILE) as file:
        return file.read(MAX_BYTES)
