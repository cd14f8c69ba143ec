"""The schedule on the dashboard: a week of due times and how each ended; jobs are added, run, paused and removed."""

from __future__ import annotations

import asyncio
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

import pytest
from page_house import PageHouse
from page_looking import check, nameless, tabbed
from page_talk import Talk, settled
from playwright.sync_api import Page, expect

from palinurus.domain.clock import SystemClock, local_time, random_id
from palinurus.domain.messages import Origin
from palinurus.extensions.schedule.cron_job import (
    AgentTurnPayload,
    CatchUp,
    CronJob,
    CronSchedule,
    EverySchedule,
    Payload,
    ReminderPayload,
    Schedule,
)
from palinurus.extensions.schedule.store import CronStore
from palinurus.storage.database import Database
from support.behaviours import Answers, Json

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

DAY_MS = 86_400_000
PHONE = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "is_mobile": True, "has_touch": True}


def planned(services: PageHouse) -> None:
    """Cron jobs that were made three days ago, while nothing ran since."""
    made: list[tuple[str, Schedule, Payload, CatchUp]] = [
        ("Stretch", CronSchedule("30 10,15 * * *", stagger_ms=0), ReminderPayload("Stand up and stretch."), "all"),
        ("Morning briefing", CronSchedule("0 8 * * *", stagger_ms=0), AgentTurnPayload("What is on today?"), "all"),
        ("Tide table", CronSchedule("15 6 * * *", stagger_ms=0), AgentTurnPayload("Fetch the tides."), "skip"),
        ("Watch the harbour", EverySchedule(3_600_000), ReminderPayload("Look at the harbour."), "skip"),
    ]

    async def keep() -> None:
        clock = SystemClock()
        database = Database(services.root / "home.sqlite", "home")
        for name, schedule, payload, catch_up in made:
            job = CronJob(random_id(), "main", name, schedule, payload, catch_up=catch_up)
            await CronStore(database, random_id).save(job, clock.now_ms() - 3 * DAY_MS, clock.zone)
        await database.close()

    with ThreadPoolExecutor(1) as pool:  # the browser's loop runs in this thread
        pool.submit(asyncio.run, keep()).result(60)


def priced(model: Any) -> Json:
    cost = {"input": 3, "output": 15, "cacheRead": 0.3, "cacheWrite": 3.75}
    known = {"id": "test", "contextWindow": 200_000, "cost": cost}
    return {"models": {"providers": {"wire": {"baseUrl": model.base_url, "models": [known]}}}}


def shoot(page: Page, name: str) -> None:
    if folder := os.environ.get("PAGE_SHOTS"):
        settled(page)
        high = page.evaluate("() => document.querySelector('.panel').scrollHeight + 120")
        size = page.viewport_size
        page.set_viewport_size({"width": size["width"], "height": max(size["height"], high)})
        page.screenshot(path=f"{folder}/{name}.png", animations="disabled", caret="hide")
        page.set_viewport_size(size)


def row(page: Page, name: str) -> Any:
    return page.get_by_role("table", name="Cron jobs and reminders").get_by_role("row").filter(has_text=name)


def choose(page: Page, job: str, action: str) -> None:
    page.get_by_role("button", name=f"Actions for {job}").click()
    page.get_by_role("menuitem", name=action).click()


def add(page: Page, name: str, when: str, text: str) -> None:
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("When", exact=True).fill(when)
    page.get_by_label("Text", exact=True).fill(text)
    page.get_by_role("form").get_by_role("button", name="Add", exact=True).click()


