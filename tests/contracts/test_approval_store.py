"""One suite for every keeper of approvals."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from palinurus.domain.errors import BadRequest, NotFound
from palinurus.domain.events import Invocation, Plan
from palinurus.storage.database import Database
from palinurus.tools.approval import Approval, ApprovalStore

PLAN = Plan(
    "exec", "rm -rf build", "host", ("rm", "-rf", "build"), "/w", invocations=(Invocation("rm", "/bin/rm", ""),)
)


@pytest.fixture
def store(database: Database) -> ApprovalStore:
    return ApprovalStore(database)


def approval(name: str, at: int = 1000, **changes: Any) -> Approval:
    plain = Approval(name, "run", "agent:main:main", "exec", PLAN, PLAN.digest, "outside the sandbox", at, at + 60_000)
    return msgspec.structs.replace(plain, **changes)


async def test_an_approval_is_kept_as_it_was_asked(store: ApprovalStore) -> None:
    asked = approval("a1")
    await store.add(asked)
    assert await store.get("a1") == asked
    assert await store.get("zz") is None


async def test_those_that_wait_come_oldest_first_and_all_of_them_newest_first(store: ApprovalStore) -> None:
    for name, at in (("b", 2000), ("a", 1000), ("c", 2000)):
        await store.add(approval(name, at))
    await store.add(approval("d", 3000, status="unattended", decided_at=3000))
    assert [each.id for each in await store.pending()] == ["a", "b", "c"]
    assert [each.id for each in await store.recent()] == ["d", "c", "b", "a"]
    assert [each.id for each in await store.recent(limit=2)] == ["d", "c"]


async def test_a_decision_says_who_where_and_when_and_takes_it_off_the_list(store: ApprovalStore) -> None:
    await store.add(approval("a"))
    decided = await store.settle("a", "allowed-always", 5000, by="owner", where="chat", grant_id="g1")
    assert decided == approval(
        "a", status="allowed-always", decided_at=5000, decided_by="owner", decided_where="chat", grant_id="g1"
    )
    assert await store.get("a") == decided
    assert await store.pending() == []


async def test_an_approval_is_decided_once(store: ApprovalStore) -> None:
    await store.add(approval("a"))
    await store.settle("a", "denied", 5000, by="owner", where="chat")
    with pytest.raises(BadRequest, match="is already decided: denied by owner"):
        await store.settle("a", "allowed-once", 6000, by="owner", where="page")
    kept = await store.get("a")
    assert kept is not None
    assert (kept.status, kept.decided_where) == ("denied", "chat")


async def test_of_many_who_decide_at_once_one_wins(store: ApprovalStore) -> None:
    await store.add(approval("a"))
    answers = [store.settle("a", "allowed-once", 1, by=f"door {number}") for number in range(20)]
    outcomes = await asyncio.gather(*answers, return_exceptions=True)
    (winner,) = [outcome for outcome in outcomes if isinstance(outcome, Approval)]
    assert all(isinstance(outcome, BadRequest | Approval) for outcome in outcomes)
    assert await store.get("a") == winner


async def test_what_was_never_asked_cannot_be_decided(store: ApprovalStore) -> None:
    with pytest.raises(NotFound, match="there is no approval 'zz'"):
        await store.settle("zz", "denied", 1)


async def test_an_id_is_not_used_twice(store: ApprovalStore) -> None:
    await store.add(approval("a"))
    with pytest.raises(BadRequest, match="approval 'a' exists already"):
        await store.add(approval("a", reason="another"))
    assert await store.get("a") == approval("a")
