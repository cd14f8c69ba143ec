"""The examples of docs/plugins.md, put together into a plugin, do what the page says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from palinurus.extensions.plugins.host import PLUGIN_HOST
from palinurus.extensions.plugins.operations import show_panel
from palinurus.plugin import API
from palinurus.runtime.extensions import LOADED
from palinurus.testing.plugins import PluginHarness

PAGE = Path(__file__).resolve().parents[2] / "docs" / "plugins.md"


async def test_the_examples_of_the_page_are_one_plugin_that_works(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    (manifest,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    *code, test = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    folder = tmp_path / "tides"
    folder.mkdir()
    (folder / "palinurus.plugin.json").write_text(manifest)
    (folder / "tides_plugin.py").write_text("\n".join(code))
    (folder / "today.html").write_text("\n".join(re.findall(r"```html\n(.*?)```", text, re.DOTALL)))
    scope: dict[str, Any] = {"HERE": folder}
    exec(test, scope)
    await scope["test_tides"](tmp_path)
    async with PluginHarness(folder, tmp_path / "more") as plugin:
        await plugin.says("/tides")
        panel = await show_panel(plugin.services, plugin="tides", page="today")
        assert (panel.title, 'palinurus.call("tides.next"' in panel.html) == ("Tides today", True)
        assert panel.operations == ("tides.next",)
        declared = json.loads(manifest)["capabilities"]
        assert set(declared["operations"]) <= set(LOADED.app.operations)
        assert set(declared["jobs"]) <= set(LOADED.app.jobs)
        assert set(LOADED.app.slots) == {"contextEngine", "sandbox", "browser", "memory"}
        assert ("tide-wire" in LOADED.app.wires, "beacon" in LOADED.app.channels) == (True, True)
        assert PLUGIN_HOST.loaded["tides"].phase == "registered", PLUGIN_HOST.loaded
    assert API == 1
