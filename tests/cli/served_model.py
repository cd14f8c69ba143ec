"""A loopback model server beside a command that runs in this thread."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

from palinurus.config.home import Home
from support.wire import Behaviour, WireServer

WAIT = 60.0


class ServedModel:
    """`mock/m` and `mock/m2` as a server of its own thread has them; `says` is what it answers next."""

    def __init__(self) -> None:
        self.server = WireServer(models=("m", "m2"))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._wait(self.server.start())

    def says(self, *behaviours: Behaviour) -> None:
        self.server.script += behaviours

    @property
    def asked(self) -> list[str]:
        """The models that were asked, in order."""
        return [str(request["model"]) for request in self.server.requests]

    def configure(self, home: Home, model: Any = "mock/m", **provider: Any) -> None:
        """The home's model is the one of this server."""
        config = json.loads(home.config_path.read_text())
        config["agents"]["defaults"]["model"] = model
        config["models"] = {"providers": {"mock": {"baseUrl": self.server.base_url, **provider}}}
        home.config_path.write_text(json.dumps(config))

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self._wait(self.server.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT)
        self._loop.close()

    def _wait(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT)
