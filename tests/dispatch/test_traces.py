"""Runs of a whole house leave traces; a run that goes on can be looked at; a turn does not wait for either."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from palinurus.config.home import Home
from palinurus.dispatch.queue import QueueSettings
from palinurus.dispatch.runs import Run, Runs
from palinurus.dispatch.traces import Tracer
from palinurus.domain.errors import BadRequest, Failure, NotFound
from palinurus.domain.events import Lifecycle, ModelAnswered, ModelCalled, RunResult
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Usage
from palinurus.domain.tool import ToolOutput, ToolRun, tool
from palinurus.ledger.trace import ModelStep, RunTrace, ToolStep, TraceStore
from palinurus.operations.runs import list_runs, show_run
from palinurus.operations.services import Services
from palinurus.operations.table import read_params
from palinurus.providers.provider import ModelRequest, ReplyEvent
from palinurus.storage.database import Database, MemoryDatabase
from palinurus.testing.fakes import ScriptedProvider, call, calls, fails
from palinurus.testing.harness import Harness
from palinurus.testing.loop_time import measure_slowness


class Slow(ScriptedProvider):
    """Answers when it is let; a moment passes before its first word and before its end."""

    def __init__(self) -> None:
        super().__init__()
        self.pal: Harness | None = None
        self.go = asyncio.Event()
        self.go.set()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ReplyEvent]:
        await self.go.wait()
        assert self.pal is not None
        async for event in super().stream(request):
            self.pal.clock.advance(milliseconds=100)
            yield event


@pytest.fixture
def model() -> Slow:
    return Slow()


@pytest.fixture
async def pal(workspace: Path, model: Slow) -> AsyncIterator[Harness]:
    @tool("sail", "Sail.")
    async def sail(run: ToolRun) -> ToolOutput:
        assert model.pal is not None
        model.pal.clock.advance(milliseconds=30)
        return ToolOutput("sailed", details={"where": "sandbox"})

    async with Harness(workspace, model=model, tools=[sail]) as whole:
        model.pal = whole
        yield whole


@pytest.fixture
def store() -> TraceStore:
    return TraceStore(MemoryDatabase())


@pytest.fixture
def services(pal: Harness, store: TraceStore, home: Home) -> Services:
    tracer = Tracer(store, pal.clock, pal.dispatcher.runs)
    pal.dispatcher.runs.listen(tracer)
    return pal.services(home).replace(traces=tracer)


async def shown(services: Services, run_id: str = "") -> RunTrace:
    return await show_run(services, run_id=run_id)


async def test_a_run_leaves_a_trace_of_its_models_and_tools(pal: Harness, services: Services) -> None:
    pal.model.says(calls(call("sail", "c1")), "We are there.")
    result = await pal.hears("sail")
    trace = await shown(services, result.run_id)
    assert (trace.status, trace.session_key, trace.channel) == ("ok", "agent:main:main", "cli")
    assert (trace.model, trace.usage) == ("scripted/model-1", Usage(200, 20))
    assert trace.steps == (
        ModelStep(0, "scripted", "model-1", 100, None, Usage(100, 10), "toolUse"),
        ToolStep(100, "sail", 30, "sandbox"),
        ModelStep(130, "scripted", "model-1", 400, 100, Usage(100, 10), "stop"),
    )
    assert trace.ms == 530


async def test_a_failure_is_told_by_its_kind(pal: Harness, services: Services) -> None:
    pal.model.says(fails(Failure.RATE_LIMIT, "too many"))
    await pal.hears("hello")
    trace = await shown(services)
    assert (trace.status, trace.error, trace.error_kind) == ("error", "too many", "rate_limit")
    (step,) = trace.steps
    assert isinstance(step, ModelStep)
    assert (step.error, step.stop_reason) == ("rate_limit", "error")


async def test_runs_that_go_on_or_wait_are_listed_before_those_that_are_over(
    pal: Harness, services: Services, model: Slow
) -> None:
    done = await pal.hears("first")
    model.go.clear()
    running = await pal.submits("second")
    waiting = await pal.submits("third")
    async with asyncio.timeout(60):
        while not (await shown(services, running.id)).steps:
            await asyncio.sleep(0)
    pal.clock.advance(seconds=3)
    listed = (await list_runs(services)).runs
    assert [(run.run_id, run.status) for run in listed] == [
        (waiting.id, "waiting"),
        (running.id, "running"),
        (done.run_id, "ok"),
    ]
    trace = await shown(services, running.id[:12])
    assert (trace.ms, trace.steps) == (3000, (ModelStep(0, "scripted", "model-1"),))
    assert [run.run_id for run in (await list_runs(services, status="running")).runs] == [running.id]
    model.go.set()
    await asyncio.gather(running.wait(60), waiting.wait(60))
    after = await shown(services, waiting.id)
    assert (after.status, after.started) == ("ok", 3000 + 400)  # it waited for the turn before it


async def test_a_message_that_joins_a_turn_says_whose(pal: Harness, services: Services, model: Slow) -> None:
    pal.agents.queueing = QueueSettings("steer")
    pal.model.says(calls(call("sail", "c1")), "Heard both.")
    model.go.clear()
    host = await pal.submits("sail")
    guest = await pal.submits("to Crete")
    model.go.set()
    await asyncio.gather(host.wait(60), guest.wait(60))
    assert (await shown(services, guest.id)).joined == host.id


async def test_a_run_is_found_by_a_beginning_that_is_clear(pal: Harness, services: Services, store: TraceStore) -> None:
    for run_id in ("aa1", "aa2", "aa"):
        store.note(RunTrace(run_id, "agent:main:main", "cli", 0, "ok"))
    assert (await shown(services, "aa2")).run_id == "aa2"
    assert (await shown(services, "aa")).run_id == "aa"
    with pytest.raises(NotFound, match="more than one run begins with 'a'"):
        await shown(services, "a")
    with pytest.raises(NotFound, match="there is no run 'x'"):
        await shown(services, "x")
    with pytest.raises(BadRequest, match=r"runs\.list: Invalid enum value 'fine'"):
        read_params(list_runs, b'{"status": "fine"}')


async def test_the_trace_of_a_run_that_broke_with_the_disk_gives_way_to_the_one_that_ended_well(
    pal: Harness, services: Services
) -> None:
    run = Run("r1", SessionKey.main(), pal.clock.now_ms())
    for status in ("error", "ok"):
        pal.dispatcher.runs.add(run)
        run.emit(Lifecycle("start"))
        run.end(RunResult("r1", str(run.key), "", status))  # type: ignore[arg-type]
        run = Run("r1", SessionKey.main(), pal.clock.now_ms())
    assert (await shown(services, "r1")).status == "ok"


async def test_others_are_told_of_a_trace_when_its_run_is_over(pal: Harness, services: Services) -> None:
    told: list[RunTrace] = []
    services.traces.listeners.append(told.append)
    await pal.hears("hello")
    assert told == [await shown(services)]


async def test_a_trace_costs_a_turn_less_than_a_tenth_of_a_millisecond(tmp_path: Path, pal: Harness) -> None:
    """On the event loop, all of it: two model calls, and the hand-over to the writer."""
    database = Database(tmp_path / "home.sqlite", "home")
    runs = Runs()
    tracer = Tracer(TraceStore(database), pal.clock, runs)
    events = [Lifecycle("start"), *(ModelCalled("p", "m"), ModelAnswered("p", "m", 1.0, 0.5, Usage(1, 2))) * 2]
    spent = []
    for number in range(200):
        run = Run(f"r{number}", SessionKey.main(), pal.clock.now_ms())
        run.result = RunResult(run.id, str(run.key), "", "ok")
        began = time.thread_time()
        for event in [*events, Lifecycle("end")]:
            tracer(run, event)
        spent.append(time.thread_time() - began)
    await database.close()
    assert sorted(spent)[len(spent) // 2] < 0.0001 * measure_slowness()
