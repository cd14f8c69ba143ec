"""Reads a shell string, as far as we can run it without a shell.

A command is accepted if each of its words is a constant and nothing but `|`, `&&`, `||`, `;` and line ends joins its
programs: then starting them ourselves does exactly what sh would do. Whatever needs a shell to know what it means, or
means different things to different shells, is Opaque. One pass, no way back: the patterns below are possessive.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from palinurus.tools.commands.script import (
    MAX_CHARACTERS,
    MAX_PROGRAMS,
    Connector,
    Opaque,
    Pipeline,
    Script,
    Segment,
    names,
    too_long,
    too_many,
)

_PIECE = re.compile(
    r"""
      (?P<blank> [ \t]++ )
    | (?P<newline> \n )
    | (?P<joint> && | \|\| | ; | \|(?!&) )
    | (?P<plain> [^ \t\n|&;<>()$`\\"'*?\[{}]++ )
    | (?P<magic> \*++ )
    | ' (?P<single> [^']*+ ) '
    | " (?P<double> (?: [^"\\$`] | \\[^\n] )*+ ) "
    | \\ (?P<escaped> [^\n] )
    """,
    re.VERBOSE,
)
_INSIDE = re.compile(r'(?:[^"\\$`]|\\[^\n])*+')  # of double quotes, to find what stands in the way
_HOME_INSIDE = re.compile(r"[=:]~")  # after these some shells look for a home, too
_MARK = re.compile(r"[*?\[]")
_MAGIC = re.compile(r"(?<!\[)\*")
_ESCAPE = re.compile(r'\\([$`"\\])')  # before anything else a backslash between double quotes is just itself

_CONNECTORS: dict[str, Connector] = {"&&": "&&", "||": "||", ";": ";"}
_BECAUSE = {
    "$": "it has a variable or a substitution in it ($)",
    "`": "it has a substitution in it (`)",
    "<": "it redirects (<)",
    ">": "it redirects (>)",
    "&": "it runs something in the background, or redirects (&)",
    "|": "it redirects errors into a pipe (|&)",
    "(": "it has a subshell, a group or a function in it (()",
    ")": "it has a subshell, a group or a function in it ())",
    "{": "it has braces in it ({), which shells read in different ways",
    "}": "it has braces in it (}), which shells read in different ways",
    "*": "it has a pattern for file names in it (*)",
    "?": "it has a pattern for file names in it (?)",
    "[": "it has a pattern for file names in it ([)",
    "~": "it has a home directory in it (~)",
    "#": "it has a comment in it (#)",
    "=": "it has a word in it that begins with =, which shells read in different ways",
    "'": "a quote in it (') is not closed",
    '"': 'a quote in it (") is not closed',
    "\\": "it ends a line with a backslash",
}

RESERVED = names(
    """! { } [[ ]] case coproc do done elif else end esac fi for foreach function if in nocorrect noglob repeat select
    then time until while"""
)
BUILTINS = names(
    """. : alias bg bind break builtin caller cd chdir command compgen complete compopt continue declare dirs disown
    enable eval exec exit export fc fg getopts hash help history jobs let local logout mapfile popd print pushd read
    readarray readonly return set shift shopt source suspend times trap type typeset ulimit umask unalias unset wait"""
)
"""Only a shell has these, or acts differently on them. Those that are also programs that do the same are not here."""


class Joint(NamedTuple):
    mark: str  # a connector, a pipe, or the end of a line


class Word(NamedTuple):
    text: str
    pattern: str = ""  # that it was found by


class _Refused(Exception):
    """Why the text is Opaque; never leaves this module."""


Expand = Callable[[str], Sequence[str]]
"""The names of files that a pattern stands for, in the order in which a program gets them; `[*]` is a mere asterisk.
Nothing for a pattern that cannot be expanded here."""


def parse(text: str, expand: Expand | None = None) -> Script | Opaque:
    """Linear in the length of the text. Without `expand` a word with `*` is Opaque; one with `?` always is, because
    shells do not agree on what a character is."""
    if len(text) > MAX_CHARACTERS:
        return too_long()
    if text[:1] in ("-", "+"):
        return Opaque(f"it begins with {text[0]}, which a shell takes for options")
    try:
        _refuse_unseen(text)
        return _script(_tokens(text, expand))
    except _Refused as refused:
        return Opaque(str(refused))


def _refuse_unseen(text: str) -> None:
    """Blanks that are not ASCII stay: a shell does not split there. `render` shows them."""
    for char in text:
        if not char.isprintable() and char not in "\n\t" and unicodedata.category(char) in ("Cc", "Cf", "Cs"):
            raise _Refused(f"it has a character in it that cannot be seen (U+{ord(char):04X})")


def _tokens(text: str, expand: Expand | None) -> Iterator[Word | Joint]:
    at, parts, pattern, last = 0, list[str](), list[str](), ""
    while at < len(text):
        piece = _PIECE.match(text, at)
        kind = str(piece.lastgroup) if piece else ""
        if piece is None or (kind == "magic" and expand is None):
            raise _Refused(_why(text, at))
        at = piece.end()
        if kind in ("blank", "newline", "joint"):
            if parts:
                yield from _found("".join(parts), "".join(pattern), expand)
            parts, pattern, last = [], [], ""
            if kind != "blank":
                yield Joint(piece[kind])
        else:
            parts.append(_value(kind, piece[kind], last))
            pattern.append(parts[-1] if kind == "magic" else _MARK.sub(r"[\g<0>]", parts[-1]))
            last = parts[-1][-1:] or last
    if parts:
        yield from _found("".join(parts), "".join(pattern), expand)


def _found(text: str, pattern: str, expand: Expand | None) -> Iterator[Word]:
    """The word, or what stands in its place."""
    if expand is None or not _MAGIC.search(pattern):
        yield Word(text)
        return
    names = expand(pattern)
    if not names:
        raise _Refused(_BECAUSE["*"])
    yield from (Word(name, text) for name in names)


def _value(kind: str, text: str, last: str) -> str:
    """What a part of a word stands for. `last` is the character before it in the same word."""
    if kind == "double":
        return _ESCAPE.sub(r"\1", text)
    if kind == "plain":
        if text[0] in "~#=" and not last:
            raise _Refused(_BECAUSE[text[0]])
        if _HOME_INSIDE.search(last + text):
            raise _Refused(_BECAUSE["~"])
    return text


def _why(text: str, at: int) -> str:
    if text[at] != '"':
        return _BECAUSE[text[at]]
    stopped = _INSIDE.match(text, at + 1)
    return _BECAUSE.get(text[stopped.end() : stopped.end() + 1] if stopped else "", _BECAUSE['"'])


def _script(tokens: Iterator[Word | Joint]) -> Script:
    builder = _Builder()
    for token in tokens:
        if isinstance(token, Word):
            if token.pattern and not builder.takes_pattern:
                raise _Refused(_BECAUSE["*"])
            builder.words.append(token.text)
        elif token.mark == "\n":
            builder.end_line()
        else:
            builder.join(token.mark)
    return builder.finish()


class _Builder:
    """Puts words together. `awaited` is the joint after which another program has to come."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self._segments: list[Segment] = []
        self._pipelines: list[Pipeline] = []
        self._connector: Connector = ""
        self._awaited = ""
        self._programs = 0

    @property
    def takes_pattern(self) -> bool:
        """What is run is not to be looked for, and what is there after a first step cannot be known before it."""
        return bool(self.words) and not self._pipelines

    def join(self, mark: str) -> None:
        self._end_program(mark)
        if mark == "|":
            self._awaited = mark
            return
        self._end_pipeline()
        self._connector = _CONNECTORS[mark]
        self._awaited = "" if mark == ";" else mark

    def end_line(self) -> None:
        """As `;`, but there may be any number of them, also behind an operator that waits for its other side."""
        if self.words:
            self.join(";")

    def finish(self) -> Script:
        if self.words or self._awaited:
            self.join(";")
        if not self._pipelines:
            raise _Refused("it is empty")
        return Script(tuple(self._pipelines))

    def _end_program(self, mark: str) -> None:
        if not self.words:
            raise _Refused(f"there is no program beside an operator ({self._awaited or mark})")
        if reason := _needs_a_shell(self.words[0]):
            raise _Refused(reason)
        self._programs += 1
        if self._programs > MAX_PROGRAMS:
            raise _Refused(too_many().reason)
        self._segments.append(Segment(tuple(self.words)))
        self.words, self._awaited = [], ""

    def _end_pipeline(self) -> None:
        self._pipelines.append(Pipeline(tuple(self._segments), self._connector))
        self._segments = []


def _needs_a_shell(name: str) -> str:
    """Whether quoted or not: nobody who means well quotes these."""
    if not name:
        return "it has a program without a name in it"
    if name in RESERVED or name in BUILTINS:
        return f"only a shell understands `{name}`"
    return "it sets a variable for a program (=)" if "=" in name else ""
