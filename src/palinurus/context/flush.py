"""Makes durable notes before history leaves the window.

A model writes better notes than a rule, so it is called when there is time and something to note: on a private copy of
the session, of which nothing enters the transcript. It answers with facts in a strict form, each with the words that it
is taken from; they are checked, and it is asked once more if it has answered in another form. If it fails, times out or
has nothing that was said, the notes are made by rule, which are often none.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from palinurus.context.budget import run_off_loop
from palinurus.context.fact_check import FactDraft, check_drafts, read_drafts
from palinurus.context.notes import extract_notes, is_worth_asking
from palinurus.context.view import Line
from palinurus.domain.clock import Clock, NewId, local_time
from palinurus.domain.keys import SessionKey
from palinurus.sessions.extraction import Extraction
from palinurus.sessions.session import Session
from palinurus.text.fact_lines import NotedFact, write_by_day

log = logging.getLogger(__name__)
SILENT = "NO_REPLY"
QUESTION = f"""[This is not from the user, and nobody will read an answer to it in the conversation.]
Older parts of this conversation will soon be out of sight. Write down what should be remembered of it for good: what \
the user asked to remember, prefers, decided or still wants, facts about people and things, open tasks, and what was \
found out. Leave out questions, commands, small talk, what you said of yourself, and what MEMORY.md, your notes or an \
earlier summary say already. Do not call a tool. Answer with a JSON array alone, or with {SILENT} when there is \
nothing to remember. Each fact is an object with
"text": one sentence, understandable without the conversation, in its own words and language, with names, absolute \
dates, numbers, paths and ids exactly as they were said;
"quote": the words of one message that say so, copied exactly: a fact whose quote was not said here, or that has other \
names, numbers or words, is thrown away;
"kind": "world", "experience" (what you did), or "opinion" (what somebody prefers or thinks);
"who": "user", or the name of whom it is about;
"entities": names of people, places and things in it;
"occurred_start", "occurred_end": YYYY-MM-DD, if it is known when it happened."""
AGAIN = "\n\nYou have answered already, but it could not be used: {}. Answer with the JSON array alone."
ADDED = "\n\nThe owner of this home adds (still without tools, and in notes): "
AskSilently = Callable[[str], Awaitable[str | None]]
"""Sends a prompt to the session's model after a private copy of the session, and returns its reply.

None if it did not answer in time or at all. Must not raise, and has its own time limit.
"""


class Flush:
    """Makes the notes: by a model if one may be called, else by rule."""

    def __init__(self, clock: Clock, new_id: NewId) -> None:
        self._clock = clock
        self._new_id = new_id

    async def extracted(
        self,
        session: Session,
        key: SessionKey,
        lines: Sequence[Line],
        *,
        silent: AskSilently | None = None,
        added: str = "",
        outside: bool = False,
    ) -> Extraction:
        """Notes of these lines, of which there is at least one; none if nothing is worth storing.

        `added`: additional instructions from the config; `outside`: the model reads outside text, in these lines or in
        older ones.
        """
        facts: Sequence[NotedFact] = ()
        # Notes that will not be searched are not worth a call, and neither is a session without news.
        if silent is not None and key.is_private and await run_off_loop(lines, lambda: is_worth_asking(lines)):
            drafts = await _drafts(silent, f"{QUESTION}{ADDED}{added}" if added else QUESTION)
            checked = await run_off_loop(lines, lambda: check_drafts(drafts, lines, self._clock.zone, outside=outside))
            facts = checked.facts
            if checked.refused:
                log.info(
                    "%s: %d of the model's facts were refused: the messages do not support them", key, checked.refused
                )
        by_model, day = bool(facts), f"{local_time(self._clock):%Y-%m-%d}"
        if not by_model:
            found = await run_off_loop(lines, lambda: extract_notes(lines, zone=self._clock.zone))
            facts = [each.fact for each in found]
        return Extraction(
            id=self._new_id(),
            session_id=session.id,
            up_to=lines[-1].id,
            notes=write_by_day(facts, day),
            made_by="model" if by_model else "extractor",
            private=key.is_private,
            day=day,
            at=self._clock.now_ms(),
            key=str(key),
        )


async def _drafts(silent: AskSilently, question: str) -> tuple[FactDraft, ...]:
    """The facts of the model, which is asked once more if its answer cannot be read; none if there are none."""
    asked = question
    for _ in range(2):
        written = await silent(asked)
        if written is None or not written.strip() or SILENT in written:
            return ()
        try:
            return read_drafts(written)
        except ValueError as error:
            log.info("the facts of the model cannot be read: %s", error)
            asked = question + AGAIN.format(str(error)[:200])
    return ()
