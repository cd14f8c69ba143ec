"""A tool call without a model, made for a program or a cron job: through the gate of its agent like any other call, in
an unattended run of its own. Nobody is there to answer: what needs an approval is refused.
"""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Struct

from palinurus.agent.agent import Agent
from palinurus.context.epoch import Route
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import PalinurusError, StorageError, WaitTimeout
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import ToolCall, ToolResult
from palinurus.domain.tool import PreparedCall, Tool, ToolOutput, ToolRun, failed
from palinurus.operations.services import Services


class UnattendedCalls(Struct, frozen=True):
    """Makes calls of one tool in one run."""

    services: Services
    tool: Tool
    run: ToolRun
    agent: Agent
    route: Route
    window: int

    async def make(self, call: ToolCall, seconds: float) -> ToolResult:
        """Makes the call; what it returns is redacted, as in a transcript. Raises WaitTimeout."""
        tools = await self.agent.tools(self.run.key, self.route, self.window)
        try:
            async with asyncio.timeout(seconds):
                return self.redacted(await tools.run(self.run, call))
        except TimeoutError:
            raise WaitTimeout(f"{call.name} was stopped after {seconds:g} s") from None

    async def prepare(self, arguments: dict[str, Any], seconds: float) -> PreparedCall | ToolOutput | None:
        """What the call would do; an error is a result. None: this tool does not say. The caller releases it."""
        if self.tool.prepare is None:
            return None
        try:
            async with asyncio.timeout(seconds):
                return await self.tool.prepare(self.run, arguments)
        except TimeoutError:
            raise WaitTimeout(f"{self.tool.spec.name} could not be prepared in time") from None
        except StorageError:
            raise
        except PalinurusError as error:
            return failed(str(error))

    async def recorded(self) -> list[str]:
        """The kinds of rows that the audit log has of this run, also of an earlier process: every call is in it."""
        rows = await self.services.audit.rows(session=str(self.run.key), run=self.run.run_id, limit=100)
        return [row.kind for row in rows]

    def redacted(self, output: ToolOutput) -> ToolResult:
        name = self.tool.spec.name
        result = ToolResult("", name, output.content, output.is_error, origin=output.origin, details=output.details)
        (clean,) = self.services.turns.history.clean(Inbound("", "", results=(result,))).results
        return clean


async def unattended_calls(
    services: Services, key: SessionKey, tool_name: str, run_id: str, *, channel: str, sender: str
) -> UnattendedCalls | None:
    """None: the agent has no tool of this name. Raises NotFound for an unknown agent."""
    agent = services.agents.get(key.agent)
    tool = next((tool for tool in await services.toolsets.tools(key.agent) if tool.spec.name == tool_name), None)
    if tool is None:
        return None
    provider, route = await agent.choose_model((await services.turns.history.view_of(key)).model)
    run = ToolRun(
        key,
        run_id,
        key.is_private,
        owner=True,
        channel=channel,
        sender=sender,
        provider=route.provider,
        model=route.model,
        attended=False,
    )
    return UnattendedCalls(services, tool, run, agent, route, provider.context_window(route.model))
