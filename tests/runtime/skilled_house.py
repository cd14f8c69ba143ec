"""A whole house with skills in its home and a model that does what it is told, step by step."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from palinurus.config.home import find_home
from palinurus.domain.envelope import Inbound
from palinurus.domain.events import RunEvent, ToolFinished
from palinurus.operations.runs import converse
from palinurus.operations.table import LocalCaller
from palinurus.runtime.runtime import Runtime
from support.wire import Behaviour, Json, Says, WireServer


class Services:
    def __init__(self, runtime: Runtime, server: WireServer, home: Path) -> None:
        self.runtime = runtime
        self.server = server
        self.home = home
        self.finished: list[ToolFinished] = []
        self._count = 0

    async def hears(self, text: str) -> str:
        self._count += 1
        said = await converse(LocalCaller(self.runtime.services), Inbound(text, f"m-{self._count}"), self._heard)
        return said.text or said.error

    def _heard(self, event: RunEvent) -> None:
        if isinstance(event, ToolFinished):
            self.finished.append(event)

    def write(self, name: str, text: str, **files: str) -> Path:
        folder = self.home / "skills" / name
        folder.mkdir(parents=True, exist_ok=True)
        for inner, content in {"SKILL.md": text, **files}.items():
            (folder / inner).write_text(content)
        return folder


def in_turn(*steps: Behaviour) -> Callable[[Json], Behaviour]:
    left = list(steps)
    return lambda _: left.pop(0) if left else Says("done")


@asynccontextmanager
async def living(tmp_path: Path, *steps: Behaviour, **config: Any) -> AsyncIterator[Services]:
    async with WireServer(otherwise=in_turn(*steps)) as server:
        root = tmp_path / "home"
        (root / "workspace").mkdir(parents=True)
        provider = {"baseUrl": server.base_url, "models": [{"id": "test", "contextWindow": 64000}]}
        own = {"agents": {"defaults": {"model": "mine/test"}}, "models": {"providers": {"mine": provider}}, **config}
        (root / "palinurus.json").write_text(json.dumps(own))
        env = {"PALINURUS_HOME": str(root), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        runtime = Runtime(find_home(env), env)
        try:
            yield Services(runtime, server, root)
        finally:
            await runtime.close()
