"""A model and tools that talk at random: mostly sense, and in bad weather everything a contract forbids.

They stand where a real model and real tools stand, so whatever they do must cost at most one reply or one result.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from palinurus.domain.clock import Clock
from palinurus.domain.errors import Failure, ProviderError, WorkspaceError
from palinurus.domain.messages import AssistantMessage, Text, Thinking, ToolCall, ToolResult, Usage
from palinurus.domain.tool import MALFORMED, Tool, ToolOutput, ToolRun, tool
from palinurus.providers.provider import ModelRequest, ReplyDone, ReplyEvent, ReplyFailed, TextDelta, ThinkingTextDelta

from .faults import Border
from .verbose import VerboseServer
from .windowed import good_summary, is_summary

SECRETS = ("kestrel-4417-lighthouse", 'quo"te\\and-ümlaut-9931')
"""Configured secrets, one of them hard to find inside JSON. They turn up in words, arguments, results and files."""

WORDS = (
    "the",
    "ship",
    "keeps",
    "its",
    "course",
    "while",
    "night",
    "is",
    "clear",
    "and",
    "helmsman",
    "watches",
    "stars",
)
PATHS = (
    *("SOUL.md", "AGENTS.md", "MEMORY.md", "USER.md", "memory/2026-11-14.md", "./memory/../USER.md", "missing.md"),
    *("../outside.md", "/etc/hostname", "memory", "link.md", ""),
)
LONE_SURROGATE = "half of a character: \ud83d"
LIES = (
    *("overflow", "miscount"),
    *("fail", "cut", "hang", "empty", "raise", "crash", "half character", "think only", "twice", "silence"),
    *("unknown tool", "malformed", "wrong arguments", "doubled id", "no id", "secret key", "cancel", "explode"),
    *("hang tool", "stubborn", "refuse", "leak", "many calls"),
)

Received = Callable[[ModelRequest], Awaitable[None]]
"""Told of every request before it is answered. Must not raise."""


def words(dice: random.Random) -> str:
    said = " ".join(dice.choices(WORDS, k=dice.randint(1, 12)))
    return f"{said} {dice.choice(SECRETS)}" if dice.random() < 0.05 else said


class LyingModel:
    """Implements providers.Provider, as far as its weather lets it."""

    name = "liar"

    def __init__(self, border: Border, wire: str, received: Received, clock: Clock, window: int = 32_000) -> None:
        self.wire = wire
        self._clock = clock
        self._window = window
        self._border = border
        self._dice = border.dice
        self._received = received
        self._miscounts = False

    def context_window(self, model: str) -> int:
        return self._window

    async def close(self) -> None:
        pass

    async def stream(self, request: ModelRequest) -> AsyncIterator[ReplyEvent]:
        await self._border.power.check()
        await self._received(request)
        lie = self._dice.choice(LIES) if self._dice.random() < self._border.weather.lie else ""
        self._miscounts = lie == "miscount"
        said = words(self._dice)
        kind = "summary" if is_summary(request) else "model"
        self._border.trace.add(kind, f"{len(request.messages)} messages, {lie or 'no lie'}")
        if lie == "overflow" or _tokens(request) > self._window:
            yield ReplyFailed(ProviderError("too long", kind=Failure.CONTEXT_OVERFLOW))
            return
        at_length = self._border.weather.verbose and self._dice.random() < self._border.weather.verbose
        async for event in self._too_much(request) if at_length else self._spoken(request, lie, said):
            yield event

    async def _spoken(self, request: ModelRequest, lie: str, said: str) -> AsyncIterator[ReplyEvent]:
        if is_summary(request) and not lie and self._dice.random() < 0.7:
            yield ReplyDone(self._reply(request, Text(good_summary(request).text)))
            return
        async for event in self._opening(said):
            yield event
        match lie:
            case "fail":
                kind = self._dice.choice(list(Failure))
                yield ReplyFailed(ProviderError(f"{kind} {self._dice.choice(SECRETS)}", kind=kind), said)
            case "cut":
                return
            case "hang":
                await asyncio.get_running_loop().create_future()
            case "raise":
                raise RuntimeError("a provider that breaks its contract")
            case "crash":
                self._border.trace.add("crash", "in a reply")
                self._border.power.cut()
                await self._border.power.check()
            case "twice":
                yield ReplyDone(self._reply(request, Text("a first end")))
                yield ReplyDone(self._reply(request, Text("a second end")))
            case _:
                yield ReplyDone(self._reply(request, *self._content(lie, said, request)))

    async def _too_much(self, request: ModelRequest) -> AsyncIterator[ReplyEvent]:
        server = VerboseServer(self.name, self._clock, self._dice)
        self._border.trace.add("verbose", server.kind)
        try:
            async for event in server.reply(request, self.wire):
                await self._border.power.check()
                yield event
        finally:
            await server.close()

    async def _opening(self, said: str) -> AsyncIterator[ReplyEvent]:
        if self._dice.random() < 0.1:
            yield ThinkingTextDelta("hm")
        for word in said.split()[:3]:
            if self._dice.random() < 0.3:
                await asyncio.sleep(self._dice.expovariate(4.0))
                await self._border.power.check()
            yield TextDelta(f"{word} ")

    def _content(self, lie: str, said: str, request: ModelRequest) -> list[Text | Thinking | ToolCall]:
        match lie:
            case "empty":
                return []
            case "half character":
                return [Text(LONE_SURROGATE)]
            case "think only":
                return [Thinking("hm", "signature")]
            case "silence":
                return [Text("NO_REPLY")]
            case "" | "miscount":
                going_on = isinstance(request.messages[-1], ToolResult)
                if self._dice.random() > (0.15 if going_on else 0.35):
                    return [Text(said)]
                calls = [self._call(*self._sense()) for _ in range(self._dice.choice((1, 1, 2)))]
                return [Text(said), *calls] if self._dice.random() < 0.5 else [*calls]
        return [*self._bad_calls(lie)]

    def _sense(self) -> tuple[str, dict[str, Any]]:
        match self._dice.choice(("read", "read", "ls", "grep", "memory_write", "wait")):
            case "ls":
                return "ls", {"path": self._dice.choice((".", "memory", ".."))}
            case "grep":
                return "grep", {"pattern": self._dice.choice(("canary", "e", "kestrel"))}
            case "memory_write":
                return "memory_write", {"text": words(self._dice)}
            case "wait":
                return "wait", {"seconds": self._dice.randint(0, 20)}
            case _:
                return "read", {"path": self._dice.choice(PATHS)}

    def _bad_calls(self, lie: str) -> list[ToolCall]:
        match lie:
            case "unknown tool":
                return [self._call(self._dice.choice(("no_such_tool", "", "Read")), {})]
            case "malformed":
                return [self._call("read", {MALFORMED: '{"path": "SO'})]
            case "wrong arguments":
                return [self._call("read", {"path": 7}), self._call("memory_write", {"words": LONE_SURROGATE})]
            case "doubled id":
                return [ToolCall("call_1", "ls", {}), ToolCall("call_1", "read", {"path": "SOUL.md"})]
            case "no id":
                return [ToolCall("", "ls", {})]
            case "secret key":
                return [self._call("memory_write", {self._dice.choice(SECRETS): {self._dice.choice(SECRETS): ["x"]}})]
            case "many calls":
                return [self._call(*self._sense()) for _ in range(5)]
            case "hang tool":
                return [self._call("hang", {}), self._call("wait", {"seconds": 1})]
        return [self._call(lie, {})]  # the lying tool of that name

    def _call(self, name: str, arguments: dict[str, Any]) -> ToolCall:
        return ToolCall(f"call_{self._dice.getrandbits(40):010x}", name, arguments)

    def _reply(self, request: ModelRequest, *content: Text | Thinking | ToolCall) -> AssistantMessage:
        tokens = self._dice.randint(0, 10_000) if self._miscounts else _tokens(request)
        usage = Usage(input=tokens, output=self._dice.randint(1, 50))
        stop = "toolUse" if any(isinstance(block, ToolCall) for block in content) else "stop"
        return AssistantMessage(content, self.name, request.model, self.wire, usage, stop)  # type: ignore[arg-type]


def _tokens(request: ModelRequest) -> int:
    """Roughly, and fast: not as our own estimate has it."""
    head = len(request.head.system) // 4 + 60 * len(request.head.tools)
    return head + sum(len(message.text) // 4 + 10 for message in request.messages)


def lying_tools(here: Callable[[], Border]) -> list[Tool]:
    """Tools that wait, hang, break, leak a secret, cancel themselves, or do not stop when told to.

    `here` gives the border of the present life.
    """

    @tool("wait", "Wait for a while.")
    async def wait(run: ToolRun, seconds: int) -> ToolOutput:
        await asyncio.sleep(seconds)
        border = here()
        if border.dice.random() < border.weather.crash:
            border.trace.add("crash", "in a tool")
            border.power.cut()
        await border.power.check()
        return ToolOutput(f"waited {seconds} s")

    @tool("hang", "Never answer.")
    async def hang(run: ToolRun) -> ToolOutput:
        await asyncio.get_running_loop().create_future()
        return ToolOutput("never said")

    @tool("stubborn", "Answer when told to stop.")
    async def stubborn(run: ToolRun) -> ToolOutput:
        try:
            await asyncio.sleep(300)
        except asyncio.CancelledError:
            return ToolOutput("I had rather finished")
        return ToolOutput("finished")

    @tool("cancel", "Be cancelled by nobody.")
    async def cancel(run: ToolRun) -> ToolOutput:
        raise asyncio.CancelledError

    @tool("explode", "Break.")
    async def explode(run: ToolRun) -> ToolOutput:
        raise RuntimeError(f"a tool that breaks, saying {here().dice.choice(SECRETS)}")

    @tool("refuse", "Say no.")
    async def refuse(run: ToolRun) -> ToolOutput:
        raise WorkspaceError("no", hint=here().dice.choice(SECRETS))

    @tool("leak", "Answer with secrets.")
    async def leak(run: ToolRun) -> ToolOutput:
        return ToolOutput((Text(" ".join(SECRETS)),), details={SECRETS[0]: [SECRETS[1], LONE_SURROGATE]})

    return [wait, hang, stubborn, cancel, explode, refuse, leak]
