"""Parses a shell string, as far as it can be run without a shell.

A command is accepted if each of its words is a constant and its programs are joined only by `|`, `&&`, `||`, `;` and
line ends: then starting them directly does exactly what sh would do. Everything that needs a shell to be understood, or
means different things in different shells, is Opaque. One pass without backtracking: the patterns below are possessive.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

Argv: TypeAlias = tuple[str, ...]
Connector = Literal["", "&&", "||", ";"]
MAX_CHARACTERS = 65_536  # in one command
MAX_PROGRAMS = 100  # in one command
_SURROGATE = re.compile(r"[\ud800-\udfff]")
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

# The part within double quotes, to find the character that prevents parsing.
_INSIDE = re.compile(r'(?:[^"\\$`]|\\[^\n])*+')
_HOME_INSIDE = re.compile(r"[=:]~")  # after these characters some shells also expand ~
_MARK = re.compile(r"[*?\[]")
_MAGIC = re.compile(r"(?<!\[)\*")
_ESCAPE = re.compile(r'\\([$`"\\])')  # before any other character, a backslash within double quotes is literal
_CONNECTORS: dict[str, Connector] = {"&&": "&&", "||": "||"}
_BECAUSE = {
    "$": "it has a variable or a substitution in it ($)",
    "`": "it has a substitution in it (`)",
    **{char: f"it redirects ({char})" for char in "<>"},
    "&": "it runs something in the background, or redirects (&)",
    "|": "it redirects errors into a pipe (|&)",
    **{char: f"it has a subshell, a group or a function in it ({char})" for char in "()"},
    **{char: f"it has braces in it ({char}), which shells read in different ways" for char in "{}"},
    **{char: f"it has a pattern for file names in it ({char})" for char in "*?["},
    "~": "it has a home directory in it (~)",
    "#": "it has a comment in it (#)",
    "=": "it has a word in it that begins with =, which shells read in different ways",
    **{char: f"a quote in it ({char}) is not closed" for char in "'\""},
    "\\": "it ends a line with a backslash",
}
Expand = Callable[[str], Sequence[str]]
"""Returns the file names that a pattern matches, in the order in which a program gets them; `[*]` is a literal
asterisk. Empty for a pattern that cannot be expanded here."""


class Opaque(Struct, frozen=True):
    """A command that is not understood. The reason is a clause for a person, such as `it redirects (>)`."""

    reason: str


class Segment(Struct, frozen=True):
    """One program of a pipeline, as written: it may be a wrapper around another."""

    argv: Argv


class Pipeline(Struct, frozen=True):
    """Programs connected by pipes. The connector says when it runs: `&&` and `||` depend on the exit code before it."""

    segments: tuple[Segment, ...]
    connector: Connector = ""


class Script(Struct, frozen=True):
    """A command that is understood: programs with their arguments, joined by pipes and by `&&`, `||` and `;`."""

    pipelines: tuple[Pipeline, ...]

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(segment for pipeline in self.pipelines for segment in pipeline.segments)


def parse_argv(argv: Sequence[str]) -> Script | Opaque:
    """Returns the script of a command given as argv. Every text is allowed that can be passed to a program."""
    if not argv or not argv[0]:
        return Opaque("it names no program")
    if sum(map(len, argv)) + len(argv) > MAX_CHARACTERS:
        return too_long()
    if any("\0" in word or _SURROGATE.search(word) for word in argv):
        return Opaque("it contains a NUL or half a character, which cannot be passed to a program")
    return Script((Pipeline((Segment(tuple(argv)),)),))


def base_name(name: str) -> str:
    """Returns the last part of a program's path."""
    return name.rpartition("/")[2]


def name_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


def too_long() -> Opaque:
    return Opaque(f"it is longer than {MAX_CHARACTERS} characters")


def too_many() -> Opaque:
    return Opaque(f"it starts more than {MAX_PROGRAMS} programs")


def render_script(script: Script) -> str:
    r"""Renders the script as one line for a person. Invisible characters are escaped, as in `$'a\nb'`."""
    words: list[str] = []
    for pipeline in script.pipelines:
        if pipeline.connector == ";":
            words[-1] += ";"
        elif pipeline.connector:
            words.append(pipeline.connector)
        words.append(" | ".join(" ".join(map(quote_word, segment.argv)) for segment in pipeline.segments))
    return " ".join(words)


