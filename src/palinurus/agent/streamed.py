"""Text on its way to those who follow a run: without secrets, and without the word that means silence.

A secret may come in pieces, so the word that is still being written is held back until it is whole; nobody reads half
words anyway. A reply that so far could be NO_REPLY is held back too: when it is, nothing is shown.

Only the new piece is looked at, and what is held back is put together once: however a reply is cut, the work grows
with its length.
"""

from __future__ import annotations

from collections.abc import Callable

SILENT = "NO_REPLY"
LONGEST_WORD = 4_096  # a word that is longer is let go in pieces: it is no key
_OF_A_WORD = "".join(map(chr, range(ord("!"), ord("~") + 1)))  # scripts without spaces are not held back


class Streamed:
    """Collects deltas and lets go of what may be shown."""

    def __init__(self, redact: Callable[[str], str], show: Callable[[str], None]) -> None:
        self._redact = redact
        self._show = show
        self._all: list[str] = []
        self._forget_held()

    def _forget_held(self) -> None:
        self._held: list[str] = []
        self._length = 0  # of all that is held
        self._open_word = 0  # so many characters at the end of what is held are a word that may go on
        self._may_be_silent = True
        self._beginning = ""  # of a reply that may be silent, without the space around it

    @property
    def text(self) -> str:
        """Everything that was heard, shown or not."""
        return "".join(self._all)

    def hear(self, text: str) -> None:
        self._all.append(text)
        self._held.append(text)
        self._length += len(text)
        end = text[-LONGEST_WORD - 1 :]
        word = len(end) - len(end.rstrip(_OF_A_WORD))
        self._open_word = word if word < len(text) else self._open_word + word
        self._may_be_silent = self._may_be_silent and self._begins_like_silence(text)
        if not self._may_be_silent:
            self._let_go(self._open_word if self._open_word <= LONGEST_WORD else 0)

    def end(self) -> None:
        """The reply is whole: show what was held back, unless it means silence."""
        if not self._may_be_silent or self._beginning.rstrip().upper() != SILENT:
            self._let_go(0)
        self._forget_held()

    def discard(self) -> None:
        """What was heard belongs to an attempt that was given up."""
        self._forget_held()
        self._all.clear()

    def _begins_like_silence(self, text: str) -> bool:
        beginning = (self._beginning + text).lstrip()
        bare = beginning.rstrip()
        self._beginning = bare + beginning[len(bare) :][:1]  # one space tells as much as a thousand
        return SILENT.startswith(bare.upper())

    def _let_go(self, kept: int) -> None:
        """Show what is held, but for so many characters at its end."""
        ready = self._length - kept
        if ready:
            held = "".join(self._held)
            self._held, self._length, self._open_word = [held[ready:]], kept, kept
            self._show(self._redact(held[:ready]))
