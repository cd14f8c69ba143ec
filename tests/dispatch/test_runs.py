"""Runs: a log that is read from any place, and a wait that never cancels."""

from __future__ import annotations

import asyncio

import pytest

from palinurus.dispatch import runs as runs_module
from palinurus.dispatch.runs import Run, Runs
from palinurus.domain.errors import WaitTimeout
from palinurus.domain.events import AssistantDelta, Lifecycle, RunEvent, RunResult, ToolStarted
from palinurus.domain.keys import SessionKey

KEY = SessionKey.main()


def done(run_id: str = "r", status: str = "ok") -> RunResult:
    return RunResult(run_id, str(KEY), "s", status, "hello", error="" if status == "ok" else "no")  # type: ignore[arg-type]


def new(run_id: str = "r") -> Run:
    return Run(run_id, KEY, 0)


async def follow(run: Run, after: int = 0) -> list[RunEvent]:
    async with asyncio.timeout(60):
        return [event async for event in run.events(after)]


async def test_a_late_follower_hears_the_whole_story() -> None:
    run = new()
    run.emit(Lifecycle("start"))
    run.emit(AssistantDelta("hel"))
    run.end(done())
    assert await follow(run) == [Lifecycle("accepted"), Lifecycle("start"), AssistantDelta("hel"), Lifecycle("end")]


@pytest.mark.parametrize("after", [0, 1, 2, 3, 4, 99])
async def test_the_log_is_read_from_any_place(after: int) -> None:
    run = new()
    run.emit(AssistantDelta("a"))
    run.emit(AssistantDelta("b"))
    run.end(done())
    assert await follow(run, after) == (await follow(run))[after:]


async def test_followers_hear_events_as_they_happen_each_at_its_own_place() -> None:
    run = new()
    both = asyncio.gather(follow(run), follow(run, 1))
    for word in "abc":
        run.emit(AssistantDelta(word))
        await asyncio.sleep(0)
    run.end(done())
    whole, rest = await both
    assert whole[1:] == rest
    assert [event.text for event in whole if isinstance(event, AssistantDelta)] == ["a", "b", "c"]


@pytest.mark.parametrize(("status", "phase"), [("ok", "end"), ("error", "error"), ("aborted", "aborted")])
async def test_the_last_event_says_how_it_ended(status: str, phase: str) -> None:
    run = new()
    run.end(done(status=status))
    last = (await follow(run))[-1]
    assert isinstance(last, Lifecycle)
    assert last.phase == phase


async def test_the_first_end_stays() -> None:
    run = new()
    run.end(done())
    run.end(done(status="error"))
    assert (await run.wait(60)).status == "ok"
    assert len(await follow(run)) == 2


async def test_a_wait_that_is_over_leaves_the_run_alone() -> None:
    run = new()
    with pytest.raises(WaitTimeout, match=r"after 0\.01 s"):
        await run.wait(0.01)
    run.end(done())
    assert (await run.wait(0)).text == "hello"


async def test_past_its_cap_the_log_drops_deltas_keeps_the_rest_and_says_how_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runs_module, "LOG_CAP", 3)
    run = new()
    for number in range(10):
        run.emit(AssistantDelta(str(number)))
    run.emit(ToolStarted("c", "read", {}))
    run.end(done())
    events = await follow(run)
    assert len(events) == 5
    assert ToolStarted("c", "read", {}) in events
    assert "8 deltas were not logged" in events[-1].detail  # type: ignore[union-attr]


def test_only_the_last_ended_runs_are_remembered_and_all_that_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs_module, "MOST_ENDED", 2)
    known = Runs()
    going = known.add(new("going"))
    for number in range(5):
        run = new(f"r{number}")
        run.end(done())
        known.add(run)
    assert known.get("going") is going
    assert known.get("r0") is None
    assert known.get("r4") is not None
    assert known.active() == [going]
    assert known.active(SessionKey.main("other")) == []
