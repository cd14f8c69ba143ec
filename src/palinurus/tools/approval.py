"""Approvals: a person decides about one exact plan, from every surface, before a deadline.

An approval is stored before anyone is notified. It names the digest of the plan that was shown, so a decision for one
plan never releases another, and it is decided once. Secrets are removed from the plan before it is stored or shown; the
digest is that of the plan as it will run.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal

from msgspec import Struct, structs

from palinurus.domain.errors import BadRequest, NotFound, PalinurusError
from palinurus.domain.events import ApprovalAsked, ApprovalSettled, Plan
from palinurus.domain.keys import SessionKey
from palinurus.domain.tool import PreparedCall, ToolRun
from palinurus.storage.database import Database
from palinurus.storage.transaction import Transaction, declare_queries, decoded, encoded
from palinurus.tools.grant_issuer import GrantIssuer, GrantTerms, find_id, must_be_confirmed, rules_for, short_id
from palinurus.tools.grants import Grant

declare_queries("approvals", __file__)
MOST_PENDING = 50
MOST_SOURCES = 20  # the most sources listed in one approval

Status = Literal["pending", "allowed-once", "allowed-always", "denied", "expired", "unattended", "abandoned"]
"""unattended: no person could be asked. abandoned: the run or its process ended before a decision."""

Answer = Literal["allow-once", "allow-always", "deny"]
EXACTLY = GrantTerms()  # grants exactly the shown plan, for the agent's usual period
DECIDED: dict[Answer, Status] = {"allow-once": "allowed-once", "allow-always": "allowed-always", "deny": "denied"}


class Approval(Struct, frozen=True, rename="camel", omit_defaults=True):
    id: str  # short enough to be typed
    run_id: str
    session_key: str
    tool: str
    plan: Plan
    digest: str
    reason: str  # why an approval is needed
    asked_at: int
    deadline: int
    status: Status = "pending"
    decided_at: int | None = None
    decided_by: str = ""  # who: owner, telegram:42
    decided_where: str = ""  # on which surface: chat, cli, page
    grant_id: str = ""  # grants made by allow-always; several ids for a pipeline, separated by commas
    sources: tuple[str, ...] = ()  # sources of the text from outside that made an approval necessary


class ApprovalStore:
    """Stores approvals in the home's database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, approval: Approval) -> None:
        values = {"id": approval.id, "asked_at": approval.asked_at, "status": approval.status, "row": encoded(approval)}

        def work(tx: Transaction) -> None:
            if not tx.run("approvals.add", **values):
                raise BadRequest(f"approval {approval.id!r} exists already", hint="it needs another id")

        await self._database.write(work)

    async def settle(
        self, approval_id: str, status: Status, at: int, *, by: str = "", where: str = "", grant_id: str = ""
    ) -> Approval:
        """Returns the approval with its decision. Raises NotFound, or BadRequest if it was already decided."""
        decision = {"decided_at": at, "decided_by": by, "decided_where": where, "grant_id": grant_id}

        def work(tx: Transaction) -> Approval:
            row = tx.value("approvals.one", id=approval_id)
            if row is None:
                raise NotFound(f"there is no approval {approval_id!r}", hint="`pal approvals list` shows them")
            approval = _read(row)
            if approval.status != "pending":
                before = f" by {approval.decided_by}" if approval.decided_by else ""
                raise BadRequest(f"approval {approval.id} is already decided: {approval.status}{before}")
            settled = structs.replace(approval, status=status, **decision)
            tx.run("approvals.settle", id=approval_id, status=status, row=encoded(settled))
            return settled

        return await self._database.write(work)

    async def get(self, approval_id: str) -> Approval | None:
        found = await self._found("approvals.one", id=approval_id)
        return found[0] if found else None

    async def pending(self) -> list[Approval]:
        """Returns pending approvals, oldest first."""
        return await self._found("approvals.pending")

    async def recent(self, *, limit: int = 50) -> list[Approval]:
        """Returns recent approvals, newest first."""
        return await self._found("approvals.recent", limit=limit)

    async def _found(self, query: str, **values: Any) -> list[Approval]:
        return [_read(row) for (row,) in await self._database.read(lambda tx: tx.all(query, **values))]


def _read(row: str) -> Approval:
    return decoded(row, Approval, "the row of an approval")


