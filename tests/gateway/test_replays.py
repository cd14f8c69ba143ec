"""A request that comes again under its key is answered as the first time, and done once."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from palinurus.domain.errors import BadRequest, NotFound
from palinurus.gateway.protocol import RequestFrame
from palinurus.gateway.websocket.requests import KEEP_MS, MAX_KEY, Replays, take_key
from palinurus.testing.fakes import FakeClock

ASKED = ("anna", "sessions.reset", "k")
WAIT = 60.0


class Work:
    """Counts how often it was done."""

    def __init__(self) -> None:
        self.done = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure: Exception | None = None

    async def __call__(self) -> dict[str, int]:
        self.done += 1
        count = self.done
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return {"count": count}


async def test_the_first_answer_is_given_again_and_the_work_is_done_once(clock: FakeClock) -> None:
    replays, work = Replays(clock), Work()
    answers = [await replays.once(ASKED, work) for _ in range(3)]
    assert {bytes(answer) for answer in answers} == {b'{"count":1}'}
    assert work.done == 1


async def test_another_person_method_or_key_is_another_request(clock: FakeClock) -> None:
    replays, work = Replays(clock), Work()
    for asked in (ASKED, ("berta", *ASKED[1:]), ("anna", "sessions.delete", "k"), (*ASKED[:2], "l")):
        await replays.once(asked, work)
    assert work.done == 4


async def test_who_asks_while_it_is_done_gets_the_same_answer(clock: FakeClock) -> None:
    replays, work = Replays(clock), Work()
    work.gate.clear()
    asking = [asyncio.create_task(replays.once(ASKED, work)) for _ in range(5)]
    await asyncio.sleep(0)
    work.gate.set()
    answers = await asyncio.wait_for(asyncio.gather(*asking), WAIT)
    assert {bytes(answer) for answer in answers} == {b'{"count":1}'}


async def test_what_failed_is_tried_again_by_the_next_one(clock: FakeClock) -> None:
    replays, work = Replays(clock), Work()
    work.failure = NotFound("not yet")
    work.gate.clear()
    first, second = (asyncio.create_task(replays.once(ASKED, work)) for _ in range(2))
    await asyncio.sleep(0)
    work.gate.set()
    for task in (first, second):
        with pytest.raises(NotFound):
            await asyncio.wait_for(task, WAIT)
    work.failure = None
    assert bytes(await replays.once(ASKED, work)) == b'{"count":3}'


async def test_who_is_cancelled_leaves_the_work_to_the_next_one(clock: FakeClock) -> None:
    replays, work = Replays(clock), Work()
    work.gate.clear()
    first, second = (asyncio.create_task(replays.once(ASKED, work)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    work.gate.set()
    assert bytes(await asyncio.wait_for(second, WAIT)) == b'{"count":2}'
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_an_answer_is_forgotten_after_a_while(clock: FakeClock) -> None:
    replays, work = Replays(clock), Work()
    await replays.once(ASKED, work)
    clock.advance(milliseconds=KEEP_MS - 1)
    await replays.once(ASKED, work)
    assert work.done == 1
    clock.advance(milliseconds=1)
    await replays.once(ASKED, work)
    assert work.done == 2


async def test_only_so_many_answers_of_so_many_bytes_are_kept(clock: FakeClock) -> None:
    replays, work = Replays(clock, most=3), Work()
    for key in "abcd":
        await replays.once(("anna", "m", key), work)
    await replays.once(("anna", "m", "d"), work)
    assert work.done == 4
    await replays.once(("anna", "m", "a"), work)
    assert work.done == 5

    async def large() -> str:
        return "x" * 60

    small = Replays(clock, most_bytes=100)
    await small.once(("anna", "m", "a"), large)
    await small.once(("anna", "m", "b"), large)
    assert bytes(await small.once(("anna", "m", "b"), work)).startswith(b'"xxx')
    assert bytes(await small.once(("anna", "m", "a"), work)).startswith(b'{"count"')


def taken(raw: bytes, key: str | None = None) -> tuple[str, bytes]:
    found, params = take_key(RequestFrame("1", "m", msgspec.Raw(raw), key))
    return found, bytes(params)


def test_the_key_leaves_the_parameters_whatever_they_are() -> None:
    assert taken(b'{"idempotencyKey": "k", "x": [1]}') == ("k", b'{"x":[1]}')
    assert taken(b'{"x": {"idempotencyKey": 7}}') == ("", b'{"x":{"idempotencyKey": 7}}')
    assert taken(b'{"idempotencyKey": null}') == ("", b"{}")
    for raw in (b"{}", b"[]", b"7", b"{", b'["idempotencyKey"]'):
        assert taken(raw) == ("", raw)
    for raw in (b'{"idempotencyKey": 7}', b'{"idempotencyKey": "%s"}' % (b"x" * (MAX_KEY + 1))):
        with pytest.raises(BadRequest):
            taken(raw)


def test_the_key_of_the_frame_goes_before_one_among_the_parameters() -> None:
    assert taken(b'{"x": 1}', "of the frame") == ("of the frame", b'{"x": 1}')
    assert taken(b'{"x": 1, "idempotencyKey": "other"}', "of the frame") == ("of the frame", b'{"x":1}')
    with pytest.raises(BadRequest):
        taken(b"{}", "x" * (MAX_KEY + 1))
