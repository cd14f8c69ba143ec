"""One suite for every keeper of the audit log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from palinurus.domain.events import Invocation, Plan
from palinurus.ledger.audit import BEGINNING, ERASED_AT_ONCE, MAX_DETAILS, AuditEvent, Kind
from palinurus.ledger.audit_log import AuditLog
from palinurus.storage.database import Database
from palinurus.testing.fakes import FakeClock, SeededIds

MAIN, CODER = "agent:main:main", "agent:coder:main"


@pytest.fixture
def log(database: Database) -> AuditLog:
    return AuditLog(database, FakeClock(), SeededIds())


def event(call_id: str = "c", kind: Kind = "call", **changes: Any) -> AuditEvent:
    plain = AuditEvent(kind, 1000, "run-1", MAIN, "exec", call_id, "ok", {"call": call_id})
    return msgspec.structs.replace(plain, **changes)


def planned(command: str) -> dict[str, Any]:
    plan = Plan("exec", command, argv=tuple(command.split()), invocations=(Invocation("ls", "/bin/ls", "/bin/ls"),))
    return {"plan": msgspec.to_builtins(plan), "digest": plan.digest}


async def test_what_is_recorded_can_be_read_newest_first(log: AuditLog) -> None:
    await log.record(event("a"))
    await log.record(event("b", "decision", at=2000, outcome="denied: owner", details={"why": "no", "n": [1, None]}))
    newest, oldest = await log.rows()
    assert (newest.seq, newest.at, newest.kind, newest.call_id) == (2, 2000, "decision", "b")
    assert (newest.run_id, newest.session_key, newest.tool, newest.outcome) == ("run-1", MAIN, "exec", "denied: owner")
    assert newest.details == {"why": "no", "n": [1, None]}
    assert (oldest.seq, oldest.previous, newest.previous) == (1, BEGINNING, oldest.hash)


async def test_notes_and_records_are_kept_in_the_order_in_which_they_came(log: AuditLog) -> None:
    for number in range(20):
        log.note(event(f"n{number}", "result"))
        if number % 3 == 0:
            await log.record(event(f"r{number}"))
    calls = [row.call_id for row in reversed(await log.rows())]
    wanted = [name for n in range(20) for name in ([f"n{n}", f"r{n}"] if n % 3 == 0 else [f"n{n}"])]
    assert calls == wanted
    await log.settled()
    assert (await log.verify()).ok


async def test_details_are_kept_as_they_were_when_they_were_noted(log: AuditLog) -> None:
    details = {"text": "before"}
    log.note(event(details=details))
    details["text"] = "after"
    assert (await log.rows())[0].details == {"text": "before"}


async def test_rows_of_a_session_a_run_or_a_tool_can_be_asked_for_and_paged(log: AuditLog) -> None:
    for number in range(6):
        session, tool = (MAIN, "exec") if number % 2 else (CODER, "read")
        await log.record(event(str(number), session_key=session, tool=tool, run_id=f"run-{number // 2}"))

    async def seqs(**filters: Any) -> list[int]:
        return [row.seq for row in await log.rows(**filters)]

    assert await seqs(session=MAIN) == [6, 4, 2]
    assert await seqs(tool="read") == [5, 3, 1]
    assert await seqs(run="run-1") == [4, 3]
    assert await seqs(run="run") == [6, 5, 4, 3, 2, 1]
    assert await seqs(session=CODER, run="run-2", tool="read") == [5]
    assert await seqs(session=CODER, tool="exec") == []
    assert await seqs(limit=2) == [6, 5]
    assert await seqs(limit=2, before=5) == [4, 3]
    assert await seqs(session=MAIN, before=4) == [2]


async def test_an_empty_log_is_whole(log: AuditLog) -> None:
    report = await log.verify()
    assert (report.ok, report.rows, report.head) == (True, 0, BEGINNING)
    assert await log.rows() == []
    assert await log.commands() == []


async def test_the_head_of_before_is_still_expected_later_and_a_strange_one_is_not(log: AuditLog) -> None:
    await log.record(event("a"))
    head = (await log.verify()).head
    await log.record(event("b"))
    assert (await log.verify(expect=head.upper())).ok
    report = await log.verify(expect="f" * 64)
    assert not report.ok
    assert "its end was cut off" in report.trouble


async def test_commands_are_remembered_once_with_their_plan_and_how_they_came_out(log: AuditLog) -> None:
    await log.record(event("a", "decision", outcome="allowed-once", details=planned("make")))
    await log.record(event("a", outcome="allowed: profile", details=planned("make")))
    log.note(event("a", "result", details={"text": "done"}))
    await log.record(event("b", "decision", outcome="denied", details=planned("rm -rf build"), at=2000))
    await log.record(event("c", details=planned("ls"), session_key=CODER))
    await log.record(event("d", tool="read", details=planned("not a command")))
    past = await log.commands()
    assert [(each.plan.summary, each.outcome) for each in past] == [
        ("ls", "ok"),
        ("rm -rf build", "denied"),
        ("make", "allowed: profile"),
    ]
    assert past[1].at == 2000
    assert past[0].plan.invocations[0].binary == "/bin/ls"
    assert [each.plan.summary for each in await log.commands(agent="coder")] == ["ls"]
    assert await log.commands(agent="cod") == []
    assert [each.plan.summary for each in await log.commands(limit=2)] == ["ls", "rm -rf build"]


async def test_commands_that_cannot_be_read_any_more_are_left_out(log: AuditLog) -> None:
    await log.record(event("a", details=planned("make")))
    await log.record(event("b", details={"plan": "something else"}))
    await log.record(event("c", details={}))
    await log.record(event("d", details=planned("ls")))
    await log.erase([4])
    assert [each.plan.summary for each in await log.commands()] == ["make"]


async def test_erased_details_are_gone_the_chain_is_whole_and_says_what_was_erased(log: AuditLog) -> None:
    for name in "abc":
        await log.record(event(name))
    head = (await log.verify()).head
    assert await log.erase([3, 1, 1, 77, -5]) == 2
    erasure, *rows = await log.rows()
    assert [row.details for row in rows] == [None, {"call": "b"}, None]
    assert (erasure.kind, erasure.outcome, erasure.details) == ("erase", "2 erased", {"seqs": [1, 3]})
    assert erasure.at == FakeClock().now_ms()
    report = await log.verify(expect=head)
    assert (report.ok, report.rows, report.erased) == (True, 4, 2)


async def test_erasing_twice_changes_nothing_and_an_erasure_keeps_its_own_list(log: AuditLog) -> None:
    await log.record(event())
    assert await log.erase([1]) == 1
    assert await log.erase([1, 2]) == 0
    assert len(await log.rows()) == 2
    assert (await log.verify()).ok


async def test_a_long_list_of_erasures_is_kept_whole(log: AuditLog) -> None:
    for _ in range(ERASED_AT_ONCE + 1):
        log.note(event())
    assert await log.erase(range(1, ERASED_AT_ONCE + 2)) == ERASED_AT_ONCE + 1
    report = await log.verify()
    assert (report.ok, report.rows, report.erased) == (True, ERASED_AT_ONCE + 3, ERASED_AT_ONCE + 1)


async def test_large_details_are_cut_short_and_small_ones_beside_them_are_kept(log: AuditLog) -> None:
    await log.record(event("a", details={**planned("ls"), "text": "x" * 200_000}))
    await log.record(event("b", details={f"key {number}": "y" * 1000 for number in range(200)}))
    many, one = await log.rows()
    assert one.details is not None
    assert one.details["clipped"] > 200_000
    assert one.details["text"].startswith('"xxx')
    assert len(msgspec.json.encode(one.details)) <= MAX_DETAILS
    assert [each.plan.summary for each in await log.commands()] == ["ls"]
    assert many.details is not None
    assert set(many.details) == {"clipped", "start"}
    assert (await log.verify()).ok


def nested(depth: int) -> dict[str, Any]:
    inner: dict[str, Any] = {}
    for _ in range(depth):
        inner = {"a": inner}
    return inner


@pytest.mark.parametrize(
    "odd",
    [
        event(details={"half \ud83d": ["of a character: \ud83d", {"x": ("\udc00",)}]}),
        event(details={"number": 2**80, "nothing": float("nan"), "path": Path("/tmp"), "raw": b"\xff"}),
        event(details=nested(900)),
        event(details=nested(100_000)),
        event("\x00\ud83d", tool="\n" * 5000, run_id="", outcome="é\U0001f980"),
    ],
    ids=["surrogates", "odd values", "deep", "too deep", "odd fields"],
)
async def test_whatever_a_model_asks_for_is_written_down(log: AuditLog, odd: AuditEvent) -> None:
    await log.record(odd)
    (row,) = await log.rows()
    assert row.details is not None
    assert len(row.tool) <= 1001
    assert (await log.verify()).ok
