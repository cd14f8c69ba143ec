"""Turns with MCP servers: the tools stand in the head, and other tools begin a new epoch by themselves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from calling import Made

from palinurus.domain.messages import Origin
from palinurus.testing.harness import Harness
from palinurus.testing.provider import call, calls
from palinurus.tools.mcp.settings import ServerSettings


async def test_changed_tools_begin_an_epoch_and_the_same_tools_do_not(
    make: Callable[..., Made], plain: Callable[..., ServerSettings], workspace: Path, tmp_path: Path
) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([{"name": "old", "inputSchema": {"type": "object"}}]))
    made = make(plain(tools=tools))
    async with Harness(workspace) as pal:
        own = pal.gate

        async def turn(text: str) -> None:
            pal.gate = own.with_tools(await made.servers.tools())
            await pal.hears(text)

        pal.model.says(calls(call("plain__old", text="hi")), "Done.")
        await turn("use it")
        await turn("again")
        tools.write_text(json.dumps([{"name": "new", "inputSchema": {"type": "object"}}]))
        await made.servers.test("plain")
        await turn("and now?")
        heads = [request.head for request in pal.model.requests]
        epochs = [
            entry.data["reason"]
            for entry in await pal.transcript()
            if getattr(entry, "custom_type", "") == "palinurus:epoch"
        ]
        (result,) = await pal.tool_results()
    assert heads[0] == heads[1] == heads[2]
    assert {"plain__new"} == {tool.name for tool in heads[3].tools} - {tool.name for tool in heads[2].tools}
    assert epochs == ["new", "tools"]
    assert (result.is_error, result.origin) == (False, Origin.OUTSIDE)
