"""POST /tools/invoke: one tool call for a program, without a model.

It goes through the gate of the agent like any other call: policy, sandbox, approvals and the audit log, in an
unattended run of its own. A tool that is not offered here, denied or missing gets the same answer: no such tool.

Nobody watches such a call, and a leaked token can make it too, so this route has a list of its own in addition to the
agent's policy (NOT_OFFERED): tools that run programs, write files, send messages, start agents or change the home are
not offered, nor is a tool in no group of ours. `gateway.tools.allow` takes names off the list, `gateway.tools.deny`
adds names and wins.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.routing import Route as HttpRoute

from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest
from palinurus.domain.events import render_plan
from palinurus.domain.messages import Image, Origin, Text, ToolCall, ToolResult, text_of
from palinurus.domain.tool import Tool, ToolOutput, ToolRun
from palinurus.gateway.auth.guard import Principal
from palinurus.gateway.http.app import JSON, PROBLEM, RouteDoc, authenticate, read_json
from palinurus.gateway.protocol import Refused
from palinurus.gateway.websocket.methods import GatewayContext
from palinurus.gateway.websocket.requests import Replays
from palinurus.ledger.audit import AuditEvent
from palinurus.operations.tool_invocation import UnattendedCalls, unattended_calls
from palinurus.tools.policy import ToolRequest, decide
from palinurus.tools.tool_names import allowed_by, denied_by, group_of

# OpenClaw's list and our additions. Tools of MCP servers (group:plugins) may do anything.
NOT_OFFERED = (
    "group:runtime", "shell", "spawn", "terminal", "write", "edit", "delete", "apply_patch", "fs_*",
    "sessions_spawn", "sessions_send", "sessions_yield", "subagents", "group:messaging", "group:automation",
    "group:nodes", "group:plugins", "browser", "canvas", "secrets", "plugins", "openclaw", "whatsapp_login",
)  # fmt: skip
PATH = "/tools/invoke"
CHANNEL = "http"
MAX_SECONDS = 600.0
MAX_BODY = 2 * 1024 * 1024
AT_ONCE = 32  # running calls
LONGEST_NAME, LONGEST_KEY = 128, 200
REPLAY_BYTES = 4 * 1024 * 1024  # of answers that may be requested again


def is_offered(tool: str, allow: tuple[str, ...] = (), deny: tuple[str, ...] = ()) -> bool:
    """Whether this route offers a tool of that name."""
    if denied_by(deny, tool):
        return False
    if allowed_by(allow, tool):
        return True
    return bool(group_of(tool)) and not denied_by(NOT_OFFERED, tool)


class InvokeTool(Struct, frozen=True, rename="camel"):
    """`tool` and `name` are the same. An `action` goes into the arguments of a tool that has one."""

    tool: str = ""
    name: str = ""
    action: str = ""
    args: dict[str, Any] = {}
    session_key: str = ""
    agent_id: str = ""
    idempotency_key: str = ""
    dry_run: bool = False


class ToolContent(Struct, frozen=True, omit_defaults=True):
    content: tuple[Text | Image, ...]
    details: dict[str, Any] | None = None
    origin: Origin = Origin.OWNER


class CallPlan(Struct, frozen=True, rename="camel"):
    """What a call would do, in the details of its result. `asks`: why a person would have to approve it."""

    plan: tuple[str, ...]
    refusal: str = ""
    asks: str = ""
    dry_run: bool = True


class ToolReply(Struct, frozen=True):
    result: ToolContent
    ok: bool = True


class ToolProblem(Struct, frozen=True):
    """A problem (RFC 9457), with the same in OpenClaw's form."""

    title: str
    status: int
    code: str
    detail: str
    error: dict[str, str]
    type: str = "about:blank"
    ok: bool = False


class InvokeReply(Struct, frozen=True):
    status: int
    body: msgspec.Raw  # ToolReply or ToolProblem


class _Call(Struct, frozen=True):
    """A call that the policy allows."""

    call: ToolCall
    calls: UnattendedCalls

    @property
    def seconds(self) -> float:
        """That it may take."""
        return min(self.calls.agent.timeout_seconds or MAX_SECONDS, MAX_SECONDS)


