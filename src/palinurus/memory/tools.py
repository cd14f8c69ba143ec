"""The hands of memory: search it, read what was found, write a line into today's note.

Results are compact JSON in OpenClaw's shape. How fresh an answer is stands in it only when it is not fresh: every
character is paid for. A session that others listen to gets nothing, and a sentence why (promise 17).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta, Struct

from palinurus.domain.clock import Clock, local_time
from palinurus.domain.errors import BadRequest, WorkspaceError
from palinurus.domain.function_tool import tool
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import NOTED_OUTSIDE, Origin
from palinurus.domain.tool import Tool, ToolOutput, ToolRun
from palinurus.memory.answer import Answer, Freshness
from palinurus.memory.getting import Asked, Remembered, get_lines
from palinurus.memory.question import Question
from palinurus.memory.scope import cites, why_not
from palinurus.memory.sources import MemorySources, Shown, is_said
from palinurus.workspace.append import append_line
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.file_origins import FileOrigins

MAX_NOTE = 4_000
MAX_RESULTS = 50
OUTSIDE = NOTED_OUTSIDE  # the origin of a memory is part of it
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")  # a terminal that shows the note would obey them


class Searched(Remembered, Protocol):
    """One agent's memory, as far as its tools use it."""

    async def search(self, question: Question) -> Answer: ...


Writing = Callable[[SessionKey], tuple[Boundary, str]]
"""Where a session may write notes, and why it may not (empty: it may). Asked at every call, in a thread."""


class Hit(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A result as a model reads it."""

    path: str
    start_line: int
    end_line: int
    score: float
    snippet: str
    source: str = "memory"
    citation: str = ""
    under: str = ""


class Told(Struct, frozen=True, rename="camel", omit_defaults=True):
    results: tuple[Hit, ...]
    left_out: int = 0  # finds that there was no room for
    freshness: Freshness | None = None  # only when something is missing
    refused: str = ""


def memory_tools(
    memory: Callable[[], Searched], workspace: Boundary, origins: FileOrigins | None = None
) -> tuple[Tool, ...]:
    """Those that look. `memory` is asked at every call, because a changed config makes another."""
    files = origins or FileOrigins()

    @tool("memory_search", "Search memory: notes, daily notes, collections. Use it before you answer about the past.")
    async def memory_search(
        run: ToolRun,
        query: Annotated[str, "a question or words"],
        maxResults: Annotated[int, Meta(ge=0, le=MAX_RESULTS), "0: as many as fit"] = 0,  # noqa: N803  # OpenClaw's
        minScore: Annotated[float, Meta(ge=0, le=1)] = 0.0,  # noqa: N803
    ) -> ToolOutput:
        if not query.strip():
            raise BadRequest("the query is empty", hint="say what to look for")
        here = memory()
        if why := why_not(here.settings, run.key, private=run.private):
            return _json(Told((), refused=why))
        budget = here.settings.budget
        if maxResults:
            budget = msgspec.structs.replace(budget, results=maxResults)
        cite = cites(here.settings, run.key)
        answer = await here.search(Question(query, budget, minScore or None, cite=cite))
        shown = [Shown(each.path, each.snippet, each.start_line, each.end_line) for each in answer.results]
        return _json(told(answer), await _sources(here, files, workspace, shown))

    @tool("memory_get", "Read lines of what memory_search has found.")
    async def memory_get(
        run: ToolRun,
        path: Annotated[str, "as memory_search tells it"],
        from_: Annotated[int, Meta(ge=1), "first line"] = 1,
        lines: Annotated[int, Meta(ge=0), "how many; 0: to the end"] = 0,
    ) -> ToolOutput:
        here = memory()
        if why := why_not(here.settings, run.key, private=run.private):
            raise WorkspaceError(why)
        found = await get_lines(here, workspace, Asked(path, from_ if from_ > 1 else None, lines or None))
        shown = [Shown(found.path, found.text, found.from_, found.from_ + max(found.lines, 1) - 1)]
        return _json(found, await _sources(here, files, workspace, shown))

    return memory_search, memory_get


def memory_write_tool(writing: Writing, clock: Clock) -> Tool:
    """The one that writes: a line at the end of `memory/YYYY-MM-DD.md`."""

    @tool("memory_write", "Write one line into today's note. Use it whenever something should be remembered.")
    async def memory_write(
        run: ToolRun, text: Annotated[str, "what to remember, understandable on its own"]
    ) -> ToolOutput:
        if not run.private:
            raise WorkspaceError("notes are private memory, which only a private session may write")
        boundary, why = await asyncio.to_thread(writing, run.key)
        if why:
            raise WorkspaceError(f"nothing can be noted: {why}")
        line = note_line(text) + (OUTSIDE if run.untrusted else "")
        day = local_time(clock).date().isoformat()
        path = f"memory/{day}.md"
        number = await asyncio.to_thread(append_line, boundary, path, line, heading=f"# {day}")
        return ToolOutput(f"noted in {path}#L{number}: {line}")

    return memory_write


def note_line(text: str) -> str:
    """The text as one list item, its line breaks folded to spaces."""
    words = " ".join(_CONTROLS.sub(" ", text.encode("utf-8", "replace").decode()).split()).removeprefix("- ")
    if not words:
        raise BadRequest("the note is empty", hint="say what to remember")
    if len(words) > MAX_NOTE:
        raise BadRequest(f"the note has {len(words):,} characters; {MAX_NOTE:,} are allowed", hint="split it")
    return f"- {words}"


def told(answer: Answer) -> Told:
    hits = tuple(
        Hit(
            each.path,
            each.start_line,
            each.end_line,
            round(each.score, 3),
            each.snippet,
            each.source,
            each.citation,
            each.under,
        )
        for each in answer.results
    )
    freshness = None if is_good(answer.freshness) else answer.freshness
    return Told(hits, answer.left_out, freshness, answer.refused)


def is_good(freshness: Freshness) -> bool:
    """Whether nothing is missing: all files were compared, and vectors, where there are any, are complete."""
    return freshness.state == "fresh" and freshness.vectors in ("complete", "off") and not freshness.why


async def _sources(
    here: Remembered, origins: FileOrigins, workspace: Boundary, shown: Sequence[Shown]
) -> tuple[str, ...]:
    conversations = dict.fromkeys(each.path for each in shown if is_said(each.path))
    said = {path: await here.said(path) or "" for path in conversations}
    return await asyncio.to_thread(MemorySources(origins, workspace, here.settings.collections).of, shown, said)


def _json(record: Struct, sources: tuple[str, ...] = ()) -> ToolOutput:
    origin = Origin.OUTSIDE if sources else Origin.OWNER
    return ToolOutput(msgspec.json.encode(record).decode(), origin=origin, sources=sources)
