"""The hand that writes today's note: one line at the end of `memory/YYYY-MM-DD.md`."""

from __future__ import annotations

import asyncio
from typing import Annotated

from palinurus.domain.clock import Clock, local_time
from palinurus.domain.errors import BadRequest, WorkspaceError
from palinurus.domain.function_tool import tool
from palinurus.domain.tool import Tool, ToolOutput, ToolRun
from palinurus.tools.files.reach import Reaching, reaching
from palinurus.workspace.append import append_line
from palinurus.workspace.files import WorkspaceFiles

MAX_NOTE = 4_000
OUTSIDE = " (noted in a turn that had read text from outside)"  # the origin of a memory is part of it


def note_tool(files: WorkspaceFiles | Reaching, clock: Clock) -> Tool:
    reach = reaching(files)

    @tool("note", "Write one line into today's note. Use it whenever something should be remembered.")
    async def note(run: ToolRun, text: Annotated[str, "what to remember, understandable on its own"]) -> ToolOutput:
        if not run.private:
            raise WorkspaceError("notes are private memory, which only a private session may write")
        here = await asyncio.to_thread(reach, run.key)
        if not here.writable:
            raise WorkspaceError(f"nothing can be noted: {here.why}")
        line = note_line(text) + (OUTSIDE if run.untrusted else "")
        day = local_time(clock).date().isoformat()
        path = f"memory/{day}.md"
        number = await asyncio.to_thread(append_line, here.files.boundary, path, line, heading=f"# {day}")
        return ToolOutput(f"noted in {path}#L{number}: {line}")

    return note


def note_line(text: str) -> str:
    """The text as one list item, its line breaks folded to spaces."""
    words = " ".join(text.encode("utf-8", "replace").decode().split()).removeprefix("- ")
    if not words:
        raise BadRequest("the note is empty", hint="say what to remember")
    if len(words) > MAX_NOTE:
        raise BadRequest(f"the note has {len(words):,} characters; {MAX_NOTE:,} are allowed", hint="split it")
    return f"- {words}"
