"""Snippets of memory that are added to the newest message automatically.

Off unless the config says `on`. They are a note of their own kind, stored with the message like every note (promise
20), so they never count as user text: they are never indexed and never extracted as new memory. A search that is slow
or fails adds nothing, and the turn continues.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import date

import msgspec
from msgspec import Struct

from palinurus.context.view import View
from palinurus.domain.clock import Clock, local_time
from palinurus.domain.errors import PalinurusError
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import OUTSIDE_MARK, ContextNote, Origin, UserMessage
from palinurus.memory.answer import SearchAnswer, SearchResult
from palinurus.memory.document import MEMORY, SESSIONS
from palinurus.memory.get import MemorySources
from palinurus.memory.question import Question, why_not
from palinurus.memory.settings import MemorySettings, SearchLimits
from palinurus.providers.scout.quotes import parse_question
from palinurus.text.words import roots_of
from palinurus.workspace.files import WorkspaceFiles

log = logging.getLogger(__name__)
KIND = "recall"
NAME = "Memory search results"
SECONDS = 0.3
MOST = 6
SNIPPET = 300  # characters
_ENDS = "#L"


class Recall(Struct, eq=False):
    """Implements agent.agent.Recalling with one agent's memory."""

    _search: Callable[[Question], Awaitable[SearchAnswer]]
    _settings: MemorySettings
    _clock: Clock
    _files: WorkspaceFiles | None = None  # the workspace, for the origin of files
    _own_path: Callable[[str], str] = str  # AgentMemory.own_path

    async def __call__(self, key: SessionKey, text: str) -> tuple[ContextNote, ...]:
        settings = self._settings
        if settings.recall != "on" or not settings.enabled or why_not(settings, key, private=key.is_private):
            return ()
        wanted = parse_question(text, self._today())
        if not wanted.subject:
            return ()
        budget = SearchLimits(settings.recall_characters, SNIPPET, seconds=SECONDS)
        question = Question(wanted.query, budget, sources=self._sources())
        try:
            async with asyncio.timeout(SECONDS):
                answer = await self._search(question)
        except (TimeoutError, PalinurusError) as error:
            log.info("nothing was recalled for %s: %s", key, error or "the search took too long")
            return ()
        found = worthwhile(text, answer.results, self._today())
        return recalled(found, settings.recall_characters, await asyncio.to_thread(self._outside, found))

    def _outside(self, found: Sequence[SearchResult]) -> frozenset[str]:
        """Paths of results in outside files."""
        if self._files is None:
            return frozenset()
        sources = MemorySources(self._files.origins, self._files.boundary, self._settings.collections)
        own = ((each.path, msgspec.structs.replace(each, path=self._own_path(each.path))) for each in found)
        return frozenset(path for path, each in own if sources.of([each]))

    def _today(self) -> date:
        return local_time(self._clock).date()

    def _sources(self) -> tuple[str, ...]:
        """The sources to search: not sessions, which may hold text of others."""
        collections = tuple(each.name for each in self._settings.collections)
        return (*(each for each in self._settings.sources if each != SESSIONS), *collections) or (MEMORY,)


def worthwhile(text: str, results: Sequence[SearchResult], today: date) -> list[SearchResult]:
    """Results about the subject of the message: a search always finds something, and every token costs."""
    wanted = parse_question(text, today)
    names, words = set(wanted.names), wanted.subject
    kept: list[SearchResult] = []
    for result in results:
        common = words & roots_of(f"{result.path} {result.snippet}")
        if common & names or len(common) >= min(2, len(words)):
            kept.append(result)
    return kept[:MOST]


def recalled(
    results: Sequence[SearchResult], limit: int, outside: Collection[str] = frozenset()
) -> tuple[ContextNote, ...]:
    """One note, a line for each snippet: its place and its text. Outside ones are marked."""
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
    shown_lines = {
        line
        for each in view.lines
        if isinstance(each.message, UserMessage)
        for note in each.message.context
        if note.kind == KIND
        for line in note.text.splitlines()
    }
    kept = [
        [line for line in note.text.splitlines() if line not in shown_lines and _path(line) not in shown]
        for note in notes
    ]
    return tuple(_note(lines) for lines in kept if lines)


def _note(lines: Sequence[str]) -> ContextNote:
    # A line noted after outside text had been read is still outside text (promise 18).
    sources = tuple(dict.fromkeys(f"written:{_path(line)}" for line in lines if OUTSIDE_MARK in line))
    origin = Origin.OUTSIDE if sources else Origin.OWNER
    return ContextNote(KIND, "\n".join(lines), NAME, origin=origin, sources=sources)


def _place(result: SearchResult) -> str:
    ends = f"-L{result.end_line}" if result.end_line > result.start_line else ""
    return f"{result.path}{_ENDS}{result.start_line}{ends}"


def _path(line: str) -> str:
    return line.partition(_ENDS)[0]
