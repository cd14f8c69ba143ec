"""`pal jobs`: work that survives a restart is shown with its fate, and a person decides about what is stuck."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from called import Pal
from msgspec import Raw

from palinurus.config.home import Home
from palinurus.domain.clock import SystemClock
from palinurus.operations.jobs import JobList
from palinurus.storage.database import Database
from palinurus.storage.jobs import Job, JobQueue

NOW = SystemClock().now_ms()  # what was done long ago is forgotten
JOBS = (
    Job("a1", "reminder", "a1", "k1", Raw('"tea"'), NOW, NOW, "done", 1, outcome=Raw('"poured"')),
    Job("b1", "reminder", "ann", "k2", Raw('"letter"'), NOW, NOW, "ambiguous", 1, trouble="gone"),
    Job("b2", "re\x1b[31mport", "bob", "k3", Raw('{"of": 1}'), NOW, NOW, attempts=7, trouble="down"),
)


@pytest.fixture
def stuck(home: Home) -> Home:
    async def keep() -> None:
        database = Database(home.root / "home.sqlite", "home")
        for job in JOBS:
            await JobQueue(database).add(job)
        await database.close()

    asyncio.run(keep())
    return home


def test_a_home_without_jobs_says_so(pal_command: Pal) -> None:
    assert pal_command("jobs", "list").out == "There are no jobs.\n"


def test_jobs_are_listed_with_their_fate_and_obeyed_by_no_terminal(pal_command: Pal, stuck: Home) -> None:
    shown = pal_command("jobs", "list").out
    lines = shown.splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == ["a1", "b1", "b2", "In"]
    assert lines[0].endswith("done       reminder")
    assert lines[1].endswith("ambiguous  reminder  ann")
    assert lines[2].strip() == "gone"
    assert lines[3].endswith("bob  tried 7 times")
    assert "1 reminder ambiguous, 1 reminder done" in lines[-1]
    assert "\x1b" not in shown


def test_a_process_that_asks_the_holder_can_read_what_it_says(pal_command: Pal, stuck: Home) -> None:
    listed = msgspec.json.decode(pal_command("jobs", "list", "--json").out, type=JobList)
    assert [job.outcome for job in listed.jobs] == [None, None, "poured"]


def test_kinds_states_and_json_for_programs(pal_command: Pal, stuck: Home) -> None:
    def ids(*options: str) -> list[str]:
        return [job["id"] for job in pal_command("jobs", "list", "--json", *options).json["jobs"]]

    assert ids() == ["b2", "b1", "a1"]
    assert ids("--kind", "reminder") == ["b1", "a1"]
    assert ids("--state", "done", "--state", "waiting") == ["b2", "a1"]
    assert ids("--limit", "1") == ["b2"]
    first = pal_command("jobs", "list", "--json", "--state", "done").json["jobs"][0]
    assert (first["payload"], first["outcome"], first["idempotencyKey"]) == ("tea", "poured", "k1")


def test_an_ambiguous_one_is_done_again_or_dropped_when_a_person_says_so(pal_command: Pal, stuck: Home) -> None:
    assert pal_command("jobs", "retry", "b1").out == "b1 will be done.\n"
    again = pal_command("jobs", "list", "--json").json["jobs"][1]
    assert (again["id"], again["state"], again["attempts"]) == ("b1", "waiting", 0)  # nobody does reminders here
    assert pal_command("jobs", "drop", "b1").out == "b1 is dropped.\n"
    assert pal_command("jobs", "list", "--json", "--state", "dropped").json["jobs"][0]["id"] == "b1"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("drop", "a1"), "job a1 was done and cannot be dropped"),
        (("retry", "zz"), "there is no job 'zz'"),
        (("retry", "b"), "more than one job begins with 'b'"),
    ],
)
def test_what_cannot_be_decided_is_said(pal_command: Pal, stuck: Home, words: tuple[str, str], said: str) -> None:
    done = pal_command("jobs", *words)
    assert done.code != 0
    assert said in done.err
