"""Every store is held to its suite in memory, as tests and the simulator have it, on a disk, and on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from palinurus.storage.database import Database, MemoryDatabase
from support.postgres import Server, new_tenant


def make_database(request: pytest.FixtureRequest, tmp_path: Path, engine: str) -> Database:
    if engine == "memory":
        return MemoryDatabase()
    if engine == "disk":
        return Database(tmp_path / "home.sqlite", "home")
    from palinurus.extensions.postgres.database import PostgresDatabase

    server: Server = request.getfixturevalue("postgres")
    return PostgresDatabase(server.schema, new_tenant())


@pytest.fixture(params=["memory", "disk", "postgres"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    made = make_database(request, tmp_path, request.param)
    yield made
    await made.close()


@pytest.fixture(params=["disk", "postgres"])
async def lasting_database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    """One that several connections can look into."""
    made = make_database(request, tmp_path, request.param)
    yield made
    await made.close()
