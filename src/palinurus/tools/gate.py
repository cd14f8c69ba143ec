"""The gate before every tool call: whether it may run, whether it needs approval, and what is recorded.

Every call passes the same steps: policy and restrictions, hooks (which can only restrict further), the plan, an
approval if one is needed, a row in the audit log, and only then the tool. Nothing runs that is not in the log, and what
runs is exactly the plan that was shown. A refusal is a result that tells the model why.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Literal

from msgspec import Struct, field, structs, to_builtins

from palinurus.domain.clock import Clock
from palinurus.domain.errors import PalinurusError, StorageError
from palinurus.domain.events import Plan
from palinurus.domain.hooks import Hooks
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin, ToolCall
from palinurus.domain.tool import MAX_CHARACTERS, PreparedCall, Tool, ToolOutput, ToolRun, ToolSpec, beyond, failed
from palinurus.ledger.audit import AuditEvent, Kind
from palinurus.ledger.audit_log import AuditLog
from palinurus.sessions.journal import redacted
from palinurus.tools.approval import Approval, Approvals
from palinurus.tools.grants import GrantStore, covers_call, trust_in
from palinurus.tools.policy import Policy, ToolRequest, Verdict, decide, must_ask, offered_tools, policy_traits
from palinurus.tools.registry import ToolRegistry
from palinurus.tools.tool_names import canonical

REMEMBERED = 1_000  # sessions whose offered tools are cached; sessions, and allowed plans in each
KEPT_OF_A_RESULT = 2_000  # characters in the audit log; the transcript has the whole text


Untrusted = Literal["ask", "deny", "allow"]


class AllowedPlans:
    """Plans that a person has allowed, by session, so that they are not asked about twice. Lost at a restart."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[SessionKey, str], set[str]] = OrderedDict()

    def add(self, run: ToolRun, digest: str) -> None:
        known = self._known.setdefault((run.key, run.conversation), set())
        self._known.move_to_end((run.key, run.conversation))
        if len(known) < REMEMBERED:
            known.add(digest)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    def holds(self, run: ToolRun, digest: str) -> bool:
        return bool(run.conversation) and digest in self._known.get((run.key, run.conversation), ())


class GateServices(Struct, frozen=True):
    """The services that ask for approval and record calls."""

    approvals: Approvals
    grants: GrantStore
    audit: AuditLog
    clock: Clock
    redact: Callable[[str], str]
    allowed_plans: AllowedPlans = field(default_factory=AllowedPlans)
    hooks: Hooks = field(default_factory=Hooks)


class Gate(Struct, eq=False):
    """The tools of one agent behind its policy."""

    tools: ToolRegistry
    policy: Policy
    services: GateServices
    sandboxed: Callable[[SessionKey], bool] = lambda _: False
    untrusted: Untrusted = "ask"
    _offered: dict[tuple[object, ...], tuple[ToolSpec, ...]] = {}  # by all that they depend on

    def with_tools(self, more: Sequence[Tool]) -> Gate:
        """Returns the same gate with more tools."""
        return structs.replace(self, tools=self.tools.with_tools(more), _offered={})

    def offer(
        self, key: SessionKey, provider: str = "", model: str = "", characters: int = MAX_CHARACTERS
    ) -> GatedTools:
        """Returns the tools that a session offers to a model, for every sender: the rest is restricted at the call."""
        sandboxed = self.sandboxed(key)
        fits = (tool.fits(key) for tool in self.tools.all() if tool.fits is not None)
        alike = (*policy_traits(key), provider, model, sandboxed, *fits)
        if alike not in self._offered:
            if len(self._offered) >= REMEMBERED:
                self._offered.clear()
            request = ToolRequest("", key, provider=provider, model=model, sandboxed=sandboxed)
            offered = offered_tools(self.policy, self.tools.all(), request)
            replaced = {tool.instead_of for tool in offered}
            self._offered[alike] = tuple(tool.spec for tool in offered if tool.spec.name not in replaced)
        return GatedTools(self, self._offered[alike], characters)

    async def run(self, run: ToolRun, call: ToolCall) -> ToolOutput:
        """Runs one call. Raises nothing but cancellation; every failure is a result."""
        try:
            return await _GatedCall(self, await self._with_trust(run), call).run_through()
        except StorageError as error:  # a call that cannot be recorded is not run
            return failed(f"{call.name} was not run, because it could not be recorded: {error}")
        except (RecursionError, UnicodeError):  # a plan that cannot be encoded completely is invalid
            return failed(f"{call.name} was not run: its arguments are nested too deeply or hold broken characters")

    async def _with_trust(self, run: ToolRun) -> ToolRun:
        """Returns the request with the owner's current trust, which may have changed since the turn began."""
        if not run.outside:
            return run
        trust = await trust_in(self.services.grants, run.key, self.services.clock.now_ms())
        return structs.replace(run, trust=trust)


