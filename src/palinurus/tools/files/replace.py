"""Exact replacements in a text, the message when nothing matches, and the resulting diff. Pure.

The model need not care about line endings: a line break in `old` matches either kind, and one in `new` becomes the kind
that the file uses.
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from heapq import nlargest
from itertools import islice
from os.path import commonprefix

from palinurus.domain.errors import BadRequest, WorkspaceError
from palinurus.tools.files.reach import Edit
from palinurus.workspace.boundary import MAX_BYTES

MAX_EDITS = 1_000  # each reads the whole text
MAX_OCCURRENCES = 1_000
MAX_COMPARED = 10_000  # lines compared to find the nearest one
MAX_CLOSE_LOOKS = 150
MAX_DIFFERENT = 1_000  # lines; a larger change is counted, not compared
MAX_DIFF_LINES = 80
_SHOWN = 160  # characters of a line

_WORD = re.compile(r"\w+")
_HUNK = re.compile(r"\A@@ -(\d+)(.*) \+(\d+)(.*) @@")


def decode(path: str, data: bytes) -> str:
    """Returns the text of a file if every byte can be written back; a byte order mark stays its first character."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        hint = "change it with a program that knows its encoding"
        raise WorkspaceError(f"{path} is not UTF-8 at byte {error.start}", hint=hint) from error
    if "\0" in text:
        raise WorkspaceError(f"{path} is not a text file", hint="only text is edited here")
    return text


