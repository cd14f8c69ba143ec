"""A job of an extension is done by whichever process holds the home, and its extension is loaded for it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw, Struct

from palinurus.config.home import Home
from palinurus.extensions.forget.operations import Forget, forget
from palinurus.operations.services import Services
from palinurus.runtime.extensions import LOADED, App, Extension
from palinurus.runtime.runtime import Runtime
from palinurus.storage.database import Database
from palinurus.storage.jobs import Job, JobKind, JobQueue

CANARY = "Zanzibar-7741"
SCRATCH = Extension("scratch", __name__, jobs=("scratch.postcard", "scratch.parcel"))


class Postcard(Struct, frozen=True):
    text: str


async def write_card(services: Services, card: Postcard, _: Job) -> str:
    await asyncio.to_thread(_write, services.home.root / "cards.txt", card.text)
    if card.text == "the last one":
        os.kill(os.getpid(), signal.SIGKILL)
    return "written"


def _write(path: Path, text: str) -> None:
    with path.open("a") as cards:
        cards.write(f"{text}\n")


REPEATABLE = JobKind("scratch.parcel", Postcard, write_card, on_crash="retry")
registered: list[App] = []


def register(app: App) -> None:
    registered.append(app)
    app.job(JobKind("scratch.postcard", Postcard, write_card))
    app.job(f"{__name__}:REPEATABLE", "scratch.parcel")


@pytest.fixture(autouse=True)
def scratch() -> Iterator[None]:
    registered.clear()
    with LOADED.added(SCRATCH):
        yield


async def until(runtime: Runtime, holds: Callable[[list[Job]], bool]) -> list[Job]:
    async with asyncio.timeout(60):
        while not holds(found := await runtime.services.jobs.recent()):
            await asyncio.sleep(0.01)
    return found


def are_ended(jobs: list[Job]) -> bool:
    return {"waiting", "running", "retry"}.isdisjoint(job.state for job in jobs)


def cards(home: Home) -> list[str]:
    return (home.root / "cards.txt").read_text().splitlines()


async def test_a_home_without_jobs_builds_and_loads_nothing_for_them(home: Home) -> None:
    runtime = Runtime(home, {})
    await runtime.recover()
    assert runtime.services.built("jobs") is None
    assert not registered
    await runtime.close()


async def test_what_an_extension_adds_is_done_and_its_outcome_kept(home: Home) -> None:
    runtime = Runtime(home, {})
    for name in ("postcard", "parcel"):
        await runtime.services.jobs.add(f"scratch.{name}", Postcard(name), "k")
    jobs = await until(runtime, are_ended)
    assert [(job.kind, job.state, bytes(job.outcome or b"")) for job in jobs] == [
        ("scratch.parcel", "done", b'"written"'),
        ("scratch.postcard", "done", b'"written"'),
    ]
    assert sorted(cards(home)) == ["parcel", "postcard"]
    await runtime.close()


async def test_what_waits_when_a_home_is_closed_is_done_when_it_is_opened_and_loads_its_extension(home: Home) -> None:
    database = Database(home.root / "home.sqlite", "home")
    await JobQueue(database).add(Job("j", "scratch.postcard", "j", "k", Raw('{"text": "later"}')))
    await database.close()
    with LOADED.added():  # a process in which nothing is loaded yet
        LOADED._waiting, LOADED.app = [SCRATCH], App()
        registered.clear()
        runtime = Runtime(home, {})
        await runtime.recover()
        assert [job.state for job in await until(runtime, are_ended)] == ["done"]
        await runtime.close()
    assert len(registered) == 1
    assert cards(home) == ["later"]


async def test_what_waits_for_an_extension_that_has_gone_stays(home: Home) -> None:
    runtime = Runtime(home, {})
    await runtime.services.jobs.add(
        "scratch.postcard", Postcard("later"), "k", due_at=runtime.services.clock.now_ms() + 3_600_000
    )
    await runtime.close()
    with LOADED.added():
        LOADED._waiting, LOADED.known, LOADED.app = [], (), App()
        runtime = Runtime(home, {})
        await runtime.recover()
        assert [job.state for job in await runtime.services.jobs.recent()] == ["waiting"]
        await runtime.close()


KILLED = """
import asyncio, os, sys
sys.path.insert(0, {folder!r})
from {module} import SCRATCH, Postcard
from palinurus.config.home import find_home
from palinurus.runtime.extensions import LOADED
from palinurus.runtime.runtime import Runtime

async def live():
    runtime = Runtime(find_home(os.environ), {{}})
    jobs = runtime.services.jobs
    for text in ("first", "the last one", "never begun"):
        await jobs.add({kind!r}, Postcard(text), text, lane="all")
    await asyncio.sleep(60)

with LOADED.added(SCRATCH):
    asyncio.run(live())
"""


@pytest.mark.parametrize(("kind", "state"), [("postcard", "ambiguous"), ("parcel", "done")])
async def test_a_process_that_is_killed_in_the_middle_loses_and_doubles_nothing(
    home: Home, monkeypatch: pytest.MonkeyPatch, kind: str, state: str
) -> None:
    program = KILLED.format(folder=str(Path(__file__).parent), module=__name__, kind=f"scratch.{kind}")
    env = {"PALINURUS_HOME": str(home.root), "HOME": str(home.root.parent), "PATH": os.environ["PATH"]}
    killed = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", program], env=env, capture_output=True, timeout=60, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert "the last one" in cards(home)
    monkeypatch.setattr(os, "kill", lambda *_: None)
    runtime = Runtime(home, {})
    await runtime.recover()
    jobs = await until(runtime, are_ended)
    await runtime.close()
    assert {job.idempotency_key: job.state for job in jobs} == {
        "first": "done",
        "the last one": state,
        "never begun": "done",
    }
    again = 1 if state == "ambiguous" else 2
    assert cards(home) == ["first", *["the last one"] * again, "never begun"]


async def test_an_extension_declares_the_jobs_that_it_registers() -> None:
    with LOADED.added(Extension("careless", __name__)):
        LOADED.known = tuple(each for each in LOADED.known if each.name != "scratch")
        with pytest.raises(TypeError, match=r"careless does not declare its jobs .*scratch.parcel"):
            LOADED.load(lambda each: each.name == "careless")


async def test_words_in_a_job_are_forgotten_and_what_waits_is_not_done(home: Home) -> None:
    runtime = Runtime(home, {})
    services: Any = runtime.services
    later = services.clock.now_ms() + 3_600_000
    await services.jobs.add("scratch.postcard", Postcard(f"off to {CANARY}"), "k1", due_at=later)
    await services.jobs.add("scratch.postcard", Postcard("the boat"), "k2", due_at=later)
    report = await forget(services, Forget(query=CANARY, apply=True))
    assert ("home.sqlite: jobs and their outcomes", "tombstone") in {(each.where, each.action) for each in report.spots}
    assert report.remains == ()
    jobs = {job.idempotency_key: job for job in await services.jobs.recent()}
    assert {key: job.state for key, job in jobs.items()} == {"k1": "dropped", "k2": "waiting"}
    assert CANARY.encode() not in bytes(jobs["k1"].payload)
    assert b"the boat" in bytes(jobs["k2"].payload)
    await runtime.close()
