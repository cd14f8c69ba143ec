"""Exclusive slots: who has one, why others have not, and what happens when the owner fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from plugged import use_plugins, write_plugin

from palinurus.config.home import Home
from palinurus.config.load import load_config
from palinurus.extensions.channels.host import make_channel
from palinurus.extensions.channels.operations import list_channels
from palinurus.extensions.plugins.operations import list_plugins
from support.behaviours import Says
from support.open_home import opened

ENGINE = """
from palinurus.plugin import LegacyEngine

class Engine(LegacyEngine):
    name = {name!r}
    async def assemble(self, session, assembly):
        with open({file!r}, "a") as file:
            file.write({name!r} + "\\n")
        {more}
        return assembly.messages

def register(app):
    app.context_engine(lambda services: Engine())
"""


def engine(root: Path, name: str, file: Path, more: str = "") -> Path:
    code = ENGINE.format(name=name, file=str(file), more=more or "pass")
    return write_plugin(root, name, code, slots=["contextEngine"])


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    return tmp_path / "asked.txt"


@pytest.mark.parametrize(("chosen", "winner"), [("", "alpha"), ("beta", "beta"), ("builtin", "")])
async def test_of_two_plugins_for_one_slot_one_has_it_and_the_other_is_told_why(
    home: Home, tmp_path: Path, asked: Path, chosen: str, winner: str
) -> None:
    folders = [engine(tmp_path / "p", name, asked) for name in ("beta", "alpha")]
    use_plugins(home, *folders, slots={"contextEngine": chosen} if chosen else {})
    async with opened(home) as pal:
        pal.says(Says("Hello."))
        assert (await pal.hears("hi")).text == "Hello."
        rows = {each.id: each for each in (await list_plugins(pal.services)).plugins}
    assert (asked.read_text().split() if asked.exists() else []) == ([winner] if winner else [])
    assert {name: each.slots for name, each in rows.items()} == {
        name: ("contextEngine",) if name == winner else () for name in ("alpha", "beta")
    }
    why = f"plugins.slots.contextEngine is {chosen}" if chosen else "alpha comes first"
    assert all(why in each.lost["contextEngine"] for name, each in rows.items() if name != winner)


async def test_an_engine_that_fails_is_replaced_by_ours_which_says_so(home: Home, tmp_path: Path, asked: Path) -> None:
    use_plugins(home, engine(tmp_path / "p", "broken", asked, "raise ValueError('no')"))
    async with opened(home) as pal:
        pal.says(Says("Hello."), Says("Again."))
        assert (await pal.hears("hi")).text == "Hello."
        assert (await pal.hears("hi again")).text == "Again."
        assert any("broken" in line for line in pal.services.warnings())
    assert asked.read_text() == "broken\n"


SANDBOX = """
from palinurus.plugin import SandboxStatus

class Walls:
    name = "walls"
    async def check(self):
        {check}
    async def start(self, command):
        raise AssertionError

def register(app):
    app.sandbox(lambda services: Walls())
"""


@pytest.mark.parametrize(
    "check", ["return SandboxStatus('walls', False, 'no bricks')", "raise ValueError('no bricks')"]
)
async def test_a_sandbox_that_does_not_work_is_replaced_by_ours_which_says_so(
    home: Home, tmp_path: Path, check: str
) -> None:
    use_plugins(home, write_plugin(tmp_path / "p", "walls", SANDBOX.format(check=check), slots=["sandbox"]))
    async with opened(home) as pal:
        status = await pal.services.toolsets.sandbox("main").check()
    assert status.name == "bubblewrap"
    assert "no bricks" in status.remarks[0]


BROWSER = """
from palinurus.plugin import ToolOutput, ToolRun, tool

@tool("web_browse", "Use a browser.")
async def browse(run: ToolRun, url: str) -> ToolOutput:
    return ToolOutput("seen")

def register(app):
    app.browser(lambda services: [browse])
"""


async def test_the_tools_of_a_browser_are_offered(home: Home, tmp_path: Path) -> None:
    use_plugins(
        home, write_plugin(tmp_path / "p", "eyes", BROWSER, slots=["browser"], capabilities={"tools": ["web_browse"]})
    )
    async with opened(home) as pal:
        pal.says(Says("Hello."))
        await pal.hears("hi")
        assert "web_browse" in json.dumps(pal.server.requests[-1]["tools"])


CHANNEL = """
from palinurus.plugin import Channel, ChannelCapabilities, TextLimits

class Pigeon(Channel):
    capabilities = ChannelCapabilities(TextLimits(1000))

def register(app):
    app.channel("pigeon", Pigeon)
"""


async def test_a_channel_of_a_plugin_is_set_up_like_ours(home: Home, tmp_path: Path) -> None:
    row = {"title": "Pigeons", "fields": [{"key": "loft", "prompt": "Where the loft is"}]}
    use_plugins(home, write_plugin(tmp_path / "p", "pigeon", CHANNEL, channels={"pigeon": row}))
    config = json.loads(home.config_path.read_text())
    home.config_path.write_text(
        json.dumps({**config, "channels": {"pigeon": {"loft": "roof", "dmPolicy": "open", "allowFrom": ["*"]}}})
    )
    async with opened(home) as pal:
        found = await list_channels(pal.services)
        assert [(each.channel, each.title) for each in found.channels] == [("pigeon", "Pigeons")]
        assert type(make_channel(pal.services, pal.services.config, "pigeon", "default")).__name__ == "Pigeon"
        assert not [line for line in load_config(home, {}).warnings if "loft" in line]
