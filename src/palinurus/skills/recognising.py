"""Skills recognised by their words: whose instructions stand in a text, however they got there.

A call need not name the file that it shows: there are globs, links, variables, and programs that open files themselves.
So what a tool brings is compared with the instructions of those skills that are held to something. Compared are runs of
words, without digits, signs and line breaks: line numbers, other indentation or capitals change nothing. 23 words in a
row are enough, or 12 at the beginning of a line; a program that garbles what it shows is not seen through.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from palinurus.domain.errors import BadRequest, NotFound, WorkspaceError
from palinurus.skills.front_matter import body_of
from palinurus.skills.skill import SKILL_FILE, Skill
from palinurus.workspace.boundary import Boundary

LENGTH = 12  # words of a run: sentences share fewer by chance
TELLING = 9  # different words among them; `import a import b …` stands in many files
MOST = 1_000  # runs of one skill; a longer one is known by so many of them, evenly spread
MAX_BYTES = 512 * 1024
_PLAIN = re.compile(r"[a-z]+")
_EAST = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"  # scripts that set no space between words
_ANY = re.compile(rf"[^\W\d_{_EAST}]+|[{_EAST}]{{1,2}}")

Run = tuple[str, ...]
Read = Callable[[Skill], bytes]


class Recogniser:
    """Knows some skills by their words. The files are read when the first text comes that is long enough."""

    def __init__(self, skills: Iterable[Skill], runs: Callable[[Sequence[Skill]], Sequence[frozenset[Run]]]) -> None:
        self.skills = tuple(skills)
        self._runs = runs

    def among(self, text: str) -> tuple[Skill, ...]:
        """The skills whose instructions stand in the text. One pass over it, however many skills there are."""
        words = words_of(text)
        if len(words) < LENGTH or not self.skills:
            return ()
        known = self._known
        hits = (known[run] for run in _sliding(words) if run in known)
        return tuple({skill.name: skill for skills in hits for skill in skills}.values())

    @cached_property
    def _known(self) -> Mapping[Run, tuple[Skill, ...]]:
        """What two skills share tells of neither, unless one has nothing else."""
        found = self._runs(self.skills)
        count = Counter(run for runs in found for run in runs)
        known: dict[Run, tuple[Skill, ...]] = {}
        for skill, runs in zip(self.skills, found, strict=True):
            for run in {each for each in runs if count[each] == 1} or runs:
                known[run] = (*known.get(run, ()), skill)
        return known


class Wordings:
    """The runs of skills by digest: a file that has not changed is not read again for a new list."""

    def __init__(self, read: Read | None = None) -> None:
        self._read = read or _instructions
        self._known: dict[str, frozenset[Run]] = {}

    def runs(self, skills: Sequence[Skill]) -> Sequence[frozenset[Run]]:
        """Of each skill. Those that are not asked for are forgotten."""
        before, self._known = self._known, {}
        return [self._known.get(skill.digest) or self._look(skill, before.get(skill.digest)) for skill in skills]

    def _look(self, skill: Skill, known: frozenset[Run] | None) -> frozenset[Run]:
        if known is None:
            try:
                data = self._read(skill)
                known = frozenset(telling_runs(data))
            except (NotFound, WorkspaceError, BadRequest):  # gone or broken since it was found: the next list says so
                return frozenset()
            if hashlib.sha256(data).hexdigest() != skill.digest:
                return known
        self._known[skill.digest] = known
        return known


def telling_runs(data: bytes) -> Sequence[Run]:
    """By what a SKILL.md is known. Pure; raises BadRequest for what is none."""
    body = body_of(data)
    words = [sys.intern(word) for word in words_of(body)]
    if len(words) < LENGTH:  # too short to be told by its body alone
        words = words_of(data.decode(errors="replace"))[-LENGTH:]
    found = dict.fromkeys((*_cut(words), *_line_starts(body)))
    runs = [run for run in found if len(set(run)) >= TELLING] or list(found)
    return runs[:: -(-len(runs) // MOST)] if runs else ()


def words_of(text: str) -> list[str]:
    plain = text.replace("\\n", "\n").lower()  # as JSON has line breaks
    return (_PLAIN if plain.isascii() else _ANY).findall(plain)


def _cut(words: Sequence[str]) -> Iterator[Run]:
    """One behind the other, over line breaks; the last one ends where the words end."""
    last = len(words) - LENGTH
    if last < 0:
        return
    for at in (*range(0, last, LENGTH), last):
        yield tuple(words[at : at + LENGTH])


def _line_starts(body: str) -> Iterator[Run]:
    for line in body.splitlines():
        words = words_of(line)
        if len(words) >= LENGTH:
            yield tuple(map(sys.intern, words[:LENGTH]))


def _sliding(words: Sequence[str]) -> Iterable[Run]:
    return zip(*(words[at:] for at in range(LENGTH)), strict=False)


def _instructions(skill: Skill) -> bytes:
    with Boundary(Path(skill.folder)).open_file(SKILL_FILE) as file:
        return file.read(MAX_BYTES)