class Invocations:
    """Makes tool calls for programs."""

    def __init__(self, gateway: GatewayContext) -> None:
        self._gateway = gateway
        self._services = gateway.services
        self._replays = Replays(gateway.services.clock, most_bytes=REPLAY_BYTES)
        self._running = 0

    async def invoke(self, principal: Principal, wanted: InvokeTool) -> InvokeReply:
        """Make the call, or give the answer of the same call before. Raises Refused and PalinurusErrors."""
        _check(wanted)
        if self._running >= AT_ONCE:
            raise Refused(429, "BUSY", f"{AT_ONCE} calls are running already", 1.0)
        self._running += 1
        try:
            if wanted.idempotency_key and not wanted.dry_run:
                return await self._once(principal, wanted)
            call = await self._allowed(principal, wanted, self._gateway.new_id())
            return _reply(await (self._plan(call) if wanted.dry_run else self._run(call)))
        finally:
            self._running -= 1

    async def _once(self, principal: Principal, wanted: InvokeTool) -> InvokeReply:
        """The whole request is the key: the same idempotency key with other arguments is another call."""
        digest = _digest(msgspec.json.encode(wanted, order="sorted"))

        async def make() -> InvokeReply:
            call = await self._allowed(principal, wanted, _digest(f"{principal.id}\0{digest}".encode()))
            if "call" in await call.calls.recorded():
                why = "this call was made before, and its answer is no longer stored; it is not repeated"
                raise Refused(409, "ALREADY_MADE", f"{why} (run {call.calls.run.run_id})")
            return _reply(await self._run(call))

        return msgspec.json.decode(await self._replays.once((principal.id, PATH, digest), make), type=InvokeReply)

    async def _allowed(self, principal: Principal, wanted: InvokeTool, call_id: str) -> _Call:
        """Raises the same Refused for a tool that is not offered, missing or denied."""
        services, name = self._services, wanted.tool or wanted.name
        key = await services.dispatcher.place(Inbound("", "", session_key=wanted.session_key, agent=wanted.agent_id))
        calls = await unattended_calls(services, key, name, f"invoke-{call_id}", channel=CHANNEL, sender=principal.id)
        if calls is None:
            raise _no_tool(name)
        tool, run = calls.tool, calls.run
        if denied := self._why_not(tool, run):
            layer, why = denied
            about = (run.run_id, str(key), name, call_id, f"denied: {layer}")
            details = {"why": why, "channel": run.channel, "by": run.sender}
            await services.audit.record(AuditEvent("decision", services.clock.now_ms(), *about, details))
            raise _no_tool(name)
        takes_action = wanted.action and "action" in tool.spec.parameters.get("properties", {})
        call = ToolCall(call_id, name, {"action": wanted.action, **wanted.args} if takes_action else wanted.args)
        return _Call(call, calls)

    def _why_not(self, tool: Tool, run: ToolRun) -> tuple[str, str] | None:
        """The layer that denies the tool, and its reason."""
        endpoints, services = self._gateway.endpoints, self._services
        if not is_offered(tool.spec.name, endpoints.invoke_allow, endpoints.invoke_deny):
            return "invoke", f"{PATH} does not reach {tool.spec.name}"
        request = ToolRequest(
            tool.spec.name,
            run.key,
            channel=run.channel,
            sender=run.sender,
            provider=run.provider,
            model=run.model,
            sandboxed=services.toolsets.environment(run.key).sandboxed == "required",
            owner_only=tool.owner_only,
        )
        verdict = decide(services.toolsets.policy(run.key.agent), request)
        return None if verdict.allowed else (verdict.layer, verdict.why)

    async def _run(self, call: _Call) -> ToolReply | ToolProblem:
        clean = await call.calls.make(call.call, call.seconds)
        return _failed(call.call.name, clean.text) if clean.is_error else _result(clean)

    async def _plan(self, call: _Call) -> ToolReply | ToolProblem:
        """Prepare the call without making it."""
        name, calls = call.call.name, call.calls
        prepared = await calls.prepare(call.call.arguments, call.seconds)
        if prepared is None:
            return _planned(calls, CallPlan((name,)))
        if isinstance(prepared, ToolOutput):
            return _failed(name, text_of(prepared.content))
        prepared.release()
        return _planned(calls, CallPlan(tuple(render_plan(prepared.plan)), prepared.refusal, prepared.ask))


def _planned(calls: UnattendedCalls, plan: CallPlan) -> ToolReply:
    return _result(calls.redacted(ToolOutput("\n".join(plan.plan), details=msgspec.to_builtins(plan))))


def _check(wanted: InvokeTool) -> None:
    names = {name for name in (wanted.tool, wanted.name) if name}
    if len(names) != 1 or len(next(iter(names))) > LONGEST_NAME:
        raise BadRequest("the tool is missing", hint='for example {"tool": "web_fetch", "args": {"url": "…"}}')
    if len(wanted.idempotency_key) > LONGEST_KEY:
        raise BadRequest(f"an idempotency key has at most {LONGEST_KEY} characters")


def _no_tool(name: str) -> Refused:
    return Refused(404, "NOT_FOUND", f"there is no tool {name!r}")


def _failed(name: str, why: str) -> ToolProblem:
    return ToolProblem(f"{name} failed", 422, "TOOL_FAILED", why, {"type": "tool_error", "message": why})


def _result(clean: ToolResult) -> ToolReply:
    content = (Text(clean.content),) if isinstance(clean.content, str) else clean.content
    return ToolReply(ToolContent(content, clean.details, clean.origin))


def _reply(outcome: ToolReply | ToolProblem) -> InvokeReply:
    status = outcome.status if isinstance(outcome, ToolProblem) else 200
    return InvokeReply(status, msgspec.Raw(msgspec.json.encode(outcome)))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def routes(gateway: GatewayContext) -> Sequence[BaseRoute]:
    invocations = Invocations(gateway)

    async def invoke(request: Request) -> Response:
        """Call a tool."""
        principal = authenticate(gateway, request, "write")
        reply = await invocations.invoke(principal, await read_json(request, InvokeTool, most=MAX_BODY))
        return Response(bytes(reply.body), reply.status, media_type=JSON if reply.status == 200 else PROBLEM)

    return [HttpRoute(PATH, invoke, methods=["POST"])]


ROUTE_DOCS = (
    RouteDoc(
        "POST",
        PATH,
        "Call a tool of an agent, under its policy and the limits of this route.",
        "write",
        InvokeTool,
        ToolReply,
    ),
)
