"""Tokens and devices in `home.sqlite`. Of a token only the digest is there."""

from __future__ import annotations

from typing import Any, TypeVar

import apsw
import msgspec
from msgspec import Struct

from palinurus.domain.errors import BadRequest, StorageDamaged
from palinurus.operations.access import PairedDevice, Token
from palinurus.storage.database import Database
from palinurus.storage.queries import load_queries

SQL = load_queries("access.sql")
S = TypeVar("S", bound=Struct)


class SqliteAccess:
    """Implements operations.access.AccessStore."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def tokens(self) -> list[Token]:
        return await self._all("tokens", Token)

    async def put_token(self, token: Token) -> None:
        values = {"id": token.id, "digest": token.digest, "row": _row(token)}

        def work(connection: apsw.Connection) -> None:
            holder = connection.execute(SQL["token_with_digest"], {"digest": token.digest}).get
            if holder not in (None, token.id):
                raise digest_taken(token)
            connection.execute(SQL["put_token"], values)

        await self._database.write(work)

    async def devices(self) -> list[PairedDevice]:
        return await self._all("devices", PairedDevice)

    async def put_device(self, device: PairedDevice) -> None:
        values = {"id": device.id, "row": _row(device)}
        await self._database.write(lambda connection: connection.execute(SQL["put_device"], values))

    async def _all(self, query: str, kind: type[S]) -> list[S]:
        rows = await self._database.read(lambda connection: connection.execute(SQL[query]).fetchall())
        return [_read(row, kind) for (row,) in rows]


def digest_taken(token: Token) -> BadRequest:
    return BadRequest(f"token {token.id!r} has the secret of another", hint="make a new one")


def _row(record: Struct) -> str:
    return msgspec.json.encode(record).decode()


def _read(row: Any, kind: type[S]) -> S:
    try:
        return msgspec.json.decode(row, type=kind)
    except msgspec.DecodeError as error:
        name = "token" if kind is Token else "device"
        raise StorageDamaged(f"the row of a {name} cannot be read: {error}", hint="restore a backup") from error