def test_a_week_shows_what_was_due_and_how_it_ended(start: Any, enter: Any, model: Any) -> None:
    services = start(prepare=planned, **priced(model))
    then = local_time(SystemClock()) - timedelta(2)
    page = enter(services, f"/schedule?week={then:%Y-%m-%d}")
    day = page.get_by_role("region", name=f"{then:%A} {then.day} {then:%B}")
    expect(day.get_by_role("button", name="10:30 Stretch: ran")).to_be_visible()
    expect(day.get_by_role("button", name=re.compile("^06:15 Tide table: missed, it was due while"))).to_be_visible()
    expect(day.get_by_role("button", name=re.compile(r"^08:00 Morning briefing: ran, \$0\.\d+"))).to_be_visible()
    expect(day.get_by_role("button", name=re.compile("× Watch the harbour: missed"))).to_be_visible()
    page.get_by_role("tab", name="List").click()
    listed = page.get_by_role("table", name="Due times of the week")
    expect(listed.get_by_role("row").filter(has_text="Watch the harbour").first).to_contain_text(
        re.compile("missed \\d+×")
    )
    listed.get_by_role("button", name="Morning briefing").first.click()
    past = page.get_by_role("table", name="Past due times of Morning briefing")
    expect(past).to_contain_text("What is on today?")  # the model says what it hears
    expect(page.get_by_role("heading", name="History of Morning briefing")).to_be_focused()
    page.reload()  # the address says what was open
    past.get_by_role("link", name="Steps").first.click()
    page.wait_for_url("**/runs?id=**")
    assert page.watched.errors == []


@pytest.mark.shows("Chromium", "the dashboard: schedule")
def test_a_reminder_is_added_run_changed_and_removed(start: Any, enter: Any) -> None:
    services = start()
    page = enter(services, "/schedule")
    expect(page.get_by_text("Nothing is planned yet.")).to_be_visible()
    shoot(page, "empty")
    page.get_by_role("button", name="Stretch, in 20 minutes").click()
    expect(page.get_by_role("form").get_by_role("listitem")).to_have_count(1)
    add(page, "Stretch", "every weekday at 8", "Stand up.")
    expect(row(page, "Stretch")).to_contain_text("at 08:00 on Monday through Friday")
    run = page.get_by_role("button", name="Run now: Stretch")
    run.press("Enter")
    expect(row(page, "Stretch")).to_contain_text("ran")
    expect(run).to_be_focused()
    expect(page.get_by_role("button", name=re.compile(r"^\d\d:\d\d Stretch: ran"))).to_be_visible()

    choose(page, "Stretch", "Edit")
    expect(page.get_by_label("When", exact=True)).to_have_value("0 8 * * 1-5")
    page.get_by_label("When", exact=True).fill("every 90 minutes")
    page.get_by_label("Text", exact=True).fill("Walk a little.")
    page.get_by_role("button", name="Save").click()
    expect(row(page, "Stretch")).to_contain_text("every 1 hour 30 minutes")
    expect(row(page, "Stretch")).to_contain_text("Walk a little.")
    choose(page, "Stretch", "Disable")
    expect(row(page, "Stretch")).to_contain_text("disabled")
    choose(page, "Stretch", "Enable")
    expect(row(page, "Stretch")).not_to_contain_text("disabled")
    choose(page, "Stretch", "Remove")
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    choose(page, "Stretch", "Remove")
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.get_by_text("No cron jobs or reminders.")).to_be_visible()
    page.get_by_role("button", name=re.compile("Stretch: ran")).click()  # it is gone, its past is not
    expect(page.get_by_role("table", name="Past due times of Stretch")).to_contain_text("by hand")
    page.goto(services.url + "/s/agent:main:main")
    Talk(page).hears("Stand up.")
    assert page.watched.errors == []
    assert page.watched.refused == []


def test_a_run_of_the_agent_that_fails_says_why(start: Any, enter: Any, model: Any) -> None:
    page = enter(start(), "/schedule")
    model.otherwise(lambda body: Answers(400, "the harbour is closed"))
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_label("What", exact=True).select_option("agent")
    expect(page.get_by_label("In", exact=True)).to_have_value("isolated")
    add(page, "Tides", "0 6 * * *", "Fetch the tides.")
    page.get_by_role("button", name="Run now: Tides").click()
    expect(row(page, "Tides")).to_contain_text("failed")
    choose(page, "Tides", "History")
    expect(page.get_by_role("table", name="Past due times of Tides")).to_contain_text("harbour is closed")


