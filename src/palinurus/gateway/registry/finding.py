"""Which skills of a registry fit some words. Small enough to look at each of them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from palinurus.gateway.registry.shelf import SkillRecord

_WORD = re.compile(r"\w+")
MAX_WORDS = 12


def rank(records: Iterable[SkillRecord], text: str) -> list[tuple[float, SkillRecord]]:
    """The best first; a score of 1 is a skill of exactly that name. Pure."""
    words = list(dict.fromkeys(_WORD.findall(text.lower())))[:MAX_WORDS]
    if not words:
        return []
    scored = [(_score(record, words, text.strip().lower()), record) for record in records]
    found = [pair for pair in scored if pair[0] > 0]
    return sorted(found, key=lambda pair: (-pair[0], -pair[1].updated_at, pair[1].slug))


def _score(record: SkillRecord, words: list[str], whole: str) -> float:
    if record.slug == whole:
        return 1.0
    parts = set(_WORD.findall(record.slug))
    title, summary = record.display_name.lower(), record.summary.lower()
    told = set(_WORD.findall(f"{title} {summary}"))
    total = 0.0
    for word in words:
        if word in parts:
            total += 0.9
        elif word in title or word in record.slug:
            total += 0.7
        elif word in told:
            total += 0.5
        elif word in summary or word == record.owner:
            total += 0.3
    return round(total / len(words), 4)
