"""What keeps cron jobs right over time: missing due times, agents that go, doctor, status, forgetting."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
from clock_home import MAIN, ClockHome, open_clock_home
from msgspec.structs import replace

from palinurus.config.load import load_config
from palinurus.domain.envelope import Inbound
from palinurus.domain.text_places import Words
from palinurus.extensions.schedule.checks import check_cron_jobs
from palinurus.extensions.schedule.cron_job import (
    AgentTurnPayload,
    AtSchedule,
    CronSchedule,
    EverySchedule,
    ReminderPayload,
)
from palinurus.extensions.schedule.operations import store_of
from palinurus.extensions.schedule.store import DUE, put_cron_job
from palinurus.extensions.schedule.text_places import FORGOTTEN, forget_in_cron_job
from palinurus.operations.session_news import watch_session
from palinurus.operations.status import show_status
from palinurus.testing.fakes import FakeClock
from support.wire import Answers

HOUR = 3_600_000


async def drop_due_times(home: ClockHome, job_id: str) -> None:
    for row in await home.services.jobs.of_lane(DUE, job_id, 10):
        if row.state == "waiting":
            await home.services.jobs.drop(row.id)


async def test_a_job_whose_due_time_a_person_dropped_goes_on_with_the_next_after_a_restart(tmp_path: Path) -> None:
    clock = FakeClock()
    start = clock.now_ms()
    async with open_clock_home(tmp_path, clock=clock) as home:
        job = await home.adds(EverySchedule(HOUR, start))
        once = await home.adds(AtSchedule("2026-11-15T12:00:00+00:00"), name="once")
        await drop_due_times(home, job.id)
        await drop_due_times(home, once.id)
    async with open_clock_home(tmp_path, clock=clock) as home:
        await home.passes(hours=5)
        rows = [((at - start) // HOUR, status) for at, status, _ in await home.rows(job.id)]
        assert rows == [(1, "dropped"), (2, "missed"), (3, "missed"), (4, "missed"), (5, "ran"), (6, "waiting")]
        found = await store_of(home.services).find(once.id)
        assert found is not None
        assert (found.enabled, found.state.disabled_why) == (False, "has no due time any more")
        assert [status for _, status, _ in await home.rows(once.id)] == ["dropped"]


async def test_jobs_of_an_agent_that_is_gone_are_skipped_disabled_and_named_by_doctor(tmp_path: Path) -> None:
    agents = {"defaults": {"model": "mine/test"}, "list": [{"id": "main", "default": True}, {"id": "other"}]}
    async with open_clock_home(tmp_path, agents=agents) as home:
        job = await home.adds(EverySchedule(HOUR, home.clock.now_ms()), agent_id="other", name="theirs")
        config = home.services.home.config_path
        settings = json.loads(config.read_text())
        del settings["agents"]["list"][1]
        config.write_text(json.dumps(settings))
        await home.passes(hours=1)
        assert (await home.rows(job.id))[0][1:] == ("skipped", "there is no agent 'other'")
        found = await store_of(home.services).find(job.id)
        assert found is not None
        assert not found.enabled
        await home.passes(hours=2)
        assert [status for _, status, _ in await home.rows(job.id)] == ["skipped"]
        checks = await check_cron_jobs(home.services.home, load_config(home.services.home, {}))
        assert [(check.state, "there is no agent 'other'" in check.what) for check in checks] == [("warning", True)]


async def test_doctor_names_what_was_disabled_what_is_never_due_and_unknown_time_zones(tmp_path: Path) -> None:
    async with open_clock_home(tmp_path) as home:
        loaded = load_config(home.services.home, {})
        assert await check_cron_jobs(home.services.home, loaded) == []
        good = await home.adds(EverySchedule(HOUR, home.clock.now_ms()))
        (fine,) = await check_cron_jobs(home.services.home, loaded)
        assert (fine.state, fine.what) == ("ok", "1 of 1 cron jobs enabled")
        broken = (
            replace(good, id="a", schedule=CronSchedule("0 0 * * *", "Mars/Base")),  # as an import may bring them
            replace(good, id="b", schedule=CronSchedule("x")),
            replace(
                good, id="c", enabled=False, state=replace(good.state, disabled_why="was disabled after 10 failures")
            ),
        )
        for job in broken:
            await home.services.database.write(lambda tx, job=job: put_cron_job(tx, job))
        told = [check.what for check in await check_cron_jobs(home.services.home, loaded)]
        assert len(told) == 3
        assert "not a time zone" in told[0]
        assert "not a cron expression" in told[1]
        assert "10 failures" in told[2]


async def test_status_has_a_line_only_when_there_are_jobs(tmp_path: Path) -> None:
    async with open_clock_home(tmp_path) as home:
        assert (await show_status(home.services)).extensions == ()
        await home.adds(EverySchedule(HOUR, home.clock.now_ms()), name="tea")
        assert (await show_status(home.services)).extensions == ("cron: 1 of 1, next Sun 2026-11-15 10:00 tea",)


async def test_ten_failures_in_a_row_disable_a_job_and_the_owner_is_told_once(tmp_path: Path) -> None:
    async with open_clock_home(tmp_path, lambda _: Answers(400, {"error": {"message": "no"}})) as home:
        job = await home.adds(EverySchedule(HOUR, home.clock.now_ms()), AgentTurnPayload("weather?"), name="weather")
        for _ in range(60):
            await home.passes(minutes=10)
        found = await store_of(home.services).find(job.id)
        assert found is not None
        assert (found.enabled, found.state.consecutive_errors) == (False, 10)
        told = await home.said(MAIN)
        assert len(told) == 1
        assert "The cron job 'weather' was disabled after 10 failures in a row" in told[0]
        rows = [status for _, status, _ in await home.rows(job.id)]
        assert "failed" in rows
        assert rows.count("skipped") <= 1
        assert rows[-1] != "waiting"


async def test_forgotten_words_leave_the_job_its_name_and_its_due_times(tmp_path: Path) -> None:
    async with open_clock_home(tmp_path) as home:
        text = "call the dentist about Zanzibar"
        job = await home.adds(EverySchedule(HOUR, home.clock.now_ms()), ReminderPayload(text), name=text)
        row = msgspec.json.encode(job).decode()
        words = Words(["Zanzibar"])
        cleaned = forget_in_cron_job(row, words)
        assert "Zanzibar" not in cleaned
        after = msgspec.json.decode(cleaned, type=type(job))
        assert (after.enabled, after.state.disabled_why) == (False, FORGOTTEN)
        assert forget_in_cron_job(row, Words(["Atlantis"])) == row


async def test_a_watcher_is_told_of_reminders_once_and_of_those_that_came_before(tmp_path: Path) -> None:
    async with open_clock_home(tmp_path) as home:
        await home.adds(AtSchedule("2026-11-15T10:00:00+00:00"), ReminderPayload("one"), session_target="main")
        await home.adds(AtSchedule("2026-11-15T12:00:00+00:00"), ReminderPayload("two"), session_target="main")
        await home.passes(hours=2)
        news = watch_session.run(home.services, watch_session.params(MAIN))
        assert (await anext(news)).text == "⏰ one"
        await home.passes(hours=2)
        assert (await anext(news)).text == "⏰ two"
        await news.aclose()  # type: ignore[attr-defined]
        run = await home.services.dispatcher.submit(Inbound("thank you", "k", session_key=MAIN))
        await run.wait(60)
        later = watch_session.run(home.services, watch_session.params(MAIN))
        waiting = asyncio.ensure_future(anext(later, None))  # what was answered is not news
        while not home.services.holder._listeners:
            await asyncio.sleep(0)
        home.services.holder.close()
        async with asyncio.timeout(60):
            assert await waiting is None