def from_outside(services: PageHouse) -> None:
    async def keep() -> None:
        clock, database = SystemClock(), Database(services.root / "home.sqlite", "home")
        job = CronJob(
            random_id(),
            "main",
            "Tides",
            CronSchedule("15 6 * * *"),
            AgentTurnPayload("Fetch the tides."),
            origin=Origin.OUTSIDE,
            sources=("file:inbox/1.eml",),
        )
        await CronStore(database, random_id).save(job, clock.now_ms(), clock.zone)
        await database.close()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, keep()).result(60)


def test_a_text_from_outside_is_marked_until_it_was_shown_and_trusted(start: Any, enter: Any) -> None:
    page = enter(start(prepare=from_outside), "/schedule")
    expect(row(page, "Tides")).to_contain_text("text from outside")
    choose(page, "Tides", "Trust its text")
    expect(page.get_by_role("dialog")).to_contain_text(
        "Fetch the tides. · made after text from outside was read: file:"
    )
    page.get_by_role("dialog").get_by_role("button", name="Trust").click()
    expect(row(page, "Tides")).not_to_contain_text("text from outside")
    page.get_by_role("button", name="Actions for Tides").click()
    expect(page.get_by_role("menuitem", name="Remove")).to_be_visible()
    expect(page.get_by_role("menuitem", name="Trust its text")).to_have_count(0)
    assert page.watched.errors == []


def test_everything_is_paused_and_goes_on(start: Any, enter: Any, model: Any) -> None:
    services = start(prepare=planned, **priced(model))
    page = enter(services, "/schedule")
    page.get_by_role("button", name="Pause everything").click()
    expect(page.get_by_role("status").filter(has_text="Everything is paused.")).to_be_visible()
    expect(page.get_by_role("button", name="Pause everything")).to_be_hidden()
    expect(page.get_by_role("button", name=re.compile(": planned"))).to_have_count(0)
    assert json.loads((services.root / "palinurus.json").read_text())["cron"]["paused"]
    shoot(page, "paused")
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_text("Everything is paused.")).to_be_hidden()
    expect(page.get_by_role("button", name=re.compile(": planned")).first).to_be_visible()
    status = json.loads(services.pal("gateway", "call", "cron.status"))
    assert not status["paused"]


def test_what_another_surface_adds_appears_by_itself(start: Any, enter: Any) -> None:
    services = start()
    page = enter(services, "/schedule")
    expect(page.get_by_text("Nothing is planned yet.")).to_be_visible()
    draft = {
        "name": "Tea",
        "schedule": {"kind": "at", "at": "in 2 hours"},
        "payload": {"kind": "reminder", "text": "Tea."},
    }
    services.pal("gateway", "call", "cron.add", "--params", json.dumps(draft))
    expect(row(page, "Tea")).to_contain_text("in 1 h", timeout=60_000)  # told by an event: the page asks at no interval


def test_times_are_the_readers_and_the_homes_zone_is_named(start: Any, enter: Any) -> None:
    services = start(agents={"defaults": {"model": "wire/test", "userTimezone": "Asia/Tokyo"}})
    page = enter(services, "/schedule", timezone_id="America/New_York")
    page.get_by_role("button", name="Call Ann, tomorrow at 9").click()
    page.get_by_label("When", exact=True).fill("0 9 * * *")
    expect(page.get_by_role("form").get_by_role("listitem")).to_have_count(5)
    expect(page.get_by_role("form").get_by_role("listitem").first).to_contain_text("09:00")
    page.get_by_role("form").get_by_role("button", name="Add", exact=True).click()
    expect(row(page, "Call Ann")).to_contain_text("America/New_York")
    expect(page.get_by_text("Times are those of America/New_York.")).to_contain_text("UTC+09:00")
    expect(page.get_by_role("button", name="09:00 Call Ann: planned").first).to_be_visible()
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_label("When", exact=True).fill("when the tide is low")
    expect(page.get_by_role("form")).to_contain_text("is not a time")


