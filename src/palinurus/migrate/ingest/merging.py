"""A page of ours and what a person has made of it. Pure.

Our part stands between two marks, and the second one has a digest of it. What is outside belongs to the person and is
kept. When the part inside was changed as well, lines that they have written go between marks of their own below, and
facts that they have thrown out stay out: `Merged.removed` names them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable

from msgspec import Struct

from palinurus.migrate.ingest.rendering import Rendered, line_key

BEGIN = "<!-- pal:ingest: this part is written anew; write above or below it -->"
YOURS, YOURS_END = "<!-- yours -->", "<!-- /yours -->"
OUR_KEYS = frozenset({"title", "kind", "updated", "sources", "generated"})

_END = re.compile(r"<!-- /pal:ingest ([0-9a-f]{16}) -->")
_KEY = re.compile(r"([A-Za-z_][\w-]*):(.*)")


class Merged(Struct, frozen=True):
    text: str
    removed: frozenset[str] = frozenset()  # keys of lines that a person has thrown out
    kept: int = 0  # lines of theirs that stood among ours


class Parted(Struct, frozen=True):
    """A file as it is."""

    front: tuple[tuple[str, str], ...]
    before: str
    ours: str | None
    after: str
    edited: bool


def merge(existing: str | None, page: Rendered, known: Collection[str]) -> Merged:
    """`known` are the keys of the lines that we wrote last time, if anybody still knows."""
    if existing is None:
        return Merged(_written(page.front, "", page.body, ""))
    old = part(existing)
    theirs = [(key, value) for key, value in old.front if key not in OUR_KEYS]
    after, removed, own = old.after, frozenset[str](), list[str]()
    if old.edited and old.ours is not None:
        there = {line_key(line): line for line in old.ours.split("\n") if line.strip()}
        own = [line for key, line in there.items() if key not in known and key not in page.keys]
        removed = frozenset(known) - there.keys()
        after = _with_yours(after, own)
    return Merged(_written((*page.front, *theirs), old.before, page.body, after), removed, len(own))


def emptied(existing: str) -> str:
    """What is left of a page when we have nothing more to say: a person's part, or nothing."""
    old = part(existing)
    theirs = "".join(f"{key}:{value}\n" for key, value in old.front if key not in OUR_KEYS)
    after = _with_yours(old.after, [old.ours] if old.edited and old.ours else [])
    rest = "\n".join(each for each in (old.before.strip("\n"), after.strip("\n")) if each)
    front = f"---\n{theirs}---\n" if theirs and rest else ""
    return f"{front}{rest}\n" if rest else ""


def part(text: str) -> Parted:
    front, body = _front(text.replace("\r\n", "\n"))
    lines = body.split("\n")
    begin = next((n for n, line in enumerate(lines) if line == BEGIN), None)
    end = None
    if begin is not None:
        end = next((n for n in range(len(lines) - 1, begin, -1) if _END.fullmatch(lines[n])), None)
    if begin is None or end is None:  # somebody else's page, or the marks were taken away: all of it is theirs
        return Parted(front, "", None, "", edited=False) if not body.strip() else Parted(front, body, None, "", False)
    ours = "\n".join(lines[begin + 1 : end])
    mark = _END.fullmatch(lines[end])
    edited = mark is None or mark[1] != digest(ours)
    return Parted(front, "\n".join(lines[:begin]), ours, "\n".join(lines[end + 1 :]), edited)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def _written(front: Iterable[tuple[str, str]], before: str, ours: str, after: str) -> str:
    head = "".join(f"{key}:{'' if value[:1] in ('', ' ', chr(10)) else ' '}{value}\n" for key, value in front)
    above = f"{before.strip(chr(10))}\n\n" if before.strip() else "\n"
    below = f"\n{after.strip(chr(10))}\n" if after.strip() else ""
    return f"---\n{head}---\n{above}{BEGIN}\n{ours}\n<!-- /pal:ingest {digest(ours)} -->\n{below}"


def _with_yours(after: str, lines: list[str]) -> str:
    if not lines:
        return after
    if YOURS in after and YOURS_END in after:
        head, _, tail = after.rpartition(YOURS_END)
        return f"{head}{chr(10).join(lines)}\n{YOURS_END}{tail}"
    gap = f"{after.rstrip(chr(10))}\n\n" if after.strip() else "\n"
    return f"{gap}{YOURS}\n{chr(10).join(lines)}\n{YOURS_END}\n"


def _front(text: str) -> tuple[tuple[tuple[str, str], ...], str]:
    """Its keys with what stands behind each, word for word, and the rest of the page."""
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        return (), text
    end = next((n for n, line in enumerate(lines[1:], start=1) if line.rstrip() == "---"), None)
    if end is None:
        return (), text
    fields: list[tuple[str, str]] = []
    for line in lines[1:end]:
        if match := _KEY.fullmatch(line):
            fields.append((match[1], match[2]))
        elif fields:
            fields[-1] = (fields[-1][0], f"{fields[-1][1]}\n{line}")
    return tuple(fields), "\n".join(lines[end + 1 :])
