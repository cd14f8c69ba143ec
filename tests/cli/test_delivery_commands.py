"""`pal delivery`: what has not arrived is shown with its fate, and a person decides about what is stuck."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from called import Pal
from msgspec import Raw

from palinurus.config.home import Home
from palinurus.dispatch.delivery import DeliveryJob, OutboundMessage
from palinurus.domain.clock import SystemClock
from palinurus.storage.database import Database
from palinurus.storage.jobs import Job, JobQueue

NOW = SystemClock().now_ms()  # what was sent long ago is forgotten
PARCELS = (
    DeliveryJob("a1", "k1", "telegram", "42", "It has come.", queued_at=NOW, state="sent", attempts=1),
    DeliveryJob(
        "b1", "k2", "telegram", "42", "Has it\ncome?", queued_at=NOW, state="ambiguous", attempts=1, trouble="gone"
    ),
    DeliveryJob("b2", "k3", "slack", "C1\x1b[31m", "x" * 300, queued_at=NOW, attempts=7, trouble="down"),
)


def job_of(delivery: DeliveryJob) -> Job:
    message = OutboundMessage(delivery.channel, delivery.to, delivery.text)
    state: Any = {"sent": "done", "waiting": "retry"}.get(delivery.state, delivery.state)
    return Job(
        delivery.id, f"delivery:{delivery.channel}", delivery.to, delivery.idempotency_key,
        Raw(msgspec.json.encode(message)), added_at=delivery.queued_at, due_at=delivery.queued_at,
        state=state, attempts=delivery.attempts,
        outcome=Raw('""') if state == "done" else None, trouble=delivery.trouble,
    )  # fmt: skip


@pytest.fixture
def stuck(home: Home) -> Home:
    async def keep() -> None:
        database = Database(home.root / "home.sqlite", "home")
        for parcel in PARCELS:
            await JobQueue(database).add(job_of(parcel))
        await database.close()

    asyncio.run(keep())
    return home


def test_a_home_without_parcels_says_so(pal_command: Pal) -> None:
    assert pal_command("delivery", "list").out == "There are no undelivered messages.\n"
    assert "delivery" not in pal_command("status").out


def test_what_has_not_arrived_is_listed_with_its_fate_and_obeyed_by_no_terminal(pal_command: Pal, stuck: Home) -> None:
    shown = pal_command("delivery", "list").out
    lines = shown.splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == ["b1", "b2", "An", "If", "In"]
    assert "ambiguous  telegram:42" in lines[0]
    assert [line.strip() for line in lines[1:3]] == ["Has it come?", "gone"]
    assert lines[3].endswith("tried 7 times")
    assert len(lines[4]) == 102
    assert lines[-1] == "In all: 1 waiting, 1 ambiguous (no sender: 1 for slack)."
    assert "\x1b" not in shown


def test_states_and_json_for_programs(pal_command: Pal, stuck: Home) -> None:
    def ids(*options: str) -> list[str]:
        return [parcel["id"] for parcel in pal_command("delivery", "list", "--json", *options).json["parcels"]]

    assert ids() == ["b2", "b1"]
    assert ids("--all") == ["b2", "b1", "a1"]
    assert ids("--all", "--limit", "1") == ["b2"]
    assert ids("--state", "sent", "--state", "ambiguous") == ["b1", "a1"]
    told = pal_command("delivery", "list", "--json").json["standing"]
    assert told == {"waiting": 1, "sending": 0, "ambiguous": 1, "failed": 0, "uncarried": {"slack": 1}}


def test_status_tells_of_what_is_stuck(pal_command: Pal, stuck: Home) -> None:
    assert "delivery   1 waiting, 1 ambiguous (no sender: 1 for slack)\n" in pal_command("status").out


def test_an_ambiguous_one_is_sent_again_or_dropped_when_a_person_says_so(pal_command: Pal, stuck: Home) -> None:
    assert pal_command("delivery", "retry", "b1").out == "b1 will be sent to telegram:42.\n"
    again = pal_command("delivery", "list", "--json").json["parcels"][1]
    assert (again["id"], again["state"], again["attempts"]) == ("b1", "waiting", 0)
    assert pal_command("delivery", "drop", "b1").out == "b1 to telegram:42 is dropped.\n"
    assert pal_command("delivery", "list", "--json", "--state", "dropped").json["parcels"][0]["id"] == "b1"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("retry", "zz"), "there is no job 'zz' (`pal jobs list` and `pal delivery list` show their ids)"),
        (("retry", "b"), "more than one job begins with 'b' (`pal jobs list` and `pal delivery list` show their ids)"),
        (("retry", "a1"), "job a1 was done and cannot be done again (`pal jobs list` shows its state)"),
        (("drop", "a1"), "job a1 was done and cannot be dropped (`pal jobs list` shows its state)"),
    ],
)
def test_what_cannot_be_done_is_one_clear_line(
    pal_command: Pal, stuck: Home, arguments: tuple[str, ...], told: str
) -> None:
    ended = pal_command("delivery", *arguments)
    assert ended.code != 0
    assert ended.err.splitlines() == [f"pal: {told}"]
