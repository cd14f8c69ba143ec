"""Read the facts of a source.

Of a markdown note: one fact for each bullet or paragraph, with its lines. Code, front matter and questions are left
out. Lines of the form `W @boat: …` begin with their subject; `08:20 answered: …` is an entry of a log.

Of a session: a limited number of sentences, weighed by the same cues as notes of a session; of tool calls only the
paths in them. What was said after a tool had read something from outside is marked (promise 18).
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, tzinfo
from functools import cache
from typing import Any

from palinurus.context.extract import worth
from palinurus.extensions.migrate.foreign import ForeignEntry, as_object, load_json, time_ms
from palinurus.extensions.migrate.ingest.facts import SourceFact, key_of, kind_by_words
from palinurus.memory.chunk import MarkdownBlock, blocks_of, lines_of
from palinurus.memory.terms import date_in_path
from palinurus.text.sentences import addresses
from palinurus.workspace.seed import template_texts

LONGEST = 600  # characters of one fact; a longer paragraph is split between words
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


def read_note(text: str, path: str) -> list[SourceFact]:
    if GENERATED in text[:2000]:
        return []
    dated = date_in_path(path)
    day = dated.isoformat() if dated else ""
    found: list[SourceFact] = []
    passed = _skipped_lines(lines_of(text))
    seeded = _seeded(path)
    for block in blocks_of(text):
        if seeded and key_of(block.text) in seeded:
            continue
        if dated is None and (only := _ONLY_DAY.match(block.text)):
            day = _day_of(only[1]) or day
        if not block.heading and passed.isdisjoint(range(block.start, block.end + 1)):
            found += _facts(block, day)
    return found


@cache
def _seeded(path: str) -> frozenset[str]:
    """Keys of the text of our template for a file, which nobody has noted."""
    with suppress(OSError):
        if "/" not in path:
            return frozenset(key_of(block.text) for text in template_texts(path) for block in blocks_of(text))
    return frozenset()


def _facts(block: MarkdownBlock, day: str) -> Iterator[SourceFact]:
    bare = " ".join(_BULLET.sub("", line) if n == 0 else line.strip() for n, line in enumerate(block.text.split("\n")))
    bare = bare.replace("\0", " ").strip(" |")
    about: tuple[str, ...] = ()
    if match := _RETAIN.match(bare):
        about, bare = tuple(_HANDLE.findall(match[1])), bare[match.end() :]
    bare = _ANSWERED.sub("", bare)
    if not _is_statement(bare):
        return
    under = tuple(part.strip() for part in _COMMENT.sub("", block.context).split(" > ") if part.strip())
    day = day or next((found for part in reversed(under) if (found := _day_of(part))), "")
    for piece in _pieces(" ".join(bare.split())):
        yield SourceFact(piece, block.start, block.end, day, under, about)


def _day_of(text: str) -> str:
    """The first valid day in it."""
    with suppress(ValueError):
        if match := _DAY.search(text):
            return date.fromisoformat(match[1]).isoformat()
    return ""


def _is_statement(text: str) -> bool:
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


def _skipped_lines(lines: list[str]) -> set[int]:
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


LEAST_WORTH = 3.0
OF_A_KIND = 3.0  # added for a decision, a preference or a rule
BARELY = 0.01  # weights differ by more
MOST_SENTENCES = 60  # of one session
MOST_PATHS = 60
LONGEST_SENTENCE = 320  # characters of a sentence
SHORT = 8  # characters of an abbreviation, with its dot and what stands before it
LONGEST_SAID = 20_000  # characters of one message that are read: a longer one was pasted
_CODE = re.compile(r"^(```|~~~).*?(?:^\1|\Z)", re.DOTALL | re.MULTILINE)
_HALF = re.compile("[\ud800-\udfff]")
_ENDS = re.compile(r"\s(?:(?<=[.!?]\s)\s*|(?<=\n)\n*)")  # begins with a blank: faster than a lookbehind at every letter
_ENDS_TOO = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_MARKS = re.compile(r"^\s*(?:(?:[-*+>•#]+|\d{1,3}[.)])\s+)+")
_ABBREVIATED = re.compile(r"(?:^|[\s(])(?:[A-Za-z]|Mrs?|Ms|Dr|Prof|St|No|Nr|vs|e\.g|i\.e|z\.B|ca)\.$")
_ENVELOPE = re.compile(r"^\[[^\]\n]{3,120}\]\s*")  # `[Telegram Sam 2026-11-15 08:14 UTC]`, `[Sun 2026-11-15 08:14 UTC]`
_NOT_SAID = re.compile(r"^(?:/\w|System:|HEARTBEAT|NO_REPLY|A new session was started|Read HEARTBEAT\.md|\[cron:)")
_OUTSIDE_TOOL = re.compile(r"web|fetch|browser|http|mcp|search_web|download", re.IGNORECASE)
_QUOTING = ("scout", "gateway-injected")  # models that only quote


WeighedFact = tuple[float, int, SourceFact]
"""Its weight, its order, and the fact."""


def read_session(
    entries: Iterable[ForeignEntry], zone: tzinfo = UTC, clean: Callable[[str], str] = str
) -> list[SourceFact]:
    """A limited number of facts, in the order of the session. `clean` removes secrets from a text."""
    kept: list[WeighedFact] = []  # the heaviest so far
    paths: dict[str, SourceFact] = {}
    order, outside = 0, False
    for entry in entries:
        if entry.role in ("toolResult", "tool_result"):
            outside = outside or _from_outside(entry)
        elif entry.role in ("user", "assistant"):
            outside = outside and entry.role != "user"
            for weight, found in _sentences(entry, outside, zone, clean, kept):
                order += 1
                heapq.heappush(kept, (weight, -order, found))
                if len(kept) > MOST_SENTENCES:
                    heapq.heappop(kept)
        if len(paths) < MOST_PATHS and (entry.role == "tool" or '"toolCall"' in entry.row.payload):
            for path in (clean(_whole(each)) for each in _paths(entry)):
                paths.setdefault(path, SourceFact(path, entry.number, entry.number, _day(entry, zone), path=True))
    said = [found for _, _, found in sorted(kept, key=lambda each: -each[1])]
    return [*said, *list(paths.values())[:MOST_PATHS]]


def _sentences(
    entry: ForeignEntry, outside: bool, zone: tzinfo, clean: Callable[[str], str], kept: list[WeighedFact]
) -> Iterator[tuple[float, SourceFact]]:
    """`kept` are the heaviest so far: a sentence that cannot be among them is not weighed further."""
    text = entry.text
    if not text or _NOT_SAID.match(text):
        return
    by_owner = entry.role == "user"
    if by_owner:
        origin = _message(entry).get("origin")
        if origin == "system":
            return
        outside = outside or origin == "outside"
    elif any(f'"{model}"' in entry.row.payload for model in _QUOTING):
        return
    owners = by_owner and not outside
    for sentence in _split(_ENVELOPE.sub("", clean(_whole(text[:LONGEST_SAID])))):
        # Of two with the same weight the first one stays.
        enough = max(LEAST_WORTH, kept[0][0] + BARELY) if len(kept) >= MOST_SENTENCES else LEAST_WORTH
        weight = worth(sentence, by_user=owners, enough=enough - OF_A_KIND)
        if weight >= enough - OF_A_KIND and kind_by_words(sentence):
            weight += OF_A_KIND
        if weight >= enough:
            number, day = entry.number, _day(entry, zone)
            yield weight, SourceFact(sentence, number, number, day, by_owner=owners, outside=outside)


def _split(text: str) -> Iterator[str]:
    begun = ""
    ends = _ENDS if text.isascii() else _ENDS_TOO
    for part in ends.split(_CODE.sub("", text) if "```" in text or "~~~" in text else text):
        begun = f"{begun} {part}" if begun else part
        # `Mr.` is not the end of a sentence.
        if begun.endswith(".") and _ABBREVIATED.search(begun, max(0, len(begun) - SHORT)):
            continue
        sentence = " ".join(_MARKS.sub("", begun.replace("\0", " ")).split())
        begun = ""
        is_statement = not sentence.endswith(("?", "？")) and not sentence.startswith("|")
        if is_statement and 8 <= len(sentence) <= LONGEST_SENTENCE:
            yield sentence


def _from_outside(entry: ForeignEntry) -> bool:
    message = _message(entry)
    name = message.get("toolName") or message.get("name") or ""
    return message.get("origin") == "outside" or (isinstance(name, str) and bool(_OUTSIDE_TOOL.search(name)))


def _paths(entry: ForeignEntry) -> Iterator[str]:
    message = _message(entry)
    blocks = message.get("content")
    given = [message.get("input")] if entry.role == "tool" else []
    if isinstance(blocks, list):
        given += [each.get("arguments") for each in blocks if isinstance(each, dict) and each.get("type") == "toolCall"]
    for value in given:
        for text in _short_texts(value):
            yield from (each for each in addresses(text, 8) if "/" in each and "://" not in each)


def _short_texts(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str) and len(value) <= LONGEST_SENTENCE:
        yield value
    elif isinstance(value, dict | list) and depth < 4:
        for each in value.values() if isinstance(value, dict) else value:
            yield from _short_texts(each, depth + 1)


def _whole(text: str) -> str:
    """Half of a surrogate pair cannot be written."""
    return text if text.isascii() else _HALF.sub("\ufffd", text)


def _message(entry: ForeignEntry) -> dict[str, Any]:
    value = as_object(load_json(entry.row.payload))
    return as_object(value.get("message", value))


def _day(entry: ForeignEntry, zone: tzinfo) -> str:
    moment = time_ms(entry.stamp)
    return datetime.fromtimestamp(moment / 1000, zone).date().isoformat() if moment else ""
