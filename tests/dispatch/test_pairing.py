"""Pairing: codes, how long they are good for, how many may wait, and how often one may guess."""

from __future__ import annotations

import random

import pytest

from palinurus.dispatch.pairing import LETTERS, MOST_GUESSES, Pairing, Pairings, PairingStore, keep_pairings
from palinurus.domain.errors import BadRequest, NotFound, QueueFull
from palinurus.storage.database import MemoryDatabase
from palinurus.testing.fakes import FakeClock


@pytest.fixture
def pairings(clock: FakeClock) -> Pairings:
    return Pairings(PairingStore(MemoryDatabase()), clock, random.Random(7).randrange)


async def ask(pairings: Pairings, sender: str = "42", account: str = "default") -> Pairing | None:
    return await pairings.ask("telegram", account, sender, "Bob")


async def test_a_code_has_eight_characters_that_nobody_confuses(pairings: Pairings) -> None:
    codes = set()
    for number in range(50):
        asked = await ask(pairings, "42", f"account {number}")
        assert asked is not None
        codes.add(asked.code)
    assert len(codes) == 50
    assert {len(code) for code in codes} == {8}
    assert set("".join(codes)) <= set(LETTERS)
    assert not set(LETTERS) & set("0O1I")


async def test_who_asks_again_is_told_nothing_new_for_an_hour(pairings: Pairings, clock: FakeClock) -> None:
    first = await ask(pairings)
    clock.advance(minutes=59)
    assert await ask(pairings) is None
    assert [each.last_seen_at for each in await pairings.entries()] == [clock.now_ms()]
    clock.advance(minutes=2)
    assert await pairings.entries() == []
    second = await ask(pairings)
    assert first is not None
    assert second is not None
    assert first.code != second.code


async def test_three_may_wait_at_an_account_and_others_get_no_answer(pairings: Pairings, clock: FakeClock) -> None:
    assert all([await ask(pairings, str(each)) for each in range(3)])
    assert await ask(pairings, "3") is None
    assert await ask(pairings, "3", "other") is not None
    clock.advance(minutes=61)
    assert await ask(pairings, "3") is not None


async def test_an_approved_sender_is_known_at_that_account_alone(pairings: Pairings) -> None:
    asked = await ask(pairings)
    assert asked is not None
    approved = await pairings.approve(asked.code.lower(), "owner")
    assert (approved.status, approved.decided_by, approved.code) == ("approved", "owner", "")
    assert await pairings.is_approved("telegram", "default", "42")
    for channel, account, sender in (
        ("telegram", "b", "42"),
        ("discord", "default", "42"),
        ("telegram", "default", "4"),
    ):
        assert not await pairings.is_approved(channel, account, sender)
    assert [each.status for each in await pairings.entries()] == ["approved"]
    with pytest.raises(NotFound):
        await pairings.approve(asked.code, "owner")


async def test_a_code_that_is_too_old_lets_nobody_in(pairings: Pairings, clock: FakeClock) -> None:
    asked = await ask(pairings)
    assert asked is not None
    clock.advance(hours=1)
    for which in (asked.code, "telegram:42"):
        with pytest.raises(NotFound):
            await pairings.approve(which, "owner")


async def test_a_rejected_sender_cannot_ask_again_at_once_and_takes_no_place(
    pairings: Pairings, clock: FakeClock
) -> None:
    for each in range(3):
        await ask(pairings, str(each))
    await pairings.reject("telegram:0", "owner")
    assert await ask(pairings, "0") is None
    assert await ask(pairings, "9") is not None
    clock.advance(minutes=61)
    assert await ask(pairings, "0") is not None


async def test_one_who_was_let_in_can_be_rejected(pairings: Pairings) -> None:
    await ask(pairings)
    await pairings.approve("telegram:42", "owner")
    await pairings.reject("telegram:default:42", "owner")
    assert not await pairings.is_approved("telegram", "default", "42")
    assert await pairings.entries() == []


async def test_guessing_codes_ends_after_some_wrong_ones_and_a_name_still_works(
    pairings: Pairings, clock: FakeClock
) -> None:
    asked = await ask(pairings)
    assert asked is not None
    for _ in range(MOST_GUESSES):
        with pytest.raises(NotFound):
            await pairings.approve("WRONG234", "guesser")
    with pytest.raises(QueueFull):
        await pairings.approve(asked.code, "guesser")
    assert (await pairings.approve("telegram:42", "owner")).status == "approved"
    clock.advance(minutes=61)
    again = await ask(pairings, "43")
    assert again is not None
    assert (await pairings.approve(again.code, "owner")).sender == "43"


@pytest.mark.parametrize("which", ["", "  ", "telegram:1", "telegram:", "ABCD2345", "é" * 8, "\ud800"])
async def test_nobody_is_let_in_by_a_wrong_name(pairings: Pairings, which: str) -> None:
    await ask(pairings)
    with pytest.raises((NotFound, BadRequest)):
        await pairings.approve(which, "owner")
    assert [each.status for each in await pairings.entries()] == ["pending"]


async def test_a_sender_at_two_accounts_is_named_with_the_account(pairings: Pairings) -> None:
    for account in ("default", "b"):
        await ask(pairings, "42", account)
    with pytest.raises(NotFound, match="several accounts"):
        await pairings.approve("telegram:42", "owner")
    assert (await pairings.approve("telegram:b:42", "owner")).account == "b"


async def test_listeners_hear_of_requests_and_decisions(pairings: Pairings) -> None:
    heard: list[str] = []
    pairings.changed = lambda pairing: heard.append(pairing.status)
    await ask(pairings)
    await ask(pairings)
    await pairings.approve("telegram:42", "owner")
    assert heard == ["pending", "approved"]


async def test_an_import_adds_only_who_is_not_known() -> None:
    database = MemoryDatabase()
    both = [Pairing("telegram", "default", sender, "approved", 1) for sender in ("1", "2")]
    assert await database.write(lambda tx: keep_pairings(tx, both)) == 2
    assert await database.write(lambda tx: keep_pairings(tx, [*both, Pairing("x", "default", "1", "approved", 1)])) == 1
