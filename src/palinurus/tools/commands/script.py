"""A command that we understand: programs with their arguments, joined by pipes and by `&&`, `||` and `;`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

Argv: TypeAlias = tuple[str, ...]
Connector = Literal["", "&&", "||", ";"]

MAX_CHARACTERS = 65_536  # of one command
MAX_PROGRAMS = 100  # in one command
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class Opaque(Struct, frozen=True):
    """A command that we do not understand. The reason is a clause for a person, such as `it redirects (>)`."""

    reason: str


class Segment(Struct, frozen=True):
    """One program of a pipeline, as it was written: it may be a wrapper around another."""

    argv: Argv


class Pipeline(Struct, frozen=True):
    """Programs that feed each other. The connector says when it runs: `&&` and `||` look at what ran last before it."""

    segments: tuple[Segment, ...]
    connector: Connector = ""


class Script(Struct, frozen=True):
    pipelines: tuple[Pipeline, ...]

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(segment for pipeline in self.pipelines for segment in pipeline.segments)


def of_argv(argv: Sequence[str]) -> Script | Opaque:
    """The script of a command that was given as argv. Any text may stand in it but what no program can be given."""
    if not argv or not argv[0]:
        return Opaque("it names no program")
    if sum(map(len, argv)) + len(argv) > MAX_CHARACTERS:
        return too_long()
    if any("\0" in word or _SURROGATE.search(word) for word in argv):
        return Opaque("it has a NUL or half a character in it, which no program can be given")
    return Script((Pipeline((Segment(tuple(argv)),)),))


def base_name(name: str) -> str:
    """The last part of a program's path."""
    return name.rpartition("/")[2]


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def too_long() -> Opaque:
    return Opaque(f"it is longer than {MAX_CHARACTERS} characters")


def too_many() -> Opaque:
    return Opaque(f"it starts more than {MAX_PROGRAMS} programs")


def render(script: Script) -> str:
    """The script as one line for people. What would not be seen in it is written out, as in `$'a\\nb'`."""
    words: list[str] = []
    for pipeline in script.pipelines:
        if pipeline.connector == ";":
            words[-1] += ";"
        elif pipeline.connector:
            words.append(pipeline.connector)
        words.append(" | ".join(" ".join(map(quoted, segment.argv)) for segment in pipeline.segments))
    return " ".join(words)


def quoted(word: str) -> str:
    """One word as a shell would read it; characters that cannot be seen are escaped as bash and zsh understand it."""
    if word.isprintable():  # also false for every blank but the plain one
        return (
            f"'{word}'" if word.startswith("=") and shlex.quote(word) == word else shlex.quote(word)
        )  # zsh expands it
    return "$'" + "".join(map(_escaped, word)) + "'"


def _escaped(char: str) -> str:
    if char in "\\'":
        return "\\" + char
    if char.isprintable():
        return char
    if char in "\n\t":
        return {"\n": "\\n", "\t": "\\t"}[char]
    code = ord(char)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
