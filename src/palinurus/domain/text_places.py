"""Declares where text is stored, so that `forget` can find it everywhere, and removes words from it.

A package that stores text has a module `text_places` with a tuple `PLACES` of three kinds of declarations: `TextRows`
for rows of the home's database, `TextFiles` for files of a home or a workspace, and subclasses of `TextPlace` for
whatever needs code of its own (an index, the history of a workspace, copies elsewhere). `forget` iterates over them and
knows none by name. The modules are named in strings and imported when needed.

A line that holds the words is removed as a whole, because its rest may reveal them. In JSON only values are changed,
and never those that the program needs: ids, keys, kinds and names. Words are matched regardless of case, Unicode form
and white space, line breaks included; other forms of a word are not matched. For that a text is normalised: Unicode
NFKC with case folding, without invisible characters, with the same lines.
"""

from __future__ import annotations

import importlib
import json
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

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


_NEVER = re.compile("(?!)")  # matches nothing
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
        self._pattern = re.compile(joined) if joined else _NEVER

    def __bool__(self) -> bool:
        return self._pattern is not _NEVER

    def hold(self, text: str) -> bool:
        """Whether the text contains them."""
        return bool(self) and self._pattern.search(fold(text)) is not None

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
        touched: set[int] = set()
        folded = fold(text)  # the normalised text has the same lines
        for found in self._pattern.finditer(folded):
            first = folded.count("\n", 0, found.start())
            touched |= set(range(first, first + found.group().count("\n") + 1))
        return touched

    def quotes(self, text: str) -> list[str]:
        """The matching words as written in the text, each spelling once, without their surroundings."""
        found: dict[str, None] = {}
        lines = text.split("\n")
        for part in _runs(sorted(self.lines(text))[:MOST_QUOTED]):
            held = "\n".join(lines[part[0] : part[-1] + 1])
            found |= dict.fromkeys(held[start:end] for start, end in spans(self._pattern, held))
        return list(found)

    def held_in(self, data: bytes) -> bool:
        """Whether raw bytes hold them, also inside JSON."""
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


Action = Literal["tombstone", "rewrite", "remove", "erase", "drop", "index anew", "stays"]
Treatment = Literal["text", "lines of JSON", "remove", "index", "rows", "stays"]
Stored = tuple[Any, ...]
"""A row: its own key, then the id and key of its session and its run, then its texts."""


class Spot(Struct, frozen=True, omit_defaults=True):
    """A place that holds the text, and what happens to it there."""

    where: str
    action: Action
    count: int = 0  # rows, lines or files
    why: str = ""  # why it stays
    quotes: tuple[str, ...] = ()  # in a plan: the matching text only, without its surroundings


class WordCheck(Struct, frozen=True):
    """The result of the search after forgetting."""

    name: str
    found: int


class Scope(Struct, frozen=True):
    """What to forget: words anywhere, and the whole content of some sessions."""

    words: Words  # wherever they occur
    sessions: frozenset[str] = frozenset()  # ids
    keys: frozenset[str] = frozenset()  # keys of sessions that are forgotten together with their archived sessions
    runs: frozenset[str] = frozenset()  # ids of runs accepted for them
    agent: str = ""  # search words only in this session; empty: everywhere

    def covers(self, session_key: str) -> bool:
        """Whether words are searched for in what belongs to this session."""
        return not self.agent or session_key.startswith(f"agent:{self.agent}:")


class TextRows(Struct, frozen=True):
    """Rows of one table of the home's database.

    `sql/<dialect>/<noun>.sql` beside the module has the query `find_<table>`, which returns rows as `Stored` with their
    key named `at`; and either `set_<table>` (?1 the key, ?2 and on the texts) or `drop_<table>` (?1 the key). They run
    in one transaction with those of all other tables. With neither, `before` does all the work.
    """

    table: str
    called: str  # the name people see
    action: Action
    noun: str  # of the queries
    module: str  # `__file__` of the module with the queries
    clean: Callable[..., str] = forget_in_json
    """Takes a text, the words, and `whole` if the whole session is forgotten; returns the text without them."""
    before: Callable[[Any, list[Stored]], Awaitable[None]] | None = None
    """Called with the services and the rows that hold the words, before they are changed."""
    kept: Mapping[str, str] = {}  # `table` or `table.column` -> why words may remain there


class TextFiles(Struct, frozen=True):
    """Files by their path in the home or in a workspace. If several declarations match a file, the last one counts."""

    pattern: str  # matches the whole path
    treatment: Treatment
    why: str = ""  # why it stays
    inside: Literal["home", "workspace"] = "home"
    is_work: bool = False  # a file of the user's own work; rewritten only on request
    folder_of: Callable[[str], str] | None = None  # from a session's key: the folder that is removed with the session
    copies_rows: bool = False  # a copy of the database: it is removed if the database holds the words


class Search(Struct, frozen=True):
    """The arguments with which a TextPlace is opened."""

    services: Any  # operations.services.Services
    id: str  # of this forget operation
    scope: Scope
    said: Words  # all words searched for outside memory
    marks: tuple[str, ...]  # paths of notes that are removed as a whole
    workspaces: Mapping[str, Path]  # by agent
    every_file: bool
    quoting: bool  # whether matching text may be shown
    since: int  # time of the first match, in milliseconds; 0: not known
    entries: Callable[[], Awaitable[Mapping[str, frozenset[int]]]]
    """For each session that holds the words, by id, the numbers of the matching entries, counted from 1."""


class TextPlace:
    """A place with code of its own. What it cannot forget it reports as spots that stay, without raising."""

    goes_first = False  # derived from the words: the search terms for it must be computed from them first
    away: tuple[str, ...] = ()  # what is not where it was
    outside: tuple[Path, ...] = ()  # folders whose files this place handles

    def __init__(self, search: Search) -> None:
        self.search = search

    async def look(self) -> list[Spot]:
        """Searches before anything is changed."""
        return []

    async def forget(self, tell: Callable[[str, int, int], None]) -> list[Spot]:
        """Returns what was done beyond what `look` reported, and what stays. Calls `tell` with its progress."""
        return []

    async def look_again(self) -> tuple[list[Spot], list[WordCheck]]:
        """Returns what remains after forgetting."""
        return [], []


Declared = TextRows | TextFiles | type[TextPlace]


def load_places(names: Iterable[str]) -> list[Declared]:
    """Loads all places declared under these names (`package.module:NAME`)."""
    found: list[Declared] = []
    for name in names:
        module, _, attribute = name.partition(":")
        found += getattr(importlib.import_module(module), attribute)
    return found
