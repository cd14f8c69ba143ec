"""Requests with effects that come a second time: a client that heard no answer asks again under the same key.

The first answer is kept for a while and given again. What failed is not kept: asking again tries again, and what was
done before is found by the ids that are made of the key. Kept is a bounded number of answers of a bounded size; the
oldest goes first, and then the ids alone make the repetition harmless.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.domain.clock import Clock
from palinurus.domain.errors import BadRequest

KEEP_MS = 15 * 60_000
MOST_ANSWERS = 2_000
MOST_BYTES = 16 * 1024 * 1024
MAX_KEY = 256

Asked = tuple[str, str, str]  # who, which method, under which key


class _Keyed(Struct, rename="camel"):
    idempotency_key: Any = ""


class _Answer(Struct, frozen=True):
    payload: msgspec.Raw
    at: int


_decode = msgspec.json.Decoder(_Keyed).decode
_encode = msgspec.json.Encoder().encode


def key_of(params: msgspec.Raw) -> str:
    """The idempotency key in the parameters of a request; empty when there is none. Raises BadRequest."""
    try:
        key = _decode(params).idempotency_key
    except (msgspec.DecodeError, RecursionError):
        return ""  # whoever reads the parameters themselves says what is wrong with them
    if key is None:
        return ""
    if not isinstance(key, str) or len(key) > MAX_KEY:
        raise BadRequest(f"idempotencyKey should be a text of at most {MAX_KEY} characters")
    return key


class Replays:
    def __init__(self, clock: Clock, *, most: int = MOST_ANSWERS, most_bytes: int = MOST_BYTES) -> None:
        self._clock = clock
        self._most = most
        self._most_bytes = most_bytes
        self._answers: OrderedDict[Asked, _Answer] = OrderedDict()
        self._bytes = 0
        self._under_way: dict[Asked, asyncio.Future[msgspec.Raw | None]] = {}

    async def once(self, asked: Asked, work: Callable[[], Awaitable[Any]]) -> msgspec.Raw:
        """The answer, encoded: of this work, or of the same request before. Raises what the work raises."""
        while (other := self._under_way.get(asked)) is not None:
            answer = await asyncio.shield(other)
            if answer is not None:
                return answer  # else it failed: it is this one's turn to try
        self._forget_old()
        if known := self._answers.get(asked):
            return known.payload
        under_way = self._under_way[asked] = asyncio.get_running_loop().create_future()
        answer = None
        try:
            answer = msgspec.Raw(_encode(await work()))
            self._keep(asked, answer)
            return answer
        finally:
            del self._under_way[asked]
            under_way.set_result(answer)

    def _keep(self, asked: Asked, payload: msgspec.Raw) -> None:
        self._answers[asked] = _Answer(payload, self._clock.now_ms())
        self._bytes += len(bytes(payload))
        while len(self._answers) > self._most or self._bytes > self._most_bytes:
            self._drop_first()

    def _forget_old(self) -> None:
        now = self._clock.now_ms()
        while self._answers and now - next(iter(self._answers.values())).at >= KEEP_MS:
            self._drop_first()

    def _drop_first(self) -> None:
        _, gone = self._answers.popitem(last=False)
        self._bytes -= len(bytes(gone.payload))
