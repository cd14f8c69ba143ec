"""Heartbeats in a home whose clock a test moves: when a model is called, what is sent, and what a crash changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from clock_home import MAIN, WAIT, ClockHome, open_clock_home

from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import StorageFull
from palinurus.domain.keys import SessionKey
from palinurus.extensions.schedule.cron_job import CronJob
from palinurus.extensions.schedule.heartbeat_jobs import keep_heartbeats
from palinurus.extensions.schedule.heartbeat_operations import run_heartbeat, show_heartbeats, wake_heartbeat
from palinurus.extensions.schedule.store import CronStore
from palinurus.operations.approvals import MakeGrant, make_grant
from palinurus.testing.fakes import FakeClock
from support.wire import Answers, Behaviour, Hangs, Json, Says

JOB = "heartbeat:main"
OWN = "agent:main:heartbeat"
WORDS = "- Is the milk out?"
HOUR = 3_600_000


def beating(
    folder: Path,
    text: str | None = WORDS,
    answer: Callable[[Json], Behaviour] = lambda _: Says("HEARTBEAT_OK"),
    clock: FakeClock | None = None,
    **settings: Any,
) -> AbstractAsyncContextManager[ClockHome]:
    workspace = folder / "home" / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    if text is not None:
        (workspace / "HEARTBEAT.md").write_text(text)
    defaults = {"model": "mine/test", "heartbeat": {"every": "30m", **settings}}
    return open_clock_home(folder, answer, clock, agents={"defaults": defaults})


async def passes(home: ClockHome, beats: int) -> None:
    for _ in range(beats):
        await home.passes(minutes=30)


def workspace_of(home: ClockHome) -> Path:
    return home.services.workspace("main")


async def reasons(home: ClockHome) -> list[str]:
    return [f"{status}: {why}" for _, status, why in await home.rows(JOB) if status != "waiting"]


async def started(home: ClockHome) -> ClockHome:
    await keep_heartbeats(home.services)
    return home


async def test_a_day_with_nothing_to_do_calls_no_model(tmp_path: Path) -> None:
    async with beating(tmp_path, "# Things to look at\n- \n") as home:
        await started(home)
        await passes(home, 48)
        assert home.server.requests == []
        assert await reasons(home) == ["skipped: HEARTBEAT.md is empty"] * 48


async def test_a_look_that_finds_nothing_is_silent_and_leaves_the_main_session_alone(tmp_path: Path) -> None:
    async with beating(tmp_path) as home:
        sender = home.channel()
        await home.services.dispatcher.submit(Inbound("hi", "1", channel="telegram", sender="42"))
        await home.rests()
        before = await home.services.sessions.find(SessionKey.parse(MAIN))
        await started(home)
        await passes(home, 1)
        assert await reasons(home) == ["ran: nothing to report"]
        request = json.dumps(home.server.requests[-1])
        assert "Is the milk out?" in request
        assert "## Heartbeats" in request
        assert sender.texts == ["HEARTBEAT_OK"]  # of the message before
        assert await home.services.sessions.find(SessionKey.parse(MAIN)) == before
        assert (await home.said(OWN))[-1] == "HEARTBEAT_OK"


async def test_a_report_is_sent_once_within_a_day(tmp_path: Path) -> None:
    async with beating(tmp_path, answer=lambda _: Says("The milk is out."), backOff="0m") as home:
        sender = home.channel()
        await home.services.dispatcher.submit(Inbound("hi", "1", channel="telegram", sender="42"))
        await home.rests()
        await started(home)
        await passes(home, 3)
        assert await reasons(home) == ["ran: ", *["ran: the same was reported before"] * 2]
        assert sender.texts[1:] == ["The milk is out."]
        assert (await home.said())[2:] == ["The milk is out."]
        await passes(home, 46)
        assert sender.texts[1:] == ["The milk is out."] * 2


async def test_after_quiet_looks_the_pause_grows_until_the_owner_writes_or_the_file_changes(tmp_path: Path) -> None:
    async with beating(tmp_path) as home:
        await started(home)
        await passes(home, 20)
        ran = [number for number, why in enumerate(await reasons(home), 1) if why.startswith("ran")]
        assert ran == [1, 3, 7, 15]
        (workspace_of(home) / "HEARTBEAT.md").write_text("- And the bread?")
        await passes(home, 1)
        assert (await reasons(home))[-1] == "ran: nothing to report"
        await passes(home, 1)
        home.clock.advance(minutes=1)
        await home.services.dispatcher.submit(Inbound("hi", "1"))
        await home.rests()
        await home.passes(minutes=29)
        assert (await reasons(home))[-1] == "ran: nothing to report"
        await passes(home, 1)
        assert (await reasons(home))[-1].startswith("skipped: nothing has changed; the next check is in")


async def test_a_week_of_mail_calls_a_model_only_when_the_probe_has_changed(tmp_path: Path) -> None:
    counts = tmp_path / "home" / "workspace" / "count.txt"
    hours = {"start": "08:00", "end": "20:00"}
    async with beating(tmp_path, every="1h", probes=["cat count.txt"], activeHours=hours) as home:
        home.clock.now = datetime(2026, 11, 16, tzinfo=UTC)  # a Monday
        counts.write_text("0 new\n")
        await make_grant.function(home.services, MakeGrant(examples=("cat count.txt",)))
        await started(home)
        changes, calls = [], []
        for hour in range(1, 7 * 24):
            if hour < 5 * 24 and hour % 24 in (9, 13, 16):
                counts.write_text(f"{hour} new\n")
                changes.append(hour)
            before = len(home.server.requests)
            await home.passes(hours=1)
            calls += [hour] * (len(home.server.requests) - before)
        assert calls == [8, *changes]  # the first look of all is at 8
        why = await reasons(home)
        assert why.count("skipped: nothing has changed since the last check") == 7 * 12 - len(calls)


async def test_a_probe_runs_only_if_a_grant_names_exactly_it(tmp_path: Path) -> None:
    async with beating(tmp_path, probes=["cat count.txt"]) as home:
        (workspace_of(home) / "count.txt").write_text("0\n")
        await make_grant.function(home.services, MakeGrant(rule="cat *", confirmed=True))
        await started(home)
        await passes(home, 2)
        assert "the probe `cat count.txt` failed: it is not approved" in (await reasons(home))[-1]
        (info,) = (await show_heartbeats.function(home.services)).heartbeats
        assert not info.probes[0].approved
        assert "pal approvals grant --like 'cat count.txt'" in info.probes[0].why
        await make_grant.function(home.services, MakeGrant(examples=("cat count.txt",)))
        await passes(home, 1)
        assert (await reasons(home))[-1] == "ran: nothing to report"  # it has something to say for the first time
        (workspace_of(home) / "count.txt").unlink()
        await passes(home, 1)
        assert "failed: exit 1" in (await reasons(home))[-1]


async def test_tasks_are_sent_when_they_are_due(tmp_path: Path) -> None:
    tasks = "Be short.\ntasks:\n  - name: milk\n    interval: 1h\n    prompt: Is the milk out?\n"
    tasks += "  - name: rent\n    interval: 1d\n    prompt: Is the rent paid?\n"
    async with beating(tmp_path, tasks) as home:
        await started(home)
        await passes(home, 4)
        assert [each[:3] for each in await reasons(home)] == ["ran", "ski", "ran", "ski"]
        first, second = (json.dumps(each["messages"][-1]) for each in home.server.requests)
        assert "- milk: Is the milk out?\\\\n- rent: Is the rent paid?" in json.dumps(first)
        assert "these are due:\\n- milk: Is the milk out?" in second
        assert "- rent: Is" not in second


async def test_a_busy_agent_and_an_absent_owner_are_left_alone(tmp_path: Path) -> None:
    held = asyncio.Event()

    async def hold(home: ClockHome) -> None:
        await home.services.dispatcher.in_lane(SessionKey.parse(MAIN), held.wait)

    async with beating(tmp_path, absentAfter="2d") as home:
        await started(home)
        holding = asyncio.create_task(hold(home))
        await asyncio.sleep(0)
        waiting = await home.services.dispatcher.submit(Inbound("hi", "1"))
        home.clock.advance(minutes=30)
        async with asyncio.timeout(WAIT):
            await home.services.jobs.look()
            await home.services.jobs.idle()
        held.set()
        await asyncio.gather(holding, waiting.wait())
        await home.rests()
        assert await reasons(home) == ["skipped: the agent is busy"]
        await passes(home, 97)
        assert (await reasons(home))[-1] == "skipped: the owner has not written for 2 days"


async def test_a_key_that_fails_is_not_asked_again_while_it_rests(tmp_path: Path) -> None:
    async with beating(tmp_path, answer=lambda _: Answers(402, {"error": {"message": "no credit"}})) as home:
        config = tmp_path / "home" / "palinurus.json"
        said = json.loads(config.read_text())
        said["models"]["providers"]["mine"]["apiKey"] = "sk-test-1234567890"
        config.write_text(json.dumps(said))
        await started(home)
        await passes(home, 1)
        asked = len(home.server.requests)
        assert asked
        await home.passes(seconds=31)  # the second try of that beat
        assert "the key of mine is paused" in (await reasons(home))[-1]
        assert len(home.server.requests) == asked


@pytest.mark.parametrize("session", ["", "main"])
async def test_a_restart_in_the_middle_of_a_heartbeat_sends_its_report_once(tmp_path: Path, session: str) -> None:
    clock, answers = FakeClock(), asyncio.Event()
    settings: dict[str, Any] = {"target": "telegram", "to": "42", "clock": clock, "session": session}

    async def starts(home: ClockHome) -> None:
        await started(home)
        clock.advance(minutes=30)
        await home.services.jobs.look()

    async def dies(home: ClockHome) -> None:
        async with asyncio.timeout(WAIT):
            await answers.wait()
        home.services.jobs.grace_seconds = 0
        await home.services.dispatcher.abandon()

    def waits(_: Json) -> Behaviour:
        answers.set()
        return Hangs("The milk")

    async with beating(tmp_path, answer=waits, **settings) as home:
        home.channel()
        await starts(home)
        await dies(home)
    async with beating(tmp_path, answer=lambda _: Says("The milk is out."), **settings) as home:
        sender = home.channel()
        await home.rests()
        assert sender.texts == ["The milk is out."]
        assert await reasons(home) == ["ran: "]
        assert (await home.said()).count("The milk is out.") == 1
    async with beating(tmp_path, **settings) as home:
        sender = home.channel()
        await home.rests()
        assert sender.texts == []


async def test_a_disk_that_fails_after_the_report_was_sent_does_not_send_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, changes = CronStore.change, 0

    async def fails_once(store: CronStore, *rest: Any) -> CronJob | None:
        nonlocal changes
        changes += 1
        if changes == 2:  # the first stores the plan, the second how it ended
            raise StorageFull("the disk is full")
        return await change(store, *rest)

    monkeypatch.setattr(CronStore, "change", fails_once)
    async with beating(tmp_path, answer=lambda _: Says("The milk is out."), target="telegram", to="42") as home:
        sender = home.channel()
        await started(home)
        await passes(home, 1)
        assert next(status for _, status, _ in await home.rows(JOB)) == "retry"
        await home.passes(minutes=1)
        assert await reasons(home) == ["ran: "]
        assert sender.texts == ["The milk is out."]
        assert len(home.server.requests) == 1


async def test_in_the_main_session_a_look_costs_it_no_freshness(tmp_path: Path) -> None:
    async with beating(tmp_path, session="main") as home:
        await home.services.dispatcher.submit(Inbound("hi", "1"))
        await home.rests()
        before = await home.services.sessions.find(SessionKey.parse(MAIN))
        await started(home)
        await passes(home, 1)
        after = await home.services.sessions.find(SessionKey.parse(MAIN))
        assert before is not None
        assert after is not None
        assert after.entry_count > before.entry_count
        assert (after.updated_at, after.last_interaction_at) == (before.updated_at, before.last_interaction_at)
        first, second = (each["messages"] for each in home.server.requests)
        assert second[: len(first)] == first  # the prompt grows only at its end


async def test_a_note_is_told_with_the_next_heartbeat_or_at_once(tmp_path: Path) -> None:
    async with beating(tmp_path, "# nothing\n", answer=lambda _: Says("Noted.")) as home:
        await started(home)
        await wake_heartbeat.function(home.services, "the build has failed", mode="next-heartbeat")
        await home.rests()
        assert home.server.requests == []
        await passes(home, 1)
        assert "the build has failed" in json.dumps(home.server.requests[-1])
        await passes(home, 1)
        assert (await reasons(home))[-1] == "skipped: HEARTBEAT.md is empty"  # it is told once
        await wake_heartbeat.function(home.services, "and again", sources=("hook:wake",))
        await home.rests()
        assert len(home.server.requests) == 2
        request = json.dumps(home.server.requests[-1])
        assert "<<<outside text from hook:wake>>>" in request
        assert "the build" not in request


async def test_what_a_report_was_made_of_is_known_in_the_main_session(tmp_path: Path) -> None:
    async with beating(tmp_path, answer=lambda _: Says("Somebody rang.")) as home:
        await started(home)
        await wake_heartbeat.function(home.services, "ring", sources=("hook:door",))
        await home.rests()
        view = await home.services.turns.history.view_of(SessionKey.parse(MAIN))
        assert [text.source for text in view.outside_texts] == ["hook:door"]


async def test_run_looks_at_once_even_where_the_heartbeat_is_off(tmp_path: Path) -> None:
    async with beating(tmp_path, "", every="0m", answer=lambda _: Says("All is well here.")) as home:
        done = await run_heartbeat.function(home.services)
        assert (done.status, done.text) == ("ran", "All is well here.")
        assert await home.said() == ["All is well here."]
        await passes(home, 2)
        assert len(home.server.requests) == 1


async def test_an_edit_of_the_config_turns_it_on_and_off_without_a_restart(tmp_path: Path) -> None:
    looks: asyncio.Queue[asyncio.Event] = asyncio.Queue()

    async def sleep(_: float) -> None:
        waiting = asyncio.Event()
        looks.put_nowait(waiting)
        await waiting.wait()

    async def says(home: ClockHome, every: str, wanted: Callable[[CronJob | None], bool]) -> None:
        store = CronStore(home.services.database, home.services.new_id)
        config = tmp_path / "home" / "palinurus.json"
        said = json.loads(config.read_text())
        said["agents"]["defaults"]["heartbeat"] = {"every": every}
        config.write_text(json.dumps(said))
        async with asyncio.timeout(WAIT):
            (await looks.get()).set()
            while not wanted(await store.find(JOB)):
                pass

    async with beating(tmp_path, every="0m") as home:
        home.services.sleep = sleep
        home.runtime.keep_up()
        await says(home, "30m", lambda cron: cron is not None)
        await passes(home, 1)
        assert await reasons(home) == ["ran: nothing to report"]
        await says(home, "1h", lambda cron: cron is not None and getattr(cron.schedule, "every_ms", 0) == HOUR)
        await passes(home, 1)
        assert len(home.server.requests) == 1
        await says(home, "0m", lambda cron: cron is not None and not cron.enabled)
        await passes(home, 2)
        assert len(home.server.requests) == 1
        assert await reasons(home) == ["ran: nothing to report"]  # what was planned has gone with the change


async def test_without_the_files_of_the_workspace_a_look_reads_only_the_list(tmp_path: Path) -> None:
    async with beating(tmp_path, lightContext=True) as home:
        (workspace_of(home) / "SOUL.md").write_text("You like tea.")
        await started(home)
        await passes(home, 1)
        request = json.dumps(home.server.requests[-1])
        assert "Is the milk out?" in request
        assert "You like tea." not in request
