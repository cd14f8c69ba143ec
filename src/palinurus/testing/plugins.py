"""A home with one plugin in it, for the plugin's own tests: no network, no key, a model that answers from a script.

async with PluginHarness(Path(__file__).parent, tmp_path, config={"units": "F"}) as plugin:
    assert await plugin.call("weather_now", place="Oslo") == "68 °F"
    assert await plugin.says("/weather Oslo") == "68 °F"
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from palinurus.config.home import find_home
from palinurus.domain.envelope import Inbound
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Text
from palinurus.domain.tool import ToolRun
from palinurus.operations.services import Services
from palinurus.parts import resolve
from palinurus.runtime.runtime import Runtime
from palinurus.runtime.table import TABLE

WAIT = 60.0
FETCHER = "palinurus.extensions.plugins.fetch:PluginFetcher"


class PluginHarness:
    """`folder` has the manifest. `isolation="process"` runs it in its sandbox, `none` in the test's own process, where
    a debugger sees it. `web`: what `app.fetch` finds at an address, and then nothing is requested. More of the config
    may be given as `sections`."""

    def __init__(
        self,
        folder: Path,
        root: Path,
        *,
        config: dict[str, Any] | None = None,
        isolation: str = "none",
        web: Mapping[str, str] | None = None,
        **sections: Any,
    ) -> None:
        manifest = json.loads((folder / "palinurus.plugin.json").read_text())
        self.id: str = manifest["id"]
        entry = {"config": config or {}, "isolation": isolation}
        plugins = {"load": {"paths": [str(folder)]}, "entries": {self.id: entry}}
        agents = {"defaults": {"model": "embedded/scout", "workspace": str(root / "workspace")}}
        home = root / "home"
        home.mkdir(mode=0o700, parents=True)
        (home / "palinurus.json").write_text(json.dumps({"agents": agents, "plugins": plugins, **sections}))
        self._home = find_home({"PALINURUS_HOME": str(home), "HOME": str(root)})
        self._runtime: Runtime | None = None
        self._count = 0
        self._web = web

    async def __aenter__(self) -> Self:
        resolve(FETCHER).answers = self._web
        self._runtime = Runtime(self._home, {"PATH": "/usr/bin:/bin"})
        row: Any = TABLE.get("plugins.info")
        info = await row(self.services, plugin=self.id)
        if info.reasons:
            await self._runtime.close()
            raise AssertionError(f"the plugin {self.id} is not used: {'; '.join(info.reasons)}")
        return self

    async def __aexit__(self, *_: object) -> None:
        resolve(FETCHER).answers = None
        if self._runtime is not None:
            await asyncio.wait_for(self._runtime.close(), WAIT)

    @property
    def services(self) -> Services:
        """The open home: what operations, hooks and services are given."""
        assert self._runtime is not None, "use it with `async with`"  # noqa: S101  a test helper
        return self._runtime.services

    async def call(self, tool: str, /, **arguments: Any) -> str:
        """Call a tool as a model would, and return its text. Raises AssertionError for an error or an unknown tool."""
        known = {each.spec.name: each for each in await self.services.toolsets.tools("main")}
        assert tool in known, f"there is no tool {tool}; is it in the manifest?"  # noqa: S101  a test helper
        run = ToolRun(SessionKey.parse("agent:main:main"), "run-1", private=True)
        output = await asyncio.wait_for(known[tool].run(run, arguments), WAIT)
        content = output.content
        text = content if isinstance(content, str) else "".join(each.text for each in content if isinstance(each, Text))
        assert not output.is_error, text  # noqa: S101  a test helper
        return text

    async def says(self, text: str) -> str:
        """Send a message to the agent, such as a slash command, and return the reply. Hooks are called for it."""
        self._count += 1
        inbound = Inbound(text, f"test-{self._count}", session_key="agent:main:main")
        run = await self.services.dispatcher.submit(inbound)
        result = await run.wait(WAIT)
        async with asyncio.timeout(WAIT):
            await self.services.hooks.idle()
        return result.text or result.error or ""
