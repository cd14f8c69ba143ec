"""Which files hold text from outside, in `home.sqlite`."""

from __future__ import annotations

import os
from collections.abc import Sequence

import apsw
import msgspec
from msgspec.structs import replace

from palinurus.domain.errors import StorageDamaged
from palinurus.storage.database import Database
from palinurus.storage.queries import load_queries
from palinurus.workspace.file_origins import FileOrigin

SQL = load_queries("file_origins.sql")
_BYTES = "bytes:"  # no absolute path begins so


class SqliteFileOrigins:
    """Implements workspace.file_origins.FileOriginStore."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> list[FileOrigin]:
        rows = await self._database.read(lambda connection: connection.execute(SQL["file_origins"]).fetchall())
        try:
            return [_read(msgspec.json.decode(str(row), type=FileOrigin)) for (row,) in rows]
        except (msgspec.DecodeError, ValueError) as error:
            raise StorageDamaged(
                f"the row of a file's origin cannot be read: {error}", hint="restore a backup"
            ) from error

    async def put(self, entries: Sequence[FileOrigin]) -> None:
        values = [
            {"path": _text(each.path), "at": each.at, "row": msgspec.json.encode(_written(each)).decode()}
            for each in entries
        ]

        def work(connection: apsw.Connection) -> None:
            connection.executemany(SQL["put_file_origin"], values)

        await self._database.write(work)

    async def remove(self, paths: Sequence[str]) -> None:
        values = [{"path": _text(path)} for path in paths]

        def work(connection: apsw.Connection) -> None:
            connection.executemany(SQL["remove_file_origin"], values)

        await self._database.write(work)


def _written(entry: FileOrigin) -> FileOrigin:
    sources = tuple(source.encode("utf-8", "replace").decode() for source in entry.sources)
    return replace(entry, path=_text(entry.path), workspace=_text(entry.workspace), sources=sources)


def _read(entry: FileOrigin) -> FileOrigin:
    return replace(entry, path=_path(entry.path), workspace=_path(entry.workspace))


def _text(path: str) -> str:
    """A path may hold bytes that are no character, which neither JSON nor SQLite takes."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return _BYTES + os.fsencode(path).hex()
    return path


def _path(text: str) -> str:
    return os.fsdecode(bytes.fromhex(text.removeprefix(_BYTES))) if text.startswith(_BYTES) else text
