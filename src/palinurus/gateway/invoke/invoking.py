"""One call of a tool for a program, without a model.

It goes through the gate of the agent like any other call: policy, walls, approvals and the audit log, under a run of
its own that nobody attends. Before that stands the list of the route itself (reach.py). What is not reached, denied or
not there at all gets the same answer: there is no such tool.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.agent.agent import Agent
from palinurus.context.epoch import Route
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest, PalinurusError, StorageError, WaitTimeout
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Image, Origin, Text, ToolCall, ToolResult, text_of
from palinurus.domain.tool import Tool, ToolOutput, ToolRun
from palinurus.gateway.door.access import Principal
from palinurus.gateway.door.guard import Refused
from palinurus.gateway.invoke.reach import is_reached
from palinurus.gateway.talk.desk import Desk
from palinurus.gateway.talk.replays import Replays
from palinurus.ledger.audit import AuditEvent
from palinurus.tools.approvals.rendering import render_plan
from palinurus.tools.policy.decide import Asked, decide

PATH = "/tools/invoke"
CHANNEL = "http"
MAX_SECONDS = 600.0
AT_ONCE = 32  # calls that go on
LONGEST_NAME, LONGEST_KEY = 128, 200
KEPT_BYTES = 4 * 1024 * 1024  # of answers that may be asked for again


class Invoke(Struct, frozen=True, rename="camel"):
    """`tool` and `name` are the same. An `action` goes into the arguments of a tool that has one."""

    tool: str = ""
    name: str = ""
    action: str = ""
    args: dict[str, Any] = {}
    session_key: str = ""
    agent_id: str = ""
    idempotency_key: str = ""
    dry_run: bool = False


class Result(Struct, frozen=True, omit_defaults=True):
    content: tuple[Text | Image, ...]
    details: dict[str, Any] | None = None
    origin: Origin = Origin.OWNER  # whose words they are


class Planned(Struct, frozen=True, rename="camel"):
    """What a call would do, in the details of its result. `asks`: why a person would have to say yes first."""

    plan: tuple[str, ...]
    refusal: str = ""
    asks: str = ""
    dry_run: bool = True


class Invoked(Struct, frozen=True):
    result: Result
    ok: bool = True


class Failed(Struct, frozen=True):
    """A problem (RFC 9457), and the same as OpenClaw tells it."""

    title: str
    status: int
    code: str
    detail: str
    error: dict[str, str]
    type: str = "about:blank"
    ok: bool = False


class Answer(Struct, frozen=True):
    status: int
    body: msgspec.Raw  # Invoked or Failed


class _Call(Struct, frozen=True):
    """A call that is allowed, as far as the policy goes."""

    tool: Tool
    call: ToolCall
    run: ToolRun
    agent: Agent
    route: Route
    window: int


class Invocations:
    """Makes calls for programs, one process's worth."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._house = desk.house
        self._replays = Replays(desk.house.clock, most_bytes=KEPT_BYTES)
        self._running = 0

    async def invoke(self, principal: Principal, asked: Invoke) -> Answer:
        """Make the call, or tell what came of the same one before. Raises Refused and PalinurusErrors."""
        _check(asked)
        if self._running >= AT_ONCE:
            raise Refused(429, "BUSY", f"{AT_ONCE} calls are being made already", 1.0)
        self._running += 1
        try:
            return await (self._once if asked.idempotency_key and not asked.dry_run else self._anew)(principal, asked)
        finally:
            self._running -= 1

    async def _anew(self, principal: Principal, asked: Invoke) -> Answer:
        call = await self._allowed(principal, asked, self._desk.new_id())
        return _answer(await (self._planned(call) if asked.dry_run else self._run(call)))

    async def _once(self, principal: Principal, asked: Invoke) -> Answer:
        """The whole request is the key: the same idempotency key with other arguments is another call."""
        digest = _digest(msgspec.json.encode(asked, order="sorted"))

        async def make() -> Answer:
            call = await self._allowed(principal, asked, _digest(f"{principal.id}\0{digest}".encode()))
            await self._check_not_made(call.run)
            return _answer(await self._run(call))

        return msgspec.json.decode(await self._replays.once((principal.id, PATH, digest), make), type=Answer)

    async def _allowed(self, principal: Principal, asked: Invoke, call_id: str) -> _Call:
        """Raises Refused for a tool that is not reached, not there or denied: in the same words."""
        house, name = self._house, asked.tool or asked.name
        place = Inbound("", "", session_key=asked.session_key, agent=asked.agent_id)
        key = await house.dispatcher.place(place)
        agent = house.agents.get(key.agent)
        tool = next((tool for tool in await house.hands.tools(key.agent) if tool.spec.name == name), None)
        if tool is None:
            raise _no_tool(name)
        provider, route = await agent.choose_model((await house.turns.view_of(key)).model)
        run = _on_behalf(principal, key, f"invoke-{call_id}", route)
        why = self._why_not(tool, run)
        if why:
            await house.audit.record(self._denied(run, name, call_id, why))
            raise _no_tool(name)
        call = ToolCall(call_id, name, _arguments(tool, asked))
        return _Call(tool, call, run, agent, route, provider.context_window(route.model))

    def _why_not(self, tool: Tool, run: ToolRun) -> str:
        """The layer that stands in the way, and its reason; empty when none does."""
        endpoints, house = self._desk.endpoints, self._house
        if not is_reached(tool.spec.name, endpoints.invoke_allow, endpoints.invoke_deny):
            return f"invoke: {PATH} does not reach {tool.spec.name}"
        asked = Asked(
            tool.spec.name,
            run.key,
            channel=run.channel,
            sender=run.sender,
            provider=run.provider,
            model=run.model,
            sandboxed=house.hands.quarters(run.key).sandboxed == "required",
            owner_only=tool.owner_only,
        )
        verdict = decide(house.hands.policy(run.key.agent), asked)
        return "" if verdict.allowed else f"{verdict.layer}: {verdict.why}"

    def _denied(self, run: ToolRun, name: str, call_id: str, why: str) -> AuditEvent:
        layer, _, reason = why.partition(": ")
        details = {"why": reason, "channel": run.channel, "by": run.sender}
        now = self._house.clock.now_ms()
        return AuditEvent("decision", now, run.run_id, str(run.key), name, call_id, f"denied: {layer}", details)

    async def _check_not_made(self, run: ToolRun) -> None:
        """An earlier process may have made this very call: nothing runs that the log does not hold."""
        rows = await self._house.audit.rows(session=str(run.key), run=run.run_id, limit=10)
        if any(row.kind == "call" for row in rows):
            raise Refused(
                409,
                "ALREADY_MADE",
                f"this call was made before and its answer is no longer kept; it is not made again (run {run.run_id})",
            )

    async def _run(self, call: _Call) -> Invoked | Failed:
        seconds = _patience(call.agent)
        hands = await call.agent.hands(call.run.key, call.route, call.window)
        name = call.call.name
        try:
            async with asyncio.timeout(seconds):
                output = await hands.run(call.run, call.call)
        except TimeoutError:
            raise WaitTimeout(f"{name} was stopped after {seconds:g} s") from None
        clean = self._without_secrets(name, output)
        return _failed(name, clean.text) if clean.is_error else _result(clean)

    async def _planned(self, call: _Call) -> Invoked | Failed:
        """Look at the call and do not make it: that is what preparing is."""
        name, tool = call.call.name, call.tool
        if tool.prepare is None:
            return self._told(name, Planned((name,)))
        try:
            async with asyncio.timeout(_patience(call.agent)):
                prepared = await tool.prepare(call.run, call.call.arguments)
        except TimeoutError:
            raise WaitTimeout(f"{name} could not be looked at in time") from None
        except StorageError:
            raise
        except PalinurusError as error:
            return _failed(name, str(error))
        if isinstance(prepared, ToolOutput):
            return _failed(name, text_of(prepared.content))
        prepared.release()
        return self._told(name, Planned(tuple(render_plan(prepared.plan)), prepared.refusal, prepared.ask))

    def _told(self, name: str, planned: Planned) -> Invoked:
        output = ToolOutput("\n".join(planned.plan), details=msgspec.to_builtins(planned))
        return _result(self._without_secrets(name, output))

    def _without_secrets(self, name: str, output: ToolOutput) -> ToolResult:
        """As a transcript would keep it."""
        result = ToolResult("", name, output.content, output.is_error, origin=output.origin, details=output.details)
        (clean,) = self._house.turns.clean(Inbound("", "", results=(result,))).results
        return clean


