"""Which conversations are stale, and that archiving them loses nothing."""

from __future__ import annotations

import logging

import msgspec
import pytest

from palinurus.config.home import Home
from palinurus.domain.keys import SessionKey
from palinurus.operations.services import Services
from palinurus.operations.session_maintenance import clean_up_sessions
from palinurus.operations.sessions import list_sessions
from palinurus.sessions.retention import find_stale
from palinurus.sessions.session import Session, new_session
from palinurus.sessions.settings import MaintenanceSettings
from palinurus.testing.harness import Harness

DAY = 86_400_000
NOW = 100 * DAY
BOB = "agent:main:telegram:direct:bob"


def session(key: str, days_ago: int) -> Session:
    return new_session(f"id-{key}", SessionKey.parse(key), NOW - days_ago * DAY)


def names(*known: Session, **changed: object) -> list[str]:
    settings = msgspec.structs.replace(MaintenanceSettings(), **changed)
    return [each.key.rpartition(":")[2] for each in find_stale(known, settings, NOW)]


def test_those_that_were_silent_for_too_long_are_stale_and_the_main_session_never_is() -> None:
    known = (session(BOB, 31), session("agent:main:direct:ada", 29), session("agent:main:main", 90))
    assert names(*known) == ["bob"]
    assert names(*known, after_seconds=None) == []


def test_of_too_many_the_longest_silent_go() -> None:
    known = [session(f"agent:main:direct:p{number}", number) for number in range(6)]
    assert names(*known, most=4) == ["p5", "p4"]
    ended = msgspec.structs.replace(known[5], archived_at=1)
    assert names(*known[:5], ended, most=4) == ["p4"]


def old(pal: Harness, home: Home, mode: str) -> Services:
    settings = MaintenanceSettings(mode, after_seconds=86_400.0)  # type: ignore[arg-type]
    return pal.services(home).replace(maintenance=lambda: settings)


@pytest.fixture
async def silent(pal: Harness) -> Harness:
    await pal.hears("Remember that my locker is number 4471.", key=BOB)
    await pal.hears("hello")
    pal.clock.advance(minutes=60 * 24 * 3)
    return pal


async def test_in_warn_mode_it_is_said_and_nothing_is_done(
    silent: Harness, home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        done = await clean_up_sessions(old(silent, home, "warn"), enforce=None)
    assert ([each.key for each in done.stale], done.archived) == ([BOB], ())
    assert "1 sessions could be archived" in caplog.text
    assert await silent.sessions.find(SessionKey.parse(BOB)) is not None


async def test_in_enforce_mode_they_are_archived_with_notes_and_still_listed_and_found(
    silent: Harness, home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    services = old(silent, home, "enforce")
    with caplog.at_level(logging.INFO):
        done = await clean_up_sessions(services, enforce=None)
    assert done.archived == (BOB,)
    assert f"{BOB} is archived: silent for 3 days" in caplog.text
    assert await silent.sessions.find(SessionKey.parse(BOB)) is None
    listed = (await list_sessions(services, archived=True)).sessions
    (ended,) = [each for each in listed if each.archived_at is not None]
    assert ended.key == BOB
    assert "4471" in (await silent.sessions.extractions(ended.id))[0].notes
    assert any("4471" in hit.snippet for hit in await services.index.search("4471"))
    assert BOB not in [each.key for each in (await list_sessions(services)).sessions]
    assert (await clean_up_sessions(services, enforce=None)).stale == ()


async def test_who_only_asks_is_shown_them_whatever_the_mode(silent: Harness, home: Home) -> None:
    done = await clean_up_sessions(old(silent, home, "enforce"))
    assert ([each.key for each in done.stale], done.enforced, done.archived) == ([BOB], False, ())
    assert await silent.sessions.find(SessionKey.parse(BOB)) is not None


async def test_a_person_may_have_it_done_once(silent: Harness, home: Home) -> None:
    assert (await clean_up_sessions(old(silent, home, "warn"), enforce=True)).archived == (BOB,)
