"""A note of markdown, taken apart into what it says: one thing for each bullet or paragraph, with its lines.

Code, front matter and questions say nothing that could be kept. Lines of the form `W @boat: …` name what they are about
in front; `08:20 answered: …` is an entry of a log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from functools import cache

from palinurus.memory.dates import date_in_path
from palinurus.memory.markdown import Block, blocks_of, lines_of
from palinurus.migrate.ingest.fact import Found, key_of
from palinurus.workspace.seed import template

LONGEST = 600  # characters of one thing; a longer paragraph is cut between words
LEAST_WORDS = 2
GENERATED = "generated: pal ingest"  # in the front matter of pages of ours

_BULLET = re.compile(r"^\s*(?:(?:[-*+>•]|\d{1,9}[.)])\s+)*(?:\[[ xX]\]\s+)?")
_RETAIN = re.compile(r"^(?:[A-Z](?:\(c=[\d.]+\))?\s+)((?:@[\w./-]+[\s,]*)+):\s*")
_HANDLE = re.compile(r"@([\w][\w./-]*\w|\w)")
_ANSWERED = re.compile(r"^(?:\d{1,2}:\d{2}\s+)?answered:\s+", re.IGNORECASE)
_EMPTY_FIELD = re.compile(r"^[*_]*[^:]{1,40}:[*_]*\s*$")
_FENCE = re.compile(r"^\s*(?:`{3,}|~{3,})")
_DAY = re.compile(r"(?<!\d)(\d{4}-\d{2}-\d{2})(?!\d)")
_ONLY_DAY = re.compile(r"^[*_#\s]*(\d{4}-\d{2}-\d{2})[*_\s]*$")
_COMMENT = re.compile(r"<!--(?:(?!<!--).)*?-->")
_HINT = re.compile(r"^[_*]+[^_*]+[_*]+$|^[_*]{2,}$")  # `_(what should they be called?)_`
_WORDS = re.compile(r"\w+")


def read_note(text: str, path: str) -> list[Found]:
    if GENERATED in text[:2000]:
        return []
    dated = date_in_path(path)
    day = dated.isoformat() if dated else ""
    found: list[Found] = []
    passed = _no_prose(lines_of(text))
    seeded = _seeded(path)
    for block in blocks_of(text):
        if seeded and key_of(block.text) in seeded:
            continue
        if dated is None and (only := _ONLY_DAY.match(block.text)):
            day = _day_of(only[1]) or day
        if block.heading or passed.intersection(range(block.start, block.end + 1)):
            continue
        found += _things(block, day)
    return found


@cache
def _seeded(path: str) -> frozenset[str]:
    """What a file says when it is made: nobody has noted that."""
    if "/" in path:
        return frozenset()
    try:
        return frozenset(key_of(block.text) for block in blocks_of(template(path)))
    except OSError:
        return frozenset()


def _things(block: Block, day: str) -> Iterator[Found]:
    bare = " ".join(_BULLET.sub("", line) if n == 0 else line.strip() for n, line in enumerate(block.text.split("\n")))
    bare = bare.replace("\0", " ").strip(" |")
    about: tuple[str, ...] = ()
    if match := _RETAIN.match(bare):
        about, bare = tuple(_HANDLE.findall(match[1])), bare[match.end() :]
    bare = _ANSWERED.sub("", bare)
    if not _says_something(bare):
        return
    under = tuple(part.strip() for part in _COMMENT.sub("", block.context).split(" > ") if part.strip())
    day = day or next((found for part in reversed(under) if (found := _day_of(part))), "")
    for piece in _pieces(" ".join(bare.split())):
        yield Found(piece, block.start, block.end, day, under, about)


def _day_of(text: str) -> str:
    """The first day that stands in it, if there is such a day."""
    match = _DAY.search(text)
    try:
        return date.fromisoformat(match[1]).isoformat() if match else ""
    except ValueError:
        return ""


def _says_something(text: str) -> bool:
    if text.endswith(("?", "？")) or any(no.match(text) for no in (_EMPTY_FIELD, _ONLY_DAY, _HINT)):
        return False
    return len(_WORDS.findall(text)) >= LEAST_WORDS or len(text) >= 8


def _pieces(text: str) -> Iterator[str]:
    while len(text) > LONGEST:
        at = text.rfind(" ", LONGEST // 2, LONGEST)
        at = at if at > 0 else LONGEST
        yield text[:at]
        text = text[at:].lstrip()
    if text:
        yield text


def _no_prose(lines: list[str]) -> set[int]:
    """The lines of front matter and of code, counted from 1."""
    passed: set[int] = set()
    inside = False
    for number, line in enumerate(lines, start=1):
        fence = bool(_FENCE.match(line))
        if inside or fence:
            passed.add(number)
        inside = inside != fence
    if lines and lines[0].rstrip() == "---":
        end = next((n for n, line in enumerate(lines[1:200], start=2) if line.rstrip() in ("---", "...")), 0)
        passed.update(range(1, end + 1))
    return passed
