"""The position of each value in a JSON5 text, so that errors name a line and edits leave the rest unchanged.

Values are parsed by pyjson5. The scanner here expects text that pyjson5 has accepted; it only finds the spans of keys
and values. A path is the tuple of keys and indexes of a value; as text it is `agents.list[0].name`, with quotes around
keys that hold dots: `models.providers."my.host".baseUrl`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from palinurus.domain.errors import BadRequest

JsonPath = tuple[str | int, ...]
MAX_NESTING = 64

_TRIVIA = re.compile(r"(?:\s+|\ufeff|//[^\n\r\u2028\u2029]*|/\*[\s\S]*?\*/)*")
_STRING = re.compile(r""""(?:[^"\\]|\\[\s\S])*"|'(?:[^'\\]|\\[\s\S])*'""")
_WORD = re.compile(r"[^\s\ufeff,:{}\[\]\"'/]+")  # numbers, true, false, null, and keys without quotes
_PLAIN_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]*")
_STEP = re.compile(
    r"""(?P<key>[^.\[\]"']+)|"(?P<quoted>(?:[^"\\]|\\.)*)"|'(?P<single>[^']*)'|\[(?P<index>\d+)\]|\[(?P<name>"(?:[^"\\]|\\.)*")\]"""
)


class SyntaxFault(Exception):
    """The text is not JSON5. `offset` is the position of the error."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.offset = offset


class SourceSpan(Struct, frozen=True):
    """The span of a value, and of its key if it has one (else both key offsets are -1)."""

    start: int
    end: int
    key_start: int = -1
    key_end: int = -1

    @property
    def begin(self) -> int:
        """The start of the whole member or element."""
        return self.key_start if self.key_start >= 0 else self.start


class SourceMap(Struct, frozen=True):
    """The spans of all values, and the paths of keys that are written twice in one object."""

    spans: dict[JsonPath, SourceSpan]
    repeated: tuple[JsonPath, ...]

    def nearest(self, path: JsonPath) -> SourceSpan:
        """The span of the path, or of its nearest written parent."""
        while path not in self.spans:
            path = path[:-1]
        return self.spans[path]

    def children(self, path: JsonPath) -> list[tuple[JsonPath, SourceSpan]]:
        """The members or elements directly below a path, in the order of the text."""
        return [(found, span) for found, span in self.spans.items() if found and found[:-1] == path]


def parse(text: str) -> Any:
    """The value of a JSON5 text. Raises SyntaxFault."""
    import pyjson5

    try:
        return pyjson5.decode(text, MAX_NESTING)
    except pyjson5.Json5DecoderException as error:
        raise _fault(str(error.args[0]), text) from error


def scan(text: str) -> SourceMap:
    """Finds every value of a text that `parse` accepts."""
    scanner = _Scanner(text)
    scanner.value((), skip_trivia(text, 0), -1, -1)
    return SourceMap(dict(sorted(scanner.spans.items(), key=lambda item: item[1].begin)), tuple(scanner.repeated))


def line_column(text: str, offset: int) -> tuple[int, int]:
    """Line and column of an offset, both from 1."""
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


def skip_trivia(text: str, offset: int) -> int:
    """The next offset that is neither white space nor comment."""
    match = _TRIVIA.match(text, offset)
    return match.end() if match else offset


def parse_path(dotted: str) -> JsonPath:
    """Parses a path. Raises BadRequest if it is invalid."""
    steps: list[str | int] = []
    at = 0
    while at < len(dotted):
        if steps and dotted[at] == "." and dotted[at + 1 : at + 2] != "[":
            at += 1
        elif steps and dotted[at] != "[":
            raise _bad_path(dotted)
        match = _STEP.match(dotted, at)
        if not match:
            raise _bad_path(dotted)
        steps.append(_step(match, dotted))
        if len(steps) > MAX_NESTING:
            raise _bad_path(f"{dotted[:80]}…")
        at = match.end()
    if not steps or isinstance(steps[0], int):
        raise _bad_path(dotted)
    return tuple(steps)


def lookup(data: Any, path: JsonPath) -> Any:
    """The value at a path. Raises LookupError if there is none."""
    for step in path:
        there = isinstance(step, int) and step < len(data) if isinstance(data, list) else isinstance(data, dict)
        if not there or (isinstance(data, dict) and step not in data):
            raise LookupError(step)
        data = data[step]
    return data


def format_path(path: JsonPath) -> str:
    """The path as text; `parse_path` reads it back."""
    written = ""
    for step in path:
        if isinstance(step, int):
            written += f"[{step}]"
        else:
            written += ("." if written else "") + (step if _PLAIN_KEY.fullmatch(step) else json.dumps(step))
    return written


def map_strings(data: Any, change: Callable[[str, JsonPath], Any], path: JsonPath = ()) -> Any:
    """The data with what `change` makes of each string and its path."""
    if isinstance(data, dict):
        return {key: map_strings(item, change, (*path, key)) for key, item in data.items()}
    if isinstance(data, list):
        return [map_strings(item, change, (*path, at)) for at, item in enumerate(data)]
    return change(data, path) if isinstance(data, str) else data


def strings(data: Any, path: JsonPath = ()) -> Iterator[tuple[JsonPath, str]]:
    """Every string of the data with its path."""
    if isinstance(data, str):
        yield path, data
    for step, item in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield from strings(item, (*path, step))


def last_name(path: JsonPath) -> str:
    """The last key of a path, indexes left out."""
    return next((step for step in reversed(path) if isinstance(step, str)), "")


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.spans: dict[JsonPath, SourceSpan] = {}
        self.repeated: list[JsonPath] = []

    def value(self, path: JsonPath, start: int, key_start: int, key_end: int) -> int:
        """Scans the value at `start`; returns its end."""
        opening = self.text[start]
        if opening == "{":
            end = self.members(path, start + 1)
        elif opening == "[":
            end = self.elements(path, start + 1)
        else:
            end = self.token(start)
        self.spans[path] = SourceSpan(start, end, key_start, key_end)
        return end

    def members(self, path: JsonPath, at: int) -> int:
        seen: set[str] = set()
        while self.text[at := skip_trivia(self.text, at)] != "}":
            key_end = self.token(at)
            key = self.key(at, key_end)
            if key in seen:
                self.repeated.append((*path, key))
            seen.add(key)
            colon = skip_trivia(self.text, key_end)
            at = self.comma(self.value((*path, key), skip_trivia(self.text, colon + 1), at, key_end))
        return at + 1

    def elements(self, path: JsonPath, at: int) -> int:
        index = 0
        while self.text[at := skip_trivia(self.text, at)] != "]":
            at = self.comma(self.value((*path, index), at, -1, -1))
            index += 1
        return at + 1

    def comma(self, at: int) -> int:
        at = skip_trivia(self.text, at)
        return at + 1 if self.text[at] == "," else at

    def token(self, start: int) -> int:
        match = (_STRING if self.text[start] in "\"'" else _WORD).match(self.text, start)
        if match is None:
            raise SyntaxFault("a value is missing here", start)
        return match.end()

    def key(self, start: int, end: int) -> str:
        written = self.text[start:end]
        if "\\" in written:
            return str(next(iter(parse(f"{{{written}:0}}"))))
        return written[1:-1] if written[0] in "\"'" else written


def _step(match: re.Match[str], dotted: str) -> str | int:
    if (index := match["index"]) is not None:
        return int(index)
    if (quoted := match["name"]) is not None or match["quoted"] is not None:
        try:
            return str(json.loads(quoted or f'"{match["quoted"]}"'))
        except ValueError as error:
            raise _bad_path(dotted) from error
    return match["key"] or match["single"] or ""


def _bad_path(dotted: str) -> BadRequest:
    return BadRequest(f"not a path into the config: {dotted!r}", hint='for example agents.list[0].name or a."b.c".d')


def _fault(message: str, text: str) -> SyntaxFault:
    """pyjson5's message in our words. It counts offsets from 1."""
    near = re.search(r"near (\d+)", message)
    offset = max(0, min(int(near[1]) - 1 if near else 0, len(text)))
    if opened := re.match(r"Unclosed b'(\w+)'", message):
        what = "number" if opened[1] == "NumericLiteral" else opened[1]
        return SyntaxFault(f"the {what} that begins here is not closed", offset)
    if message.startswith("No JSON data"):
        return SyntaxFault("there is no config in the file", 0)
    if message.startswith("Maximum nesting"):
        return SyntaxFault(f"nested more than {MAX_NESTING} deep", offset)
    if message.startswith("Extra data"):
        return SyntaxFault("there is something after the end of the config", skip_trivia(text, offset + 1))
    if wanted := re.match(r"Expected b'(comma|colon)'", message):
        return SyntaxFault(f"a {wanted[1]} should stand here", offset)
    return SyntaxFault(f"did not expect {text[offset : offset + 1]!r} here", offset)
