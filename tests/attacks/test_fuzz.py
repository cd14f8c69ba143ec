"""A bounded fuzzer on the socket: valid conversations, mutated by a seed, so that what it finds can be found again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from typing import Any

import pytest
from besieged import MB, Besieged, siege
from doors import methods
from rawsocket import BINARY, CLOSE, CONT, PING, PONG, TEXT, RawSocket, asked, frame

pytestmark = pytest.mark.slow

SEEDS = 8
ROUNDS = 80  # connections of each seed
LEAST = 5
SECONDS = 4.0  # after which the least is enough
# They start programs, or ask models.
SLOW = {"sandbox.test", "sandbox.explain", "mcp.test", "mcp.list", "models.test", "memory.index", "memory.search"}
NAMES = [name for _, name in methods() if name not in SLOW]
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 2**31, 2**63, 1e308, "", "main", "agent:main:main", "x" * 5_000, "\0", "\u202e", "../..", [], {},
    ["main"] * 50, {"a": {"b": {"c": []}}}, "${HOME}", "{{x}}", "%s%n", "1" * 400, "*", "agent::", "😀" * 100,
)  # fmt: skip
KEYS = (
    "sessionKey", "session_key", "key", "keys", "id", "runId", "run_id", "name", "agentId", "agent", "limit", "message",
    "idempotencyKey", "query", "raw", "baseHash", "token", "device", "scopes", "rule", "examples", "tool", "args",
    "attachments", "thinking", "days", "label", "model", "content", "cursor", "decision", "answer", "role", "auth",
)  # fmt: skip
CUTS = (b"{", b"}", b'"', b"[", b"]", b",", b":", b"\\", b"\\u", b"\xff", b"\0", b"null", b"1e", b"req")


def conversation(dice: random.Random) -> list[bytes]:
    """Messages as a client might send them."""
    return [_request(dice, str(number)) for number in range(dice.randint(1, 8))]


def _request(dice: random.Random, number: str) -> bytes:
    fields = dice.sample(KEYS, dice.randint(0, 5))
    return asked(dice.choice(NAMES), number, **{field: dice.choice(VALUES) for field in fields})


def mutated(dice: random.Random, message: bytes) -> bytes:
    """Something done to the text of a message."""
    data = bytearray(message)
    for _ in range(dice.choice((0, 0, 1, 1, 2, 5))):
        at = dice.randrange(len(data) + 1)
        match dice.randrange(5):
            case 0:
                data[at:at] = dice.choice(CUTS)
            case 1:
                del data[at : at + dice.randint(1, 9)]
            case 2 if at < len(data):
                data[at] ^= 1 << dice.randrange(8)
            case 3:
                data[at:at] = data[: dice.randint(0, len(data))]
            case _:
                data = data[:at]
    return bytes(data)


def framed(dice: random.Random, message: bytes) -> bytes:
    """The message in one frame or several, mostly good ones, with others between them."""
    between = frame(b"ping", PING) if dice.random() < 0.1 else b""
    odd = dice.random()
    if odd < 0.1:
        cut = dice.randint(0, len(message))
        return frame(message[:cut], fin=False) + between + frame(message[cut:], CONT)
    if odd < 0.2:
        return between + frame(message, dice.choice((TEXT, BINARY, CONT, CLOSE, PING, PONG, 3, 11)))
    if odd < 0.25:
        return frame(message, rsv=dice.randrange(8), masked=dice.random() < 0.5)
    if odd < 0.3:
        whole = bytearray(frame(message))
        whole[dice.randrange(len(whole))] ^= 1 << dice.randrange(8)
        return bytes(whole)
    return between + frame(message)


async def one_life(here: Besieged, seed: int, rounds: int, until: float) -> int:
    """Connections of one seed; how many there were."""
    dice = random.Random(seed)
    lived = 0
    while lived < LEAST or (lived < rounds and time.monotonic() < until):
        lived += 1
        raw = await RawSocket.open(here.port, here.token if dice.random() < 0.8 else "")
        data = b"".join(framed(dice, mutated(dice, message)) for message in conversation(dice))
        await raw.shout(data)
        heard = b""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.05):  # whether it is closed or answered is its own business here
                while (told := await raw.next()) is not None and told[0] != CLOSE:
                    heard += told[1]
        raw.close()
        assert b"error in the gateway" not in heard, f"seed {seed}, connection {lived}: {data!r}"
    return lived


async def test_mutated_conversations_break_nothing(playground: Besieged) -> None:
    until = time.monotonic() + SECONDS
    async with siege(playground, memory=40 * MB, changes=True):
        lives = await asyncio.gather(*(one_life(playground, seed, ROUNDS, until) for seed in range(SEEDS)))
    assert min(lives) >= LEAST
    assert playground.process.poll() is None
    assert not playground.logged("mistake")
    assert not [line for line in playground.logged(" failed") if line.startswith("the method")]


def test_what_is_fuzzed_is_mostly_what_a_client_would_say() -> None:
    """A fuzzer that only ever sends noise tries the parser and nothing behind it."""
    dice = random.Random(1)
    good = 0
    for _ in range(400):
        with contextlib.suppress(ValueError):
            good += '"type": "req"' in json.dumps(json.loads(mutated(dice, _request(dice, "1"))))
    assert good > 100
