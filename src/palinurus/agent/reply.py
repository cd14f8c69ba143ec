"""A streamed reply: how it is stopped and what of it is shown; and a model call outside the turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from palinurus.domain.messages import AssistantMessage
from palinurus.providers.provider import ModelRequest, Provider, ReplyDone
from palinurus.sessions.journal import Journal

BY_USER = "stopped by the user"


class Stopped(Exception):
    """Raised inside `Stop.interruptible` after a stop was requested."""


class Stop:
    """STOP, out of band: interrupts interruptible work at once, and never a write to the store."""

    def __init__(self) -> None:
        self.reason = ""  # empty until a stop was requested
        self._inside: asyncio.Task[object] | None = None
        self._cancelled = False  # whether we have cancelled the work inside

    @property
    def requested(self) -> bool:
        return bool(self.reason)

    def request(self, reason: str = BY_USER) -> None:
        if not self.requested and self._inside is not None:
            self._inside.cancel()
            self._cancelled = True
        self.reason = self.reason or reason

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Work in here may be interrupted; it then ends with Stopped."""
        if self.reason:
            raise Stopped
        task = self._inside = asyncio.current_task()
        try:
            yield
        except asyncio.CancelledError:
            if not self._cancelled or (task is not None and task.cancelling() > 1):
                raise  # another caller has cancelled the task: that counts
            raise Stopped from None
        finally:
            # Undone even if the work swallowed the cancellation: a cancelled task would end its lane.
            if self._cancelled and task is not None:
                task.uncancel()
            self._inside, self._cancelled = None, False


SILENT = "NO_REPLY"
LONGEST_WORD = 4_096  # a longer word is shown in pieces: it is not a key
_OF_A_WORD = "".join(map(chr, range(ord("!"), ord("~") + 1)))  # scripts without spaces are not held back


class ReplyText:
    """Streamed text for the followers of a run: without secrets, and without NO_REPLY.

    A secret may arrive in pieces, so an unfinished word is held back until it is complete. A reply that could still
    become NO_REPLY is held back too: if it is, nothing is shown.

    Only the new piece is checked, and held text is joined once: the work is linear in the length of the reply.
    """

    def __init__(self, redact: Callable[[str], str], show: Callable[[str], None]) -> None:
        self._redact = redact
        self._show = show
        self._all: list[str] = []
        self._forget_held()

    def _forget_held(self) -> None:
        self._held: list[str] = []
        self._length = 0  # of all held text
        self._open_word = 0  # so many characters at the end of the held text are an unfinished word
        self._may_be_silent = True
        self._beginning = ""  # of a reply that may be NO_REPLY, without the space around it

    @property
    def text(self) -> str:
        """All text so far, shown or not."""
        return "".join(self._all)

    def add(self, text: str) -> None:
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
        """Ends the reply: shows the held text, unless it is NO_REPLY."""
        if not self._may_be_silent or self._beginning.rstrip().upper() != SILENT:
            self._let_go(0)
        self._forget_held()

    def discard(self) -> None:
        """Drops all text: it belongs to a failed attempt."""
        self._forget_held()
        self._all.clear()

    def _begins_like_silence(self, text: str) -> bool:
        beginning = (self._beginning + text).lstrip()
        bare = beginning.rstrip()
        self._beginning = bare + beginning[len(bare) :][:1]  # one space is as good as a thousand
        return SILENT.startswith(bare.upper())

    def _let_go(self, kept: int) -> None:
        """Shows the held text except so many characters at its end."""
        ready = self._length - kept
        if ready:
            held = "".join(self._held)
            self._held, self._length, self._open_word = [held[ready:]], kept, kept
            self._show(self._redact(held[:ready]))


class ModelQuestion:
    """Calls a model outside the session, for example for a summary: no tools, one time limit for all; STOP ends it."""

    def __init__(self, provider: Provider, journal: Journal, stop: Stop, seconds: float) -> None:
        self._provider = provider
        self._journal = journal
        self._stop = stop
        self._deadline = asyncio.get_running_loop().time() + seconds

    async def __call__(self, request: ModelRequest) -> AssistantMessage | None:
        """The reply; None if there was none in time, or the run was stopped."""
        reply: AssistantMessage | None = None
        try:
            async with asyncio.timeout_at(self._deadline):
                with self._stop.interruptible():
                    async for event in self._provider.stream(request):
                        if isinstance(event, ReplyDone):
                            reply = event.message
        except (Stopped, TimeoutError):
            return None
        return self._journal.clean(reply) if reply else None  # a part of it may be sent again
