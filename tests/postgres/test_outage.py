"""The server goes away in the middle of conversations and comes back: they go on, and nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest

from palinurus.domain.messages import AssistantMessage, UserMessage
from palinurus.extensions.postgres.database import PostgresDatabase
from palinurus.sessions.store import SessionStore
from palinurus.testing.fakes import FakeClock, Reply, SeededIds
from palinurus.testing.harness import Harness
from support.postgres import new_tenant, running_server

pytestmark = pytest.mark.slow
SESSIONS, EACH = 4, 6


async def test_conversations_outlast_a_server_that_is_switched_off(workspace: Path) -> None:
    folder = Path(tempfile.gettempdir(), f"pal-pg-{new_tenant()[-12:]}")  # another user must be able to go there
    with running_server(folder, shared=False) as server:
        database = PostgresDatabase(server.schema, new_tenant(), exclusive=True)
        keys = [f"agent:main:s{number}" for number in range(SESSIONS)]
        async with Harness(workspace, sessions=SessionStore(database, FakeClock(), SeededIds())) as pal:
            pal.model.replies = [Reply("Yes.")] * (SESSIONS * EACH)
            answered, some = 0, asyncio.Event()

            async def talk(key: str) -> None:
                nonlocal answered
                for number in range(EACH):
                    assert (await pal.hears(f"{key} {number}", key=key)).status == "ok"
                    answered += 1
                    if answered == SESSIONS:
                        some.set()

            async with asyncio.TaskGroup() as talks:
                for key in keys:
                    talks.create_task(talk(key))
                await some.wait()
                await asyncio.to_thread(server.stop)
                # Not a wait for something to happen: how long the server is away is the fault that is tried.
                await asyncio.sleep(0.5)
                assert answered < SESSIONS * EACH
                await asyncio.to_thread(server.start)
            for key in keys:
                messages = await pal.messages(key)
                said = [each.text for each in messages if isinstance(each, UserMessage)]
                assert said == [f"{key} {number}" for number in range(EACH)]
                assert len([each for each in messages if isinstance(each, AssistantMessage)]) == EACH
            assert await pal.pending() == []
        await database.close()
