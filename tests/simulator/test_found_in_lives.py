"""What simulated lives have found, told as short conversations. The seeds themselves are in test_lives.py."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from palinurus.context.assemble import violations
from palinurus.domain.errors import StorageFull, WorkspaceError
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, ToolCall, UserMessage
from palinurus.domain.tool import ToolOutput, ToolRun, tool
from palinurus.sessions.session import NO_CHANGE, Session, SessionChange
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import Entry
from palinurus.storage.database import MemoryDatabase
from palinurus.storage.jobs import Job, JobQueue
from palinurus.testing.fakes import FakeClock, SeededIds, calls, says
from palinurus.testing.harness import Harness


class FullAtTimes(SessionStore):
    full = False

    async def append(self, session_id: str, entries: Sequence[Entry], change: SessionChange = NO_CHANGE) -> Session:
        if self.full:
            raise StorageFull("the disk is full")
        return await super().append(session_id, entries, change)


class FullAtTheEnd(JobQueue):
    full = False

    async def finish(self, held: Job, outcome: Any, *further: Any) -> Job | None:
        if self.full:
            raise StorageFull("the disk is full")
        return await super().finish(held, outcome, *further)


async def said(pal: Harness) -> list[str]:
    return [message.text for message in await pal.messages() if isinstance(message, UserMessage)]


async def test_a_message_that_met_a_full_disk_waits_and_is_answered_when_it_is_sent_again(workspace: Path) -> None:
    store = FullAtTimes(MemoryDatabase(), FakeClock(), SeededIds(1))
    async with Harness(workspace, sessions=store) as pal:
        pal.model.says("Here.")
        store.full = True
        first = await pal.hears("is anyone there?", idempotency_key="k")
        assert (first.status, first.error) == ("error", "the disk is full")
        assert [job.id for job in await pal.pending()] == [first.run_id]
        store.full = False
        again = await pal.hears("is anyone there?", idempotency_key="k")
        assert (again.status, again.text, again.run_id) == ("ok", "Here.", first.run_id)
        assert await said(pal) == ["is anyone there?"]


async def test_a_message_that_met_a_full_disk_is_taken_up_by_the_next_holder(workspace: Path) -> None:
    store = FullAtTimes(MemoryDatabase(), FakeClock(), SeededIds(1))
    async with Harness(workspace, sessions=store) as pal:
        store.full = True
        await pal.hears("is anyone there?")
        store.full = False
        await pal.crash()
        await pal.idle()
        assert await said(pal) == ["is anyone there?"]
        assert await pal.pending() == []


async def test_a_run_taken_up_late_gets_its_own_answer_and_not_the_newest_one(workspace: Path) -> None:
    async with Harness(workspace, queue=FullAtTheEnd) as pal:
        pal.model.says("One.", "Two.")
        pal.queue.full = True
        first = await pal.hears("first")
        pal.queue.full = False
        assert (await pal.hears("second")).text == "Two."
        await pal.crash()
        await pal.idle()
        result = await pal.result(first.run_id)
        assert result is not None
        assert result.text == "One."
        assert len(pal.model.requests) == 2


async def test_a_run_taken_up_after_a_reset_is_not_said_again_into_the_new_conversation(workspace: Path) -> None:
    async with Harness(workspace, queue=FullAtTheEnd) as pal:
        pal.queue.full = True
        first = await pal.hears("first")
        pal.queue.full = False
        await pal.hears("/new")
        await pal.crash()
        await pal.idle()
        result = await pal.result(first.run_id)
        assert result is not None
        assert result.status == "error"
        assert "went on" in result.error
        assert len(pal.model.requests) == 1


async def test_a_message_to_an_agent_without_a_workspace_is_kept_with_the_reason(
    pal: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(pal.agents, "get", _out_of_reach)
        result = await pal.hears("are you there?")
    assert (result.status, "mount it" in result.error) == ("error", True)
    assert (await pal.hears("and now?")).status == "ok"
    assert await said(pal) == ["are you there?", "and now?"]
    assert violations(pal.model.requests[-1].messages) == []


def _out_of_reach(agent_id: str) -> object:
    raise WorkspaceError("the workspace is not there", hint="mount it")


async def test_half_a_character_costs_that_character_and_not_the_message(pal: Harness) -> None:
    pal.model.says("cut \udc4d here")
    result = await pal.hears("look: \ud83d end, \ud83d\udc4d whole")
    assert result.text == "cut \ufffd here"
    assert await said(pal) == ["look: \ufffd end, 👍 whole"]


async def test_two_calls_with_one_id_are_sent_back_as_one(pal: Harness) -> None:
    twice = (ToolCall("c1", "ls", {}), ToolCall("c1", "read", {"path": "SOUL.md"}))
    pal.model.says(calls(*twice), says("Done."))
    assert (await pal.hears("go")).text == "Done."
    sent = pal.model.requests[-1].messages
    assert violations(sent) == []
    replies = [message for message in sent if isinstance(message, AssistantMessage)]
    assert [call.name for call in replies[-1].calls] == ["ls"]


async def test_a_tool_that_is_cancelled_by_nobody_costs_its_result_and_not_the_lane(workspace: Path) -> None:
    @tool("flaky", "Wait for what was cancelled.")
    async def flaky(run: ToolRun) -> ToolOutput:
        raise asyncio.CancelledError

    async with Harness(workspace, tools=[flaky]) as pal:
        pal.model.says(calls(ToolCall("c1", "flaky", {})), "It gave up.", "Still here.")
        assert (await pal.hears("try")).text == "It gave up."
        assert (await pal.hears("and?")).text == "Still here."
        assert (await pal.tool_results())[0].is_error


async def test_a_provider_that_is_cancelled_by_nobody_costs_its_turn_and_not_the_lane(
    pal: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cancelled(request: object) -> object:
        raise asyncio.CancelledError

    with monkeypatch.context() as patched:
        patched.setattr(pal.model, "stream", cancelled)
        assert (await pal.hears("hello?")).status == "error"
    assert (await pal.hears("and now?")).status == "ok"
    assert pal.dispatcher.runs.active(SessionKey.main()) == []
