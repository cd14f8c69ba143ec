"""Snippets of memory offered unasked, beside the newest message.

Off unless the config says `on`. They ride in a note of their own kind, stored with the message like every note
(promise 20), so nothing that reads what was *said* takes them for it: they are never indexed and never extracted as
new memory. A search that is slow or fails gives nothing, and the turn goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import date

from palinurus.config.remembering import Budget, MemorySettings
from palinurus.context.view import View
from palinurus.domain.clock import Clock, local_time
from palinurus.domain.errors import PalinurusError
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import OUTSIDE_MARK, ContextNote, Origin, UserMessage
from palinurus.memory.answer import Answer, Result
from palinurus.memory.document import MEMORY, SESSIONS
from palinurus.memory.question import Question
from palinurus.memory.scope import why_not
from palinurus.memory.sources import MemorySources, Shown
from palinurus.providers.scout.asked import asked
from palinurus.providers.scout.words import stems_of
from palinurus.workspace.files import WorkspaceFiles

log = logging.getLogger(__name__)

KIND = "recall"
NAME = "Memory search results"
SECONDS = 0.3
MOST = 6
SNIPPET = 300  # characters
_ENDS = "#L"

Recalling = Callable[[SessionKey, str], Awaitable[tuple[ContextNote, ...]]]
"""What memory has about a message, for a session. Must not raise, and gives up by itself within its limit."""


async def nothing_recalled(key: SessionKey, text: str) -> tuple[ContextNote, ...]:
    return ()


class Recall:
    """Implements Recalling with one agent's memory."""

    def __init__(
        self,
        search: Callable[[Question], Awaitable[Answer]],
        settings: MemorySettings,
        clock: Clock,
        files: WorkspaceFiles | None = None,
    ) -> None:
        """`files`: the workspace, which is asked whose words are in a file."""
        self._search = search
        self._settings = settings
        self._clock = clock
        self._files = files

    async def __call__(self, key: SessionKey, text: str) -> tuple[ContextNote, ...]:
        settings = self._settings
        if settings.recall != "on" or not settings.enabled or why_not(settings, key, private=key.is_private):
            return ()
        wanted = asked(text, self._today())
        if not wanted.subject and not wanted.topics:
            return ()
        budget = Budget(settings.recall_characters, SNIPPET, seconds=SECONDS)
        question = Question(wanted.query, budget, sources=self._sources())
        try:
            async with asyncio.timeout(SECONDS):
                answer = await self._search(question)
        except (TimeoutError, PalinurusError) as error:
            log.info("nothing was recalled for %s: %s", key, error or "the search took too long")
            return ()
        found = worthwhile(text, answer.results, self._today())
        return recalled(found, settings.recall_characters, await asyncio.to_thread(self._outside, found))

    def _outside(self, found: Sequence[Result]) -> frozenset[str]:
        """Paths of those that lie in a file from outside."""
        if self._files is None:
            return frozenset()
        sources = MemorySources(self._files.origins, self._files.boundary, self._settings.collections)
        told = sources.of(Shown(each.path, each.snippet, each.start_line, each.end_line) for each in found)
        return frozenset(source.partition(":")[2] for source in told)

    def _today(self) -> date:
        return local_time(self._clock).date()

    def _sources(self) -> tuple[str, ...]:
        """Not what was said: that may be others' words, and a conversation is no note of the owner's."""
        collections = tuple(each.name for each in self._settings.collections)
        return (*(each for each in self._settings.sources if each != SESSIONS), *collections) or (MEMORY,)


def worthwhile(text: str, results: Sequence[Result], today: date) -> list[Result]:
    """Results that speak of what the message does: a search always finds something, and every token is paid for."""
    wanted = asked(text, today)
    names, words = set(wanted.subject), {*wanted.subject, *wanted.topics}
    kept: list[Result] = []
    for result in results:
        common = words & stems_of(f"{result.path} {result.snippet}")
        if common & names or len(common) >= min(2, len(words)):
            kept.append(result)
    return kept[:MOST]


def recalled(results: Sequence[Result], limit: int, outside: Collection[str] = frozenset()) -> tuple[ContextNote, ...]:
    """One note, a line for each snippet: where it stands, and its words. Those from outside say so."""
    lines: list[str] = []
    for result in results:
        line = f"{_place(result)}: {' '.join(result.snippet.split())}"
        if result.path in outside and OUTSIDE_MARK not in line:
            line += f" ({OUTSIDE_MARK}"
        if sum(len(each) + 1 for each in lines) + len(line) <= limit:
            lines.append(line)
    return (_note(lines),) if lines else ()


def news_of(notes: Sequence[ContextNote], view: View, shown: Collection[str]) -> tuple[ContextNote, ...]:
    """The notes without lines that the model has read already: in an earlier note, or in a file of its head."""
    told = {
        line
        for each in view.lines
        if isinstance(each.message, UserMessage)
        for note in each.message.context
        if note.kind == KIND
        for line in note.text.splitlines()
    }
    kept = [
        [line for line in note.text.splitlines() if line not in told and _path(line) not in shown] for note in notes
    ]
    return tuple(_note(lines) for lines in kept if lines)


def _note(lines: Sequence[str]) -> ContextNote:
    # A line that was noted after text from outside had been read is still words from outside (promise 18).
    sources = tuple(dict.fromkeys(f"written:{_path(line)}" for line in lines if OUTSIDE_MARK in line))
    origin = Origin.OUTSIDE if sources else Origin.OWNER
    return ContextNote(KIND, "\n".join(lines), NAME, origin=origin, sources=sources)


def _place(result: Result) -> str:
    ends = f"-L{result.end_line}" if result.end_line > result.start_line else ""
    return f"{result.path}{_ENDS}{result.start_line}{ends}"


def _path(line: str) -> str:
    return line.partition(_ENDS)[0]
