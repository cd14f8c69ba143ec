"""Servers under test, and their tools by name."""

from __future__ import annotations

from typing import Any

from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Text, ToolCall
from palinurus.domain.tool import Tool, ToolOutput, ToolRun
from palinurus.extensions.mcp.servers import McpServers
from palinurus.tools.registry import ToolRegistry

RUN = ToolRun(SessionKey.main(), "run-1", private=True, max_characters=200_000)


class Made:
    def __init__(self, servers: McpServers) -> None:
        self.servers = servers

    async def tools(self) -> dict[str, Tool]:
        return {tool.spec.name: tool for tool in await self.servers.tools()}

    async def call(self, name: str, **arguments: Any) -> ToolOutput:
        registry = ToolRegistry(await self.servers.tools())
        return await registry.run(RUN, ToolCall("call-1", name, arguments))


def words(output: ToolOutput) -> str:
    """What is between the markers."""
    text = output.content if isinstance(output.content, str) else output.content[0]
    text = text.text if isinstance(text, Text) else text
    assert isinstance(text, str)
    return text.partition(">>>\n")[2].rpartition("\n<<<")[0]
