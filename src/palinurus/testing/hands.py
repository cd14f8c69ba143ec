"""What hands leave behind, kept in memory: the audit log, approvals and grants, held to the suites of SQLite's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import msgspec

from palinurus.domain.clock import Clock
from palinurus.domain.errors import StorageError
from palinurus.ledger.audit import AuditEvent, AuditReport, AuditRow, PastCommand
from palinurus.ledger.chain import BEGINNING, Link, NewSalt, Walk, erasures, linked, loose, past_commands, row_of
from palinurus.storage.approvals import after_use, decide, id_taken, no_approval, no_grant
from palinurus.tools.approvals.approval import Approval, Settlement
from palinurus.tools.grants.grants import Grant, holds
from palinurus.workspace.file_origins import FileOrigin


class MemoryAudit:
    """Implements ledger.audit.AuditLog."""

    def __init__(self, clock: Clock, new_salt: NewSalt) -> None:
        self._clock = clock
        self._new_salt = new_salt
        self.links: list[Link] = []
        self.failure: StorageError | None = None
        """A disk that cannot be written: what is handed in from now on is lost, and told as SQLite would."""
        self._untold: StorageError | None = None

    @property
    def kept(self) -> list[AuditRow]:
        """Everything, oldest first."""
        return [row_of(link) for link in self.links]

    async def record(self, event: AuditEvent) -> None:
        self.note(event)
        await self.settled()

    def note(self, event: AuditEvent) -> None:
        link = loose(event, self._new_salt())
        if self.failure is not None:
            self._untold = self.failure
        else:
            self._append(link)

    async def settled(self) -> None:
        await asyncio.sleep(0)
        untold, self._untold = self._untold, None
        if untold is not None:
            raise untold

    async def rows(
        self, *, limit: int = 50, session: str = "", run: str = "", tool: str = "", before: int = 0
    ) -> list[AuditRow]:
        await asyncio.sleep(0)
        fitting = (
            row
            for row in map(row_of, reversed(self.links))
            if session in ("", row.session_key)
            and tool in ("", row.tool)
            and row.run_id.startswith(run)
            and (not before or row.seq < before)
        )
        return [row for _, row in zip(range(limit), fitting, strict=False)]

    async def commands(self, *, agent: str = "", limit: int = 10_000) -> list[PastCommand]:
        await asyncio.sleep(0)
        return past_commands(self._about_commands(f"agent:{agent}:" if agent else ""), limit)

    async def verify(self, *, expect: str = "") -> AuditReport:
        await asyncio.sleep(0)
        walk = Walk(expect)
        walk.along(self.links)
        return walk.end()

    async def erase(self, seqs: Sequence[int]) -> int:
        await asyncio.sleep(0)
        gone = [seq for seq in sorted(set(seqs)) if self._has_details(seq)]
        for seq in gone:
            self.links[seq - 1] = self.links[seq - 1]._replace(salt=None, details=None)
        for event in erasures(gone, self._clock.now_ms()):
            self._append(loose(event, self._new_salt()))
        return len(gone)

    def _append(self, link: Link) -> None:
        previous = self.links[-1].hash if self.links else BEGINNING.encode()
        self.links.append(linked(link, len(self.links) + 1, previous))

    def _has_details(self, seq: int) -> bool:
        if not 0 < seq <= len(self.links):
            return False
        link = self.links[seq - 1]
        return link.details is not None and link.kind != b"erase"

    def _about_commands(self, prefix: str) -> Iterator[Link]:
        for link in reversed(self.links):
            wanted = link.tool == b"exec" and link.kind in (b"call", b"decision")
            if wanted and link.session_key.startswith(prefix.encode()):
                yield link


class MemoryApprovals:
    """Implements tools.approval.ApprovalStore."""

    def __init__(self) -> None:
        self.kept: dict[str, Approval] = {}  # by id, in the order in which they were asked

    async def add(self, approval: Approval) -> None:
        await asyncio.sleep(0)
        if approval.id in self.kept:
            raise id_taken("approval", approval.id)
        self.kept[approval.id] = approval

    async def settle(self, approval_id: str, settlement: Settlement) -> Approval:
        await asyncio.sleep(0)
        if approval_id not in self.kept:
            raise no_approval(approval_id)
        self.kept[approval_id] = decide(self.kept[approval_id], settlement)
        return self.kept[approval_id]

    async def get(self, approval_id: str) -> Approval | None:
        await asyncio.sleep(0)
        return self.kept.get(approval_id)

    async def pending(self) -> list[Approval]:
        await asyncio.sleep(0)
        return [approval for approval in self._by_time() if approval.status == "pending"]

    async def recent(self, *, limit: int = 50) -> list[Approval]:
        await asyncio.sleep(0)
        return self._by_time()[::-1][:limit]

    def _by_time(self) -> list[Approval]:
        return sorted(self.kept.values(), key=lambda approval: approval.asked_at)


class MemoryGrants:
    """Implements tools.grants.GrantStore."""

    def __init__(self, *grants: Grant) -> None:
        self.kept: dict[str, Grant] = {grant.id: grant for grant in grants}

    async def add(self, grant: Grant) -> None:
        await asyncio.sleep(0)
        if grant.id in self.kept:
            raise id_taken("grant", grant.id)
        self.kept[grant.id] = grant

    async def active(self, *, agent: str, session_key: str, now: int) -> list[Grant]:
        await asyncio.sleep(0)
        return [grant for grant in self._by_time() if holds(grant, agent=agent, session_key=session_key, now=now)]

    async def all(self) -> list[Grant]:
        await asyncio.sleep(0)
        return self._by_time()[::-1]

    async def revoke(self, grant_id: str, now: int) -> Grant:
        await asyncio.sleep(0)
        if grant_id not in self.kept:
            raise no_grant(grant_id)
        grant = self.kept[grant_id]
        if grant.revoked_at is None:
            self.kept[grant_id] = grant = msgspec.structs.replace(grant, revoked_at=now)
        return grant

    async def used(self, grant_id: str, now: int, command: str) -> None:
        await asyncio.sleep(0)
        if grant_id in self.kept:
            self.kept[grant_id] = after_use(self.kept[grant_id], now, command)

    def _by_time(self) -> list[Grant]:
        return sorted(self.kept.values(), key=lambda grant: grant.created_at)


class MemoryFileOrigins:
    """Implements workspace.file_origins.FileOriginStore."""

    def __init__(self) -> None:
        self.kept: dict[str, FileOrigin] = {}  # by path

    async def all(self) -> list[FileOrigin]:
        await asyncio.sleep(0)
        return sorted(self.kept.values(), key=lambda each: each.at)

    async def put(self, entries: Sequence[FileOrigin]) -> None:
        await asyncio.sleep(0)
        self.kept |= {each.path: each for each in entries}

    async def remove(self, paths: Sequence[str]) -> None:
        await asyncio.sleep(0)
        for path in paths:
            self.kept.pop(path, None)
