"""`pal up`, which is `make run`: a gateway, its page, and a chat in one process."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support.behaviours import Hangs, Says
from support.wire import WireServer

sys.path[:0] = [str(Path(__file__).parent.parent / name) for name in ("faults", "gateway", "terminal")]
from pseudo_terminal import CTRL_D, ENTER, Terminal  # noqa: E402
from serving import free_port, request  # noqa: E402

from homes import PATIENCE, PalHome, Talk, parrot  # noqa: E402

pytestmark = pytest.mark.slow

LINK = re.compile(r"dashboard: (http://127\.0\.0\.1:(\d+)/login#code=[\w-]{22})")


@pytest.fixture
async def wire() -> AsyncIterator[WireServer]:
    async with WireServer(otherwise=parrot) as server:
        yield server


@pytest.fixture
def place(tmp_path: Path, wire: WireServer) -> PalHome:
    services = PalHome(tmp_path / "home")
    services.set_up(wire.base_url)
    return services


async def link_of(talk: Talk) -> tuple[str, int]:
    """The link that it told, and its port."""
    async with asyncio.timeout(PATIENCE):
        while not (found := LINK.search(talk.complaints)):
            assert talk.alive, talk.complaints
            await asyncio.sleep(0.01)
    return found[1], int(found[2])


async def log_in(url: str) -> int:
    parts = urlsplit(url)
    assert parts.port is not None
    body = json.dumps({"code": parts.fragment.removeprefix("code=")}).encode()
    said = {"Origin": f"http://{parts.netloc}", "Content_Type": "application/json"}
    return (await request(parts.port, "/page/login", method="POST", body=body, **said)).status


async def test_piped_lines_are_answered_and_it_ends_with_the_input(place: PalHome) -> None:
    ended = await place.pal("up", "--port", "0", said="one\ntwo\n")
    assert (ended.code, ended.out) == (0, "heard: one\nheard: two\n")
    assert LINK.search(ended.err)
    assert not (place.root / "gateway.json").exists()


async def test_the_page_is_served_while_it_talks_and_gone_with_it(place: PalHome) -> None:
    async with place.talking("up", "--port", "0") as talk:
        url, port = await link_of(talk)
        assert await log_in(url) == 200
        assert (await request(port, "/")).status == 200
        assert await talk.answer("ahoy") == "heard: ahoy"
        printed = await place.pal("dashboard", "--no-open")
        assert await log_in(printed.out.strip()) == 200
        assert (await talk.leave()).code == 0
    with pytest.raises(ConnectionRefusedError):
        await request(port, "/")
    assert (await place.pal("gateway", "status")).code == 1


async def test_a_gateway_that_was_there_is_used_and_stays(place: PalHome) -> None:
    async with place.talking("gateway", "run", "--port", "0") as gateway:
        await gateway.until(lambda line: line.startswith("pal gateway at "))
        ended = await place.pal("up", said="ahoy\n")
        assert (ended.code, ended.out) == (0, "heard: ahoy\n")
        found = LINK.search(ended.err)
        assert found is not None
        assert await log_in(found[1]) == 200
        assert (await place.pal("gateway", "status", "--json")).json["pid"] == gateway.pid


async def test_when_the_usual_port_is_taken_it_takes_another_and_says_so(place: PalHome) -> None:
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", free_port())
    port = taken.sockets[0].getsockname()[1]
    try:
        refused = await place.pal("up", "--port", str(port), said="ahoy\n")
        assert f"cannot listen at 127.0.0.1:{port}" in refused.one_clear_line()
    finally:
        taken.close()
    usual = await asyncio.start_server(lambda *_: None, "127.0.0.1", 18790, reuse_address=True)
    try:
        ended = await place.pal("up", said="ahoy\n")
    finally:
        usual.close()
    assert (ended.code, ended.out) == (0, "heard: ahoy\n")
    assert "port 18790 is taken" in ended.err


@pytest.mark.parametrize("how", ["SIGTERM", "stop"])
async def test_stopping_its_gateway_finishes_what_runs_and_ends_it(place: PalHome, wire: WireServer, how: str) -> None:
    wire.script.append(Says("a reply that takes its time", chunks=9, delay=0.05))
    async with place.talking("up", "--port", "0") as talk:
        await link_of(talk)
        await talk.say("a long question")
        await wire.until(lambda server: len(server.requests) == 1, PATIENCE)
        if how == "SIGTERM":
            talk.process.send_signal(signal.SIGTERM)
        else:
            assert (await place.pal("gateway", "stop")).code == 0
        ended = await talk.ended()
    assert ended.code == 0
    assert "Traceback" not in ended.err
    shown = (await place.pal("sessions", "show", "agent:main:main")).out
    assert "a reply that takes its time" in shown


async def test_a_second_signal_stops_what_runs_in_it(place: PalHome, wire: WireServer) -> None:
    wire.script.append(Hangs("I was about to"))
    async with place.talking("up", "--port", "0") as talk:
        await link_of(talk)
        await talk.say("a long question")
        await wire.until(lambda server: len(server.requests) == 1, PATIENCE)
        talk.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            while json.loads((place.root / "gateway.json").read_text()) and (await _is_ready(place)):
                await asyncio.sleep(0.01)
        talk.process.send_signal(signal.SIGTERM)
        assert (await talk.ended()).code == 0


async def _is_ready(place: PalHome) -> bool:
    port = int(json.loads((place.root / "gateway.json").read_text())["url"].rpartition(":")[2])
    return (await request(port, "/readyz")).status == 200


async def test_in_a_terminal_it_shows_the_link_and_talks(place: PalHome) -> None:
    async with Terminal(place.env, "up", "--port", "0", columns=120) as terminal:
        shown = await terminal.sees("dashboard: http://127.0.0.1:", "wire/test", "›")
        found = LINK.search(shown)
        assert found is not None
        assert await log_in(found[1]) == 200
        terminal.type("ahoy" + ENTER)
        await terminal.sees("heard: ahoy")
        terminal.type(CTRL_D)
        assert await terminal.ends() == 0


async def test_the_very_first_run_makes_a_home_and_a_page(tmp_path: Path) -> None:
    place = PalHome(tmp_path / "fresh")
    place.variables["PALINURUS_EMBEDDED"] = "0"
    ended = await place.pal("up", "--port", "0", said="remember that my bicycle is green\nwhat colour is my bicycle?\n")
    assert ended.code == 0
    assert "my bicycle is green (memory/" in ended.out
    assert "created a new home" in ended.err
    assert LINK.search(ended.err)
