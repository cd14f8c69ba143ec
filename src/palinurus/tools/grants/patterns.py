"""Patterns for single arguments of a command.

`*`, `?` and `[...]` stand for characters inside one argument, never for a part of two. Because programs act on some
arguments rather than only look at them, a wildcard does not stand for what begins one of those. A pattern has to name
it: `-` (a flag, or `--`), `+` and `@` (options and response files of some programs), `|`, `!`, `<` and `>` (which some
take for a command or a file to open, `|` also at the end), `NAME=` (an assignment), and the beginning of an absolute
path or of a home, also behind `=`, `:`, `@` or `,`. An argument with `..` among its parts is matched only by the same
words: `src/*` is no way out of src; one that leads through `.git` or `.pal`, only by a pattern that names it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from palinurus.domain.errors import BadRequest

Patterns: TypeAlias = tuple[str, ...]
REST = "**"  # as the last of several: any further arguments

_ACTS = re.compile(r"[-+@]|\s*[|!<>](?=\s*\S)|[\w.-]+=")
_ROOT = re.compile(r"(?:^|(?<=[=:@,]))[/~]")
_CLASS = re.compile(r"\[!?+\]?+[^\]]*+\]")  # as fnmatch finds its end


class _Head(NamedTuple):
    text: str  # what stands before the first wildcard
    whole: bool  # there is no wildcard


def matches_all(patterns: Patterns, args: Sequence[str]) -> bool:
    """One pattern for each argument, in order; a last `**` for all that are left."""
    if patterns and patterns[-1] == REST:
        own = len(patterns) - 1
        return matches_all(patterns[:own], args[:own]) and all(matches("*", each) for each in args[own:])
    return len(patterns) == len(args) and all(map(matches, patterns, args))


def matches(pattern: str, argument: str) -> bool:
    head = _head(pattern)
    if head.whole:
        return head.text == argument
    return (
        argument.startswith(head.text)
        and fnmatchcase(argument, pattern)
        and ".." not in re.split(r"[/=:@,]", argument)
        and not (_ends_piped(argument) and not _ends_piped(pattern))
        and _ours(argument) <= _ours(pattern)
        and not _begins_unnamed(argument, len(head.text))
    )


def _ours(text: str) -> set[str]:
    """Folders of git and of pal that it leads through: what lies there is run or restored by others."""
    return {".git", ".pal"}.intersection(re.split(r"[/=:@,]", text))


def _ends_piped(text: str) -> bool:
    """Perl's open runs what stands before such an end."""
    return text.rstrip().endswith("|") and text.strip() != "|"


def escape(argument: str) -> str:
    """The pattern that matches this argument and no other."""
    return re.sub(r"([*?[])", r"[\1]", argument)


def unescape(pattern: str) -> str:
    """The argument that a literal pattern stands for; of another one, what stands before its first wildcard."""
    return _head(pattern).text


def is_literal(pattern: str) -> bool:
    return _head(pattern).whole


def shown(pattern: str) -> str:
    """A pattern as `split_rule` reads it: what is literal is quoted where it has to be."""
    if is_literal(pattern):
        text = unescape(pattern)
        plain = bool(text) and re.fullmatch(r"[^\s'\"\\*?\[]+", text)
        return text if plain else "'" + text.replace("'", "'\"'\"'") + "'"
    return re.sub(r"[\s'\"\\]+", lambda found: '"' + re.sub(r'(["\\])', r"\\\1", found[0]) + '"', pattern)


def split_rule(rule: str) -> Patterns:
    """The words of a rule such as `git diff "*.py" src/*`; what is quoted or escaped is literal. Raises BadRequest."""
    words: list[str] = []
    word: str | None = None  # None: between two words
    quote = ""
    chars = iter(rule)
    for char in chars:
        if char == "\\" and quote != "'":
            if (following := next(chars, "")) == "":
                raise BadRequest(f"the rule ends in a backslash: {rule}", hint="write \\\\ for one that is meant")
            word = (word or "") + escape(following)
        elif quote:
            quote, word = ("", word or "") if char == quote else (quote, (word or "") + escape(char))
        elif char in "'\"":
            quote, word = char, word or ""
        elif not char.isspace():
            word = (word or "") + char
        elif word is not None:
            words.append(word)
            word = None
    if quote:
        raise BadRequest(f"a quote is not closed in the rule: {rule}", hint=f"add the missing {quote}")
    return (*words, word) if word is not None else tuple(words)


def rule_arguments(words: Patterns) -> Patterns:
    """The patterns of a rule that a person wrote: there a last `*` already stands for all that follows."""
    return (*words[1:-1], REST) if len(words) > 1 and words[-1] == "*" else words[1:]


def _begins_unnamed(argument: str, named: int) -> bool:
    """Whether something that has to be named begins where only wildcards stand."""
    acts = _ACTS.match(argument)
    if acts is not None and acts.end() > named:
        return True
    return any(found.start() >= named for found in _ROOT.finditer(argument))


@lru_cache(maxsize=4096)
def _head(pattern: str) -> _Head:
    """`[x]` is how an x is written literally; any other bracket expression is a wildcard."""
    text: list[str] = []
    at, last = 0, pattern.rfind("]")
    while at < len(pattern):
        char = pattern[at]
        if char == "[" and at < last and (found := _CLASS.match(pattern, at)):
            if len(inner := found[0][1:-1]) != 1:
                return _Head("".join(text), whole=False)
            text.append(inner)
            at = found.end()
        elif char in "*?":
            return _Head("".join(text), whole=False)
        else:
            text.append(char)
            at += 1
    return _Head("".join(text), whole=True)
