"""What other agents see of `pal mcp serve`: the tools with their schemas, and a result of each, as reviewed text."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from test_golden_prompts import agrees

from palinurus import __version__
from palinurus.config.home import Home
from palinurus.domain.events import Plan
from palinurus.domain.tool import PreparedCall, Tool, ToolOutput, ToolRun, ToolSpec
from palinurus.extensions.mcp.send import ServeOptions
from palinurus.extensions.mcp.serve import load, make_server
from palinurus.memory.settings import MemorySettings
from palinurus.operations.table import LocalCaller
from palinurus.runtime.memory import AgentMemories, Memories
from palinurus.testing.fakes import ScriptedProvider, call, calls
from palinurus.testing.harness import Harness

MAIN = "agent:main:main"


def text_of(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


async def test_the_tools_that_other_agents_see(pal: Harness, home: Home) -> None:
    await load()
    from mcp import Client

    shown: dict[str, Any] = {}
    for name, options in (
        ("all", ServeOptions(approvals=True)),
        ("read-only guest", ServeOptions(read_only=True, guest=True)),
    ):
        async with Client(make_server(LocalCaller(pal.services(home)), options, pal.new_id)) as client:
            tools = (await client.list_tools()).tools
            shown[name] = [tool.model_dump(by_alias=True, exclude_none=True, mode="json") for tool in tools]
    shown["read-only guest"] = [tool["name"] for tool in shown["read-only guest"]]
    agrees("mcp-tools.json", text_of(shown))


def painting() -> Tool:
    async def prepare(run: ToolRun, sent: Any) -> PreparedCall:
        async def work() -> ToolOutput:
            return ToolOutput("painted")

        return PreparedCall(Plan("paint", "paint the boat", arguments=dict(sent)), work, ask="paint is for good")

    async def run(run: ToolRun, sent: Any) -> ToolOutput:
        raise AssertionError("the gate runs what was prepared")

    return Tool(ToolSpec("paint", "", {"type": "object", "properties": {}}), run, prepare)


async def test_what_each_tool_gives(workspace: Path, home: Home, tmp_path: Path) -> None:
    await load()
    from mcp import Client

    (workspace / "memory").mkdir()
    (workspace / "memory" / "2026-11-15.md").write_text("- The rudder is green.\n- Ann has the sail.\n- Tides.\n")
    settings = AgentMemories(workspace, MemorySettings(embedder="none"))
    model = ScriptedProvider()
    model.says("The tide turns at six.", calls(call("paint", colour="green")), "Painted.")
    results: dict[str, Any] = {}
    async with Harness(workspace, model=model, tools=[painting()]) as pal:
        memories = Memories(tmp_path / "derived", lambda _: settings, pal.sessions, pal.clock)
        services = pal.services(home).replace(memory=memories.of)
        server = make_server(LocalCaller(services), ServeOptions(approvals=True), pal.new_id)
        async with Client(server) as client:

            async def ask(tool: str, **arguments: Any) -> Any:
                told = await asyncio.wait_for(client.call_tool(tool, arguments), 60)
                shown = told.content[0].text if told.is_error else told.structured_content
                results[f"{tool} {json.dumps(arguments, sort_keys=True)}"] = shown
                return shown

            await ask("message_send", message="When does the tide turn?", idempotencyKey="a", agent="main")
            running = await ask("message_send", message="paint", waitSeconds=0)
            async with asyncio.timeout(60):
                while not (waiting := (await ask("approvals_list"))["waiting"]):
                    pass
            await ask("approvals_list", sessionKey="agent:main:other")
            found = {"id": waiting[0]["id"], "digest": waiting[0]["digest"]}
            await ask("approvals_answer", **found, answer="allow-always")
            await ask("approvals_answer", **found, answer="allow-once")
            await ask("run_wait", runId=running["runId"], waitSeconds=30)
            await ask("run_stop", runId=running["runId"])
            await ask("run_stop")
            await ask("conversations_list")
            await ask("conversations_list", agent="nobody", limit=3)
            await ask("messages_read", sessionKey=MAIN)
            await ask("messages_read", sessionKey=MAIN, limit=1, skip=1)
            await ask("messages_read", sessionKey="agent:main:other")
            await ask("messages_read", limit=0)
            await ask("messages_search", query="tide six", limit=2)
            await ask("memory_search", query="which colour has the rudder?", maxResults=1)
            await ask("memory_search", query="rudder", minScore=2)
            await ask("memory_get", path="memory/2026-11-15.md", lines=1, **{"from": 2})
            await ask("memory_get", path="memory/2026-11-15.md")
            await ask("memory_get", path="SOUL.md")
            await ask("status")
            await ask("status", agent="nobody", further=1)
        await memories.close()
    text = text_of(results).replace(found["id"], "<approval>").replace(__version__, "<version>")
    agrees("mcp-results.json", re.sub(r"\b[0-9a-f]{64}\b", "<digest>", re.sub(r"\b[0-9a-f]{16}\b", "<id>", text)))
