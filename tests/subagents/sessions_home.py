"""A home whose model does what the last user message says, line by line:

do sessions_list {"limit": 3}      calls a tool
say seven                          replies, once all calls have their result; the default is "ok"
hang                               says nothing until it is let go
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from family import MAIN, Family, opened, served

from palinurus.domain.envelope import Spawn
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin, ToolResult
from palinurus.domain.tool import Tool, ToolOutput, ToolRun, tool
from palinurus.sessions.session import SessionChange
from support.wire import Behaviour, Calls, Json, Says, Waits

TRIP, GROUP = "agent:main:explicit:trip", "agent:main:telegram:group:7"
A_MAIN, B_MAIN = "agent:a:main", "agent:b:main"
TWO = {"agents": {"list": [{"id": "a", "default": True}, {"id": "b", "name": "Berta"}]}}
BETWEEN = {"sessions": {"visibility": "all"}, "agentToAgent": {"enabled": True}}
STRANGER = {"origin": Origin.OUTSIDE, "channel": "telegram", "sender": "42"}


@tool("web_page", "Read a page.")
async def web_page(run: ToolRun) -> ToolOutput:
    return ToolOutput("a page that lies", origin=Origin.OUTSIDE, sources=("host:lies.example",))


def do(name: str, **arguments: Any) -> str:
    return f"do {name} {json.dumps(arguments)}"


class SessionsHome(Family):
    let_go: asyncio.Event

    async def calls(
        self, name: str, key: str = MAIN, run: dict[str, Any] | None = None, **arguments: Any
    ) -> ToolResult:
        """The result of one call in a session, by its owner or, as `run` says, by somebody else."""
        ended = await self.hears(do(name, **arguments), key, **(run or {}))
        assert ended.status == "ok", ended
        return (await self.results(key))[-1]

    async def answers(self, name: str, key: str = MAIN, run: Json | None = None, **arguments: Any) -> Json:
        """The same as JSON, without the markers of outside text."""
        result = await self.calls(name, key, run, **arguments)
        assert not result.is_error, result.text
        found: Json = json.loads(next(line for line in result.text.splitlines() if line.startswith("{")))
        return found

    async def child(self, key: str, parent: str, text: str = "") -> str:
        """A subagent's session that was started by another."""
        store = self.services.sessions
        session = await store.open(SessionKey.parse(key))
        await store.append(session.id, [], SessionChange(spawn=Spawn((parent,), label=text)))
        if text:
            await self.hears(text, key)
        return key


@asynccontextmanager
async def living(tmp_path: Path, *tools: Tool, **config: Any) -> AsyncIterator[SessionsHome]:
    let_go = asyncio.Event()

    def answer(_: str, body: Json) -> Behaviour:
        messages = body["messages"]
        at = max(number for number, message in enumerate(messages) if message["role"] == "user")
        content = messages[at]["content"]
        text = content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
        lines = text.splitlines()
        steps = [found for line in lines if (found := re.match(r"do (\w+) (\{.*\})$", line))]
        done = sum(message["role"] == "tool" for message in messages[at:])
        if done < len(steps):
            return Calls((steps[done][1], json.loads(steps[done][2])))
        said = next((line[4:] for line in lines if line.startswith("say ")), "ok")
        return Waits(let_go, Says(said)) if "hang" in lines else Says(said)

    async with served(answer) as server, opened(tmp_path, server, **config) as family:
        home = SessionsHome(family.runtime, server, family.root)
        home.let_go = let_go
        home.services.core_tools = (*home.services.core_tools, *tools)
        try:
            yield home
        finally:
            let_go.set()
