"""A plugin that was written for the first version of the interface works, each of its parts."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from plugged import FIRST, use_plugins

from palinurus import plugin
from palinurus.config.home import Home
from palinurus.runtime.background import run_services
from palinurus.runtime.doctor import examine
from palinurus.runtime.extensions import LOADED
from support.behaviours import Calls, Says
from support.open_home import opened


@pytest.fixture(autouse=True)
def first_weather(home: Home) -> None:
    use_plugins(home, FIRST, entries={"weather": {"config": {"units": "F"}}})


async def test_its_tool_is_offered_and_called_with_its_settings(home: Home) -> None:
    async with opened(home) as pal:
        pal.says(Calls(("weather_now", {"place": "Oslo"})), Says("Done."))
        await pal.hears("how is the weather?")
        (result,) = await pal.results()
        assert (result.text, result.is_error) == ("20 F in Oslo", False)
        assert "main knows the weather." in pal.head()
    assert (home.root / "plugins" / "data" / "weather" / "asked.txt").read_text() == "Oslo"


async def test_its_slash_command_answers_and_is_in_the_help(home: Home) -> None:
    async with opened(home) as pal:
        assert (await pal.hears("/weather Oslo")).text == "sun in Oslo"
        assert "/weather PLACE" in (await pal.hears("/help")).text


async def test_its_hook_is_called_and_its_job_is_done(home: Home) -> None:
    async with opened(home) as pal:
        pal.says(Says("Hello."))
        await pal.hears("the sea is calm")
        await asyncio.wait_for(pal.services.jobs.idle(), 60)
    assert (home.root / "plugins" / "data" / "weather" / "heard.txt").read_text() == "the sea is calm"


async def test_its_service_runs_in_a_process_that_stays(home: Home) -> None:
    async with opened(home) as pal:
        looked = asyncio.Event()

        async def sleep(_: float) -> None:
            if (home.root / "plugins" / "data" / "weather" / "served.txt").exists():
                looked.set()
            await asyncio.sleep(0)

        services = pal.services.replace(sleep=sleep)
        running = asyncio.create_task(run_services(services))
        await asyncio.wait_for(looked.wait(), 60)
        running.cancel()
        await asyncio.wait({running})


async def test_its_operation_and_its_check_are_there(home: Home) -> None:
    async with opened(home) as pal:
        pal.services.agents.ids  # noqa: B018  the config is read when somebody asks for it
        row = LOADED.find_operation("weather.now")
        assert row is not None
        assert (await row(pal.services, place="Oslo")).text == "sun in Oslo"  # type: ignore[operation]
        checks = await examine(home, {}, ask_model=False)
        assert "the sky is there" in [each.what for each in checks]


def test_every_name_of_the_interface_is_there() -> None:
    known = json.loads((Path(__file__).parent / "interface_1.json").read_text())
    assert set(known) <= set(plugin.__all__)  # names are only added
    assert all(getattr(plugin, name) is not None for name in plugin.__all__)


async def test_nothing_of_it_is_left_when_it_is_disabled(home: Home) -> None:
    use_plugins(home, FIRST, entries={"weather": {"enabled": False}})
    async with opened(home) as pal:
        assert "unknown command /weather" in (await pal.hears("/weather Oslo")).error
        pal.says(Says("Hello."))
        await pal.hears("hi")
        assert "weather" not in json.dumps(pal.server.requests[-1])
    assert "first_weather" not in sys.modules
