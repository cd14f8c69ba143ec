"""docs/hooks.md is true: its examples do what it says, and it names every event and every bundled hook."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hook_home import opened

from palinurus.config.home import Home
from palinurus.domain.hooks import EVENTS
from palinurus.extensions.hooks.bundle import BUNDLED
from support.behaviours import Calls, Says

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "hooks.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*EVENTS, *BUNDLED])
def test_everything_is_named(name: str) -> None:
    assert f"`{name}`" in PAGE


async def test_its_examples_work(home: Home) -> None:
    files = dict(re.findall(r"cat > (\S+) <<'END'\n(.*?)END\n", PAGE, re.DOTALL))
    tides = home.root / "hooks" / "tides"
    tides.mkdir(parents=True)
    for name, text in files.items():
        (tides / name).write_text(text)
    guard = home.root / "hooks" / "no-delete"
    guard.mkdir()
    handler = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert handler is not None
    (guard / "handler.py").write_text(handler[1])
    about = files["HOOK.md"].replace("name: tides", "name: no-delete").replace("agent:bootstrap", "before_tool_call")
    (guard / "HOOK.md").write_text(about)
    async with opened(home) as pal:
        pal.says(Calls(("delete", {"path": "SOUL.md"})), Calls(("ls", {})), Says("done"))
        await pal.hears("delete it")
        assert "High tide is at 06:12." in pal.head()
        deleted, listed = await pal.results()
        assert "nothing is deleted here" in deleted.text
        assert "SOUL.md" in listed.text