def _check(asked: Invoke) -> None:
    names = {name for name in (asked.tool, asked.name) if name}
    if len(names) != 1 or len(next(iter(names))) > LONGEST_NAME:
        raise BadRequest("which tool?", hint='for example {"tool": "web_fetch", "args": {"url": "…"}}')
    if len(asked.idempotency_key) > LONGEST_KEY:
        raise BadRequest(f"an idempotency key has at most {LONGEST_KEY} characters")


def _on_behalf(principal: Principal, key: SessionKey, run_id: str, route: Route) -> ToolRun:
    return ToolRun(
        key,
        run_id,
        key.is_private,
        owner=True,
        channel=CHANNEL,
        sender=principal.id,
        provider=route.provider,
        model=route.model,
        attended=False,
    )


def _arguments(tool: Tool, asked: Invoke) -> dict[str, Any]:
    takes = "action" in tool.spec.parameters.get("properties", {})
    if asked.action and takes and "action" not in asked.args:
        return {**asked.args, "action": asked.action}
    return asked.args


def _no_tool(name: str) -> Refused:
    return Refused(404, "NOT_FOUND", f"there is no tool {name!r}")


def _failed(name: str, why: str) -> Failed:
    return Failed(f"{name} failed", 422, "TOOL_FAILED", why, {"type": "tool_error", "message": why})


def _result(clean: ToolResult) -> Invoked:
    content = (Text(clean.content),) if isinstance(clean.content, str) else clean.content
    return Invoked(Result(content, clean.details, clean.origin))


def _answer(told: Invoked | Failed) -> Answer:
    return Answer(told.status if isinstance(told, Failed) else 200, msgspec.Raw(msgspec.json.encode(told)))


def _patience(agent: Agent) -> float:
    """Seconds that a call may take."""
    return min(agent.timeout_seconds or MAX_SECONDS, MAX_SECONDS)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
