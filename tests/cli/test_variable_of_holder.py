"""A key that the config looks for in a variable: who lacks the variable is named, be it this process or the holder."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.wire import WireServer

sys.path[:0] = [str(Path(__file__).parent.parent / "faults")]
from homes import PalHome, parrot  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[PalHome]:
    async with WireServer(otherwise=parrot) as server:
        services = PalHome(tmp_path / "home")
        mine = {"baseUrl": server.base_url, "apiKey": "${MY_KEY}"}
        services.configure("", models={"providers": {"wire": mine}})
        yield services


async def test_a_gateway_without_the_variable_is_named_with_what_to_do(place: PalHome) -> None:
    async with place.talking("--no-color", "gateway", "run", "--port", "0") as gateway:
        await gateway.until(lambda said: said.startswith("pal gateway at "))
        place.variables["MY_KEY"] = "correct-horse-battery"
        lacks = (
            f"the variable MY_KEY is not set in pid {gateway.pid} (pal gateway), which holds the home: start it again"
        )
        asked = await place.pal("agent", "-m", "ahoy")
        assert (asked.code, lacks in asked.err, "pal models auth add wire" in asked.err) == (1, True, True)
        talked = await place.pal("chat", said="ahoy")
        assert lacks in talked.err
        for words in (("status",), ("models", "status"), ("models", "test")):
            assert lacks in (await place.pal(*words)).out
        assert (await place.pal("gateway", "stop")).code == 0
    assert (await place.pal("agent", "-m", "ahoy")).out == "heard: ahoy\n"


async def test_a_process_by_itself_says_what_it_lacks_and_is_helped_by_a_stored_key(place: PalHome) -> None:
    asked = await place.pal("agent", "-m", "ahoy")
    assert asked.code == 1
    assert "wire/test needs a key: the variable MY_KEY is not set (`pal models auth add wire` stores one)" in asked.err
    await place.pal("models", "auth", "add", "wire", said="correct-horse-battery")
    assert (await place.pal("agent", "-m", "ahoy")).out == "heard: ahoy\n"
