"""A home in a Python program of your own.

    async with Pal.open() as pal:
        reply = await pal.ask("What did we decide about the boat?")
        print(reply.text)

It is one more client of the home, like a chat in a terminal: if a gateway runs, it answers; otherwise this process
holds the home. Messages are those of a program: commands in them are text, and calls that need an approval are denied.
Functions can be tools for one message. They run in this process, whoever holds the home, and what they return is
text from outside for the model, as the result of every client's tool is.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import wraps
from pathlib import Path
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from palinurus.config.home import find_home
from palinurus.domain.clock import random_id
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest, PalinurusError, RunFailed
from palinurus.domain.events import RunEvent, RunResult, ToolFinished, ToolStarted
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Message, Origin, ToolCall, ToolResult
from palinurus.domain.tool import Tool, ToolOutput, ToolRun, failed, tool
from palinurus.memory.answer import SearchAnswer
from palinurus.memory.question import SearchMemory
from palinurus.operations.config import setup
from palinurus.operations.memory import search_memory
from palinurus.operations.runs import AcceptedMessage, StopRuns, follow_message, stop_runs
from palinurus.operations.services import Services
from palinurus.operations.sessions import list_sessions, show_session
from palinurus.runtime.home_access import HomeAccess
from palinurus.sessions.session import Session
from palinurus.sessions.transcript import messages_of

CHANNEL = "python"
MAX_ROUNDS = 100  # of calls of functions in one message: a model that goes on then is in an endless loop
log = logging.getLogger(__name__)

Function = Callable[..., Any]
"""A tool: its name, its docstring and its annotated parameters are what the model is told. It may be async.

What it returns is sent to the model, as JSON unless it is text. A PalinurusError is sent too, as an error; any other
exception ends the run and is raised to the caller.
"""


class Pal:
    """A home that is open. Made by `Pal.open`, and used with `async with`."""

    def __init__(self, access: HomeAccess, services: Services) -> None:
        self._access = access
        self._services = services

    @classmethod
    def open(
        cls,
        home: str | os.PathLike[str] | None = None,
        *,
        workspace: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Self:
        """`home` is its folder; by default that of the command `pal`. A home that does not exist is made.

        `workspace` is used instead of the one of the config, `env` instead of the variables of this process.
        """
        variables = dict(os.environ if env is None else env)
        if home is not None:
            variables["PALINURUS_HOME"] = os.fspath(home)
        found = find_home(variables, workspace=Path(workspace) if workspace is not None else None)
        access = HomeAccess(found, variables, "python", warn=log.warning)
        return cls(access, Services(home=found, env=variables))

    async def __aenter__(self) -> Self:
        home = self._services.home
        if home.ours and home.workspace_override is None and not home.is_used:
            await asyncio.to_thread(setup, self._services, complete=False)
        await self._access.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._access.close()

    async def ask(
        self, text: str, *, session: str = "", agent: str = "", model: str = "", tools: Sequence[Function] = ()
    ) -> RunResult:
        """Send a message and wait for the reply, which is the `text` of the result. Raises RunFailed.

        `session` is a full key or a name of your own; empty is the agent's main session. `agent` and `model`
        (provider/model) are the configured ones when empty. A run that nobody waits for any more is stopped.
        """
        async with aclosing(self.stream(text, session=session, agent=agent, model=model, tools=tools)) as events:
            async for event in events:
                if isinstance(event, RunResult):
                    return _good(event)
        raise AssertionError("the result comes last")

    async def stream(
        self, text: str, *, session: str = "", agent: str = "", model: str = "", tools: Sequence[Function] = ()
    ) -> AsyncGenerator[RunEvent | RunResult]:
        """The same, with what happens as it happens; the result comes last, also that of a run that failed."""
        known = {each.spec.name: each for each in map(function_tool, tools)}
        inbound = Inbound(
            text,
            random_id(),
            session_key=session,
            agent=agent,
            channel=CHANNEL,
            attended=False,
            model=model,
            plain=True,
            client_tools=tuple(each.spec for each in known.values()),
        )
        for _ in range(MAX_ROUNDS):
            result = None
            async with aclosing(self._follow(inbound)) as events:
                async for event in events:
                    if isinstance(event, RunResult):
                        result = event
                    else:
                        yield event
            assert result is not None  # noqa: S101  # it comes last
            if not result.calls:
                yield result
                return
            results = []
            for call in result.calls:
                yield ToolStarted(call.id, call.name, call.arguments)
                began = asyncio.get_running_loop().time()
                answer = await _call(known[call.name], call, result)
                seconds = asyncio.get_running_loop().time() - began
                yield ToolFinished(call.id, call.name, answer.text, answer.is_error, seconds)
                results.append(answer)
            key = result.session_key
            inbound = replace(
                inbound, text="", idempotency_key=random_id(), session_key=key, agent="", results=tuple(results)
            )
        raise RunFailed(f"gave up after {MAX_ROUNDS} rounds of tool calls in one message")

    async def search(self, query: str, *, agent: str = "", limit: int = 10) -> SearchAnswer:
        """Search an agent's memory. Each of the `results` has a path, lines and a snippet."""
        return await self._access.call(search_memory, SearchMemory(query, agent, limit))

    async def sessions(self, *, agent: str = "", limit: int = 50) -> tuple[Session, ...]:
        """The sessions, newest first."""
        listed = await self._access.call(list_sessions, list_sessions.params(agent=agent, limit=limit))
        return listed.sessions

    async def messages(self, session: str = "", *, last: int = 0) -> list[Message]:
        """What was said in a session, oldest first; with `last` only so many entries, from the end. Raises NotFound."""
        shown = await self._access.call(show_session, show_session.params(session_key=session, last=last))
        return messages_of(shown.entries)

    async def _follow(self, inbound: Inbound) -> AsyncGenerator[RunEvent | RunResult]:
        """One run to its end. If it is left before, it is stopped, as for `pal agent`."""
        run_id, ended = "", False
        try:
            async with aclosing(follow_message(self._access, inbound)) as items:
                async for item in items:
                    if isinstance(item, AcceptedMessage):
                        run_id = item.run_id
                        continue
                    ended = isinstance(item, RunResult)
                    yield item
        finally:
            if run_id and not ended:
                await self._access.call(stop_runs, StopRuns(run_id=run_id))


