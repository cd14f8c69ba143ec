"""A sample of the stories, told by a home in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dispatch.test_dispatcher import *  # noqa: F403
from palinurus.extensions.postgres.database import PostgresDatabase
from palinurus.sessions.store import SessionStore
from palinurus.testing.fakes import FakeClock, SeededIds
from palinurus.testing.harness import Harness
from stories.test_conversation import *  # noqa: F403
from support.postgres import Server, new_tenant


@pytest.fixture
async def pal(postgres: Server, workspace: Path) -> AsyncIterator[Harness]:
    database = PostgresDatabase(postgres.schema, new_tenant(), exclusive=True)
    async with Harness(workspace, sessions=SessionStore(database, FakeClock(), SeededIds())) as whole:
        yield whole
    await database.close()
