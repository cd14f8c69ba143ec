"""An extension's hooks: declared as data, imported when their event happens, turned off by the config like others."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hook_home import opened

from palinurus.config.home import Home
from palinurus.extensions.hooks.operations import disable_hook, list_hooks
from palinurus.parts import Extension
from palinurus.runtime.extensions import LOADED, Extensions
from support.behaviours import Calls, Says

TIDES = Extension("tides", "harbour_hooks", hooks=("message", "before_tool_call"))


@pytest.fixture(autouse=True)
def tides(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    with LOADED.added(TIDES):
        yield
    sys.modules.pop("harbour_hooks", None)


async def test_an_extension_is_imported_when_its_event_happens(home: Home) -> None:
    async with opened(home) as pal:
        pal.services.hooks.observe("gateway:startup", None, dict)
        assert "harbour_hooks" not in sys.modules
        pal.says(Calls(("ls", {})), Says("done"))
        await pal.hears("look")
        assert "hook:tide-guard: low tide" in (await pal.results())[-1].text
    assert (home.root / "tides.txt").read_text() == "received\nsent\n"


async def test_it_is_listed_and_turned_off_like_others(home: Home) -> None:
    async with opened(home) as pal:
        found = {each.name: each for each in (await list_hooks(pal.services)).hooks if each.tier == "extension"}
        assert {name: each.events for name, each in found.items()} == {
            "core-memory": ("memory:noted",),
            "note_message": ("message",),
            "tide-guard": ("before_tool_call",),
        }
        assert (await disable_hook(pal.services, name="tide-guard")).state == "off"
        pal.says(Calls(("ls", {})), Says("done"))
        await pal.hears("look")
        assert not (await pal.results())[-1].is_error


def test_an_event_that_is_not_declared_is_a_mistake_of_the_extension() -> None:
    extensions = Extensions((Extension("more", "harbour_hooks", hooks=("message",)),))
    with pytest.raises(TypeError, match=r"does not declare its hooks \['before_tool_call'\]"):
        extensions.load()