def function_tool(function: Function) -> Tool:
    """A function as a tool. Raises BadRequest for one whose parameters cannot be described."""
    name = getattr(function, "__name__", "")
    described = inspect.signature(function)
    parameters = list(described.parameters.values())
    for each in parameters:
        if each.annotation is each.empty or each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD, each.POSITIONAL_ONLY):
            raise BadRequest(f"the parameter {each.name} of the tool {name} needs a type and a name")

    @wraps(function)
    async def run(_: ToolRun, /, *given: Any, **arguments: Any) -> ToolOutput:
        try:
            if inspect.iscoroutinefunction(function):
                answer = await function(*given, **arguments)
            else:
                answer = await asyncio.to_thread(function, *given, **arguments)
        except PalinurusError as error:
            return failed(str(error))
        return ToolOutput(answer if isinstance(answer, str) else msgspec.json.encode(answer).decode())

    first = inspect.Parameter("_run", inspect.Parameter.POSITIONAL_ONLY)
    run.__signature__ = described.replace(parameters=[first, *parameters])  # type: ignore[attr-defined]  # wraps() has none
    return tool(name, inspect.getdoc(function) or "")(run)


async def _call(function: Tool, call: ToolCall, result: RunResult) -> ToolResult:
    run = ToolRun(SessionKey.parse(result.session_key), result.run_id, private=False)
    output = await function.run(run, call.arguments)
    return ToolResult(call.id, call.name, output.content, output.is_error, origin=Origin.OUTSIDE)


def _good(result: RunResult) -> RunResult:
    if result.status == "ok":
        return result
    why = result.error or "it was stopped"
    raise RunFailed(f"the run {result.run_id} failed: {why}", kind=result.error_kind or result.status)
