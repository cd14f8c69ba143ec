"""Approvals and grants in `home.sqlite`."""

from __future__ import annotations

from typing import Any, TypeVar

import apsw
import msgspec
from msgspec import Struct

from palinurus.domain.errors import BadRequest, NotFound, StorageDamaged
from palinurus.storage.database import Database
from palinurus.storage.queries import load_queries
from palinurus.tools.approvals.approval import Approval, Settlement
from palinurus.tools.grants.grants import Grant, holds

SQL = load_queries("approvals.sql")
MAX_COMMAND = 500  # characters of a grant's last command
TOUCH_MS = 60_000  # how exact it is when a grant was last used, for the same command
S = TypeVar("S", bound=Struct)


class SqliteApprovals:
    """Implements tools.approval.ApprovalStore."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, approval: Approval) -> None:
        values = {"id": approval.id, "asked_at": approval.asked_at, "status": approval.status, "row": _row(approval)}

        def work(connection: apsw.Connection) -> None:
            connection.execute(SQL["add_approval"], values)
            if not connection.changes():
                raise id_taken("approval", approval.id)

        await self._database.write(work)

    async def settle(self, approval_id: str, settlement: Settlement) -> Approval:
        def work(connection: apsw.Connection) -> Approval:
            rows = connection.execute(SQL["approval"], {"id": approval_id}).fetchall()
            if not rows:
                raise no_approval(approval_id)
            decided = decide(_read(rows[0][0], Approval), settlement)
            values = {"id": approval_id, "status": decided.status, "row": _row(decided)}
            connection.execute(SQL["settle_approval"], values)
            return decided

        return await self._database.write(work)

    async def get(self, approval_id: str) -> Approval | None:
        found = await self._found("approval", id=approval_id)
        return found[0] if found else None

    async def pending(self) -> list[Approval]:
        return await self._found("approvals_pending")

    async def recent(self, *, limit: int = 50) -> list[Approval]:
        return await self._found("approvals_recent", limit=limit)

    async def _found(self, query: str, **values: Any) -> list[Approval]:
        return await _found(self._database, Approval, query, values)


class SqliteGrants:
    """Implements tools.grants.GrantStore."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._used: dict[str, tuple[int, str]] = {}  # when and for what, as this process has written it

    async def add(self, grant: Grant) -> None:
        values = {"created_at": grant.created_at, **_values(grant)}

        def work(connection: apsw.Connection) -> None:
            connection.execute(SQL["add_grant"], values)
            if not connection.changes():
                raise id_taken("grant", grant.id)

        await self._database.write(work)

    async def active(self, *, agent: str, session_key: str, now: int) -> list[Grant]:
        unrevoked = await _found(self._database, Grant, "grants_unrevoked", {})
        return [grant for grant in unrevoked if holds(grant, agent=agent, session_key=session_key, now=now)]

    async def all(self) -> list[Grant]:
        return await _found(self._database, Grant, "grants_all", {})

    async def revoke(self, grant_id: str, now: int) -> Grant:
        def work(connection: apsw.Connection) -> Grant:
            grant = _grant(connection, grant_id)
            if grant is None:
                raise no_grant(grant_id)
            if grant.revoked_at is None:
                grant = msgspec.structs.replace(grant, revoked_at=now)
                connection.execute(SQL["change_grant"], _values(grant))
            return grant

        return await self._database.write(work)

    async def used(self, grant_id: str, now: int, command: str) -> None:
        """The same command again within a minute is not worth a write."""
        at, before = self._used.get(grant_id, (0, ""))
        if before == command and 0 <= now - at < TOUCH_MS:
            return

        def work(connection: apsw.Connection) -> None:
            grant = _grant(connection, grant_id)
            if grant is not None:
                connection.execute(SQL["change_grant"], _values(after_use(grant, now, command)))

        await self._database.write(work)
        self._used[grant_id] = now, command


def decide(approval: Approval, settlement: Settlement) -> Approval:
    """The approval as it was decided. Raises BadRequest when that was done before."""
    if approval.status != "pending":
        by = f" by {approval.decided_by}" if approval.decided_by else ""
        raise BadRequest(f"approval {approval.id} was decided before: {approval.status}{by}")
    return msgspec.structs.replace(
        approval,
        status=settlement.status,
        decided_at=settlement.at,
        decided_by=settlement.by,
        decided_where=settlement.where,
        grant_id=settlement.grant_id,
    )


def after_use(grant: Grant, now: int, command: str) -> Grant:
    shown = command if len(command) <= MAX_COMMAND else f"{command[:MAX_COMMAND]}…"
    return msgspec.structs.replace(grant, last_used_at=now, last_used_command=shown)


def no_approval(approval_id: str) -> NotFound:
    return NotFound(f"there is no approval {approval_id!r}", hint="`pal approvals list` shows them")


def no_grant(grant_id: str) -> NotFound:
    return NotFound(f"there is no grant {grant_id!r}", hint="`pal approvals grants` shows them")


def id_taken(what: str, taken: str) -> BadRequest:
    return BadRequest(f"{what} {taken!r} exists already", hint="it needs another id")


async def _found(database: Database, kind: type[S], query: str, values: dict[str, Any]) -> list[S]:
    rows = await database.read(lambda connection: connection.execute(SQL[query], values).fetchall())
    return [_read(row, kind) for (row,) in rows]


def _grant(connection: apsw.Connection, grant_id: str) -> Grant | None:
    rows = connection.execute(SQL["grant"], {"id": grant_id}).fetchall()
    return _read(rows[0][0], Grant) if rows else None


def _values(grant: Grant) -> dict[str, Any]:
    return {"id": grant.id, "revoked_at": grant.revoked_at, "row": _row(grant)}


def _row(record: Struct) -> str:
    return msgspec.json.encode(record).decode()


def _read(row: Any, kind: type[S]) -> S:
    try:
        return msgspec.json.decode(row, type=kind)
    except msgspec.DecodeError as error:
        name = kind.__name__.lower()
        raise StorageDamaged(f"the row of a {name} cannot be read: {error}", hint="restore a backup") from error
