"""What can be completed at the cursor: commands behind a slash, files of the workspace behind `@`, session keys."""

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

MOST = 50
FRESH_SECONDS = 5.0
_COMMAND = re.compile(r"/[\w-]*\Z")
_ARGUMENT = re.compile(r"/(\w+) +(\S*)\Z")
_MENTION = re.compile(r"""(?<!\S)@(?P<name>[^\s"]*|"[^"\n]*)\Z""")


class Offer(Struct, frozen=True):
    """A text that may take the place of what stands before the cursor."""

    text: str
    replaces: int  # characters before the cursor
    meaning: str = ""


class Vocabulary(Struct, frozen=True):
    """Where the words come from. The callables are asked at every key, so they must answer at once."""

    commands: Mapping[str, str]  # "/stop" -> what it does
    arguments: Mapping[str, Callable[[], Sequence[tuple[str, str]]]]  # "resume" -> keys and what they are
    files: Callable[[], Sequence[str]]


def offers(before: str, words: Vocabulary) -> Iterator[Offer]:
    """What fits the text before the cursor. Pure but for the vocabulary."""
    if match := _MENTION.search(before):
        typed = match["name"].removeprefix('"')
        for name in _matching(typed, words.files())[:MOST]:
            yield Offer(f'@"{name}"' if " " in name else f"@{name}", len(match[0]))
    elif _COMMAND.fullmatch(before):
        for command, meaning in words.commands.items():
            if command.startswith(before.lower()):
                yield Offer(command, len(before), meaning)
    elif (match := _ARGUMENT.fullmatch(before)) and match[1] in words.arguments:
        typed = match[2].lower()
        for value, meaning in words.arguments[match[1]]():
            if typed in value.lower():
                yield Offer(value, len(match[2]), meaning)


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


def completer_of(words: Vocabulary) -> Completer:
    """The same, as the input line wants it: in a thread, because a workspace may lie on a slow disk."""
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
    from prompt_toolkit.document import Document

    class OfferCompleter(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
            for offer in offers(document.text_before_cursor, words):
                yield Completion(offer.text, start_position=-offer.replaces, display_meta=offer.meaning)

    return ThreadedCompleter(OfferCompleter())
