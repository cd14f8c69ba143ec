"""A conversation, taken apart into the few sentences of it that are worth a place in a wiki.

What people and models said is weighed by the same cues as notes of a conversation are (context/cues.py), and only the
weightiest are kept, however long the talk was. Of tools only the paths that they were given are kept. Words that were
said after a tool had read something from outside are marked so (promise 18).
"""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, tzinfo
from typing import Any

from palinurus.context.cues import worth
from palinurus.context.identifiers import addresses
from palinurus.migrate.foreign import ForeignEntry
from palinurus.migrate.ingest.fact import Found
from palinurus.migrate.ingest.kinds import kind_by_words
from palinurus.migrate.times import time_ms

LEAST_WORTH = 3.0
OF_A_KIND = 3.0  # what a decision, a preference or a rule is worth more
BARELY = 0.01  # weights differ by more
MOST_SENTENCES = 60  # of one conversation
MOST_PATHS = 60
LONGEST = 320  # characters of a sentence
SHORT = 8  # characters of an abbreviation, with its dot and what stands before it
LONGEST_SAID = 20_000  # characters of one message that are looked at: what is longer was pasted

_CODE = re.compile(r"^(```|~~~).*?(?:^\1|\Z)", re.DOTALL | re.MULTILINE)
_HALF = re.compile("[\ud800-\udfff]")
_ENDS = re.compile(r"\s(?:(?<=[.!?]\s)\s*|(?<=\n)\n*)")  # begins with a blank: quicker than to look behind everywhere
_ENDS_TOO = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_MARKS = re.compile(r"^\s*(?:(?:[-*+>•#]+|\d{1,3}[.)])\s+)+")
_ABBREVIATED = re.compile(r"(?:^|[\s(])(?:[A-Za-z]|Mrs?|Ms|Dr|Prof|St|No|Nr|vs|e\.g|i\.e|z\.B|ca)\.$")
_ENVELOPE = re.compile(r"^\[[^\]\n]{3,120}\]\s*")  # `[Telegram Sam 2026-11-15 08:14 UTC]`, `[Sun 2026-11-15 08:14 UTC]`
_NOT_SAID = re.compile(r"^(?:/\w|System:|HEARTBEAT|NO_REPLY|A new session was started|Read HEARTBEAT\.md|\[cron:)")
_OUTSIDE_TOOL = re.compile(r"web|fetch|browser|http|mcp|search_web|download", re.IGNORECASE)
_QUOTING = ("scout", "gateway-injected")  # models that say nothing of their own


def read_talk(entries: Iterable[ForeignEntry], zone: tzinfo = UTC, clean: Callable[[str], str] = str) -> list[Found]:
    """In the order of the conversation; at most a bounded number. `clean` takes secrets out of a text."""
    kept: list[tuple[float, int, Found]] = []  # the weightiest so far
    paths: dict[str, Found] = {}
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
                paths.setdefault(path, Found(path, entry.number, entry.number, _day(entry, zone), path=True))
    said = [found for _, _, found in sorted(kept, key=lambda each: -each[1])]
    return [*said, *list(paths.values())[:MOST_PATHS]]


def _sentences(
    entry: ForeignEntry, outside: bool, zone: tzinfo, clean: Callable[[str], str], kept: list[tuple[float, int, Found]]
) -> Iterator[tuple[float, Found]]:
    """`kept` are the weightiest so far: what has no chance beside them is not weighed to the end."""
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
        # Of two that weigh the same the first one stays.
        enough = max(LEAST_WORTH, kept[0][0] + BARELY) if len(kept) >= MOST_SENTENCES else LEAST_WORTH
        weight = worth(sentence, by_user=owners, enough=enough - OF_A_KIND)
        if weight >= enough - OF_A_KIND and kind_by_words(sentence):
            weight += OF_A_KIND
        if weight >= enough:
            number, day = entry.number, _day(entry, zone)
            yield weight, Found(sentence, number, number, day, by_owner=owners, outside=outside)


def _split(text: str) -> Iterator[str]:
    begun = ""
    ends = _ENDS if text.isascii() else _ENDS_TOO
    for part in ends.split(_CODE.sub("", text) if "```" in text or "~~~" in text else text):
        begun = f"{begun} {part}" if begun else part
        if begun.endswith(".") and _ABBREVIATED.search(begun, max(0, len(begun) - SHORT)):  # `Mr.` ends nothing
            continue
        sentence = " ".join(_MARKS.sub("", begun.replace("\0", " ")).split())
        begun = ""
        if 8 <= len(sentence) <= LONGEST and not sentence.endswith(("?", "？")) and not sentence.startswith("|"):
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
    if isinstance(value, str) and len(value) <= LONGEST:
        yield value
    elif isinstance(value, dict | list) and depth < 4:
        for each in value.values() if isinstance(value, dict) else value:
            yield from _short_texts(each, depth + 1)


def _whole(text: str) -> str:
    """Half a surrogate pair can be written nowhere."""
    return text if text.isascii() else _HALF.sub("\ufffd", text)


def _message(entry: ForeignEntry) -> dict[str, Any]:
    try:
        value = json.loads(entry.row.payload)
    except (ValueError, RecursionError):
        return {}
    message = value.get("message", value) if isinstance(value, dict) else {}
    return message if isinstance(message, dict) else {}


def _day(entry: ForeignEntry, zone: tzinfo) -> str:
    moment = time_ms(entry.stamp)
    return datetime.fromtimestamp(moment / 1000, zone).date().isoformat() if moment else ""
