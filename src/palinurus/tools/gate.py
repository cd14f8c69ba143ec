"""The gate between a call and its tool: may it, must somebody be asked, and what is kept of it.

Every call goes the same way: policy and restrictions, then the plan, then a person if one must be asked, then a row in
the audit log, and only then the tool. Nothing runs that the log does not hold, and what runs is the very plan that was
shown. A refusal is a result that tells the model why.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from palinurus.domain.clock import Clock
from palinurus.domain.errors import PalinurusError, StorageError
from palinurus.domain.function_tool import failed
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin, ToolCall
from palinurus.domain.narrowing import beyond
from palinurus.domain.plan import Plan
from palinurus.domain.tool import MAX_CHARACTERS, Prepared, Tool, ToolOutput, ToolRun, ToolSpec
from palinurus.ledger.audit import AuditEvent, AuditLog, Kind
from palinurus.sessions.journal import redacted
from palinurus.tools.approvals.approval import Approval, Asker
from palinurus.tools.grants.grants import GrantStore, covers_call
from palinurus.tools.grants.trust import trust_in
from palinurus.tools.policy.decide import Asked, Policy, Verdict, decide, must_ask, offered
from palinurus.tools.policy.names import canonical
from palinurus.tools.registry import Registry

REMEMBERED = 1_000  # sessions whose tools are known without looking again; conversations, and plans allowed in each
KEPT_OF_A_RESULT = 2_000  # characters in the audit log; the transcript holds what the model read

_YES = ("allowed-once", "allowed-always")

Untrusted = Literal["ask", "deny", "allow"]


class Yeses:
    """Plans that a person has allowed, by conversation: such a question is not asked there twice. Gone at a restart."""

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


class Watch(Struct, frozen=True):
    """Who is asked and where it is written down."""

    asker: Asker
    grants: GrantStore
    audit: AuditLog
    clock: Clock
    redact: Callable[[str], str]
    yeses: Yeses = msgspec.field(default_factory=Yeses)


class Gate:
    """The hands of one agent behind its policy."""

    def __init__(
        self,
        tools: Registry,
        policy: Policy,
        watch: Watch,
        *,
        sandboxed: Callable[[SessionKey], bool] = lambda _: False,
        untrusted: Untrusted = "ask",
    ) -> None:
        self.tools = tools
        self.policy = policy
        self.watch = watch
        self.sandboxed = sandboxed
        self.untrusted = untrusted
        self._offered: dict[tuple[SessionKey, str, str], tuple[ToolSpec, ...]] = {}  # a gate never changes its mind

    def with_tools(self, more: Sequence[Tool]) -> Gate:
        """The same gate before more tools."""
        tools = self.tools.with_tools(more)
        return Gate(tools, self.policy, self.watch, sandboxed=self.sandboxed, untrusted=self.untrusted)

    def hands(self, key: SessionKey, provider: str = "", model: str = "", characters: int = MAX_CHARACTERS) -> Hands:
        """What a session may use with a model, the same whoever speaks: what narrows further narrows at the call."""
        place = (key, provider, model)
        if place not in self._offered:
            if len(self._offered) >= REMEMBERED:
                self._offered.clear()
            asked = Asked("", key, provider=provider, model=model, sandboxed=self.sandboxed(key))
            self._offered[place] = tuple(tool.spec for tool in offered(self.policy, self.tools.all(), asked))
        return Hands(self, self._offered[place], characters)

    async def run(self, run: ToolRun, call: ToolCall) -> ToolOutput:
        """Run one call. Raises nothing but cancellation; every failure is a result."""
        try:
            return await _Passage(self, await self._with_trust(run), call).through()
        except StorageError as error:  # what cannot be written down is not done
            return failed(f"{call.name} was not run, because it could not be recorded: {error}")
        except (RecursionError, UnicodeError):  # a plan that cannot be written down in full is none
            return failed(f"{call.name} was not run: its arguments are nested too deeply or hold broken characters")

    async def _with_trust(self, run: ToolRun) -> ToolRun:
        """With what the owner trusts at this moment: it may have been said since the turn began."""
        if not run.outside:
            return run
        trust = await trust_in(self.watch.grants, run.key, self.watch.clock.now_ms())
        return msgspec.structs.replace(run, trust=trust)


class Hands(Struct, frozen=True):
    """Implements agent.loop.Hands."""

    gate: Gate
    offered: tuple[ToolSpec, ...]
    characters: int = MAX_CHARACTERS

    def specs(self) -> tuple[ToolSpec, ...]:
        return self.offered

    async def run(self, run: ToolRun, call: ToolCall) -> ToolOutput:
        return await self.gate.run(msgspec.structs.replace(run, max_characters=self.characters), call)


class _Passage:
    """One call on its way through the gate."""

    def __init__(self, gate: Gate, run: ToolRun, call: ToolCall) -> None:
        self._gate = gate
        self._watch = gate.watch
        self._run = run
        self._call = call

    async def through(self) -> ToolOutput:
        tool = self._gate.tools.get(self._call.name)
        if tool is None:
            return await self._refuse("unknown", self._gate.tools.unknown(self._call.name))
        verdict = self._verdict(tool)
        if not verdict.allowed:
            return await self._refuse(
                f"denied: {verdict.layer}", f"{tool.spec.name} may not be used here: {verdict.why} ({verdict.layer})"
            )
        prepared = await self._prepared(tool)
        if isinstance(prepared, ToolOutput):  # the model has something to mend
            await self._record("decision", "malformed", {"said": _text(prepared)[:KEPT_OF_A_RESULT]})
            return prepared
        if prepared.refusal:
            return await self._refuse("denied: plan", prepared.refusal, prepared.plan)
        if self._run.untrusted and prepared.when_untrusted and self._gate.untrusted == "deny":
            why = f"{tool.spec.name} was not run: {prepared.when_untrusted}"
            return await self._refuse("denied: untrusted", why, prepared.plan)
        if (reason := await self._reason_to_ask(tool, prepared)) and (why := await self._ask(prepared, reason)):
            return failed(why)
        await self._record("call", f"allowed: {verdict.layer}", _planned(prepared))
        try:
            output = await self._gate.tools.execute(self._run, self._call, prepared.run)
        except asyncio.CancelledError:
            self._watch.audit.note(self._event("result", "stopped", {}))
            raise
        if tool.outside:
            output = msgspec.structs.replace(output, origin=Origin.OUTSIDE)
        self._note_result(output)
        return output

    def _verdict(self, tool: Tool) -> Verdict:
        """By the policy, and by what the restrictions of this run say about hosts and files."""
        verdict = decide(self._gate.policy, self._asked(tool))
        name = canonical(tool.spec.name)
        why = beyond(self._run.restrictions, name, self._call.arguments) if verdict.allowed else ""
        return Verdict(False, "restriction", why) if why else verdict

    def _asked(self, tool: Tool) -> Asked:
        run = self._run
        return Asked(
            tool.spec.name,
            run.key,
            owner=run.owner,
            channel=run.channel,
            sender=run.sender,
            provider=run.provider,
            model=run.model,
            sandboxed=self._gate.sandboxed(run.key),
            owner_only=tool.owner_only,
            restrictions=run.restrictions,
        )

    async def _prepared(self, tool: Tool) -> Prepared | ToolOutput:
        arguments: Mapping[str, Any] = self._call.arguments
        if tool.prepare is None:
            name = tool.spec.name
            plan = Plan(name, name, arguments=dict(arguments))
            return Prepared(plan, lambda: tool.run(self._run, arguments), when_untrusted=tool.when_untrusted)
        try:
            return await tool.prepare(self._run, arguments)
        except StorageError:
            raise
        except PalinurusError as error:
            return failed(str(error))

    async def _reason_to_ask(self, tool: Tool, prepared: Prepared) -> str:
        """Why a person must say yes first; empty when nobody needs to."""
        run = self._run
        if prepared.lasting and self._watch.yeses.holds(run, prepared.plan.digest):
            return ""
        if reason := must_ask(run.restrictions, tool.spec.name):
            return reason
        if run.untrusted and prepared.when_untrusted and self._gate.untrusted != "allow":
            return prepared.when_untrusted
        if prepared.ask and tool.spec.name != "exec" and await self._use_grant(prepared.plan):
            return ""
        return prepared.ask

    async def _ask(self, prepared: Prepared, reason: str) -> str:
        """Why it may not be done after all; empty when a person has said yes."""
        approval = await self._watch.asker.ask(self._run, prepared, reason)
        allowed = _allows(approval, prepared, reason)
        await self._record("decision", approval.status, _decided(approval, reason))
        if prepared.lasting and allowed and approval.status in _YES:
            self._watch.yeses.add(self._run, prepared.plan.digest)
        return "" if allowed else _not_allowed(self._call.name, approval)

    async def _use_grant(self, plan: Plan) -> bool:
        """Whether a person has allowed this very call of a tool for longer. Of commands exec knows by itself."""
        key, now = self._run.key, self._watch.clock.now_ms()
        grants = await self._watch.grants.active(agent=key.agent, session_key=str(key), now=now)
        grant = next((each for each in grants if covers_call(each, plan.tool, plan.arguments)), None)
        if grant is not None:
            await self._watch.grants.used(grant.id, now, plan.summary)
        return grant is not None

    async def _refuse(self, outcome: str, why: str, plan: Plan | None = None) -> ToolOutput:
        details = {"why": why, **({"plan": msgspec.to_builtins(plan)} if plan else {"arguments": self._call.arguments})}
        await self._record("decision", outcome, details)
        return failed(why)

    async def _record(self, kind: Kind, outcome: str, details: dict[str, Any]) -> None:
        await self._watch.audit.record(self._event(kind, outcome, details))

    def _note_result(self, output: ToolOutput) -> None:
        text = self._watch.redact(_text(output))[:KEPT_OF_A_RESULT]  # cut behind: half a secret would not be known
        details: dict[str, Any] = {"text": text, "origin": str(output.origin)}
        if output.details:
            details["details"] = output.details
        outcome = "error" if output.is_error else "ok"
        try:
            event = self._event("result", outcome, details)
        except (RecursionError, UnicodeError):  # it has run, whatever its details are: that is written down
            event = self._event("result", outcome, {"text": text, "unreadable": "details"})
        self._watch.audit.note(event)

    def _event(self, kind: Kind, outcome: str, details: dict[str, Any]) -> AuditEvent:
        run, call = self._run, self._call
        now = self._watch.clock.now_ms()
        event = AuditEvent(kind, now, run.run_id, str(run.key), call.name, call.id, outcome, details)
        return redacted(event, self._watch.redact)


def _allows(approval: Approval, prepared: Prepared, reason: str) -> bool:
    """What is done when nobody answers holds for the tool's own question, not for what a restriction asks."""
    if approval.status in _YES:
        return approval.digest == prepared.plan.digest  # an answer to another question is none
    return approval.status in ("expired", "unattended") and prepared.unanswered and reason == prepared.ask


def _not_allowed(name: str, approval: Approval) -> str:
    because = {
        "denied": "the owner said no. Do not try it in another way; ask what they want instead",
        "expired": f"nobody answered in time (approval {approval.id})",
        "unattended": f"it needs an approval ({approval.reason}), and nobody is there to be asked",
    }
    return f"{name} was not run: {because.get(approval.status, approval.status)}."


def _planned(prepared: Prepared) -> dict[str, Any]:
    plan = {"plan": msgspec.to_builtins(prepared.plan), "digest": prepared.plan.digest}
    return {**plan, "grants": list(prepared.granted)} if prepared.granted else plan


def _decided(approval: Approval, reason: str) -> dict[str, Any]:
    return {
        "approval": approval.id,
        "digest": approval.digest,
        "plan": msgspec.to_builtins(approval.plan),
        "reason": reason,
        "by": approval.decided_by,
        "where": approval.decided_where,
    }


def _text(output: ToolOutput) -> str:
    from_blocks = output.content if isinstance(output.content, str) else ""
    return from_blocks or "\n".join(getattr(block, "text", "[picture]") for block in output.content if block)