@pytest.mark.skipif(not find_spec("palinurus.extensions.schedule.heartbeat_operations"), reason="no heartbeat yet")
def test_a_heartbeat_is_shown_run_and_turned_off_and_on(start: Any, enter: Any, model: Any) -> None:
    def prepare(services: PageHouse) -> None:
        (services.workspace / "HEARTBEAT.md").write_text("# Heartbeat\n\n- Look whether the boat is dry.\n")

    agents = {"defaults": {"model": "wire/test", "heartbeat": {"every": "45m"}}}
    page = enter(start(prepare=prepare, agents=agents, **priced(model)), "/schedule")
    beat = row(page, "Heartbeat (main)")
    expect(beat).to_contain_text("every 45 minutes")
    page.get_by_role("button", name="Run now: Heartbeat (main)").click()
    expect(beat).to_contain_text("ran")
    expect(page.locator(".tile").last).to_contain_text("1 of 1 looks needed a model")
    choose(page, "Heartbeat (main)", "Disable")
    expect(beat).to_contain_text("disabled")
    expect(page.locator(".tile").last).to_contain_text("off")
    choose(page, "Heartbeat (main)", "Enable")
    expect(page.get_by_role("dialog")).to_contain_text(re.compile(r"about \d+ times a month, for \$"))
    page.get_by_role("dialog").get_by_role("button", name="Turn on").click()
    expect(beat).not_to_contain_text("disabled")
    expect(beat).to_contain_text("every 45 minutes")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_named_legible_and_reached_by_the_keyboard(start: Any, enter: Any, model: Any, scheme: str) -> None:
    services = start(prepare=planned, **priced(model))
    page = enter(
        services, "/schedule", color_scheme=scheme, reduced_motion="reduce", viewport={"width": 1280, "height": 1000}
    )
    expect(page.get_by_role("button", name=re.compile("Stretch: planned")).first).to_be_visible()
    wrong = looked_over(page, "week")
    shoot(page, f"week-{scheme}")
    met = [each["name"] for each in tabbed(page, 200)]
    assert any("Stretch" in each and ".due" in each for each in met), met
    page.get_by_role("tab", name="List").click()
    wrong += looked_over(page, "list")
    shoot(page, f"list-{scheme}")
    choose(page, "Stretch", "Edit")
    choose(page, "Morning briefing", "History")
    expect(page.get_by_role("heading", name="History of Morning briefing")).to_be_focused()
    wrong += looked_over(page, "form")
    shoot(page, f"form-{scheme}")
    assert not wrong, "\n".join(wrong)


def test_a_phone_shows_it_without_scrolling_sideways(start: Any, enter: Any, model: Any) -> None:
    services = start(prepare=planned, **priced(model))
    page = enter(services, "/schedule", **PHONE)
    expect(page.get_by_role("button", name=re.compile("Stretch: planned")).first).to_be_visible()
    wrong = looked_over(page, "week")
    shoot(page, "phone-week")
    page.get_by_role("tab", name="List").click()
    wrong += looked_over(page, "list")
    page.get_by_role("button", name="Add", exact=True).click()
    wrong += looked_over(page, "form")
    shoot(page, "phone-form")
    assert not wrong, "\n".join(wrong)


def looked_over(page: Page, what: str) -> list[str]:
    settled(page)
    found = [
        *nameless(page),
        *(each for name in ("contrast", "structure", "sizes", "reflow") for each in check(page, name)),
    ]
    return [f"{what}: {each}" for each in found]
