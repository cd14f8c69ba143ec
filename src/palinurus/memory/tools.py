"""The memory tools: search, read what was found, write a line into today's note.

Results are compact JSON in OpenClaw's form. Freshness is included only if the answer is not fresh: every character
costs tokens. A shared session gets nothing but the reason (promise 17).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta
from msgspec.structs import replace

from palinurus.domain.clock import Clock, local_time
from palinurus.domain.errors import BadRequest, NotFound, WorkspaceError
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import NOTED_OUTSIDE
from palinurus.domain.tool import UNLISTED, Tool, ToolOutput, ToolRun, tool
from palinurus.text.fact_lines import fact_line, mentionable
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.file_origins import FileOrigins
from palinurus.workspace.write import append_block, append_line

if TYPE_CHECKING:
    from palinurus.memory.backend import AgentMemory

MAX_NOTE = 4_000
MAX_RESULTS = 50
OUTSIDE = NOTED_OUTSIDE  # the origin of a memory is part of it
_HEADING = re.compile(r"^##? .*$", re.MULTILINE)
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")  # a terminal that shows the note would interpret them


Writing = Callable[[SessionKey], tuple[Boundary, str]]
"""Returns the workspace for a session's notes, and why it may not write (empty: it may). Called for every call, in a
thread.
"""


def memory_tools(
    memory: Callable[[], AgentMemory], workspace: Boundary, origins: FileOrigins | None = None
) -> tuple[Tool, ...]:
    """The tools that read. `memory` is called for every call, because a changed config makes another."""
    who_wrote = origins or FileOrigins()

    @tool("memory_search", "Search memory before you answer about the past.")
    async def memory_search(
        run: ToolRun,
        query: str,
        maxResults: Annotated[int, Meta(ge=0, le=MAX_RESULTS), UNLISTED] = 0,  # noqa: N803  # OpenClaw's
        minScore: Annotated[float, Meta(ge=0, le=1), UNLISTED] = 0.0,  # noqa: N803
    ) -> ToolOutput:
        from palinurus.memory.get import answer_search  # rarely called, and not needed to offer the tool

        return await answer_search(memory(), run, (workspace, who_wrote), query, most=maxResults, least=minScore)

    @tool("memory_get", "Read lines of a file that was found.")
    async def memory_get(
        run: ToolRun,
        path: str,
        from_: Annotated[int, Meta(ge=1)] = 1,
        lines: Annotated[int, Meta(ge=0), "0: all"] = 0,
    ) -> ToolOutput:
        from palinurus.memory.get import LineRange, answer_get

        wanted = LineRange(path, from_ if from_ > 1 else None, lines or None)
        return await answer_get(memory(), run, (workspace, who_wrote), wanted)

    return memory_search, memory_get


def memory_write_tool(writing: Writing, clock: Clock) -> Tool:
    """The tool that writes: a line at the end of `memory/YYYY-MM-DD.md`."""

    @tool("memory_write", "Write one line into today's note.")
    async def memory_write(run: ToolRun, text: str) -> ToolOutput:
        boundary = await asyncio.to_thread(_writable, writing, run)
        line = note_line(text) + (OUTSIDE if run.untrusted else "")
        day = local_time(clock).date().isoformat()
        path = note_path(day)
        number = await asyncio.to_thread(append_line, boundary, path, line, heading=f"# {day}")
        return ToolOutput(f"noted in {path}#L{number}: {line}")

    return memory_write


def memory_retain_tool(writing: Writing, clock: Clock) -> Tool:
    """The tool that writes facts: bullets of a `## Retain` section in the same file."""

    @tool("memory_retain", "Keep one lasting fact, understandable alone.")
    async def memory_retain(
        run: ToolRun,
        text: str,
        kind: Literal["world", "experience", "opinion"] = "world",
        entities: tuple[str, ...] = (),
    ) -> ToolOutput:
        boundary = await asyncio.to_thread(_writable, writing, run)
        line = fact_line(kind, note_line(text)[2:].lstrip(":@ "), mentionable(entities))
        line += OUTSIDE if run.untrusted else ""
        day = local_time(clock).date().isoformat()
        number = await asyncio.to_thread(_retain, boundary, day, line)
        return ToolOutput(f"noted in {note_path(day)}#L{number}: {line}")

    return replace(memory_retain, instead_of="memory_write")


def note_path(day: str) -> str:
    return f"memory/{day}.md"


def _writable(writing: Writing, run: ToolRun) -> Boundary:
    """Raises WorkspaceError."""
    if not run.private:
        raise WorkspaceError("notes are private memory, which only a private session may write")
    boundary, why = writing(run.key)
    if why:
        raise WorkspaceError(f"nothing can be noted: {why}")
    return boundary


def _retain(boundary: Boundary, day: str, line: str) -> int:
    """The number of the line, at the end of the last section if that is one of facts, else in a new one."""
    path, heading = note_path(day), f"# {day}"
    try:
        text = boundary.read_bytes(path).decode("utf-8", "replace")
    except NotFound:
        text = ""
    if "".join(_HEADING.findall(text)[-1:]).casefold().strip() == "## retain":
        return append_line(boundary, path, line, heading=heading)
    return append_block(boundary, path, ["## Retain", "", line], heading=heading) + 2


def note_line(text: str) -> str:
    """The text as one list item, its line breaks folded to spaces."""
    words = " ".join(_CONTROLS.sub(" ", text.encode("utf-8", "replace").decode()).split()).removeprefix("- ")
    if not words:
        raise BadRequest("the note is empty", hint="say what to remember")
    if len(words) > MAX_NOTE:
        raise BadRequest(f"the note has {len(words):,} characters; {MAX_NOTE:,} are allowed", hint="split it")
    return f"- {words}"
