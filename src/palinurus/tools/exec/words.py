"""Words in a command that may name files: as a shell would read them, and as a program might.

No shell is run here, so what is found is a guess on the safe side: a word too many is only looked at. Text between
quotes is read once more, because it may be a command for another shell (`sh -c 'rm *.log'`). Linear in the length of
the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from palinurus.tools.commands.resolve import LONGEST_PATH

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
_MARK = re.compile(r"[*?\[]")
_ESCAPED_MARK = re.compile(r"\[[*?\[]\]")
_COMMAND = re.compile(r"-[a-z]*c|eval")  # a shell's own string comes next
_SETTING = re.compile(r"""(?<![\w$])([A-Za-z_]\w*)=(?:'([^']*)'|"([^"$`\\]*)"|([^\s;&|<>()$`'"\\]+))""")
_USE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))|(?<![^\s=:])~(?=/|\s|$)")


class Word(NamedTuple):
    text: str
    pattern: str = ""  # for names of files; what was quoted of it is written as `[*]`; empty: it is none
    before: str = ""  # the word in front of it
    depth: int = 0  # of quotes around it
    quoted: bool = False  # so that it may be just text; not what follows `-c`


def read_words(text: str, variables: Mapping[str, str]) -> list[Word]:
    """Each once. `variables` are those whose values are known; the text may set more."""
    known = {**variables, **{each[1]: each[2] or each[3] or each[4] or "" for each in _SETTING.finditer(text)}}

    def value(use: re.Match[str]) -> str:
        return known.get(use[1] or use[2] or "HOME", use[0])

    texts = dict.fromkeys((text, _USE.sub(value, text)))
    return list(dict.fromkeys(word for each in texts for word in _words(each)))


def _words(text: str, depth: int = 0, *, quoted: bool = False) -> Iterator[Word]:
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
            yield Word(text, found if _is_pattern(found) else "", before, depth, quoted)
            literal, pattern, before = [], [], text
    for value, is_text in quotes if depth < DEEPEST else ():
        yield from _words(value, depth + 1, quoted=is_text)


def _is_pattern(text: str) -> bool:
    """No name of a file is as long as some words are."""
    plain = _ESCAPED_MARK.sub("", text) if len(text) < LONGEST_PATH else ""
    return "*" in plain or "?" in plain or "]" in plain.partition("[")[2]
