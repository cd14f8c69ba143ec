"""Resources and prompts of a server that the official package made, as an agent and its owner use them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from calling import RUN, Made, words

from palinurus.config.home import Home
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import NotFound
from palinurus.domain.messages import Image, Origin, OutsideText, UserMessage
from palinurus.extensions.mcp.connection import load_package
from palinurus.extensions.mcp.listing import read_prompts
from palinurus.extensions.mcp.prompts import read_prompt
from palinurus.extensions.mcp.servers import TOOL
from palinurus.extensions.mcp.settings import ServerSettings
from palinurus.operations.sessions import show_session
from palinurus.runtime.runtime import Runtime


@pytest.fixture
def rich(official: ServerSettings) -> ServerSettings:
    return msgspec.structs.replace(official, args=(*official.args, "rich"))


async def test_resources_are_listed_and_read_by_one_tool(make: Callable[..., Made], rich: ServerSettings) -> None:
    made = make(rich)
    tools = await made.tools()
    assert [name for name in tools if name.startswith("mcp__")] == [TOOL]
    assert len(msgspec.json.encode(tools[TOOL].spec)) <= 500
    listed = words(await made.call(TOOL, server="harbour"))
    assert "harbour://tides · tides · When the tide turns. · text/plain" in listed.splitlines()
    read = await made.call(TOOL, server="harbour", uri="harbour://tides")
    assert (words(read), read.origin, read.sources) == ("high water at noon", Origin.OUTSIDE, ("mcp:harbour",))
    assert words(await made.call(TOOL, server="harbour", uri="harbour://depth/quay")) == "quay: 6 m"
    dot = await made.call(TOOL, server="harbour", uri="harbour://dot")
    assert isinstance(dot.content[1], Image)
    assert (await made.call(TOOL, server="harbour", uri="harbour://none")).is_error
    assert "server is one of harbour" in str((await made.call(TOOL, server="elsewhere")).content)


async def test_an_address_that_was_not_listed_asks_in_a_run_with_outside_text(
    make: Callable[..., Made], rich: ServerSettings
) -> None:
    made = make(rich)
    tool = (await made.tools())[TOOL]
    run = RUN.having_read((OutsideText(source="web"),))
    assert tool.prepare is not None

    async def asks(**sent: str) -> str:
        return (await tool.prepare(run, {"server": "harbour", **sent})).when_untrusted  # type: ignore[misc]

    assert await asks() == ""
    assert "did not list" in await asks(uri="harbour://tides")
    await made.call(TOOL, server="harbour")
    assert await asks(uri="harbour://tides") == ""
    assert "did not list" in await asks(uri="harbour://depth/the-secret-of-the-owner")


async def test_servers_without_resources_bring_no_tool_for_them(
    make: Callable[..., Made], plain: Callable[..., ServerSettings]
) -> None:
    assert TOOL not in await make(plain("greets")).tools()


async def test_a_prompt_is_filled_with_the_words_of_the_person(make: Callable[..., Made], rich: ServerSettings) -> None:
    servers = make(rich).servers
    (prompt,) = [each for _, each in await servers.prompts()]
    assert (prompt.name, prompt.description, prompt.arguments) == (
        "greet_ship",
        "How to greet a ship.",
        ("ship", "language"),
    )
    assert "Greet the ship Red Rose in English." in await read_prompt(servers, "harbour:greet_ship", "Red Rose")
    told = await read_prompt(servers, "harbour:greet_ship", "language=Latin Red Rose")
    assert "Greet the ship Red Rose in Latin." in told
    for wrong in ("harbour:none", "elsewhere:greet_ship", "greet_ship"):
        with pytest.raises(NotFound):
            await read_prompt(servers, wrong, "")


async def test_a_prompt_goes_to_the_agent_as_text_from_outside(home: Home, rich: ServerSettings) -> None:
    server = {"command": rich.command, "args": list(rich.args)}
    config = json.loads(home.config_path.read_text())
    home.config_path.write_text(json.dumps(config | {"mcp": {"servers": {"harbour": server}}}))
    await load_package()
    runtime = Runtime(home, {})
    services = runtime.services
    try:
        async with asyncio.timeout(60):

            async def says(text: str, **more: Any) -> str:
                run = await services.dispatcher.submit(Inbound(text, text, **more))
                return (await run.wait(60)).text

            assert "harbour:greet_ship (ship, language)  How to greet a ship." in await says("/prompt")
            assert await says("/prompt harbour:greet_ship Red Rose") == "Sent the prompt harbour:greet_ship."
            assert "has no prompt" in await says("/prompt harbour:none")
            assert "Only the owner" in await says("/prompt list", origin=Origin.OUTSIDE, sender="guest")
            for run in services.dispatcher.runs.active():
                await run.wait(60)
            shown = await show_session(services, session_key="agent:main:main")
        users = [entry.message for entry in shown.entries if isinstance(getattr(entry, "message", None), UserMessage)]
        (note,) = [note for message in users for note in message.context if note.kind == "prompt"]
        assert "Greet the ship Red Rose in English." in note.text
        assert (note.origin, note.sources, note.name) == (Origin.OUTSIDE, ("mcp:harbour",), "harbour:greet_ship")
        assert "Red Rose" in [message.text for message in users]
    finally:
        await runtime.close()


def test_hostile_lists_of_prompts_are_bounded() -> None:
    sent: list[Any] = [{"name": f"p{at}", "description": "x" * 5000} for at in range(500)]
    sent += [{"name": 7}, None, {"name": "a\x1b[2J"}, {"name": "odd", "arguments": [None, {"name": 3}, {"name": "ok"}]}]
    found = read_prompts(sent)
    assert len(found) <= 128
    assert all(len(each.description) <= 1_000 for each in found)
    assert next(each for each in found if each.name == "odd").arguments == ("ok",)
    assert "\x1b" not in str(found)
