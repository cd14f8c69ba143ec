"""The dispatcher: accepted means committed, asked twice means once, and what a dead process left is taken up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from palinurus.dispatch.dispatcher import MAX_RESUMES, MAX_TEXT, RESUME_WITHIN_MS, run_job
from palinurus.dispatch.lanes import Lanes
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest, HolderLost, NotFound, QueueFull, StorageError
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, ToolResult, UserMessage
from palinurus.domain.tool import ToolOutput, ToolRun, tool
from palinurus.providers.provider import ModelRequest, ReplyEvent
from palinurus.storage.jobs import Job, JobQueue
from palinurus.testing.fakes import ScriptedProvider, call, calls
from palinurus.testing.harness import Harness

MAIN = "agent:main:main"


class Gated(ScriptedProvider):
    """Answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.gate = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ReplyEvent]:
        self.asked.set()
        await self.gate.wait()
        async for event in super().stream(request):
            yield event


@pytest.fixture
async def slow(workspace: Path) -> AsyncIterator[Harness]:
    """A Palinurus whose model is still thinking."""
    async with Harness(workspace, model=Gated()) as whole:
        yield whole


async def asked(pal: Harness) -> None:
    await asyncio.wait_for(pal.model.asked.wait(), 60)


def texts(messages: list[object]) -> list[str]:
    return [message.text for message in messages if isinstance(message, UserMessage | AssistantMessage | ToolResult)]


async def test_submit_answers_at_once_and_the_message_is_a_row(slow: Harness) -> None:
    run = await slow.submits("hi")
    (job,) = await slow.pending()
    assert (job.id, msgspec.json.decode(job.payload)["text"], job.outcome) == (run.id, "hi", None)
    assert run.result is None
    slow.model.gate.set()
    assert (await run.wait(60)).text == "you said: hi"
    assert await slow.result(run.id) == run.result


@pytest.mark.parametrize(
    ("inbound", "why"),
    [
        (Inbound("  \n", "k"), "empty"),
        (Inbound("x" * (MAX_TEXT + 1), "k"), "1,000,001 characters"),
        (Inbound("hi", ""), "idempotency key"),
    ],
)
async def test_a_message_that_makes_no_sense_is_refused_and_leaves_no_row(
    pal: Harness, inbound: Inbound, why: str
) -> None:
    with pytest.raises(BadRequest, match=why):
        await pal.dispatcher.submit(inbound)
    assert await pal.pending() == []


async def test_a_full_lane_refuses_before_it_accepts(slow: Harness) -> None:
    slow.dispatcher._lanes = Lanes(at_once=1, cap=2)
    kept = [await slow.submits(text) for text in "ab"]
    with pytest.raises(QueueFull):
        await slow.submits("c")
    assert len(await slow.pending()) == 2
    slow.model.gate.set()
    assert [(await run.wait(60)).status for run in kept] == ["ok", "ok"]


async def test_the_same_key_at_the_same_time_is_one_run(slow: Harness) -> None:
    runs = await asyncio.gather(*(slow.submits("hi", idempotency_key="same") for _ in range(20)))
    assert len({run.id for run in runs}) == 1
    slow.model.gate.set()
    results = await asyncio.gather(*(run.wait(60) for run in runs))
    assert len(slow.model.requests) == 1
    assert len({result.run_id for result in results}) == 1
    assert texts(await slow.messages()) == ["hi", "you said: hi"]  # type: ignore[arg-type]


async def test_the_same_key_after_the_end_gives_the_same_answer(pal: Harness) -> None:
    first = await pal.hears("hi", idempotency_key="same")
    again = await pal.hears("hi", idempotency_key="same")
    assert again == first
    pal.start()  # another process, which never saw the run
    assert await pal.hears("hi", idempotency_key="same") == first
    assert len(pal.model.requests) == 1


async def test_the_same_key_after_a_crash_leads_to_the_run_that_is_taken_up(slow: Harness) -> None:
    run = await slow.submits("hi", idempotency_key="same")
    await asked(slow)
    await slow.crash()
    slow.model.gate.set()
    again = await slow.hears("hi", idempotency_key="same")
    assert again.run_id == run.id
    assert again.status == "ok"
    assert texts(await slow.messages()) == ["hi", "you said: hi"]  # type: ignore[arg-type]