class Approvals(Struct, eq=False):
    """Creates approvals for the gate and takes the decisions of every surface."""

    _store: ApprovalStore
    issuer: GrantIssuer
    redact: Callable[[str], str] = lambda text: text
    most: int = MOST_PENDING
    _waiting: dict[str, asyncio.Future[Approval]] = {}
    _writing: set[asyncio.Task[Approval]] = set()
    _leaving: bool = False

    async def ask(self, run: ToolRun, prepared: PreparedCall, reason: str) -> Approval:
        """Asks for approval and waits until it is decided, expired or unattended. Cancelling abandons it."""
        seconds = self.issuer.settings(run.key.agent).approval_timeout_sec
        approval = await self._new_approval(run, prepared, reason, seconds)
        if not run.attended or self._leaving:
            return await self._settle_unasked(run, approval, "unattended")
        if len(self._waiting) >= self.most:
            full = f"{approval.reason}; {self.most} approvals are pending already, so no new one was created"
            return await self._settle_unasked(run, structs.replace(approval, reason=full), "expired")
        answer: asyncio.Future[Approval] = asyncio.get_running_loop().create_future()
        self._waiting[approval.id] = answer
        try:
            await self._store.add(approval)
            shown = approval.plan, approval.digest, approval.reason, approval.deadline, approval.sources
            run.emit(ApprovalAsked(approval.id, *shown))
            try:
                async with asyncio.timeout(seconds):
                    settled = await answer
            except TimeoutError:
                settled = await self._settle_or_look(approval.id, "expired")
        except asyncio.CancelledError:
            run.emit(ApprovalSettled(approval.id, "abandoned"))
            task = self._keep_going(self._settle_or_look(approval.id, "abandoned"))
            with contextlib.suppress(PalinurusError):  # if the write failed, `recover` settles it at the next start
                await asyncio.shield(task)  # a second cancellation does not stop the write
            raise
        finally:
            del self._waiting[approval.id]
        run.emit(ApprovalSettled(settled.id, settled.status, settled.decided_by))
        return settled

    async def answer(
        self, approval_id: str, answer: Answer, *, by: str, where: str, digest: str = "", always: GrantTerms = EXACTLY
    ) -> Approval:
        """Stores a decision. `digest` is that of the shown plan; `always` says what allow-always grants.

        Raises NotFound for an unknown id; BadRequest if the approval is already decided, the digest is of another plan,
        or always is impossible; NotConfirmed if always needs a confirmation and has none.
        """
        approval = await self._open(approval_id)
        if digest and digest != approval.digest:
            said = f"approval {approval.id} is for a different plan than the one shown"
            raise BadRequest(said, hint=f"show it again: `pal approvals show {approval.id}`")
        grants: list[Grant] = []
        if answer == "allow-always":
            from palinurus.tools.rule_proposals import warnings

            if why := self.why_not_always(approval):
                raise BadRequest(f"this cannot be always allowed: {why}", hint="allow it once")
            terms = structs.replace(always, drafts=rules_for(approval.plan, always.drafts))
            if not terms.confirmed:
                must_be_confirmed(warnings(terms.drafts))
            grants = await self.issuer.draw_up(terms, session_key=approval.session_key, by=by)
        elif always.drafts:
            raise BadRequest("a rule needs allow-always")
        # If the surface closes now, the decision stays stored and the run gets it.
        decided = self._decide(approval.id, DECIDED[answer], grants, by, where)
        return await asyncio.shield(self._keep_going(decided))

    def why_not_always(self, approval: Approval) -> str:
        """Returns why no lasting grant is possible; empty if one is."""
        if approval.digest != approval.plan.digest:
            return "it contains a secret, and grants must not contain secrets"
        if approval.sources:
            return "it needs approval because of text from outside; use /trust to trust the source instead"
        return self.issuer.why_not(approval.plan, SessionKey.parse(approval.session_key).agent)

    async def find(self, approval_id: str) -> Approval:
        """Finds an approval by its id, or a pending one by the start of its id. Raises NotFound or BadRequest."""
        wanted = approval_id.strip().lower()
        if wanted and (known := await self._store.get(wanted)):
            return known
        pending = {each.id: each for each in await self._store.pending()}
        return pending[find_id(approval_id, pending, "approval", "`pal approvals list` shows pending approvals")]

    async def pending(self, session_key: str = "") -> list[Approval]:
        """Returns pending approvals, oldest first."""
        return [each for each in await self._store.pending() if session_key in ("", each.session_key)]

    async def recent(self, *, limit: int = 50) -> list[Approval]:
        return await self._store.recent(limit=limit)

    async def recover(self) -> int:
        """Settles approvals left pending by an earlier process. Returns how many. Called at start."""
        left = [each for each in await self._store.pending() if each.id not in self._waiting]
        for each in left:
            await self._settle_or_look(each.id, "abandoned")
        return len(left)

    async def release(self) -> int:
        """Releases all waiting runs without a decision. Called when the process ends."""
        self._leaving = True
        waiting = [each for each in await self._store.pending() if each.id in self._waiting]
        for each in waiting:
            self._tell(await self._settle_or_look(each.id, "abandoned"))
        return len(waiting)

    async def _new_approval(self, run: ToolRun, prepared: PreparedCall, reason: str, seconds: float) -> Approval:
        from palinurus.domain.events import without_secrets

        now, plan, key = self.issuer.clock.now_ms(), prepared.plan, str(run.key)
        texts = run.suspects if reason == prepared.when_untrusted else ()
        sources = tuple(dict.fromkeys(text.source for text in texts if text.source))[:MOST_SOURCES]
        shown, deadline = without_secrets(plan, self.redact), now + round(seconds * 1000)
        why = self.redact(reason)
        while (fresh := short_id(self.issuer.new_id)) in self._waiting or await self._store.get(fresh):
            pass
        return Approval(fresh, run.run_id, key, plan.tool, shown, plan.digest, why, now, deadline, sources=sources)

    async def _settle_unasked(self, run: ToolRun, approval: Approval, status: Status) -> Approval:
        settled = structs.replace(approval, status=status, decided_at=approval.asked_at)
        await self._store.add(settled)
        run.emit(ApprovalSettled(settled.id, status))
        return settled

    async def _open(self, approval_id: str) -> Approval:
        """Returns the approval if it can still be decided; raises otherwise."""
        approval = await self.find(approval_id)
        if approval.status == "pending" and self.issuer.clock.now_ms() >= approval.deadline:
            approval = await self._settle_or_look(approval.id, "expired")
            self._tell(approval)
        elif approval.status == "pending" and approval.id not in self._waiting:
            approval = await self._settle_or_look(approval.id, "abandoned")
        if approval.status != "pending":
            said = f"approval {approval.id} is already settled: {outcome(approval)}"
            raise BadRequest(said, hint="send the request to the agent again")
        return approval

    async def _decide(self, approval_id: str, status: Status, grants: Sequence[Grant], by: str, where: str) -> Approval:
        """Settles the approval before making grants: of two simultaneous decisions, the losing one leaves no grant."""
        ids = ",".join(grant.id for grant in grants)
        settled = await self._store.settle(
            approval_id, status, self.issuer.clock.now_ms(), by=by, where=where, grant_id=ids
        )
        try:
            await self.issuer.give(grants)
        finally:
            self._tell(settled)
        return settled

    async def _settle_or_look(self, approval_id: str, status: Status) -> Approval:
        """Settles the approval, or returns it as another caller has settled it."""
        try:
            return await self._store.settle(approval_id, status, self.issuer.clock.now_ms())
        except BadRequest:
            known = await self._store.get(approval_id)
            if known is None or known.status == "pending":
                raise
            return known

    def _keep_going(self, work: Coroutine[Any, Any, Approval]) -> asyncio.Task[Approval]:
        """Starts a task that survives cancellation of its waiter. Keeps a reference, because the loop has only weak
        ones."""
        task = asyncio.create_task(work)
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        return task

    def _tell(self, settled: Approval) -> None:
        answer = self._waiting.get(settled.id)
        if answer is not None and not answer.done():
            answer.set_result(settled)


def outcome(approval: Approval) -> str:
    """Describes how the approval ended."""
    said = {
        "expired": "not answered in time",
        "unattended": "no person could be asked",
        "abandoned": "its run ended before a decision",
    }.get(approval.status, approval.status.replace("-", " "))
    by = f" by {approval.decided_by}" if approval.decided_by else ""
    return f"{said}{by}{f' ({approval.decided_where})' if approval.decided_where else ''}"
