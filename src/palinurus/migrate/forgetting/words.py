"""Which words go, and what stays of a text without them. Pure.

A line that holds the words goes as a whole: what stands around a word tells it. In JSON only values are touched, and
never those by which the house works: ids, keys, kinds and names.

Words are looked for regardless of case, of how Unicode writes them (folding.py), and of which white space is between
them, a line break included. Nothing else is: no other form of a word, and nothing that merely means the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from palinurus.migrate.forgetting.folding import fold, spans, unescaped
from palinurus.sessions.forgotten import TOMBSTONE

SHORTEST = 3  # letters of a query: less would take half of the home along
MOST = 500  # texts that are looked for at once
MOST_QUOTED = 50  # lines of a text that are quoted from
DEEPEST = 2  # JSON that stands in JSON

# What the house works by. A value under such a name is never a sentence of anybody.
STRUCTURE = frozenset(
    (
        *("id", "parentId", "type", "role", "timestamp", "version", "cwd", "firstKeptEntryId", "fromId", "targetId"),
        *("customType", "provider", "model", "modelId", "api", "thinkingLevel", "toolCallId", "toolName", "name"),
        *("mimeType", "origin", "kind", "digest", "stopReason", "also", "runs", "runId", "sessionKey", "sessionId"),
        *("session_key", "idempotency_key", "idempotencyKey", "agent", "channel", "sender", "to", "account", "thread"),
        *("status", "errorKind", "joined", "key", "upTo", "madeBy", "day", "place", "receipt", "state", "recipient"),
        *("chatType", "archiveMark", "preferences", "retryKey"),
    )
)
FREE = frozenset({"arguments", "details", "data"})  # whoever wrote it chose the names in it
SIGNATURES = ("thinkingSignature", "textSignature", "thoughtSignature")
OURS = ("palinurus:", "openclaw:")  # entries of state, in which nobody says anything


class Words:
    """Texts that shall be forgotten, whatever their case and form, and however their lines are broken."""

    def __init__(self, texts: Iterable[str]) -> None:
        wanted = sorted({" ".join(text.split()) for text in texts} - {""}, key=lambda text: (-len(text), text))[:MOST]
        self.texts = tuple(wanted)
        folded = dict.fromkeys(" ".join(fold(text).split()) for text in wanted)
        joined = "|".join(r"\s+".join(map(re.escape, text.split())) for text in folded if text)
        self._pattern = re.compile(joined) if joined else None

    def __bool__(self) -> bool:
        return self._pattern is not None

    def hold(self, text: str) -> bool:
        """Whether the text has them."""
        return self._pattern is not None and self._pattern.search(fold(text)) is not None

    def without(self, text: str, stone: tuple[str, ...] = (TOMBSTONE,)) -> str:
        """The text with a tombstone for each run of lines that held them; the very same when none did."""
        touched = self.lines(text)
        if not touched:
            return text
        numbered = enumerate(text.split("\n"))
        kept: list[str] = []
        for gone, lines in groupby(numbered, key=lambda line: line[0] in touched):
            kept += stone if gone else [line for _, line in lines]
        return "\n".join(kept)

    def lines(self, text: str) -> set[int]:
        """Numbers, from 0, of the lines that hold them."""
        if self._pattern is None:
            return set()
        touched: set[int] = set()
        folded = fold(text)  # which has the same lines
        for found in self._pattern.finditer(folded):
            first = folded.count("\n", 0, found.start())
            touched |= set(range(first, first + found.group().count("\n") + 1))
        return touched

    def quotes(self, text: str) -> list[str]:
        """The words as they stand in the text, each way of writing them once, without anything around them."""
        if self._pattern is None:
            return []
        pattern, found = self._pattern, dict[str, None]()
        lines = text.split("\n")
        for part in _runs(sorted(self.lines(text))[:MOST_QUOTED]):
            held = "\n".join(lines[part[0] : part[-1] + 1])
            found |= dict.fromkeys(held[start:end] for start, end in spans(pattern, held))
        return list(found)

    def held_in(self, data: bytes) -> bool:
        """For bytes as they lie on the disk, also inside of JSON."""
        if self._pattern is None:
            return False
        text = data.decode("utf-8", "replace")
        for _ in range(DEEPEST):  # JSON may stand in JSON
            if self.hold(text):
                return True
            if "\\" not in text:
                return False
            text = unescaped(text)
        return self.hold(text)


def _runs(numbers: Sequence[int]) -> list[list[int]]:
    """Those that follow each other, together."""
    grouped = groupby(enumerate(numbers), key=lambda each: each[1] - each[0])
    return [[number for _, number in run] for _, run in grouped]


def forget_in_json(payload: str, words: Words, *, whole: bool = False) -> str:
    """The JSON without the words; with `whole` without any. The very same text when nothing had to go."""
    if not whole and "\\" not in payload and not words.hold(payload):
        return payload
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError):
        return TOMBSTONE if whole else words.without(payload)
    cleaned = _Cleaning(words, whole=whole and not _is_state(value)).clean(value)
    if cleaned == value:
        return payload
    text = json.dumps(_unsigned(cleaned), ensure_ascii=False, separators=(",", ":"))
    return text if _is_writable(text) else json.dumps(_unsigned(cleaned), separators=(",", ":"))


class _Cleaning:
    def __init__(self, words: Words, *, whole: bool) -> None:
        self._words = words
        self._whole = whole

    def clean(self, value: Any, name: str = "") -> Any:
        """`name` is under which it stands; empty for what stands under a name that means nothing to us."""
        if isinstance(value, str):
            return self._text(value, name)
        if isinstance(value, list):
            return [] if self._whole and name == "images" else [self.clean(each, name) for each in value]
        if isinstance(value, dict):
            return self._freely(value) if name in FREE else self._object(value)
        return value

    def _freely(self, value: Any) -> Any:
        """As above, in a part where no name means anything to us."""
        if isinstance(value, dict):
            if self._whole and "runs" not in value:
                return {}
            return {self._key(key, free=True): self._freely(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self._freely(each) for each in value]
        return self._words.without(value) if isinstance(value, str) else value

    def _text(self, text: str, name: str) -> str:
        if name in STRUCTURE:
            return text
        if self._whole:
            return TOMBSTONE if text else text
        return self._words.without(text)

    def _object(self, value: dict[str, Any]) -> dict[str, Any]:
        if value.get("type") == "image":  # no words; a picture goes only with all the rest
            return {"type": "text", "text": TOMBSTONE} if self._whole else value
        named = value.get("type") in ("session_info", "label")
        return {
            self._key(key): self._label(item) if named and key in ("name", "label") else self.clean(item, key)
            for key, item in value.items()
        }

    def _key(self, key: str, *, free: bool = False) -> str:
        return TOMBSTONE if (free or key not in STRUCTURE) and self._words.hold(key) else key

    def _label(self, text: Any) -> Any:
        if not isinstance(text, str):
            return text
        return TOMBSTONE if self._whole else self._words.without(text)


def _is_state(value: Any) -> bool:
    kind = value.get("customType") if isinstance(value, dict) else None
    return isinstance(kind, str) and kind.startswith(OURS)


def _unsigned(value: Any) -> Any:
    """A signature covers the words as they were: with other words no provider takes it."""
    if isinstance(value, list):
        return [_unsigned(each) for each in value]
    if isinstance(value, dict):
        return {key: _unsigned(each) for key, each in value.items() if key not in SIGNATURES}
    return value


def _is_writable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def said_lines(texts: Iterable[str], shortest: int) -> list[str]:
    """The lines of texts that are long enough to be nobody else's, without what makes a list of them."""
    lines = (re.sub(r"^[\s\-*+>#\d.]+", "", line).strip() for text in texts for line in text.split("\n"))
    return [line for line in dict.fromkeys(lines) if len(line) >= shortest and line != TOMBSTONE]


def strings_in(value: Any) -> Sequence[str]:
    """All texts in a JSON value."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for each in value for text in strings_in(each)]
    if isinstance(value, dict):
        return [text for each in value.values() for text in strings_in(each)]
    return []