async def test_what_waited_in_the_lane_when_the_process_died_is_answered_in_order(slow: Harness) -> None:
    for text in ("one", "two", "three"):
        await slow.submits(text)
    await asked(slow)
    slow.model.gate.set()
    await slow.crash()
    await slow.idle()
    assert texts(await slow.messages())[::2] == ["one", "two", "three"]  # type: ignore[arg-type]
    assert await slow.pending() == []


async def test_a_turn_that_died_between_its_tools_goes_on_where_it_broke_off(workspace: Path) -> None:
    ran: list[str] = []
    block = asyncio.Event()

    @tool("work", "Do some work.")
    async def work(run: ToolRun, part: str) -> ToolOutput:
        ran.append(part)
        if part == "second" and ran.count("second") == 1:
            block.set()
            await asyncio.Event().wait()
        return ToolOutput(f"did {part}")

    async with Harness(workspace, tools=[work]) as pal:
        pal.model.says(calls(call("work", "a", part="first"), call("work", "b", part="second")), "All done.")
        run = await pal.submits("go")
        await asyncio.wait_for(block.wait(), 60)
        await pal.crash()
        result = await (await pal.dispatcher.find(run.id)).wait(60)
        assert result.text == "All done."
        assert ran == ["first", "second"]  # a call that may have had its effect is not made again
        resumed = pal.model.requests[-1].messages
        assert [type(message) for message in resumed] == [UserMessage, AssistantMessage, ToolResult, ToolResult]
        assert resumed[2].text == "did first"
        assert "interrupted" in resumed[3].text


async def test_a_turn_that_was_answered_but_not_finished_calls_no_model_again(pal: Harness) -> None:
    first = await pal.hears("hi")
    await pal.database.write(lambda tx: tx.execute("UPDATE jobs SET state = 'running', outcome = NULL"))
    await pal.crash()
    await pal.idle()
    result = await pal.result(first.run_id)
    assert result is not None
    assert (result.status, result.text) == ("ok", "you said: hi")
    assert len(pal.model.requests) == 1
    assert len(await pal.messages()) == 2


async def left_behind(pal: Harness, *, age_ms: int = 0, resumed: int = 0) -> str:
    accepted = pal.clock.now_ms() - age_ms
    job = run_job("r1", SessionKey.parse(MAIN), Inbound("are you there?", "k1"), accepted)
    await pal.queue.add(msgspec.structs.replace(job, attempts=1 + resumed), 0)
    return "r1"


@pytest.mark.parametrize(
    ("age_ms", "resumed", "status"),
    [
        (0, 0, "ok"),
        (RESUME_WITHIN_MS, MAX_RESUMES - 1, "ok"),
        (RESUME_WITHIN_MS + 1, 0, "aborted"),
        (0, MAX_RESUMES, "aborted"),
    ],
)
async def test_what_is_too_old_or_was_tried_too_often_is_kept_without_calling_a_model(
    pal: Harness, age_ms: int, resumed: int, status: str
) -> None:
    run_id = await left_behind(pal, age_ms=age_ms, resumed=resumed)
    assert await pal.dispatcher.recover() == 1
    result = await (await pal.dispatcher.find(run_id)).wait(60)
    assert result.status == status
    assert len(pal.model.requests) == (status == "ok")
    said, reply = await pal.messages()
    assert said.text == "are you there?"
    assert isinstance(reply, AssistantMessage)
    assert reply.stop_reason == ("stop" if status == "ok" else "aborted")


async def test_each_recovery_counts_as_an_attempt_until_there_are_too_many(slow: Harness) -> None:
    run = await slow.submits("hi")
    for _ in range(MAX_RESUMES):
        await asked(slow)
        slow.model.asked.clear()
        await slow.crash()
    await asked(slow)
    await slow.crash()
    assert (await (await slow.dispatcher.find(run.id)).wait(60)).status == "aborted"


