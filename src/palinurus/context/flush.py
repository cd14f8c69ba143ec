"""Before history leaves the window its durable notes are taken: here it is decided how, and the record is made.

A model writes better notes than a rule, so it is asked when there is time: on a private copy of the conversation, of
which nothing enters the transcript. What it writes is checked, and what it left out of the exact identifiers is put
beside it. Where it fails, times out or talks nonsense, the extractor's notes are taken: there are always some.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence

from palinurus.context.beside import beside
from palinurus.context.extract import FROM_OUTSIDE, exact_of, extract, supplement
from palinurus.context.view import Line
from palinurus.domain.clock import Clock, NewId, local_time
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, Origin
from palinurus.sessions.extraction import Extraction
from palinurus.sessions.session import Session

SILENT = "NO_REPLY"
MOST = 12_000  # characters of notes that a model may write
LONGEST = 1_000  # of one note
AT_LEAST = 1_500  # characters that are never too many, however little was said
_NEW_WORDS = 0.75  # of its words, from which on notes do not speak of this conversation

QUESTION = f"""[This is not from the user, and nobody will read an answer to it in the conversation.]
Older parts of this conversation will soon be summed up. Write down what should be remembered of it for good: what the \
user asked to remember, prefers, decided or still wants, facts about people and things, open tasks, and what was found \
out. One note a line, each beginning with "- " and understandable without the conversation: with names, absolute \
dates, numbers, paths and ids exactly as they were said. Leave out small talk and what MEMORY.md or an earlier summary \
says already. Do not call a tool. Answer with the notes alone, or with {SILENT} when there is nothing to remember."""

Silent = Callable[[str], Awaitable[str | None]]
"""Asks the session's model something behind a private copy of the conversation, and gives its words.

None when it has said nothing, in time or at all. Must not raise, and keeps a limit of time by itself.
"""

_WORD = re.compile(r"[^\W\d_]{4,}")
_WIDE = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af]")
_ITEM = re.compile(r"^\s*(?:[-*+•]|\d+[.)])\s+")
_REFUSAL = re.compile(
    r"\b(i('m| am) (sorry|unable)|i (can(no|')t|won't|am not able)|as an ai)\b"
    r"|es tut mir leid|ich kann (das |dabei )?nicht|抱歉|对不起|申し訳",
    re.IGNORECASE,
)


class Flush:
    """Implements context.compact.TakesNotes."""

    def __init__(self, clock: Clock, new_id: NewId) -> None:
        self._clock = clock
        self._new_id = new_id

    async def extracted(
        self, session: Session, key: SessionKey, lines: Sequence[Line], *, silent: Silent | None = None
    ) -> Extraction:
        """Notes of these lines, of which there is at least one. Every identifier of the lines is in them."""
        notes = ""
        if silent is not None and key.is_private:  # notes that nobody will search are worth no call
            notes = good_notes(await silent(QUESTION) or "", lines)
        return Extraction(
            id=self._new_id(),
            session_id=session.id,
            up_to=lines[-1].id,
            notes=notes or await self._by_rule(lines),
            made_by="model" if notes else "extractor",
            private=key.is_private,
            day=f"{local_time(self._clock):%Y-%m-%d}",
            at=self._clock.now_ms(),
            key=str(key),
        )

    async def _by_rule(self, lines: Sequence[Line]) -> str:
        return await beside(lines, lambda: extract(lines, zone=self._clock.zone))


def good_notes(text: str, lines: Sequence[Line]) -> str:
    """The notes of a model as they are kept, one bullet a line; empty when they cannot be used."""
    notes = _bullets(text)
    said = "\n".join(line.message.text for line in lines)
    if not notes or _REFUSAL.search(notes[0]) or _is_foreign(notes, said):
        return ""
    if sum(map(len, notes)) > min(MOST, max(AT_LEAST, len(said) // 2)) or max(map(len, notes)) > LONGEST:
        return ""
    # The model had all of it before its eyes: none of its notes can be told from words from outside (promise 18).
    if any(_is_outside(line) for line in lines):
        notes = [note if FROM_OUTSIDE in note else f"{note} {FROM_OUTSIDE}" for note in notes]
    return supplement("\n".join(notes), exact_of(lines))


def _bullets(text: str) -> list[str]:
    """Each line as one bullet. Headings and fences would change the file that the notes are put into."""
    found: dict[str, None] = {}
    for line in text.splitlines():
        words = " ".join(_ITEM.sub("", line).replace("<!--", "").replace("-->", "").split())
        if words and not words.startswith(("#", "```", "~~~", "---")) and SILENT not in words:
            found.setdefault(f"- {words}")
    return list(found)


def _is_foreign(notes: Sequence[str], said: str) -> bool:
    """Whether the notes speak of something else than the conversation."""
    wanted = _words("\n".join(notes))
    return len(wanted) >= 6 and len(wanted - _words(said)) > _NEW_WORDS * len(wanted)


def _words(text: str) -> set[str]:
    """Beginnings of words, so that another form of a word is the same; and each sign of scripts without spaces."""
    return {word[:5].lower() for word in _WORD.findall(text) if not _WIDE.search(word)} | set(_WIDE.findall(text))


def _is_outside(line: Line) -> bool:
    return not isinstance(line.message, AssistantMessage) and line.message.origin == Origin.OUTSIDE
