"""The examples of CONTRIBUTING.md, put together into an extension, do what the page says."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from called import Pal

from palinurus.config.home import Home
from palinurus.config.schema import json_schema
from palinurus.runtime.extensions import LOADED, Extension
from palinurus.runtime.runtime import Runtime
from palinurus.runtime.table import TABLE

PAGE = Path(__file__).resolve().parents[2] / "CONTRIBUTING.md"
IMPORTS = """
from pathlib import Path
from typing import Annotated

from msgspec import Struct

from palinurus.cli.command import command_of
from palinurus.config.section import Section, option
from palinurus.dispatch.delivery import DeliveryJob
from palinurus.domain.envelope import Inbound
from palinurus.domain.hooks import HookEvent
from palinurus.domain.tool import ToolOutput, ToolRun, tool
from palinurus.operations.operation import operation
from palinurus.operations.services import Services
from palinurus.runtime.extensions import App
"""
DECLARED, *EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(autouse=True)
def tides(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    module = ModuleType("tides")
    monkeypatch.setitem(sys.modules, "tides", module)
    exec(IMPORTS + "\n".join(EXAMPLES), vars(module))
    with LOADED.added(eval(DECLARED, {"Extension": Extension})):
        yield


def test_each_example_is_short() -> None:
    assert len(EXAMPLES) == 6
    assert max(example.count("\n") for example in EXAMPLES) < 30


def test_the_operation_is_a_command_and_reads_the_config_key(pal_command: Pal) -> None:
    assert pal_command("tides", "2026-11-18").out == "Aster: 2026-11-18 06:12\n"
    assert pal_command("config", "set", "tides.harbour", "Boreas").code == 0
    assert pal_command("tides", "2026-11-18", "--json").json == {"harbour": "Boreas", "at": "2026-11-18 06:12"}
    assert "tides.next" in {row.name for row in TABLE}
    assert "harbour" in json.dumps(json_schema()["properties"]["tides"])


def test_the_tool_is_listed_and_answers(pal_command: Pal) -> None:
    assert pal_command("config", "set", "tides.harbour", "Boreas").code == 0
    assert "tide_height" in pal_command("tools", "list").out


def test_the_hook_is_called_and_can_be_turned_off(pal_command: Pal, home: Home) -> None:
    pal_command("agent", "-m", "when is high tide?")
    assert (home.root / "tides.txt").read_text() == "when is high tide?"
    assert pal_command("hooks", "disable", "note_tide").code == 0
    pal_command("agent", "-m", "and low tide?")
    assert (home.root / "tides.txt").read_text() == "when is high tide?"


async def test_a_reply_goes_out_by_the_channel(home: Home, tmp_path: Path) -> None:
    runtime = Runtime(home, {})
    await runtime.recover()
    try:
        async with asyncio.timeout(60):
            await sys.modules["tides"].print_reply(runtime.services, "who are you?", tmp_path / "paper")
            await runtime.services.dispatcher.idle()
            await runtime.services.jobs.idle()
    finally:
        await runtime.close()
    assert (tmp_path / "paper").read_text()