def encode(what: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(f"{what} holds half a character at {error.start}", hint="send whole ones") from error


def check_edits(edits: Sequence[Edit]) -> None:
    for each in edits:
        encode("old", each.old), encode("new", each.new)


def line_break(text: str) -> str:
    return "\r\n" if text.count("\r\n") * 2 > text.count("\n") else "\n"


def apply_edits(path: str, text: str, edits: Sequence[Edit]) -> str:
    """Applies all edits in order. Raises BadRequest, which says what to correct, and then applies none; raises
    WorkspaceError if the result would be too large for a file."""
    if len(edits) > MAX_EDITS:
        raise BadRequest(f"{len(edits):,} edits are too many: {MAX_EDITS:,} are allowed", hint="send them in parts")
    for number, edit in enumerate(edits):
        text = _apply(path, text, edit, f"edits[{number}]: " if len(edits) > 1 else "")
    return text


def _apply(path: str, text: str, edit: Edit, which: str) -> str:
    old, new = edit.old.replace("\r\n", "\n"), edit.new.replace("\r\n", "\n")
    if not old:
        raise BadRequest(f"{which}old is empty", hint="give the text to replace; write makes a new file")
    if old == new:
        raise BadRequest(f"{which}old and new are the same", hint="nothing would change")
    spots = list(islice(_occurrences(text, old, overlapping=not edit.all), MAX_OCCURRENCES + 1))
    if not spots:
        raise BadRequest(f"{which}old is not in {path}. {describe_nearest(text, old)}")
    if len(spots) > 1 and not edit.all:
        times = f"{len(spots)} times" if len(spots) <= MAX_OCCURRENCES else f"more than {MAX_OCCURRENCES:,} times"
        lines = ", ".join([str(text.count("\n", 0, start) + 1) for start, _ in spots[:10]] + ["…"] * (len(spots) > 10))
        hint = "add lines around it to say which, or set all"
        raise BadRequest(f"{which}old is in {path} {times}, on lines {lines}", hint=hint)
    new = new.replace("\n", line_break(text))
    parts, done, size = [], 0, len(text)
    for start, end in spots if not edit.all else _occurrences(text, old, overlapping=False):
        size += len(new) - (end - start)
        if size > MAX_BYTES:  # characters, each at least one byte
            raise WorkspaceError(f"{which}{path} would have more than {MAX_BYTES:,} bytes", hint="split it")
        parts += [text[done:start], new]
        done = end
    return "".join([*parts, text[done:]])


def _occurrences(text: str, old: str, *, overlapping: bool) -> Iterator[tuple[int, int]]:
    """Returns the positions. Overlapping ones count if exactly one must match: `aa` is twice in `aaa`."""
    plain = text.replace("\r\n", "\n")
    # As positions in `plain`.
    breaks = [found.start() - number for number, found in enumerate(re.finditer("\r\n", text))]
    at = plain.find(old)
    while at >= 0:
        start, end = at, at + len(old)
        yield start + bisect_left(breaks, start), end + bisect_left(breaks, end)
        at = plain.find(old, at + 1 if overlapping else end)


def describe_nearest(text: str, old: str) -> str:
    """Describes the part of the text that `old` may mean, and where the two differ."""
    wanted = old.split("\n")
    if all(re.match(r"\d+\| ?", line) for line in wanted if line):
        return "Leave out the line numbers that read puts before each line."
    skipped = next((index for index, line in enumerate(wanted) if line.strip()), 0)
    wanted = wanted[skipped:]
    lines = [line.rstrip("\r") for line in text.split("\n")]
    at = _anchor(lines, wanted)
    if at is None:
        return "Nothing in it is like that: read it again."
    for index, (have, want) in enumerate(zip(lines[at:], wanted, strict=False)):
        if have != want:
            return f"Nearest is line {at + 1}; line {at + index + 1} is {_quoted(have)} where old has {_quoted(want)}."
    return f"Nearest is line {at + 1}: {_quoted(lines[at])}. Compare blank lines and the end of the file."


def _anchor(lines: list[str], wanted: list[str]) -> int | None:
    """Returns the line after which most of the wanted lines follow."""
    first = wanted[0].strip()[:_SHOWN]
    stripped = [line.strip()[:_SHOWN] for line in lines[:MAX_COMPARED]]
    if first not in stripped:
        close = difflib.get_close_matches(first, _candidates(first, stripped), n=1) if first else []
        first = close[0] if close else first
    places = [index for index, line in enumerate(stripped) if line == first][:100] if first else []

    def agreement(at: int) -> int:
        return sum(have.strip() == want.strip() for have, want in zip(lines[at:], wanted[:50], strict=False))

    return max(places, key=agreement, default=None)


def _candidates(first: str, lines: list[str]) -> list[str]:
    """Returns the few lines with most words in common, because comparing closely is slow."""
    words = set(_WORD.findall(first))
    return nlargest(MAX_CLOSE_LOOKS, dict.fromkeys(lines), key=lambda line: len(words & set(_WORD.findall(line))))


def _quoted(line: str) -> str:
    return repr(line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…")


def difference(before: str, after: str, *, context: int = 2) -> str:
    """Returns a unified diff, as short as possible; for a large change only its size."""
    if before.endswith("\n") and after.endswith("\n"):  # both end with a line break
        before, after = before[:-1], after[:-1]
    old, new = before.split("\n"), after.split("\n")
    head, tail = _common_ends(old, new)
    gone, come = len(old) - head - tail, len(new) - head - tail
    if max(gone, come) > MAX_DIFFERENT:
        return f"@@ from line {head + 1} @@\n[{gone:,} lines became {come:,}]"
    start = max(head - context, 0)
    was, now = (side[start : len(side) - max(tail - context, 0)] for side in (old, new))
    lines = list(difflib.unified_diff(was, now, n=context, lineterm=""))[2:]
    shown = [_HUNK.sub(lambda found: _moved(found, start), line.rstrip("\r")[:_SHOWN]) for line in lines]
    if len(shown) > MAX_DIFF_LINES:
        shown = [*shown[:MAX_DIFF_LINES], f"[{len(shown) - MAX_DIFF_LINES} more lines of the difference]"]
    return "\n".join(shown)


def changed_lines(before: str, after: str, *, context: int = 2) -> list[str]:
    """Returns every line that a diff of the two could show, complete."""
    old, new = before.split("\n"), after.split("\n")
    head, tail = _common_ends(old, new)
    start, left = max(head - context, 0), max(tail - context - 1, 0)  # an empty last line may be one of them
    return old[start : len(old) - left] + new[start : len(new) - left]


def _common_ends(old: list[str], new: list[str]) -> tuple[int, int]:
    """Returns how many lines are equal at the start, and after them at the end."""
    head = len(commonprefix((old, new)))  # noqa: RUF071  of lists
    return head, len(commonprefix((old[head:][::-1], new[head:][::-1])))  # noqa: RUF071


def _moved(found: re.Match[str], by: int) -> str:
    old, old_size, new, new_size = found.groups()
    return f"@@ -{int(old) + by}{old_size} +{int(new) + by}{new_size} @@"
