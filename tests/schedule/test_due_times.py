"""Every due time is a row before it is acted on, and ends once: ran, missed, failed or skipped."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

from clock_home import MAIN, WAIT, open_clock_home

from palinurus.extensions.schedule.cron_job import AgentTurnPayload, AtSchedule, EverySchedule, SystemEventPayload
from palinurus.extensions.schedule.due import remove
from palinurus.testing.fakes import FakeClock
from support.wire import Answers, Behaviour, Hangs, Json, Says

HOUR = 3_600_000


async def test_a_reminder_is_told_once_in_the_main_session_and_ends(tmp_path: Path) -> None:
    async with open_clock_home(tmp_path) as home:
        at = (home.clock.now + timedelta(minutes=2)).isoformat()
        job = await home.adds(AtSchedule(at), session_target="main", delete_after_run=True)
        assert [status for _, status, _ in await home.rows(job.id)] == ["waiting"]
        await home.passes(minutes=1)
        assert await home.said() == []
        await home.passes(minutes=2)
        assert await home.said() == ["⏰ stretch"]
        assert [status for _, status, _ in await home.rows(job.id)] == ["ran"]
        assert home.server.requests == []  # no model was called


async def test_a_reminder_that_is_due_while_nobody_runs_comes_after_the_restart(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_clock_home(tmp_path, clock=clock) as home:
        job = await home.adds(AtSchedule((clock.now + timedelta(minutes=2)).isoformat()), session_target="main")
    clock.advance(hours=5)
    async with open_clock_home(tmp_path, clock=clock) as home:
        await home.rests()
        assert await home.said() == ["⏰ stretch"]
        assert [status for _, status, _ in await home.rows(job.id)] == ["ran"]


async def test_after_a_sleep_the_last_of_the_missed_is_run(tmp_path: Path) -> None:
    async with open_clock_home(tmp_path) as home:
        start = home.clock.now_ms()
        job = await home.adds(EverySchedule(HOUR, start))
        await home.passes(hours=1)
        await home.passes(hours=5, minutes=1)
        await home.passes(hours=1)
        rows = [((at - start) // HOUR, status) for at, status, _ in await home.rows(job.id)]
        done = [(1, "ran"), (2, "missed"), (3, "missed"), (4, "missed"), (5, "missed"), (6, "ran"), (7, "ran")]
        assert rows == [*done, (8, "waiting")]


async def test_a_run_of_its_own_is_announced_in_the_main_session(tmp_path: Path) -> None:
    async with open_clock_home(tmp_path, lambda _: Says("Sunny.")) as home:
        job = await home.adds(EverySchedule(HOUR, home.clock.now_ms()), AgentTurnPayload("How is the weather?"))
        await home.passes(hours=1)
        assert await home.said() == ["[test] Sunny."]
        assert "How is the weather?" in (await home.said(f"agent:main:cron:{job.id}"))[0]


async def test_a_message_to_the_main_session_is_answered_there_and_sent_to_the_last_channel(tmp_path: Path) -> None:
    async with open_clock_home(tmp_path, lambda _: Says("Noted.")) as home:
        await home.adds(EverySchedule(HOUR, home.clock.now_ms()), SystemEventPayload("tea"), session_target="main")
        await home.passes(hours=1)
        assert await home.said(MAIN) == ["[test] tea", "Noted."]


async def test_a_failed_run_is_tried_again_after_a_pause(tmp_path: Path) -> None:
    fails = [True]

    def answer(_: Json) -> Behaviour:
        return Answers(400, {"error": {"message": "no"}}) if fails[0] else Says("Sunny.")

    async with open_clock_home(tmp_path, answer) as home:
        job = await home.adds(EverySchedule(HOUR, home.clock.now_ms()), AgentTurnPayload("weather?"))
        await home.passes(hours=1)
        assert next(status for _, status, _ in await home.rows(job.id)) == "retry"
        fails[0] = False
        await home.passes(seconds=31)
        assert "ran" in [status for _, status, _ in await home.rows(job.id)]
        assert await home.said() == ["[test] Sunny."]


async def test_the_run_of_a_job_that_was_removed_meanwhile_goes_on_after_a_crash(tmp_path: Path) -> None:
    clock, asked = FakeClock(), asyncio.Event()

    def waits(_: Json) -> Behaviour:
        asked.set()
        return Hangs("Half")

    async with open_clock_home(tmp_path, waits, clock) as home:
        job = await home.adds(EverySchedule(HOUR, clock.now_ms()), AgentTurnPayload("weather?"))
        clock.advance(hours=1)
        await home.services.jobs.look()
        async with asyncio.timeout(WAIT):
            await asked.wait()
        assert await remove(home.services, job.id)
        home.services.jobs.grace_seconds = 0
        await home.services.dispatcher.abandon()
    async with open_clock_home(tmp_path, lambda _: Says("Sunny."), clock) as home:
        await home.rests()
        ((_, status, why),) = await home.rows(job.id)
        assert (status, why) == ("ran", "the cron job was removed: what it said is in its session only")
        assert (await home.said(f"agent:main:cron:{job.id}"))[-1] == "Sunny."
        assert await home.said() == []