def quote_word(word: str) -> str:
    """Quotes one word for a shell; invisible characters are escaped in the way bash and zsh understand."""
    if word.isprintable():  # also false for every blank except the ASCII space
        quoted = shlex.quote(word)
        return f"'{word}'" if word.startswith("=") and quoted == word else quoted  # zsh expands it
    return "$'" + "".join(map(_escaped, word)) + "'"


def _escaped(char: str) -> str:
    if char.isprintable() and char not in "\\'":
        return char
    if short := {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\t": "\\t"}.get(char):
        return short
    code = ord(char)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


RESERVED = name_set(
    """! { } [[ ]] case coproc do done elif else end esac fi for foreach function if in nocorrect noglob repeat select
    then time until while"""
)

BUILTINS = name_set(
    """. : alias bg bind break builtin caller cd chdir command compgen complete compopt continue declare dirs disown
    enable eval exec exit export fc fg getopts hash help history jobs let local logout mapfile popd print pushd read
    readarray readonly return set shift shopt source suspend times trap type typeset ulimit umask unalias unset wait"""
)
"""Only a shell has these, or handles them differently. Builtins with an equivalent program are not listed."""


class Joint(NamedTuple):
    mark: str  # a connector, a pipe, the end of a line; empty: the end of the text


class ShellWord(NamedTuple):
    text: str
    pattern: str = ""  # the token's group name


class _Refused(Exception):
    """Why the text is Opaque. Used only inside this module."""


def parse_shell(text: str, expand: Expand | None = None) -> Script | Opaque:
    """Parses a text in linear time. Without `expand` a word with `*` is Opaque; one with `?` always is, because shells
    disagree on what a character is."""
    if len(text) > MAX_CHARACTERS:
        return too_long()
    if text[:1] in ("-", "+"):
        return Opaque(f"it begins with {text[0]}, which a shell reads as options")
    try:
        _refuse_unseen(text)
        return _script(_tokens(text, expand))
    except _Refused as refused:
        return Opaque(str(refused))


def _refuse_unseen(text: str) -> None:
    """Refuses invisible characters. Non-ASCII blanks stay: a shell does not split there, and `render_script` shows
    them."""
    for char in text:
        if not char.isprintable() and char not in "\n\t" and unicodedata.category(char) in ("Cc", "Cf", "Cs"):
            raise _Refused(f"it contains an invisible character (U+{ord(char):04X})")


def _tokens(text: str, expand: Expand | None) -> Iterator[ShellWord | Joint]:
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


def _found(text: str, pattern: str, expand: Expand | None) -> Iterator[ShellWord]:
    """Returns the next token, or the reason why there is none."""
    if expand is None or not _MAGIC.search(pattern):
        yield ShellWord(text)
        return
    names = expand(pattern)
    if not names:
        raise _Refused(_BECAUSE["*"])
    yield from (ShellWord(name, text) for name in names)


def _value(kind: str, text: str, last: str) -> str:
    """Returns the value of a part of a word. `last` is the character before it in the same word."""
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


def _script(tokens: Iterator[ShellWord | Joint]) -> Script:
    """Puts words together. `awaited` is the connector that must be followed by another program."""
    pipelines, segments, words = list[Pipeline](), list[Segment](), list[str]()
    connector: Connector = ""
    awaited, programs = "", 0
    for token in chain(tokens, (Joint(""),)):
        if isinstance(token, ShellWord):
            # No pattern is expanded in a program name, nor after a first step, which may change files.
            if token.pattern and (pipelines or not words):
                raise _Refused(_BECAUSE["*"])
            words.append(token.text)
            continue
        mark = token.mark
        if not words:
            # The end of a line may be repeated, and may follow an operator that waits for its right side.
            if mark == "\n" or not (mark or awaited):
                continue
            raise _Refused(f"a program is missing next to an operator ({awaited or mark})")
        if reason := _needs_a_shell(words[0]):
            raise _Refused(reason)
        programs += 1
        if programs > MAX_PROGRAMS:
            raise _Refused(too_many().reason)
        segments.append(Segment(tuple(words)))
        words, awaited = [], mark if mark in ("|", "&&", "||") else ""
        if mark != "|":
            pipelines.append(Pipeline(tuple(segments), connector))
            segments, connector = [], _CONNECTORS.get(mark, ";")
    if not pipelines:
        raise _Refused("it is empty")
    return Script(tuple(pipelines))


def _needs_a_shell(name: str) -> str:
    """Refuses names that only a shell understands, quoted or not."""
    if not name:
        return "it has a program without a name in it"
    if name in RESERVED or name in BUILTINS:
        return f"only a shell understands `{name}`"
    return "it sets a variable for a program (=)" if "=" in name else ""
