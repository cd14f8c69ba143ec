"""Removes words from texts. Pure.

A line that holds the words is removed as a whole, because its rest may reveal them. In JSON only values are changed,
and never those that the program needs: ids, keys, kinds and names. Words are matched regardless of case, Unicode form
and white space, line breaks included; other forms of a word are not matched. For that a text is normalised: Unicode
NFKC with case folding, without invisible characters, with the same lines.
"""

from __future__ import annotations

import json
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

_UNSEEN = dict.fromkeys((0xAD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF))  # soft hyphens and joiners, which are invisible
_ESCAPED = re.compile(r"""\\(?:u([0-9a-fA-F]{4})|([nrtbf"\\/]))""")
_PLAIN = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_HALVES = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def fold(text: str) -> str:
    if text.isascii():
        return text.lower()
    shown = text.translate(_UNSEEN)
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", shown).casefold())


def unescaped(text: str) -> str:
    """The text with JSON's backslash escapes replaced by the characters."""
    plain = _ESCAPED.sub(lambda found: chr(int(found[1], 16)) if found[1] else _PLAIN.get(found[2], found[2]), text)
    return _HALVES.sub(lambda pair: pair.group().encode("utf-16", "surrogatepass").decode("utf-16"), plain)


def spans(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    """Spans of the original text where the pattern matches its normalised form."""
    begins: list[int] = []  # for each normalised character, the index of its source character
    folded: list[str] = []
    for start, cluster in _clusters(text):
        piece = fold(cluster)
        folded.append(piece)
        begins += [start] * len(piece)
    begins.append(len(text))
    for found in pattern.finditer("".join(folded)):
        last = begins[found.end() - 1]
        yield begins[found.start()], begins[bisect_right(begins, last, found.end())]


def _clusters(text: str) -> Iterator[tuple[int, str]]:
    """Characters, each with its combining marks."""
    if text.isascii():
        yield from enumerate(text)
        return
    start = 0
    for at in range(1, len(text) + 1):
        if at == len(text) or not unicodedata.combining(text[at]):
            yield start, text[start:at]
            start = at


TOMBSTONE = "[forgotten]"  # replaces forgotten words
SHORTEST = 3  # characters of a query: a shorter one would match half of the home
MOST = 500  # texts that are searched for at once
MOST_QUOTED = 50  # lines of a text that are quoted
DEEPEST = 2  # depth of JSON nested in JSON strings

# Fields that the program needs. Their values are never user text.
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

FREE = frozenset({"arguments", "details", "data"})  # its keys were chosen by the writer
SIGNATURES = ("thinkingSignature", "textSignature", "thoughtSignature")
OURS = ("palinurus:", "openclaw:")  # state entries, which hold no user text


class Words:
    """Texts to forget, matched regardless of case, Unicode form and line breaks."""

    def __init__(self, texts: Iterable[str]) -> None:
        wanted = sorted({" ".join(text.split()) for text in texts} - {""}, key=lambda text: (-len(text), text))[:MOST]
        self.texts = tuple(wanted)
        folded = dict.fromkeys(" ".join(fold(text).split()) for text in wanted)
        joined = "|".join(r"\s+".join(map(re.escape, text.split())) for text in folded if text)
        self._pattern = re.compile(joined) if joined else None

    def __bool__(self) -> bool:
        return self._pattern is not None

    def hold(self, text: str) -> bool:
        """Whether the text contains them."""
        return self._pattern is not None and self._pattern.search(fold(text)) is not None

    def without(self, text: str, stone: tuple[str, ...] = (TOMBSTONE,)) -> str:
        """The text with a tombstone for each run of lines that held them; the same object if none did."""
        touched = self.lines(text)
        if not touched:
            return text
        numbered = enumerate(text.split("\n"))
        rest: list[str] = []
        for gone, lines in groupby(numbered, key=lambda line: line[0] in touched):
            rest += stone if gone else [line for _, line in lines]
        return "\n".join(rest)

    def lines(self, text: str) -> set[int]:
        """Numbers, from 0, of the lines that hold them."""
        if self._pattern is None:
            return set()
        touched: set[int] = set()
        folded = fold(text)  # the normalised text has the same lines
        for found in self._pattern.finditer(folded):
            first = folded.count("\n", 0, found.start())
            touched |= set(range(first, first + found.group().count("\n") + 1))
        return touched

    def quotes(self, text: str) -> list[str]:
        """The matching words as written in the text, each spelling once, without their surroundings."""
        if self._pattern is None:
            return []
        pattern, found = self._pattern, dict[str, None]()
        lines = text.split("\n")
        for part in _runs(sorted(self.lines(text))[:MOST_QUOTED]):
            held = "\n".join(lines[part[0] : part[-1] + 1])
            found |= dict.fromkeys(held[start:end] for start, end in spans(pattern, held))
        return list(found)

    def held_in(self, data: bytes) -> bool:
        """Whether raw bytes hold them, also inside JSON."""
        if self._pattern is None:
            return False
        text = data.decode("utf-8", "replace")
        for _ in range(DEEPEST):  # JSON may be nested in JSON
            if self.hold(text):
                return True
            if "\\" not in text:
                return False
            text = unescaped(text)
        return self.hold(text)


def _runs(numbers: Sequence[int]) -> list[list[int]]:
    """Groups consecutive numbers."""
    grouped = groupby(enumerate(numbers), key=lambda each: each[1] - each[0])
    return [[number for _, number in run] for _, run in grouped]


def forget_in_json(payload: str, words: Words, *, whole: bool = False) -> str:
    """The JSON without the words; with `whole`, without any user text. The same string if nothing was removed."""
    if not whole and "\\" not in payload and not words.hold(payload):
        return payload
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError):
        return TOMBSTONE if whole else words.without(payload)
    cleaned = _JsonCleaner(words, whole=whole and not _is_state(value)).clean(value)
    if cleaned == value:
        return payload
    text = json.dumps(_unsigned(cleaned), ensure_ascii=False, separators=(",", ":"))
    return text if _is_writable(text) else json.dumps(_unsigned(cleaned), separators=(",", ":"))


class _JsonCleaner:
    def __init__(self, words: Words, *, whole: bool) -> None:
        self._words = words
        self._whole = whole

    def clean(self, value: Any, name: str = "") -> Any:
        """`name` is the key of the value; empty if the key means nothing to us."""
        if isinstance(value, str):
            return self._text(value, name)
        if isinstance(value, list):
            return [] if self._whole and name == "images" else [self.clean(each, name) for each in value]
        if isinstance(value, dict):
            return self._freely(value) if name in FREE else self._object(value)
        return value

    def _freely(self, value: Any) -> Any:
        """As above, in a part where no key means anything to us."""
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
        if value.get("type") == "image":  # no text; an image is removed only with the whole content
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
    """Removes signatures: a signature covers the original text, so providers reject it after a change."""
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
    """The lines of texts that are long enough to be unique, without list markers."""
    lines = (re.sub(r"^[\s\-*+>#\d.]+", "", line).strip() for text in texts for line in text.split("\n"))
    return [line for line in dict.fromkeys(lines) if len(line) >= shortest and line != TOMBSTONE]


def strings_in(value: Any) -> Sequence[str]:
    """All strings in a JSON value."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for each in value for text in strings_in(each)]
    if isinstance(value, dict):
        return [text for each in value.values() for text in strings_in(each)]
    return []
