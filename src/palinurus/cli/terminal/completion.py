"""What can be completed at the cursor: commands behind a slash, files behind `@`, session keys, earlier input."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from palinurus.domain.errors import PalinurusError
from palinurus.workspace.boundary import Boundary

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from palinurus.config.atomic import write_atomic
from palinurus.domain.errors import StorageError

if TYPE_CHECKING:
    from prompt_toolkit.history import History

MOST = 50

FRESH_SECONDS = 5.0

_COMMAND = re.compile(r"/[\w-]*\Z")

_ARGUMENT = re.compile(r"/(\w+) +(\S*)\Z")

_MENTION = re.compile(r"""(?<!\S)@(?P<name>[^\s"]*|"[^"\n]*)\Z""")


class Suggestion(Struct, frozen=True):
    """A text that may take the place of what stands before the cursor."""

    text: str
    replaces: int  # characters before the cursor
    meaning: str = ""


class CompletionWords(Struct, frozen=True):
    """Where the words come from. The callables are asked at every key, so they must answer at once."""

    commands: Mapping[str, str]  # "/stop" -> what it does
    arguments: Mapping[str, Callable[[], Sequence[tuple[str, str]]]]  # "resume" -> keys and what they are
    files: Callable[[], Sequence[str]]


def offers(before: str, words: CompletionWords) -> Iterator[Suggestion]:
    """What fits the text before the cursor. Pure but for the vocabulary."""
    if match := _MENTION.search(before):
        typed = match["name"].removeprefix('"')
        for name in _matching(typed, words.files())[:MOST]:
            yield Suggestion(f'@"{name}"' if " " in name else f"@{name}", len(match[0]))
    elif _COMMAND.fullmatch(before):
        for command, meaning in words.commands.items():
            if command.startswith(before.lower()):
                yield Suggestion(command, len(before), meaning)
    elif (match := _ARGUMENT.fullmatch(before)) and match[1] in words.arguments:
        typed = match[2].lower()
        for value, meaning in words.arguments[match[1]]():
            if typed in value.lower():
                yield Suggestion(value, len(match[2]), meaning)


def _matching(typed: str, names: Sequence[str]) -> list[str]:
    """Names that begin so, then those of which a part begins so, then those that contain it."""
    wanted = typed.lower()

    def rank(name: str) -> int:
        low = name.lower()
        if low.startswith(wanted):
            return 0
        return 1 if f"/{wanted}" in low else 2 if wanted in low else 3

    ranked = sorted((rank(name), name.count("/"), name) for name in names)
    return [name for place, _, name in ranked if place < 3]


class WorkspaceNames:
    """Files of a workspace, looked up anew after a few seconds."""

    def __init__(self, boundary: Boundary, now: Callable[[], float] = time.monotonic) -> None:
        self._boundary = boundary
        self._now = now
        self._seen: tuple[float, tuple[str, ...]] | None = None

    def __call__(self) -> tuple[str, ...]:
        if self._seen is None or self._now() - self._seen[0] > FRESH_SECONDS:
            self._seen = (self._now(), self._walk())
        return self._seen[1]

    def _walk(self) -> tuple[str, ...]:
        try:
            return self._boundary.walk().files
        except PalinurusError:  # the workspace is gone for the moment: nothing to offer
            return ()


def completer_of(words: CompletionWords) -> Completer:
    """The same, as the input line wants it: in a thread, because a workspace may lie on a slow disk."""
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
    from prompt_toolkit.document import Document

    class OfferCompleter(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
            for offer in offers(document.text_before_cursor, words):
                yield Completion(offer.text, start_position=-offer.replaces, display_meta=offer.meaning)

    return ThreadedCompleter(OfferCompleter())


NAME = "chat-history.jsonl"

KEPT = 1000


class TypedLines:
    """The file. Whatever is wrong with it, typing goes on: it is a comfort and no record."""

    def __init__(self, path: Path, redact: Callable[[str], str]) -> None:
        self._path = path
        self._redact = redact

    def newest_first(self) -> list[str]:
        lines = self._lines()
        if len(lines) > 2 * KEPT:
            with suppress(StorageError):
                write_atomic(self._path, "".join(line + "\n" for line in lines[-KEPT:]))
        read = [text for line in lines[-KEPT:] if (text := _decoded(line)) is not None]
        return read[::-1]

    def add(self, text: str) -> None:
        line = msgspec.json.encode(self._redact(text)) + b"\n"
        with suppress(OSError):
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                os.write(file, line)  # one write: two terminals do not mix their lines
            finally:
                os.close(file)

    def _lines(self) -> list[str]:
        try:
            return self._path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []


def _decoded(line: str) -> str | None:
    try:
        return msgspec.json.decode(line, type=str)
    except msgspec.DecodeError:
        return None


def history_of(lines: TypedLines) -> History:
    """The same, as the input line wants it."""
    from prompt_toolkit.history import History

    class KeptHistory(History):
        def load_history_strings(self) -> Iterable[str]:
            return lines.newest_first()

        def store_string(self, string: str) -> None:
            lines.add(string)

    return KeptHistory()
