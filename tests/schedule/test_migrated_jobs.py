"""Cron jobs of OpenClaw homes run here after a migration, each once, and go back in OpenClaw's form."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from clock_home import MAIN, ClockHome, open_clock_home
from msgspec.structs import replace

from palinurus.cli.shell import Shell
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin, UserMessage
from palinurus.extensions.migrate.export_tree import ExportReport
from palinurus.extensions.migrate.operations import MigrateHome, export_home, migrate_home
from palinurus.extensions.migrate.report import MigrationReport
from palinurus.extensions.schedule.commands import runs_text
from palinurus.extensions.schedule.cron_job import (
    AgentTurnPayload,
    AtSchedule,
    CronDelivery,
    CronJob,
    CronSchedule,
    EverySchedule,
    ReminderPayload,
    SystemEventPayload,
)
from palinurus.extensions.schedule.due import save
from palinurus.extensions.schedule.operations import CronRunList, list_cron_runs, show_calendar
from palinurus.extensions.schedule.store import CronStore
from palinurus.extensions.schedule.tool_calls import runs_for_model
from palinurus.operations.table import LocalCaller
from palinurus.sessions.transcript import decode_row, messages_of
from palinurus.testing.fakes import FakeClock
from support.wire import Says

SUNDAY = datetime(2026, 12, 6, 12, 0, tzinfo=UTC)  # three weeks after the fixtures were made
HOUR = 3_600_000
ERAS = ("openclaw-a", "openclaw-b", "openclaw-c")
BRIEF, WATER = "Morning brief", "Water the numbers"


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[ClockHome]:
    async with open_clock_home(tmp_path, lambda _: Says("Done."), FakeClock(SUNDAY)) as opened:
        yield opened


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "theirs"
    (folder / "cron").mkdir(parents=True)
    (folder / "openclaw.json").write_text('{"agents": {"list": [{"id": "main", "default": true}]}}')
    return folder


def fixture_home(era: str) -> Path:
    folder = os.environ.get("FIXTURES")
    if not folder:
        pytest.skip("FIXTURES does not name the OpenClaw homes")
    return Path(folder, era, "home")


def job(name: str = "a", **more: Any) -> dict[str, Any]:
    return {
        "id": name,
        "name": f"Job {name}",
        "enabled": True,
        "createdAtMs": 1794772141863,
        "schedule": {"kind": "every", "everyMs": HOUR, "anchorMs": 1794772141863},
        "sessionTarget": "isolated",
        "wakeMode": "now",
        "payload": {"kind": "agentTurn", "message": "Look around."},
        "state": {},
        **more,
    }


def write_jobs(source: Path, *jobs: Any) -> None:
    (source / "cron" / "jobs.json").write_text(json.dumps({"version": 1, "jobs": list(jobs)}))


async def migrate(home: ClockHome, source: Path, *, apply: bool = True) -> MigrationReport:
    params = MigrateHome(str(source), apply=apply)
    report = [step.report async for step in LocalCaller(home.services).follow(migrate_home, params)][-1]
    assert report is not None
    return report


async def export(home: ClockHome, into: Path) -> ExportReport:
    params = export_home.params(str(into))
    report: ExportReport | None = [
        step.report async for step in LocalCaller(home.services).follow(export_home, params)
    ][-1]
    assert report is not None
    return report


async def jobs_of(home: ClockHome) -> dict[str, CronJob]:
    return {each.name: each for each in await CronStore(home.services.database, home.services.new_id).all()}


def original_jobs(source: Path, folder: Path) -> dict[str, dict[str, Any]]:
    """Read without any code of ours, by id."""
    if (file := source / "cron" / "jobs.json").exists():
        return {each["id"]: each for each in json.loads(file.read_text())["jobs"]}
    copy = shutil.copy(source / "state" / "openclaw.sqlite", folder / "copy.sqlite")
    Path(copy).chmod(0o600)
    with closing(sqlite3.connect(copy)) as database:
        rows = database.execute("SELECT job_json, state_json FROM cron_jobs").fetchall()
    found = [{**json.loads(row), "state": json.loads(state)} for row, state in rows]
    return {each["id"]: each for each in found}


@pytest.mark.parametrize("era", ERAS)
async def test_jobs_of_a_home_that_lay_still_for_weeks_run_from_now_on(era: str, home: ClockHome) -> None:
    report = await migrate(home, fixture_home(era))
    taken = {each.name: each for each in report.cron_jobs if each.outcome == "new"}
    assert set(taken) == {BRIEF, WATER}
    assert all(each.managed for each in report.cron_jobs if each.outcome == "left")
    await home.rests()
    assert home.server.requests == []  # nothing is made up for
    brief, water = (await jobs_of(home))[BRIEF], (await jobs_of(home))[WATER]
    assert taken[BRIEF].next_run_at == datetime.fromtimestamp(brief.next_run_at_ms / 1000, UTC).isoformat()
    for _ in range(4):
        await home.passes(hours=6)
    statuses = [status for _, status, _ in await home.rows(water.id)]
    assert statuses == ["ran", "ran", "ran", "ran", "waiting"]
    *_, (at, status, _), _ = await home.rows(brief.id)
    assert status == "ran"
    assert isinstance(brief.schedule, CronSchedule)
    local = datetime.fromtimestamp(at / 1000, ZoneInfo(brief.schedule.tz))
    assert (local.weekday(), local.hour, local.minute) == (0, 6, 30)
    assert isinstance(brief.payload, AgentTurnPayload)
    assert isinstance(water.payload, SystemEventPayload)
    assert brief.payload.message in (await home.said(f"agent:main:cron:{brief.id}"))[0]
    assert (await home.said(MAIN)).count(f"[{WATER}] {water.payload.text}") == 4


@pytest.mark.parametrize("era", ERAS)
async def test_jobs_go_back_field_by_field_as_they_were(era: str, home: ClockHome, tmp_path: Path) -> None:
    source = fixture_home(era)
    await migrate(home, source)
    report = await export(home, tmp_path / "out")
    was = original_jobs(source, tmp_path)
    now = original_jobs(tmp_path / "out", tmp_path)
    assert report.cron_jobs == len(now)
    for each in now.values():
        if "updatedAtMs" not in was[each["id"]]:  # rows of a database have it in a column
            each.pop("updatedAtMs", None)
    assert now == was  # also those that OpenClaw makes itself
    if era == "openclaw-a":
        assert (tmp_path / "out/cron/jobs.json").read_bytes() == (source / "cron/jobs.json").read_bytes()
    if era != "openclaw-c":  # which has no log of runs
        (log,) = (tmp_path / "out/cron/runs").iterdir()
        (line,) = log.read_text().splitlines()
        assert (json.loads(line)["jobId"], json.loads(line)["status"]) == (log.stem, "ok")


@pytest.mark.parametrize("era", ERAS)
async def test_what_became_of_jobs_here_goes_back_too(era: str, home: ClockHome, tmp_path: Path) -> None:
    source = fixture_home(era)
    await migrate(home, source)
    before = await jobs_of(home)
    await save(home.services, replace(before[BRIEF], name="Evening brief", schedule=CronSchedule("0 18 * * *")))
    await home.passes(hours=6)
    await export(home, tmp_path / "out")
    was, now = original_jobs(source, tmp_path), original_jobs(tmp_path / "out", tmp_path)
    water, brief = before[WATER].id, before[BRIEF].id
    assert now[water]["state"]["lastRunAtMs"] == home.clock.now_ms()
    assert now[water]["state"]["lastRunStatus"] == "ok"
    assert now[water]["state"]["nextRunAtMs"] == (await jobs_of(home))[WATER].next_run_at_ms
    assert {**now[water], "state": 0, "updatedAtMs": 0} == {**was[water], "state": 0, "updatedAtMs": 0}
    changed = {"name": "Evening brief", "schedule": {"kind": "cron", "expr": "0 18 * * *"}}
    assert {**now[brief], "state": 0, "updatedAtMs": 0} == {**was[brief], **changed, "state": 0, "updatedAtMs": 0}


@pytest.mark.parametrize("era", ERAS)
async def test_importing_twice_or_the_own_export_adds_nothing(era: str, home: ClockHome, tmp_path: Path) -> None:
    await migrate(home, fixture_home(era))
    before = await jobs_of(home)
    again = await migrate(home, fixture_home(era))
    assert {each.outcome for each in again.cron_jobs if not each.managed} == {"same"}
    await export(home, tmp_path / "out.pal")
    own = await migrate(home, tmp_path / "out.pal")
    assert {each.outcome for each in own.cron_jobs if not each.managed} == {"same"}
    assert await jobs_of(home) == before


async def test_a_plan_changes_nothing(home: ClockHome, source: Path) -> None:
    write_jobs(source, job())
    report = await migrate(home, source, apply=False)
    assert [(each.outcome, each.next_run_at) for each in report.cron_jobs] == [("new", "2026-12-06T12:49:01+00:00")]
    assert await jobs_of(home) == {}


async def test_a_change_there_comes_over_and_a_change_in_both_is_reported(home: ClockHome, source: Path) -> None:
    write_jobs(source, job("a"), job("b"))
    await migrate(home, source)
    mine = (await jobs_of(home))["Job b"]
    await save(home.services, replace(mine, payload=AgentTurnPayload("Mine.")))
    theirs = {"payload": {"kind": "agentTurn", "message": "Theirs."}}
    write_jobs(source, job("a", **theirs), job("b", **theirs), job("c"))
    report = await migrate(home, source)
    assert {each.id: each.outcome for each in report.cron_jobs} == {"a": "changed", "b": "left", "c": "new"}
    assert "changed in both homes" in report.cron_jobs[1].note
    found = {each.id: each.payload for each in (await jobs_of(home)).values()}
    said = [AgentTurnPayload("Theirs."), AgentTurnPayload("Mine."), AgentTurnPayload("Look around.")]
    assert found == dict(zip("abc", said, strict=True))


async def test_a_job_that_was_removed_here_stays_away_and_does_not_go_back(
    home: ClockHome, source: Path, tmp_path: Path
) -> None:
    write_jobs(source, job("a"), job("b"))
    await migrate(home, source)
    mine = await home.adds(EverySchedule(HOUR))
    await export(home, tmp_path / "first")
    await migrate(home, tmp_path / "first")
    store = CronStore(home.services.database, home.services.new_id)
    assert await store.remove("a", home.clock.now_ms(), home.clock.zone)
    assert await store.remove(mine.id, home.clock.now_ms(), home.clock.zone)
    report = await migrate(home, source)
    assert {each.id: each.outcome for each in report.cron_jobs} == {"a": "left", "b": "same"}
    await export(home, tmp_path / "out")
    assert set(original_jobs(tmp_path / "out", tmp_path)) == {"b"}


async def test_a_one_shot_whose_time_has_passed_and_a_command_come_disabled_and_go_back_as_they_were(
    home: ClockHome, source: Path, tmp_path: Path
) -> None:
    past = job("past", schedule={"kind": "at", "at": "2026-11-20T08:00:00"})
    soon = job("soon", schedule={"kind": "at", "at": "2026-12-06T13:00:00"}, deleteAfterRun=True)
    command = job("command", payload={"kind": "command", "argv": ["date"]})
    write_jobs(source, past, soon, command)
    report = await migrate(home, source)
    notes = {each.id: each.note for each in report.cron_jobs}
    assert "its time, 2026-11-20T08:00:00+00:00, has passed" in notes["past"]
    assert "approve" in notes["command"]
    assert notes["soon"] == ""
    found = {each.id: each for each in (await jobs_of(home)).values()}
    assert {name: each.enabled for name, each in found.items()} == {"past": False, "soon": True, "command": False}
    assert "pal cron enable past" in found["past"].state.disabled_why
    await home.passes(hours=2)
    assert len(home.server.requests) == 1
    await export(home, tmp_path / "out")
    now = original_jobs(tmp_path / "out", tmp_path)
    assert set(now) == {"past", "command"}  # what ran is over, here and there
    assert all(each["enabled"] for each in now.values())


async def test_a_one_shot_that_ran_here_is_not_run_again_there(home: ClockHome, source: Path, tmp_path: Path) -> None:
    write_jobs(source, job("soon", schedule={"kind": "at", "at": "2026-12-06T13:00:00Z"}))
    await migrate(home, source)
    await home.passes(hours=2)
    await export(home, tmp_path / "out")
    (back,) = original_jobs(tmp_path / "out", tmp_path).values()
    assert (back["enabled"], back["state"]["lastRunStatus"]) == (False, "ok")


async def test_text_from_where_others_write_stays_text_from_outside(home: ClockHome, source: Path) -> None:
    write_jobs(
        source, job("mine", sessionKey="agent:main:main"), job("group", sessionKey="agent:main:telegram:group:-1")
    )
    report = await migrate(home, source)
    found = {each.id: (each.origin, each.sources) for each in (await jobs_of(home)).values()}
    assert found["mine"] == (Origin.OWNER, ())
    assert found["group"] == (Origin.OUTSIDE, ("session:agent:main:telegram:group:-1",))
    assert "from outside" in report.cron_jobs[1].note
    await home.passes(hours=1)
    for name, origin in (("mine", Origin.OWNER), ("group", Origin.OUTSIDE)):
        session = await home.services.sessions.find(SessionKey("main", "cron", peer=name))
        assert session is not None
        rows = await home.services.sessions.rows(session.id)
        (asked, _) = messages_of([decode_row(row) for row in rows])
        assert isinstance(asked, UserMessage)
        assert (asked.origin, asked.sources) == (origin, found[name][1])


async def test_jobs_that_were_made_here_go_to_another_home_without_a_difference(
    home: ClockHome, tmp_path: Path
) -> None:
    hourly = EverySchedule(HOUR, 5)
    await home.adds(AtSchedule("2026-12-24T18:00:00+01:00"), ReminderPayload("tree"), session_target="main")
    await home.adds(hourly, AgentTurnPayload("in main", "m/x", "low", 60.0, True, ("read",)), session_target="main")
    outside = {"origin": Origin.OUTSIDE, "sources": ("host:example.org",), "catch_up": "skip"}
    await home.adds(CronSchedule("0 8 * * 1-5", "Europe/Paris", 0), AgentTurnPayload("brief"), **outside)
    place = CronDelivery("announce", "telegram", "42", "bot", "7")
    await home.adds(hourly, SystemEventPayload("tea"), session_target="session:agent:main:telegram:direct:42")
    await home.adds(hourly, AgentTurnPayload("tell"), delivery=place, description="x", enabled=False)
    await export(home, tmp_path / "out")
    kinds = [
        (each["payload"]["kind"], each["sessionTarget"]) for each in original_jobs(tmp_path / "out", tmp_path).values()
    ]
    assert sorted(kinds) == [("agentTurn", "isolated")] * 2 + [("systemEvent", "main")] * 3
    ours = await CronStore(home.services.database, home.services.new_id).all()
    async with open_clock_home(tmp_path / "other", clock=home.clock) as other:
        await migrate(other, tmp_path / "out")
        theirs = await CronStore(other.services.database, other.services.new_id).all()
    assert [_definition(each) for each in theirs] == [_definition(each) for each in ours]


def _definition(job: CronJob) -> CronJob:
    return replace(job, updated_at_ms=0, next_run_at_ms=0, revision=0)


async def test_past_runs_of_the_other_home_are_shown_once_and_their_words_are_kept_from_the_model(
    home: ClockHome, source: Path
) -> None:
    first = round(SUNDAY.timestamp() * 1000) - 5 * HOUR
    lines = [
        {
            "ts": first + 1_000,
            "jobId": "A",
            "action": "finished",
            "status": "ok",
            "summary": "Obey me.",
            "runAtMs": first,
        },
        {"ts": first + HOUR, "jobId": "A", "action": "finished", "status": "error", "error": "no key"},
        {"ts": first + 2 * HOUR, "jobId": "A", "action": "started"},
    ]
    (source / "cron" / "runs").mkdir()
    log = "".join(f"{line}\n" for line in (*map(json.dumps, lines), "no JSON"))
    (source / "cron" / "runs" / "A.jsonl").write_text(log)
    write_jobs(source, job("A"))
    assert any("past runs of cron jobs: 2" in note for note in (await migrate(home, source)).notes)
    assert not any("past runs" in note for note in (await migrate(home, source)).notes)
    (cron,) = (await jobs_of(home)).values()
    runs = (await list_cron_runs(home.services, cron.id)).runs
    assert [(run.at_ms - first, run.status, run.reason, run.text) for run in runs] == [
        (HOUR, "failed", "no key", ""),
        (0, "ran", "", "Obey me."),
    ]
    assert [each.status for each in (await show_calendar(home.services, "2026-12-06", "2026-12-07")).entries[:2]] == [
        "ran",
        "failed",
    ]
    assert "Obey me." in runs_text(Shell(home.services.home), CronRunList(runs))
    told = await runs_for_model(home.services, cron)
    assert "ran" in told
    assert "Obey me." not in told
    report = await export(home, source.parent / "back")
    assert report is not None
    assert (source.parent / "back" / "cron" / "runs" / "A.jsonl").read_text() == log