class GatedTools(Struct, frozen=True):
    """The tools of a turn."""

    gate: Gate
    offered: tuple[ToolSpec, ...]
    characters: int = MAX_CHARACTERS

    def specs(self) -> tuple[ToolSpec, ...]:
        return self.offered

    async def run(self, run: ToolRun, call: ToolCall) -> ToolOutput:
        """Runs one call. Raises nothing but cancellation; every failure is a result."""
        return await self.gate.run(structs.replace(run, max_characters=self.characters), call)


class _GatedCall(Struct, frozen=True):
    """One call on its way through the gate."""

    gate: Gate
    run: ToolRun
    call: ToolCall

    async def run_through(self) -> ToolOutput:
        tool = self.gate.tools.get(self.call.name)
        if tool is None:
            return await self._refuse("unknown", self.gate.tools.unknown(self.call.name))
        verdict = self._verdict(tool)
        if verdict.allowed and (found := await self.gate.services.hooks.restrict(self.run.key, self._facts)):
            run = structs.replace(self.run, restrictions=(*self.run.restrictions, *found))
            return await structs.replace(self, run=run).run_judged(tool)
        return await self.run_judged(tool, verdict)

    async def run_judged(self, tool: Tool, known: Verdict | None = None) -> ToolOutput:
        verdict = known or self._verdict(tool)
        if not verdict.allowed:
            why = f"{tool.spec.name} may not be used here: {verdict.why} ({verdict.layer})"
            return await self._refuse(f"denied: {verdict.layer}", why)
        prepared = await self._prepared(tool)
        if isinstance(prepared, ToolOutput):  # the model has to correct the arguments
            await self._record("decision", "malformed", {"said": _text(prepared)[:KEPT_OF_A_RESULT]})
            return prepared
        try:
            return await self._run_prepared(tool, prepared, verdict)
        finally:
            prepared.release()

    async def _run_prepared(self, tool: Tool, prepared: PreparedCall, verdict: Verdict) -> ToolOutput:
        """Refuses the call, asks for approval, or runs it."""
        if prepared.refusal:
            return await self._refuse("denied: plan", prepared.refusal, prepared.plan)
        if self.run.untrusted and prepared.when_untrusted and self.gate.untrusted == "deny":
            why = f"{tool.spec.name} was not run: {prepared.when_untrusted}"
            return await self._refuse("denied: untrusted", why, prepared.plan)
        if (reason := await self._reason_to_ask(tool, prepared)) and (why := await self._ask(prepared, reason)):
            return failed(why)
        details = {"plan": to_builtins(prepared.plan), "digest": prepared.plan.digest}
        grants = {"grants": list(prepared.granted)} if prepared.granted else {}
        await self._record("call", f"allowed: {verdict.layer}", {**details, **grants})
        began = self.gate.services.clock.now_ms()
        try:
            output = await self.gate.tools.execute(self.run, self.call, prepared.run)
        except asyncio.CancelledError:
            self.gate.services.audit.note(self._event("result", "stopped", {}))
            raise
        if tool.outside:
            output = structs.replace(output, origin=Origin.OUTSIDE)
        self._note_result(output)
        self.gate.services.hooks.observe("after_tool_call", self.run.key, lambda: self._outcome(output, began))
        return output

    def _facts(self) -> dict[str, Any]:
        """What hooks are told of the call."""
        run, call = self.run, self.call
        who = {"runId": run.run_id, "agentId": run.key.agent, "channelId": run.channel, "senderId": run.sender}
        return {
            "toolName": call.name,
            "params": call.arguments,
            "toolCallId": call.id,
            "untrusted": run.untrusted,
            **who,
        }

    def _outcome(self, output: ToolOutput, began: int) -> dict[str, Any]:
        text, duration = _text(output), self.gate.services.clock.now_ms() - began
        return {**self._facts(), "error" if output.is_error else "result": text, "durationMs": duration}

    def _verdict(self, tool: Tool) -> Verdict:
        """Returns the decision of the policy and of this run's restrictions on hosts and files."""
        run = self.run
        sandboxed, origin = self.gate.sandboxed(run.key), (run.owner, run.channel, run.sender, run.provider, run.model)
        request = ToolRequest(tool.spec.name, run.key, *origin, sandboxed, tool.owner_only, run.restrictions)
        verdict = decide(self.gate.policy, request)
        why = beyond(run.restrictions, canonical(tool.spec.name), self.call.arguments) if verdict.allowed else ""
        return Verdict(False, "restriction", why) if why else verdict

    async def _prepared(self, tool: Tool) -> PreparedCall | ToolOutput:
        arguments, name = self.call.arguments, tool.spec.name
        if tool.prepare is None:
            plan = Plan(name, name, arguments=dict(arguments))
            return PreparedCall(plan, lambda: tool.run(self.run, arguments), when_untrusted=tool.when_untrusted)
        try:
            return await tool.prepare(self.run, arguments)
        except StorageError:
            raise
        except PalinurusError as error:
            return failed(str(error))

    async def _reason_to_ask(self, tool: Tool, prepared: PreparedCall) -> str:
        """Returns why a person must approve the call; empty if no approval is needed."""
        run = self.run
        if prepared.lasting and self.gate.services.allowed_plans.holds(run, prepared.plan.digest):
            return ""
        if reason := must_ask(run.restrictions, tool.spec.name):
            return reason
        if run.untrusted and prepared.when_untrusted and self.gate.untrusted != "allow":
            return prepared.when_untrusted
        if prepared.ask and tool.spec.name != "exec" and await self._use_grant(prepared.plan):
            return ""
        return prepared.ask

    async def _ask(self, prepared: PreparedCall, reason: str) -> str:
        """Asks for approval. Returns why the call may not run; empty if a person approved it."""
        approval = await self.gate.services.approvals.ask(self.run, prepared, reason)
        approved = approval.status in ("allowed-once", "allowed-always")
        # A decision about another plan does not count. The fallback for unanswered approvals applies only to the tool's
        # own request, not to one of a restriction.
        unanswered = approval.status in ("expired", "unattended") and prepared.unanswered and reason == prepared.ask
        allowed = approval.digest == prepared.plan.digest if approved else unanswered
        decision = {"approval": approval.id, "digest": approval.digest, "plan": to_builtins(approval.plan)}
        decision |= {"reason": reason, "by": approval.decided_by, "where": approval.decided_where}
        await self._record("decision", approval.status, decision)
        if prepared.lasting and allowed and approved:
            self.gate.services.allowed_plans.add(self.run, prepared.plan.digest)
        return "" if allowed else _not_allowed(self.call.name, approval)

    async def _use_grant(self, plan: Plan) -> bool:
        """Returns whether a grant covers this call of a tool. For commands, exec checks grants itself."""
        key, now = self.run.key, self.gate.services.clock.now_ms()
        grants = await self.gate.services.grants.active(agent=key.agent, session_key=str(key), now=now)
        grant = next((each for each in grants if covers_call(each, plan.tool, plan.arguments)), None)
        if grant is not None:
            await self.gate.services.grants.used(grant.id, now, plan.summary)
        return grant is not None

    async def _refuse(self, outcome: str, why: str, plan: Plan | None = None) -> ToolOutput:
        details = {"why": why, **({"plan": to_builtins(plan)} if plan else {"arguments": self.call.arguments})}
        await self._record("decision", outcome, details)
        return failed(why)

    async def _record(self, kind: Kind, outcome: str, details: dict[str, Any]) -> None:
        await self.gate.services.audit.record(self._event(kind, outcome, details))

    def _note_result(self, output: ToolOutput) -> None:
        # Cut after redaction: half a secret would not be recognised.
        text = self.gate.services.redact(_text(output))[:KEPT_OF_A_RESULT]
        further = {"details": output.details} if output.details else {}
        details = {"text": text, "origin": str(output.origin), **further}
        outcome = "error" if output.is_error else "ok"
        try:
            event = self._event("result", outcome, details)
        except (RecursionError, UnicodeError):  # it has run: that is recorded, whatever its details are
            event = self._event("result", outcome, {"text": text, "unreadable": "details"})
        self.gate.services.audit.note(event)

    def _event(self, kind: Kind, outcome: str, details: dict[str, Any]) -> AuditEvent:
        run, call = self.run, self.call
        now = self.gate.services.clock.now_ms()
        event = AuditEvent(kind, now, run.run_id, str(run.key), call.name, call.id, outcome, details)
        return redacted(event, self.gate.services.redact)


def _not_allowed(name: str, approval: Approval) -> str:
    because = {
        "denied": "the owner said no. Do not try it in another way; ask what they want instead",
        "expired": f"the approval was not answered in time ({approval.id})",
        "unattended": f"it needs an approval ({approval.reason}), and no person could be asked",
    }
    return f"{name} was not run: {because.get(approval.status, approval.status)}."


def _text(output: ToolOutput) -> str:
    if isinstance(output.content, str):
        return output.content
    return "\n".join(getattr(block, "text", "[picture]") for block in output.content)
