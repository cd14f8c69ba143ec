"""Approvals: a person decides about one exact plan, from any door, before a deadline.

An approval is a row before anybody is asked. It names the digest of the plan that was shown, so a decision for one plan
never releases another; it is decided once. Secrets are taken out of the plan before it is kept or shown: the digest is
that of the plan as it will be run.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import Struct, structs

from palinurus.config.handling import ExecSettings
from palinurus.domain.clock import Clock, NewId
from palinurus.domain.errors import BadRequest, NotConfirmed, NotFound, PalinurusError
from palinurus.domain.events import ApprovalAsked, ApprovalSettled
from palinurus.domain.keys import SessionKey
from palinurus.domain.plan import Plan
from palinurus.domain.tool import Prepared, ToolRun
from palinurus.tools.approvals.granting import PATH, Granting, rules_for, short_id
from palinurus.tools.approvals.rendering import without_secrets
from palinurus.tools.approvals.sensitive import warnings
from palinurus.tools.grants.grants import Grant, GrantDraft, GrantStore, Scope

MOST_PENDING = 50
MOST_SOURCES = 20  # that a question names

Status = Literal["pending", "allowed-once", "allowed-always", "denied", "expired", "unattended", "abandoned"]
"""unattended: nobody was there to be asked. abandoned: the run or its process ended before anybody answered."""

Answer = Literal["allow-once", "allow-always", "deny"]
DECIDED: dict[Answer, Status] = {"allow-once": "allowed-once", "allow-always": "allowed-always", "deny": "denied"}


class Approval(Struct, frozen=True, rename="camel", omit_defaults=True):
    id: str  # short enough to be typed
    run_id: str
    session_key: str
    tool: str
    plan: Plan
    digest: str
    reason: str  # why somebody has to be asked
    asked_at: int
    deadline: int
    status: Status = "pending"
    decided_at: int | None = None
    decided_by: str = ""  # who: owner, telegram:42
    decided_where: str = ""  # by which door: chat, cli, page
    grant_id: str = ""  # the grant that an allow-always made; for a pipeline several, with commas between
    sources: tuple[str, ...] = ()  # of the text from outside because of which somebody is asked


class Settlement(Struct, frozen=True):
    """How an approval came out."""

    status: Status
    at: int
    by: str = ""
    where: str = ""
    grant_id: str = ""


class ApprovalStore(Protocol):
    async def add(self, approval: Approval) -> None: ...

    async def settle(self, approval_id: str, settlement: Settlement) -> Approval:
        """Decide a pending one and return it decided. Raises NotFound, and BadRequest when it was decided before."""

    async def get(self, approval_id: str) -> Approval | None: ...

    async def pending(self) -> list[Approval]:
        """Oldest first."""

    async def recent(self, *, limit: int = 50) -> list[Approval]:
        """Newest first, whatever became of them."""


class Asker(Protocol):
    """Who the gate turns to."""

    async def ask(self, run: ToolRun, prepared: Prepared, reason: str) -> Approval:
        """Ask, and wait until it is settled: answered, expired, or nobody there. Cancelling abandons it."""


class Approvals:
    """Implements Asker for the gate, and is where every door answers."""

    def __init__(
        self,
        store: ApprovalStore,
        grants: GrantStore,
        clock: Clock,
        new_id: NewId,
        settings: Callable[[str], ExecSettings],
        *,
        redact: Callable[[str], str] = lambda text: text,
        writable: Callable[[str], Sequence[Path]] = lambda _: (),
        path: str = PATH,
        most: int = MOST_PENDING,
    ) -> None:
        """`settings` are those of the agent with this id; `writable` are its workspace and what else it may write;
        `path` is where programs are looked for outside the sandbox."""
        self.granting = Granting(grants, clock, new_id, settings, writable, path)
        self._store = store
        self._clock = clock
        self._new_id = new_id
        self._settings = settings
        self._redact = redact
        self._most = most
        self._waiting: dict[str, asyncio.Future[Approval]] = {}
        self._writing: set[asyncio.Task[Approval]] = set()
        self._leaving = False

    async def ask(self, run: ToolRun, prepared: Prepared, reason: str) -> Approval:
        seconds = self._settings(run.key.agent).approval_timeout_sec
        approval = await self._asked(run, prepared, reason, seconds)
        if not run.attended or self._leaving:
            return await self._unasked(run, approval, "unattended")
        if len(self._waiting) >= self._most:
            full = f"{approval.reason}; {self._most} approvals wait already, so nobody was asked"
            return await self._unasked(run, structs.replace(approval, reason=full), "expired")
        answer = self._waiting[approval.id] = asyncio.get_running_loop().create_future()
        try:
            await self._store.add(approval)
            told = approval.plan, approval.digest, approval.reason, approval.deadline, approval.sources
            run.emit(ApprovalAsked(approval.id, *told))
            settled = await self._answered(approval, answer, seconds)
        except asyncio.CancelledError:
            run.emit(ApprovalSettled(approval.id, "abandoned"))
            await self._abandon(approval.id)
            raise
        finally:
            del self._waiting[approval.id]
        run.emit(ApprovalSettled(settled.id, settled.status, settled.decided_by))
        return settled

    async def answer(
        self,
        approval_id: str,
        answer: Answer,
        *,
        by: str,
        where: str,
        digest: str = "",
        drafts: Sequence[GrantDraft] = (),
        scope: Scope = "agent",
        days: float | None = None,
        confirmed: bool = False,
    ) -> Approval:
        """Decide, from any door. `digest` is that of the plan which was shown; `drafts` are wider rules for always.

        Raises NotFound for an id that is none, BadRequest for one that was decided before, for a digest that is
        another plan's, and when always is not to be had; NotConfirmed for an always that stands out and was not said
        a second time.
        """
        approval = await self._open(approval_id)
        if digest and digest != approval.digest:
            raise BadRequest(
                f"approval {approval.id} is for another plan than the one that was shown",
                hint=f"look again: `pal approvals show {approval.id}`",
            )
        grants: list[Grant] = []
        if answer == "allow-always":
            rules = self._rules(approval, drafts)
            if not confirmed:
                must_be_confirmed(warnings(rules))
            grants = await self.granting.drawn_up(
                rules, session_key=approval.session_key, by=by, scope=scope, days=days
            )
        elif drafts:
            raise BadRequest("a rule goes with allow-always only")
        ids = ",".join(grant.id for grant in grants)
        settlement = Settlement(DECIDED[answer], self._clock.now_ms(), by, where, ids)
        # A door that closes meanwhile takes nothing back: whoever waits hears the answer that is kept.
        return await asyncio.shield(self._kept(self._decide(approval.id, settlement, grants)))

    def why_not_always(self, approval: Approval) -> str:
        """Why there is no lasting grant for this; empty when there is one."""
        if approval.digest != approval.plan.digest:
            return "it holds a secret, and grants hold none"
        return self.granting.why_not(approval.plan, SessionKey.parse(approval.session_key).agent)

    async def find(self, approval_id: str) -> Approval:
        """By its id, or by the beginning of one that waits. Raises NotFound or BadRequest."""
        wanted = approval_id.strip().lower()
        if wanted and (known := await self._store.get(wanted)):
            return known
        fitting = [each for each in await self._store.pending() if wanted and each.id.startswith(wanted)]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise BadRequest(f"several approvals begin with {wanted!r}: {', '.join(each.id for each in fitting)}")
        raise NotFound(f"there is no approval {approval_id!r}", hint="`pal approvals list` shows those that wait")

    async def pending(self, session_key: str = "") -> list[Approval]:
        """Those that wait for an answer, oldest first."""
        return [each for each in await self._store.pending() if session_key in ("", each.session_key)]

    async def recent(self, *, limit: int = 50) -> list[Approval]:
        return await self._store.recent(limit=limit)

    async def recover(self) -> int:
        """At start: whoever asked in a process that is gone will not hear an answer. How many there were."""
        left = [each for each in await self._store.pending() if each.id not in self._waiting]
        for each in left:
            await self._settle_or_look(each.id, "abandoned")
        return len(left)

    async def release(self) -> int:
        """When the process leaves: nobody will answer here any more, so those who wait or still ask go on without."""
        self._leaving = True
        waiting = [each for each in await self._store.pending() if each.id in self._waiting]
        for each in waiting:
            self._tell(await self._settle_or_look(each.id, "abandoned"))
        return len(waiting)

    async def _asked(self, run: ToolRun, prepared: Prepared, reason: str, seconds: float) -> Approval:
        now, plan = self._clock.now_ms(), prepared.plan
        texts = run.suspects if reason == prepared.when_untrusted else ()
        shown = without_secrets(plan, self._redact)
        while (fresh := short_id(self._new_id)) in self._waiting or await self._store.get(fresh):
            pass
        deadline = now + round(seconds * 1000)
        return Approval(
            fresh,
            run.run_id,
            str(run.key),
            plan.tool,
            shown,
            plan.digest,
            self._redact(reason),
            now,
            deadline,
            sources=tuple(dict.fromkeys(text.source for text in texts if text.source))[:MOST_SOURCES],
        )

    async def _unasked(self, run: ToolRun, approval: Approval, status: Status) -> Approval:
        settled = structs.replace(approval, status=status, decided_at=approval.asked_at)
        await self._store.add(settled)
        run.emit(ApprovalSettled(settled.id, status))
        return settled

    async def _answered(self, approval: Approval, answer: asyncio.Future[Approval], seconds: float) -> Approval:
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            return await self._settle_or_look(approval.id, "expired")

    async def _open(self, approval_id: str) -> Approval:
        """One that can be decided now."""
        approval = await self.find(approval_id)
        if approval.status == "pending" and self._clock.now_ms() >= approval.deadline:
            approval = await self._settle_or_look(approval.id, "expired")
            self._tell(approval)
        elif approval.status == "pending" and approval.id not in self._waiting:
            approval = await self._settle_or_look(approval.id, "abandoned")
        if approval.status != "pending":
            raise BadRequest(f"approval {approval.id} is settled: {outcome(approval)}", hint="let the agent ask again")
        return approval

    async def _decide(self, approval_id: str, settlement: Settlement, grants: Sequence[Grant]) -> Approval:
        """Settled first: of two answers at the same time one loses here, and leaves no grant behind."""
        settled = await self._store.settle(approval_id, settlement)
        try:
            await self.granting.give(grants)
        finally:
            self._tell(settled)
        return settled

    def _rules(self, approval: Approval, drafts: Sequence[GrantDraft]) -> tuple[GrantDraft, ...]:
        if why := self.why_not_always(approval):
            raise BadRequest(f"this cannot be allowed always: {why}", hint="it can be allowed once")
        return rules_for(approval.plan, drafts)

    async def _settle_or_look(self, approval_id: str, status: Status) -> Approval:
        """Settle it, or tell what became of it if somebody was quicker."""
        try:
            return await self._store.settle(approval_id, Settlement(status, self._clock.now_ms()))
        except BadRequest:
            known = await self._store.get(approval_id)
            if known is None or known.status == "pending":
                raise
            return known

    async def _abandon(self, approval_id: str) -> None:
        """The run was stopped. A second stop does not take the row's end away: it is written all the same."""
        task = self._kept(self._settle_or_look(approval_id, "abandoned"))
        with contextlib.suppress(PalinurusError):  # the stop counts; `recover` settles what could not be written
            await asyncio.shield(task)

    def _kept(self, work: Coroutine[Any, Any, Approval]) -> asyncio.Task[Approval]:
        """A task that goes on whoever stops waiting for it; the loop itself holds tasks only weakly."""
        task = asyncio.create_task(work)
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        return task

    def _tell(self, settled: Approval) -> None:
        answer = self._waiting.get(settled.id)
        if answer is not None and not answer.done():
            answer.set_result(settled)


def must_be_confirmed(told: Sequence[str]) -> None:
    """What every door asks twice is decided here. Raises NotConfirmed when there is something to be told."""
    if told:
        raise NotConfirmed(f"always would let this through: {'; '.join(told)}", hint="say it once more if you mean it")


def outcome(approval: Approval) -> str:
    """What became of it, in words."""
    said = {
        "expired": "nobody answered in time",
        "unattended": "nobody was there to be asked",
        "abandoned": "its run ended before anybody answered",
    }.get(approval.status, approval.status.replace("-", " "))
    by = f" by {approval.decided_by}" if approval.decided_by else ""
    return f"{said}{by}{f' ({approval.decided_where})' if approval.decided_where else ''}"
