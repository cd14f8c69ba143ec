"""`pal agent` against a model server on loopback: a reply for programs, one clear line for each way to fail."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from audit import audit, check_grows, check_valid

from homes import PalHome, parrot
from support.behaviours import Answers, Behaviour, Cuts, CutsWithoutFinish, ErrorInStream, Garbage, Hangs
from support.wire import WireServer

pytestmark = pytest.mark.slow


async def test_a_program_gets_reply_usage_and_run_id(home: PalHome, wire: WireServer) -> None:
    ended = await home.pal("agent", "--message", "hi", "--json")
    assert (ended.code, ended.err) == (0, ""), ended
    reply = ended.json
    assert reply["status"] == "ok"
    assert reply["text"] == "heard: hi"
    assert reply["model"] == "wire/test"
    assert reply["usage"] == {"input": 20, "output": 5}
    assert reply["runId"]
    assert reply["sessionKey"] == "agent:main:main"
    assert wire.headers[0]["authorization"] == "Bearer test-key-of-the-wire"


OVERFLOW = {"error": {"message": "maximum context length is 8 tokens", "code": "context_length_exceeded"}}
FAULTS: dict[str, tuple[Behaviour, str, str]] = {
    "a refused key": (Answers(401, {"error": {"message": "bad key"}}), "auth", "key"),
    "too many requests": (Answers(429, {"error": {"message": "slow"}}, {"Retry-After": "2"}), "rate_limit", "2 s"),
    "an overload": (Answers(529, {"error": {"message": "busy"}}), "overload", ""),
    "an overflow": (Answers(400, OVERFLOW), "context_overflow", ""),
    "a torn connection": (Cuts("half a sen"), "network", ""),
    "a stream without its end": (CutsWithoutFinish("half a sen"), "", ""),
    "an error in the stream": (ErrorInStream("half a sen"), "", "accident"),
    "garbage": (Garbage(), "malformed", ""),
}


async def test_a_model_that_fails_is_one_clear_line_and_the_session_goes_on(place: Path) -> None:
    # Side by side, each in a home of its own: some of the faults are worth another try, after a pause.
    tried = await asyncio.gather(
        *(fails_and_goes_on(place / name.replace(" ", "-"), *fault) for name, fault in FAULTS.items()),
        return_exceptions=True,
    )
    assert {name: wrong for name, wrong in zip(FAULTS, tried, strict=True) if wrong is not None} == {}


async def fails_and_goes_on(root: Path, fault: Behaviour, kind: str, word: str) -> None:
    async with WireServer(otherwise=fault) as wire:
        home = PalHome(root)
        home.set_up(wire.base_url)
        failed = await home.pal("agent", "-m", "does it work?")
        assert failed.code == 1
        assert word in failed.one_clear_line()
        wire.otherwise = parrot
        again = await home.pal("agent", "-m", "and now?", "--json")
        assert (again.code, again.json["text"], again.err) == (0, "heard: and now?", "")
    check_valid(wire.requests[-1])
    if kind != "context_overflow":  # which is answered by a compaction, and that begins a new epoch
        check_grows(wire.requests[0], wire.requests[-1])
    stored = audit(home.database)
    assert stored.said("agent:main:main") == ["does it work?", "and now?"]
    reply = stored.sessions["agent:main:main"][1]
    assert getattr(reply, "stop_reason", "") == "error"
    assert str(getattr(reply, "error_message", "")).startswith(kind)


async def test_a_program_is_told_of_a_failure_in_json(home: PalHome, wire: WireServer) -> None:
    wire.script.append(Answers(401, {"error": {"message": "bad key"}}))
    ended = await home.pal("agent", "-m", "does it work?", "--json")
    assert ended.code == 1
    assert ended.json["status"] == "error"
    assert ended.json["errorKind"] == "auth"
    assert "Traceback" not in ended.err


async def test_a_server_that_is_not_there_is_one_clear_line(home: PalHome, wire: WireServer) -> None:
    await wire.close()
    ended = await home.pal("agent", "-m", "anybody?")
    assert ended.code == 1
    assert "127.0.0.1" in ended.one_clear_line()


async def test_a_reply_that_does_not_come_in_time_is_stopped_and_said(home: PalHome, wire: WireServer) -> None:
    wire.script.append(Hangs("half a sen"))
    for seconds in (3, 12, 48):  # a busy machine may not have asked the model by then: again, with more time
        ended = await home.pal("agent", "-m", "are you there?", "--timeout", str(seconds), "--json")
        assert ended.code == 3
        assert f"{seconds} s" in ended.one_clear_line()
        if wire.requests:
            break
    assert len(wire.requests) == 1  # the model was asked: what hangs is behind us
    again = await home.pal("agent", "-m", "and now?")
    assert (again.code, again.out) == (0, "heard: and now?\n")
    check_valid(wire.requests[-1])


async def test_a_one_shot_that_is_cut_off_before_it_is_accepted_leaves_nothing_to_be_answered_later(
    home: PalHome, wire: WireServer
) -> None:
    ended = await home.pal("agent", "-m", "too hasty", "--timeout", "0.1")
    assert ended.code == 3
    assert audit(home.database).pending == []
