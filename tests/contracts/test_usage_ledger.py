"""One suite for every keeper of the usage ledger, alone and behind a keeper of sessions."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone

import pytest

from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, Text, Usage
from palinurus.ledger.usage import UsageLedger, UsageRow
from palinurus.sessions.session import SessionChange
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import MessageEntry, timestamp
from palinurus.storage.database import Database
from palinurus.testing.fakes import FakeClock, SeededIds

NOON = 1_794_744_000_000  # 2026-11-15 12:00 UTC
HOUR = 3_600_000
Kept = tuple[UsageLedger, SessionStore]


@pytest.fixture
def kept(database: Database) -> Kept:
    return UsageLedger(database), SessionStore(database, FakeClock(), SeededIds())


def row(entry_id: str, at: int = NOON, *, agent: str = "main", model: str = "m", cost: float | None = 0.5) -> UsageRow:
    usage = Usage(100, 10, 5, 1)
    return UsageRow(entry_id, at, "run", f"agent:{agent}:main", agent, "openai", model, usage, cost)


async def test_rows_are_summed_by_agent_session_and_model_with_the_largest_first(kept: Kept) -> None:
    ledger, _ = kept
    for number in range(3):
        await ledger.append(row(f"a{number}"))
    await ledger.append(row("b", agent="coder", model="n"))
    by_agent = await ledger.totals("agent", zone=UTC)
    assert [(total.name, total.calls, total.usage, total.cost) for total in by_agent] == [
        ("main", 3, Usage(300, 30, 15, 3), 1.5),
        ("coder", 1, Usage(100, 10, 5, 1), 0.5),
    ]
    assert [total.name for total in await ledger.totals("session", zone=UTC)] == ["agent:main:main", "agent:coder:main"]
    assert [total.name for total in await ledger.totals("model", zone=UTC)] == ["openai/m", "openai/n"]


async def test_days_are_days_of_the_zone_and_come_in_their_order(kept: Kept) -> None:
    ledger, _ = kept
    await ledger.append(row("late", NOON + 11 * HOUR))
    await ledger.append(row("noon"))
    assert [total.name for total in await ledger.totals("day", zone=UTC)] == ["2026-11-15"]
    east = timezone(timedelta(hours=2))
    assert [total.name for total in await ledger.totals("day", zone=east)] == ["2026-11-15", "2026-11-16"]


async def test_only_rows_of_the_time_and_agent_asked_for_count(kept: Kept) -> None:
    ledger, _ = kept
    await ledger.append(row("old", NOON - HOUR))
    await ledger.append(row("new"))
    await ledger.append(row("other", agent="coder"))
    assert [total.calls for total in await ledger.totals("agent", zone=UTC, since=NOON, agent="main")] == [1]


async def test_one_session_can_be_asked_for(kept: Kept) -> None:
    ledger, _ = kept
    await ledger.append(row("a"))
    await ledger.append(row("b", NOON + HOUR))
    await ledger.append(row("c", agent="coder"))
    (total,) = await ledger.totals("session", zone=UTC, session="agent:main:main")
    assert (total.name, total.calls) == ("agent:main:main", 2)
    (later,) = await ledger.totals("session", zone=UTC, since=NOON + 1, session="agent:main:main")
    assert later.calls == 1
    assert await ledger.totals("session", zone=UTC, session="agent:main:direct:nobody") == []


async def test_a_call_without_a_price_is_counted_as_unpriced_and_not_as_free(kept: Kept) -> None:
    ledger, _ = kept
    await ledger.append(row("priced", cost=0.25))
    await ledger.append(row("free", cost=0.0))
    await ledger.append(row("unpriced", cost=None))
    (total,) = await ledger.totals("agent", zone=UTC)
    assert (total.calls, total.cost, total.unpriced) == (3, 0.25, 1)


async def test_the_same_reply_is_counted_once(kept: Kept) -> None:
    ledger, _ = kept
    await ledger.append(row("a"))
    await ledger.append(row("a"))
    assert [total.calls for total in await ledger.totals("agent", zone=UTC)] == [1]


async def test_a_reply_and_what_it_cost_are_kept_together_and_redelivery_counts_once(kept: Kept) -> None:
    ledger, sessions = kept
    session = await sessions.open(SessionKey.main())
    reply = AssistantMessage((Text("hello"),), usage=Usage(100, 10, 5, 1))
    entry = MessageEntry(message=reply, id="e1", parent_id=None, timestamp=timestamp(NOON))
    for _ in range(2):
        await sessions.append(session.id, [entry], SessionChange(spent=row("e1")))
    assert [total.calls for total in await ledger.totals("agent", zone=UTC)] == [1]