async def test_recovering_twice_runs_nothing_twice(pal: Harness) -> None:
    await left_behind(pal)
    await pal.dispatcher.recover()
    await pal.dispatcher.recover()
    await pal.idle()
    assert len(pal.model.requests) == 1


async def test_a_run_that_nobody_knows_is_not_found(pal: Harness) -> None:
    with pytest.raises(NotFound, match="'ghost'"):
        await pal.dispatcher.find("ghost")


async def test_a_run_of_the_past_is_found_by_its_row(pal: Harness) -> None:
    first = await pal.hears("hi")
    pal.start()
    assert (await (await pal.dispatcher.find(first.run_id)).wait(0)) == first


async def test_a_dispatcher_that_leaves_finishes_what_it_accepted_and_takes_no_more(slow: Harness) -> None:
    run = await slow.submits("hi")
    leaving = asyncio.create_task(slow.dispatcher.leave())
    await asked(slow)
    with pytest.raises(HolderLost):
        await slow.submits("too late")
    assert not leaving.done()
    slow.model.gate.set()
    await asyncio.wait_for(leaving, 60)
    assert run.result is not None


async def test_a_turn_that_breaks_ends_as_an_error_and_the_next_one_works(pal: Harness) -> None:
    def explode(_: ModelRequest) -> object:
        raise RuntimeError("a bug of ours")

    pal.model._otherwise = explode
    broken = await pal.hears("one")
    assert broken.status == "error"
    assert "a bug of ours" in broken.error
    pal.model.says("fine")
    assert (await pal.hears("two")).text == "fine"


async def test_an_agent_that_cannot_begin_keeps_the_message_and_says_why(pal: Harness) -> None:
    get = pal.agents.get
    pal.agents.get = lambda _: (_ for _ in ()).throw(NotFound("the workspace has gone"))  # type: ignore[method-assign]
    failed = await pal.hears("one")
    assert (failed.status, failed.error) == ("error", "the workspace has gone")
    pal.agents.get = get  # type: ignore[method-assign]
    await pal.hears("two")
    assert [type(message) for message in await pal.messages()] == [UserMessage, AssistantMessage] * 2
    assert [message.text for message in await pal.messages()][::2] == ["one", "two"]


class FailingOnce(JobQueue):
    failures = 1

    async def finish(self, held: Job, outcome: Any, *further: Any) -> Job | None:
        if self.failures:
            self.failures -= 1
            raise StorageError("the disk is full")
        return await super().finish(held, outcome, *further)


async def test_a_result_that_could_not_be_stored_is_given_when_asked_again(workspace: Path) -> None:
    async with Harness(workspace, queue=FailingOnce) as pal:
        first = await pal.hears("hi", idempotency_key="same")
        assert (first.status, first.error) == ("error", "the disk is full")
        again = await pal.hears("hi", idempotency_key="same")
        assert (again.status, again.text, again.run_id) == ("ok", "you said: hi", first.run_id)
        assert len(pal.model.requests) == 1


async def test_a_turn_that_takes_too_long_is_stopped_and_keeps_its_message(slow: Harness) -> None:
    slow.agents.agent = msgspec.structs.replace(slow.agents.agent, timeout_seconds=0.5)
    result = await slow.hears("hi")
    assert (result.status, result.error) == ("aborted", "took longer than 0.5 s")
    said, reply = await slow.messages()
    assert (said.text, reply.content) == ("hi", ())


async def test_asking_again_for_a_message_that_waits_in_a_full_lane_finds_it(slow: Harness) -> None:
    slow.dispatcher._lanes = Lanes(at_once=1, cap=2)
    runs = [await slow.submits(key, idempotency_key=key) for key in "ab"]
    assert (await slow.submits("b", idempotency_key="b")).id == runs[1].id


async def test_messages_that_come_at_once_do_not_overfill_a_lane(slow: Harness) -> None:
    slow.dispatcher._lanes = Lanes(at_once=1, cap=2)
    came = await asyncio.gather(*(slow.submits(f"m{number}") for number in range(5)), return_exceptions=True)
    assert sum(isinstance(outcome, QueueFull) for outcome in came) == 3
