"""The hand that looks at the session itself: model, context, cost, time, what runs, where commands run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from palinurus.domain.function_tool import tool
from palinurus.domain.keys import SessionKey
from palinurus.domain.tool import Tool, ToolOutput, ToolRun

Report = Callable[[SessionKey], Awaitable[str]]
"""How a session stands, in a few lines. May raise a PalinurusError."""


def session_status_tool(report: Report) -> Tool:
    @tool("session_status", "Show this session: the time, its model, context, cost, what runs, where commands run.")
    async def session_status(run: ToolRun) -> ToolOutput:
        return ToolOutput(await report(run.key))

    return session_status
