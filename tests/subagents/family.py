"""A home whose model plays parents and subagents: what is said last decides what it answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from palinurus.config.home import find_home
from palinurus.domain.envelope import Inbound
from palinurus.domain.events import RunResult
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Message, ToolResult
from palinurus.operations.services import Services
from palinurus.runtime.runtime import Runtime
from palinurus.sessions.transcript import decode_row, messages_of
from support.wire import Behaviour, Json, Says, WireServer

WAIT = 60.0
MAIN = "agent:main:main"
Answer = Callable[[str, Json], Behaviour]
"""The last message that the model reads, and the whole request."""


def last_text(body: Json) -> str:
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def is_subagent(body: Json) -> bool:
    return "You are a subagent" in json.dumps(body["messages"][0])


class Family:
    """One process that holds the home."""

    def __init__(self, runtime: Runtime, server: WireServer, root: Path) -> None:
        self.runtime = runtime
        self.server = server
        self.root = root
        self._count = 0

    @property
    def services(self) -> Services:
        return self.runtime.services

    async def hears(self, text: str, key: str = MAIN, **more: Any) -> RunResult:
        self._count += 1
        inbound = Inbound(text, f"m-{self._count}-{text[:8]}", session_key=key, **more)
        run = await self.services.dispatcher.submit(inbound)
        return await run.wait(WAIT)

    async def rests(self) -> None:
        """Until no run and no job that is due is left."""
        async with asyncio.timeout(WAIT):
            while True:
                await self.services.dispatcher.idle()
                await self.services.jobs.idle()
                if not self.services.dispatcher.busy:
                    return

    async def messages(self, key: str = MAIN) -> list[Message]:
        session = await self.services.sessions.find(SessionKey.parse(key))
        rows = await self.services.sessions.rows(session.id) if session else []
        return messages_of([decode_row(row) for row in rows])

    async def results(self, key: str = MAIN) -> list[ToolResult]:
        return [each for each in await self.messages(key) if isinstance(each, ToolResult)]

    async def said(self, key: str = MAIN) -> list[str]:
        return [each.text for each in await self.messages(key)]

    async def announced(self, key: str = MAIN) -> list[str]:
        return [text for text in await self.said(key) if text.startswith("[Subagent result")]


@asynccontextmanager
async def served(answer: Answer) -> AsyncIterator[WireServer]:
    async with WireServer(otherwise=lambda body: answer(last_text(body), body)) as server:
        yield server


@asynccontextmanager
async def opened(tmp_path: Path, server: WireServer, **config: Any) -> AsyncIterator[Family]:
    root = tmp_path / "home"
    (root / "workspace").mkdir(parents=True, exist_ok=True)
    provider = {"baseUrl": server.base_url, "models": [{"id": "test", "contextWindow": 64000}, {"id": "other"}]}
    agents = {"defaults": {"model": "mine/test", **config.pop("defaults", {})}, **config.pop("agents", {})}
    own = {"agents": agents, "models": {"providers": {"mine": provider}}, **config}
    (root / "palinurus.json").write_text(json.dumps(own))
    env = {"PALINURUS_HOME": str(root), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    runtime = Runtime(find_home(env), env)
    await runtime.recover()
    try:
        yield Family(runtime, server, root)
    finally:
        await runtime.close()


@asynccontextmanager
async def living(tmp_path: Path, answer: Answer, **config: Any) -> AsyncIterator[Family]:
    async with served(answer) as server, opened(tmp_path, server, **config) as family:
        yield family


def by_words(*rules: tuple[str, Behaviour], otherwise: Sequence[Behaviour] = ()) -> Answer:
    """The first rule whose words are in the last message."""
    left = list(otherwise)

    def answer(text: str, _: Json) -> Behaviour:
        for words, behaviour in rules:
            if words in text:
                return behaviour
        return left.pop(0) if left else Says("ok")

    return answer
