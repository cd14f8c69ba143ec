"""Text on its way to those who follow a run: without secrets, and without the word that means silence.

A secret may come in pieces, so the word that is still being written is held back until it is whole; nobody reads half
words anyway. A reply that so far could be NO_REPLY is held back too: when it is, nothing is shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable

SILENT = "NO_REPLY"
LONGEST_WORD = 4_096  # a word that is longer is let go in pieces: it is no key
_OPEN_WORD = re.compile(r"[!-~]+\Z")  # scripts without spaces are not held back


class Streamed:
    """Collects deltas and lets go of what may be shown."""

    def __init__(self, redact: Callable[[str], str], show: Callable[[str], None]) -> None:
        self._redact = redact
        self._show = show
        self._held = ""
        self._all: list[str] = []
        self._may_be_silent = True

    @property
    def text(self) -> str:
        """Everything that was heard, shown or not."""
        return "".join(self._all)

    def hear(self, text: str) -> None:
        self._all.append(text)
        self._held += text
        if self._may_be_silent:
            self._may_be_silent = SILENT.startswith(self._held.strip().upper())
            if self._may_be_silent:
                return
        open_word = _OPEN_WORD.search(self._held)
        ready = open_word.start() if open_word and len(open_word.group()) <= LONGEST_WORD else len(self._held)
        self._let_go(ready)

    def end(self) -> None:
        """The reply is whole: show what was held back, unless it means silence."""
        if self._held.strip().upper() != SILENT or not self._may_be_silent:
            self._let_go(len(self._held))
        self._held = ""

    def discard(self) -> None:
        """What was heard belongs to an attempt that was given up."""
        self._held, self._may_be_silent = "", True
        self._all.clear()

    def _let_go(self, length: int) -> None:
        if length:
            self._show(self._redact(self._held[:length]))
            self._held = self._held[length:]
