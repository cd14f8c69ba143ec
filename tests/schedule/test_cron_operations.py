"""Cron jobs as programs ask for them: added, changed, run, paused, and seen in list, history and calendar."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from clock_home import MAIN, ClockHome, open_clock_home

from palinurus.domain.errors import BadRequest, NotFound
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage
from palinurus.extensions.schedule import OPERATIONS, operations
from palinurus.operations.table import read_params
from palinurus.runtime.extensions import LOADED
from palinurus.runtime.table import TABLE
from palinurus.sessions.transcript import decode_row, messages_of
from support.wire import Answers, Calls, Says

HOUR = 3_600_000


async def call(home: ClockHome, operation: str, /, **params: Any) -> Any:
    """As the gateway does: by name, with JSON."""
    row = TABLE.get(operation)
    return await row.run(home.services, read_params(row, msgspec.json.encode(params)))


async def add(home: ClockHome, title: str = "tea", /, **fields: Any) -> Any:
    draft = {
        "name": title,
        "schedule": {"kind": "every", "everyMs": HOUR},
        "payload": {"kind": "reminder", "text": "tea"},
        **fields,
    }
    return await call(home, "cron.add", **draft)


async def test_a_job_in_openclaws_form_is_added_and_shown_with_its_next_time(tmp_path: Path) -> None:
    async with open_clock_home(tmp_path) as home:
        made = await add(
            home,
            "briefing",
            schedule={"kind": "cron", "expr": "0 8 * * 1-5", "tz": "Asia/Tokyo", "staggerMs": 0},
            payload={"kind": "agentTurn", "message": "What is on?", "timeoutSeconds": 60, "toolsAllow": ["read"]},
            sessionTarget="isolated",
            wakeMode="now",
            delivery={"mode": "announce", "channel": "telegram", "to": "42"},
        )
        assert made.next_run_at == "2026-11-15T23:00:00+00:00"
        assert made.when == "at 08:00 on Monday through Friday (Asia/Tokyo)"
        (listed,) = (await call(home, "cron.list", includeDisabled=True)).jobs
        assert (
            listed == made == await call(home, "cron.get", id=made.id) == await call(home, "cron.show", id="briefing")
        )
        assert (await call(home, "cron.status")).next_name == "briefing"
        assert (await call(home, "cron.remove", id=made.id)).removed
        assert (await call(home, "cron.list")).jobs == ()
        with pytest.raises(NotFound):
            await call(home, "cron.get", id=made.id)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"schedule": {"kind": "at", "at": "yesterday at 9"}}, "has passed"),
        ({"schedule": {"kind": "at", "at": "whenever"}}, "is not a time"),
        ({"schedule": {"kind": "every", "everyMs": 10}}, "shorter than a second"),
        ({"schedule": {"kind": "cron", "expr": "* * *"}}, "not a cron expression"),
        ({"schedule": {"kind": "cron", "expr": "0 0 30 2 *"}}, "not a cron expression|never be due"),
        ({"schedule": {"kind": "cron", "expr": "0 8 * * *", "tz": "Mars/Base"}}, "not a time zone"),
        ({"schedule": {"kind": "moon"}}, "Invalid value"),
        ({"payload": {"kind": "heartbeat"}}, "in the config"),
        ({"payload": {"kind": "reminder", "text": " "}}, "something to do"),
        ({"name": " "}, "needs a name"),
        ({"agentId": "nobody"}, "there is no agent"),
        ({"sessionTarget": "attic"}, "is not a session"),
        ({"sessionTarget": "main", "payload": {"kind": "agentTurn", "message": "x", "model": "a/b"}}, "of its own"),
    ],
)
async def test_what_makes_no_sense_is_refused_in_one_line(tmp_path: Path, fields: dict[str, Any], why: str) -> None:
    async with open_clock_home(tmp_path) as home:
        with pytest.raises((BadRequest, NotFound), match=why):
            await add(home, **fields)
        assert (await call(home, "cron.list")).jobs == ()


async def test_a_message_to_the_main_session_is_a_system_event_and_a_text_goes_there_by_itself(tmp_path: Path) -> None:
    async with open_clock_home(tmp_path) as home:
        made = await add(home, payload={"kind": "agentTurn", "message": "hi"}, sessionTarget="main")
        assert msgspec.to_builtins(made.payload) == {"kind": "systemEvent", "text": "hi"}
        assert (await add(home)).session_target == "main"
        assert (await add(home, payload={"kind": "agentTurn", "message": "hi"})).session_target == "isolated"
        current = await add(home, sessionTarget="current", sessionKey="agent:main:explicit:trip")
        assert current.session_target == "session:agent:main:explicit:trip"


async def test_a_changed_job_is_due_by_its_new_schedule_only(tmp_path: Path) -> None:
    async with open_clock_home(tmp_path) as home:
        made = await add(home)
        patch = {
            "schedule": {"kind": "at", "at": "in 30 minutes"},
            "payload": {"text": "coffee"},
            "deleteAfterRun": False,
        }
        changed = await call(home, "cron.update", id=made.id, patch=patch)
        assert (changed.text, changed.when) == ("coffee", "once")
        await home.passes(hours=2)
        assert await home.said() == ["⏰ coffee"]
        assert [status for _, status, _ in await home.rows(made.id)] == ["ran"]  # what was planned has gone
        after = await call(home, "cron.show", id=made.id)
        assert (after.enabled, after.last_status, after.next_run_at) == (False, "ran", None)
        with pytest.raises(BadRequest, match="no 'model'"):
            await call(home, "cron.update", id=made.id, patch={"payload": {"model": "a/b"}})


async def test_a_disabled_job_rests_and_an_enabled_one_goes_on(tmp_path: Path) -> None:
    async with open_clock_home(tmp_path) as home:
        made = await add(home)
        assert (await call(home, "cron.disable", id="tea")).next_run_at is None
        await home.passes(hours=3)
        assert await home.said() == []
        await call(home, "cron.enable", id="tea")
        await home.passes(hours=1)
        assert await home.said() == ["⏰ tea"]
        assert [status for _, status, _ in await home.rows(made.id)] == ["ran", "waiting"]  # none while it rested


async def test_a_job_runs_by_hand_besides_its_due_times_once_for_each_request(tmp_path: Path) -> None:
    async with open_clock_home(tmp_path) as home:
        made = await add(home, schedule={"kind": "at", "at": "tomorrow at 9"})
        run = TABLE.get("cron.run")
        for key in ("a", "a", "b"):
            params = read_params(run, b'{"id": "tea", "mode": "force", "wait": 60}')
            started = await run.run(home.services, params, idempotency_key=key)
            assert (started.ran, started.run.status, started.run.by_hand) == (True, "ran", True)
        assert await home.said() == ["⏰ tea", "⏰ tea"]
        assert not (await call(home, "cron.run", id="tea", mode="due")).ran
        assert (await call(home, "cron.show", id=made.id)).enabled  # its own time is still to come
        await home.passes(days=2)
        assert len(await home.said()) == 3


async def test_the_history_says_how_each_due_time_ended_and_what_it_cost(tmp_path: Path) -> None:
    answers = [Says("One."), Answers(400, {"error": {"message": "no"}})]
    async with open_clock_home(tmp_path, lambda _: answers.pop(0) if answers else Says("Three.")) as home:
        made = await add(home, payload={"kind": "agentTurn", "message": "count"}, catchUp="skip")
        await home.passes(hours=1)
        await home.passes(hours=1)
        await home.passes(seconds=31)
        await home.passes(hours=5)
        runs = (await call(home, "cron.runs", id=made.id)).runs
        assert [each.status for each in reversed(runs)] == [
            "ran",
            "ran",
            *["missed"] * 4,
            "ran",
        ]  # the last is just in time
        first = runs[-1]
        assert (first.text, first.session_key, first.name) == ("One.", f"agent:main:cron:{made.id}", "tea")
        assert first.tokens > 0
        assert first.run_id
        assert first.cost is None  # the model has no price
        assert (await call(home, "cron.runs", limit=3)).runs == runs[:3]
        shown = await call(home, "cron.show", id=made.id)
        assert (shown.runs, shown.cost, shown.forecast) == (4, None, None)  # the one that failed counts too


async def test_priced_runs_are_summed_and_forecast(tmp_path: Path) -> None:
    async with open_clock_home(tmp_path) as home:
        provider = {"baseUrl": home.server.base_url, "models": [{"id": "test", "cost": {"input": 1000, "output": 0}}]}
        config = home.services.home.config_path
        settings = msgspec.json.decode(config.read_bytes())
        settings["models"]["providers"]["mine"] = provider
        config.write_bytes(msgspec.json.encode(settings))
        made = await add(home, payload={"kind": "agentTurn", "message": "count"})
        await home.passes(hours=1)
        await home.passes(hours=1)
        shown = await call(home, "cron.show", id=made.id)
        runs = (await call(home, "cron.runs", id=made.id)).runs
        assert shown.cost == pytest.approx(sum(each.cost for each in runs))
        assert shown.cost > 0
        assert shown.forecast == pytest.approx(shown.cost / 2)
        seen = await call(home, "cron.calendar")
        assert seen.cost == pytest.approx(shown.cost)
        assert seen.forecast == pytest.approx(shown.forecast * sum(each.status == "planned" for each in seen.entries))


async def test_the_calendar_joins_what_was_and_what_will_be_and_says_when_it_is_cut(tmp_path: Path) -> None:
    async with open_clock_home(tmp_path) as home:
        await add(home, "hourly")
        await add(home, "daily", schedule={"kind": "cron", "expr": "30 10 * * *"})
        await add(home, "once", schedule={"kind": "at", "at": "in 90 minutes"})
        await home.passes(hours=1)  # it is 10:00 on Sunday
        seen = await call(home, "cron.calendar", until=(home.clock.now + timedelta(hours=3)).isoformat())
        assert [(each.at[11:16], each.name, each.status) for each in seen.entries] == [
            ("10:00", "hourly", "ran"),
            ("10:30", "daily", "planned"),
            ("10:30", "once", "planned"),
            ("11:00", "hourly", "planned"),
            ("12:00", "hourly", "planned"),
        ]
        assert {each.kind for each in seen.entries} == {"reminder"}
        assert not seen.cut
        assert (seen.cost, seen.forecast, seen.unknown) == (0, 0, 0)  # reminders call no model
        short = await call(home, "cron.calendar", limit=3)
        assert (len(short.entries), short.cut) == (3, True)
        later = await call(home, "cron.calendar", since="2026-12-24", until="2026-12-25", limit=500)
        assert len(later.entries) == 24 + 1


async def test_one_switch_pauses_everything_at_once_and_what_was_skipped_says_so(tmp_path: Path) -> None:
    async with open_clock_home(tmp_path) as home:
        made = await add(home)
        once = await add(home, "once", schedule={"kind": "at", "at": "in 2 hours"})
        assert (await call(home, "cron.pause")).changed
        assert not (await call(home, "cron.pause")).changed
        assert (await call(home, "cron.list")).paused
        await home.passes(hours=3)
        assert await home.said() == []
        assert {status for _, status, _ in await home.rows(made.id)} >= {"skipped"}
        assert (await home.rows(once.id))[0][1:] == ("skipped", "everything is paused")
        left = await call(home, "cron.show", id="once")
        assert (left.enabled, left.disabled_why) == (False, "was skipped: everything is paused")
        assert (await call(home, "cron.calendar")).paused
        await call(home, "cron.resume")
        await home.passes(hours=1)
        assert await home.said() == ["⏰ tea"]


async def test_next_times_of_an_expression_are_exact_and_those_of_a_job_its_own(tmp_path: Path) -> None:
    async with open_clock_home(tmp_path) as home:
        asked = {"cron": "0 8 * * 1-5", "tz": "Europe/Berlin", "after": "2026-03-27T12:00", "count": 2}
        assert await call(home, "cron.next", **asked) == ["2026-03-30T08:00:00+02:00", "2026-03-31T08:00:00+02:00"]
        made = await add(home, schedule={"kind": "cron", "expr": "0 8 * * *"})
        (first,) = await call(home, "cron.next", id=made.id, count=1)
        assert first == made.next_run_at
        for wrong in ({}, {"id": made.id, "cron": "* * * * *"}, {"cron": "x"}, {"cron": "* * * * *", "tz": "x"}):
            with pytest.raises(BadRequest):
                await call(home, "cron.next", **wrong)


async def test_a_job_is_found_by_its_id_the_beginning_of_it_or_its_name(tmp_path: Path) -> None:
    async with open_clock_home(tmp_path) as home:
        made = await add(home, "Tea Time")
        for reference in (made.id, made.id[:6], "tea time"):
            assert (await call(home, "cron.show", id=reference)).id == made.id
        await add(home, "tea time")
        with pytest.raises(NotFound, match="more than one"):
            await call(home, "cron.show", id="tea time")
        with pytest.raises(NotFound, match="there is no cron job"):
            await call(home, "cron.show", id="")


def test_every_operation_that_is_declared_is_there_under_its_name() -> None:
    extension = next(each for each in LOADED.known if each.name == "schedule")
    declared = {name for name in extension.operations if name.startswith("cron.")}
    assert declared == {"cron.preview", *(f"cron.{name}" for name in OPERATIONS)}
    for name, function in OPERATIONS.items():
        assert TABLE.get(f"cron.{name}") is getattr(operations, function)


async def test_a_run_that_has_read_the_web_announces_outside_text(tmp_path: Path) -> None:
    """What it says in the main session carries its sources there."""

    def answer(body: Any) -> Any:
        return Says("Buy now.") if body["messages"][-1]["role"] == "tool" else Calls(("read", {"path": "inbox/1.eml"}))

    async with open_clock_home(tmp_path, answer) as home:
        inbox = tmp_path / "home" / "workspace" / "inbox"
        inbox.mkdir()
        (inbox / "1.eml").write_text("From: stranger\n\nBuy now.\n")
        await add(home, payload={"kind": "agentTurn", "message": "read my mail"})
        await home.passes(hours=1)
        assert await home.said() == ["[tea] Buy now."]
        session = await home.services.sessions.find(SessionKey.parse(MAIN))
        assert session is not None
        (written,) = messages_of([decode_row(row) for row in await home.services.sessions.rows(session.id)])
        assert isinstance(written, AssistantMessage)
        assert written.sources == ("file:inbox/1.eml",)


async def test_clients_are_told_when_a_job_changes_and_when_a_due_time_begins_and_ends(tmp_path: Path) -> None:
    async with open_clock_home(tmp_path) as home:
        told: list[tuple[str, str, str]] = []

        def publish(event: str, _: str, payload: Any) -> None:
            if event == "cron":
                told.append((payload()["action"], payload()["jobId"], payload().get("status", "")))

        home.services.holder.publish = publish
        job = await add(home)
        await home.passes(hours=1)
        await call(home, "cron.disable", id=job.id)
        await call(home, "cron.pause")
        await call(home, "cron.remove", id=job.id)
        due = [("started", job.id, ""), ("finished", job.id, "ran")]
        assert told == [
            ("added", job.id, ""),
            *due,
            ("updated", job.id, ""),
            ("updated", "", ""),
            ("removed", job.id, ""),
        ]
