"""Lines of the config's allowlist, such as `git status` or `git diff *`, read as grants.

The first word names a program, by its name or its absolute path; the others are patterns, one for each argument. A
last `*` stands for any number of further arguments, flags excepted: those have to be named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from palinurus.domain.errors import BadRequest
from palinurus.domain.plan import Invocation
from palinurus.tools.commands.resolve import resolve
from palinurus.tools.commands.script import base_name
from palinurus.tools.commands.wrappers import SHELLS, never
from palinurus.tools.grants.grants import EXEC, Grant
from palinurus.tools.grants.patterns import REST, Patterns, is_literal, split_rule, unescape

CONFIG = "config:"
_JOINTS = ("|", "||", "&&", ";", "&")


def configured(lines: Iterable[str], found: Invocation, *, cwd: str, path: str) -> Iterator[Grant]:
    """The grants that lines of the config give for a program. Lines that cannot be read give none: see `problem`."""
    for line in lines:
        words = _words(line)
        if words and base_name(unescape(words[0])) == base_name(found.binary):
            yield _grant(line, words, cwd, path)


def line_id(line: str) -> str:
    """Under which id the audit log names a line of the config that let a command through."""
    return f"{CONFIG}{line}"


def problem(line: str) -> str:
    """Why a line of the allowlist allows nothing; empty when it can be used."""
    try:
        words = split_rule(line)
    except BadRequest as error:
        return str(error)
    if not words:
        return "it is empty"
    name = unescape(words[0])
    if not is_literal(words[0]) or ("/" in name and not name.startswith("/")):
        return "its first word has to be the name of a program, or its absolute path"
    if any(word in _JOINTS for word in words):
        return "it has to be one command: the programs of a pipeline or list are looked up one by one"
    if base_name(name) in SHELLS and (not words[1:] or words[1].startswith("-")):
        return "a shell is not allowed by its options: allow what it is to run"
    return f"{base_name(name)} is always asked for: {why}" if (why := never(base_name(name))) else ""


@lru_cache(maxsize=1024)
def _words(line: str) -> Patterns:
    return () if problem(line) else split_rule(line)


def _grant(line: str, words: Patterns, cwd: str, path: str) -> Grant:
    program = resolve((unescape(words[0]),), cwd=cwd, path=path)
    args = (*words[1:-1], REST) if len(words) > 1 and words[-1] == "*" else words[1:]
    return Grant(
        line_id(line),
        EXEC,
        "home",
        binary=program.binary,
        resolved=program.resolved,
        args=args,
        source="config",
    )
