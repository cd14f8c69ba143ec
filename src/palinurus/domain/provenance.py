"""Where the texts of a conversation came from, as far as they are neither the owner's nor the agent's (promise 18).

A run is untrusted while the request of its model holds such a text that nobody has declared trusted. A text is known by
its digest, so it stays the same text in a transcript, in a summary that was made from it and after a restart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from msgspec import Struct

from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, ContextNote, Message, Origin, UserMessage

MAX_CARRIED = 200  # texts that a summary names; more are one text of unknown source


class OutsideText(Struct, frozen=True, omit_defaults=True):
    digest: str = ""  # of its words; empty: not known
    source: str = ""
    """host:example.org, file:inbox/1.eml, mcp:mail, skill:pdf, sender:telegram:42; written:notes.md for a file that an
    untrusted run has written; empty: not known."""


UNKNOWN = OutsideText()


class Trust(Protocol):
    def covers(self, text: OutsideText) -> bool:
        """Whether the owner has declared this text, or where it came from, trusted. Must not block."""


class NoTrust:
    """Implements Trust."""

    def covers(self, text: OutsideText) -> bool:
        return False


NO_TRUST = NoTrust()
Trusting = Callable[[SessionKey], Awaitable[Trust]]
"""What the owner trusts in a session at this moment."""


async def trusting_nothing(_: SessionKey) -> Trust:
    return NO_TRUST


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32] if text else ""


def outside_texts(text: str, origin: Origin, sources: Iterable[str]) -> tuple[OutsideText, ...]:
    """The text under each of its sources; nothing when it is not from outside."""
    if origin != Origin.OUTSIDE:
        return ()
    digest = digest_of(text)
    return tuple(OutsideText(digest, source) for source in sources) or (OutsideText(digest),)


def texts_in(message: Message) -> tuple[OutsideText, ...]:
    """All that a message brings in from outside, in itself and in the notes beside it."""
    if isinstance(message, AssistantMessage):
        return outside_texts(message.text, Origin.OUTSIDE, message.sources) if message.sources else ()
    own = outside_texts(message.text, message.origin, message.sources)
    return (*own, *texts_beside(message.context)) if isinstance(message, UserMessage) else own


def texts_beside(notes: Iterable[ContextNote]) -> tuple[OutsideText, ...]:
    return tuple(text for note in notes for text in outside_texts(note.text, note.origin, note.sources))


def carried(texts: Iterable[OutsideText]) -> tuple[OutsideText, ...]:
    """What a summary of these texts still says about them: each once, and not more than it can name.

    Skills come first: what they are held to holds for as long as a summary of their words is read.
    """
    each = tuple(sorted(dict.fromkeys(texts), key=lambda text: not text.source.startswith("skill:")))
    return each if len(each) <= MAX_CARRIED else (*each[: MAX_CARRIED - 1], UNKNOWN)
