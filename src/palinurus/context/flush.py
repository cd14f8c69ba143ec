"""Before history leaves the window its durable notes are taken: here it is decided how, and the record is made.

A model writes better notes than a rule, so it is asked when there is time and something to note: on a private copy of
the conversation, of which nothing enters the transcript. Each line that it writes is held against what was said, and
refused when it says something else; what the user asked to remember and the model left out is put beside. Where it
fails, times out or talks nonsense, the notes by rule are taken, which are often none.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, tzinfo

from msgspec import Struct

from palinurus.context.beside import beside
from palinurus.context.extract import FROM_OUTSIDE
from palinurus.context.grounding import Vocabulary
from palinurus.context.identifiers import identifiers
from palinurus.context.notes import extract_notes, is_worth_asking, statements
from palinurus.context.statements import Weight
from palinurus.context.view import Line
from palinurus.domain.clock import Clock, NewId, local_time
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage
from palinurus.domain.provenance import texts_in
from palinurus.sessions.extraction import Extraction
from palinurus.sessions.session import Session

log = logging.getLogger(__name__)

SILENT = "NO_REPLY"
MOST = 12_000  # characters of notes that a model may write
LONGEST = 1_000  # of one note
AT_LEAST = 1_500  # characters that are never too many, however little was said

QUESTION = f"""[This is not from the user, and nobody will read an answer to it in the conversation.]
Older parts of this conversation will soon be out of sight. Write down what should be remembered of it for good: what \
the user asked to remember, prefers, decided or still wants, facts about people and things, open tasks, and what was \
found out. Only what was said here, in its own words and language: a line with other names, numbers or words is \
thrown away. One note a line, each beginning with "- " and understandable without the conversation: with names, \
absolute dates, numbers, paths and ids exactly as they were said. Leave out questions, commands, small talk, what you \
said of yourself, and what MEMORY.md or an earlier summary says already. Do not call a tool. Answer with the notes \
alone, or with {SILENT} when there is nothing to remember."""

ADDED = "\n\nThe owner of this home adds (still without tools, and in notes): "

Silent = Callable[[str], Awaitable[str | None]]
"""Asks the session's model something behind a private copy of the conversation, and gives its words.

None when it has said nothing, in time or at all. Must not raise, and keeps a limit of time by itself.
"""

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
        self,
        session: Session,
        key: SessionKey,
        lines: Sequence[Line],
        *,
        silent: Silent | None = None,
        added: str = "",
        outside: bool = False,
    ) -> Extraction:
        """Notes of these lines, of which there is at least one; none when nothing was said that should be kept.

        `added`: what the config wants asked besides; `outside`: the model reads text from outside, in these lines or
        in older ones.
        """
        notes = ""
        # Notes that nobody will search are worth no call, and neither is a conversation without news.
        if silent is not None and key.is_private and await beside(lines, lambda: is_worth_asking(lines)):
            written = await silent(f"{QUESTION}{ADDED}{added}" if added else QUESTION) or ""
            checked = await beside(lines, lambda: check_notes(written, lines, self._clock.zone, outside=outside))
            notes = checked.notes
            if checked.refused:
                log.info(
                    "%s: %d of the model's notes were refused, they do not say what was said", key, checked.refused
                )
        return Extraction(
            id=self._new_id(),
            session_id=session.id,
            up_to=lines[-1].id,
            notes=notes or await beside(lines, lambda: extract_notes(lines, zone=self._clock.zone)),
            made_by="model" if notes else "extractor",
            private=key.is_private,
            day=f"{local_time(self._clock):%Y-%m-%d}",
            at=self._clock.now_ms(),
            key=str(key),
        )


class NoteCheck(Struct, frozen=True):
    """The notes of a model as they are kept, one bullet a line; empty when they cannot be used."""

    notes: str = ""
    refused: int = 0  # lines that say something else than the conversation


def check_notes(text: str, lines: Sequence[Line], zone: tzinfo = UTC, *, outside: bool = False) -> NoteCheck:
    written = _bullets(text)
    texts = [line.message.text for line in lines]
    size = sum(map(len, texts))
    if not written or _REFUSAL.search(written[0]):
        return NoteCheck()
    if sum(map(len, written)) > min(MOST, max(AT_LEAST, size // 2)) or max(map(len, written)) > LONGEST:
        return NoteCheck(refused=len(written))
    said = Vocabulary.of(texts)
    heard = Vocabulary.of(line.message.text for line in lines if not isinstance(line.message, AssistantMessage))
    notes = [note for note in written if said.supports(note) and heard.meets(note)]
    refused = len(written) - len(notes)
    if not notes:
        return NoteCheck(refused=refused)
    # The model had all of it before its eyes: none of its notes can be told from words from outside (promise 18).
    if outside or any(texts_in(line.message) for line in lines):
        notes = [note if FROM_OUTSIDE in note else f"{note} {FROM_OUTSIDE}" for note in notes]
    return NoteCheck("\n".join([*notes, *_left_out(notes, lines, zone, refused)]), refused)


def _left_out(notes: Sequence[str], lines: Sequence[Line], zone: tzinfo, refused: int) -> Iterator[str]:
    """What the user asked to remember and the notes lack, or told with an id that nobody could guess again.

    And more, where some of the notes were refused: those may have been about it.
    """
    noted, text = Vocabulary.of(notes), "\n".join(notes)
    least = Weight.OWN if refused else Weight.ASKED
    for each in statements(lines, zone):
        lacks = not noted.supports(each.text) if each.weight >= least else False
        if lacks or any(exact not in text for exact in identifiers(each.text)):
            yield each.line


def _bullets(text: str) -> list[str]:
    """Each line as one bullet. Headings and fences would change the file that the notes are put into."""
    found: dict[str, None] = {}
    for line in text.splitlines():
        words = " ".join(_ITEM.sub("", line).replace("<!--", "").replace("-->", "").split())
        is_frame = words.startswith(("#", "```", "~~~", "---")) or words.endswith((":", "：")) or SILENT in words
        if words and not is_frame:
            found.setdefault(f"- {words}")
    return list(found)
