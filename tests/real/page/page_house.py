"""A gateway in a process of its own, a model that says what a test wants, and links by which browsers come in."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from palinurus.config.home import find_home
from palinurus.operations.config import setup
from palinurus.operations.services import Services
from support.behaviours import Behaviour, Json, Otherwise, Says, Waits, echo
from support.wire import WireServer

PAL = Path(sys.executable).with_name("pal")
PATIENCE = 60.0  # of every wait here: only spent when something is wrong, or the machine is very busy
T = TypeVar("T")


def until(condition: Callable[[], T], what: str, seconds: float = PATIENCE) -> T:
    """What `condition` gives once it is true."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"never came: {what}"
        threading.Event().wait(0.02)
    return found


class Model:
    """A model server on a thread of its own. Each request takes the next of `script`, then `otherwise` answers."""

    def __init__(self, otherwise: Otherwise = echo) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.server: WireServer = self._on_loop(_made(otherwise))

    def _on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    @property
    def base_url(self) -> str:
        return self.server.base_url

    @property
    def requests(self) -> list[Json]:
        return self.server.requests

    def says(self, *script: Behaviour | str) -> None:
        said = [Says(each) if isinstance(each, str) else each for each in script]
        self._loop.call_soon_threadsafe(self.server.script.extend, said)

    def otherwise(self, otherwise: Otherwise) -> None:
        self.server.otherwise = otherwise

    def held(self, then: Says) -> Callable[[], None]:
        """The next reply waits until what this gives is called."""
        event = asyncio.Event()
        self.says(Waits(event, then))
        return lambda: self._loop.call_soon_threadsafe(event.set) and None

    def close(self) -> None:
        self._on_loop(self.server.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()


async def _made(otherwise: Otherwise) -> WireServer:
    server = WireServer(otherwise=otherwise)
    await server.start()
    return server


class PageHouse:
    """One home and the gateway in it, which may be killed and started again on the same port."""

    def __init__(self, folder: Path, model: Model | None = None, **config: Any) -> None:
        self.root = folder / "home"
        self.model = model
        self.port = free_port()
        self._log = folder / "gateway.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.root.mkdir(parents=True)
        self._configure(config)
        setup(Services(home=find_home(self.env), env=self.env))

    def _configure(self, more: dict[str, Any]) -> None:
        config: dict[str, Any] = {"memory": {"search": {"provider": "none"}}}  # by words alone: quick and certain
        if self.model is not None:
            provider = {"baseUrl": self.model.base_url, "models": [{"id": "test", "contextWindow": 200_000}]}
            config["agents"] = {"defaults": {"model": "wire/test"}}
            config["models"] = {"providers": {"wire": provider}}
        (self.root / "palinurus.json").write_text(json.dumps(config | more))

    @property
    def env(self) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.root.parent),
            "PALINURUS_HOME": str(self.root),
            "PALINURUS_EMBEDDED": "0",
            "LANG": "C.UTF-8",
        }

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [PAL, "gateway", "run", "--port", str(self.port)],
                env=self.env, cwd=self.root.parent, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        until(self._ready, f"the gateway: {self.log}")

    def _ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/readyz", timeout=60) as answer:
            return bool(answer.status == 200)
        return False

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(PATIENCE)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(60)
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait(PATIENCE)

    def pal(self, *arguments: str) -> str:
        done = subprocess.run(
            [PAL, *arguments], env=self.env, cwd=self.root.parent, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done
        return done.stdout

    def link(self) -> str:
        """A link that is good once."""
        return self.pal("dashboard", "--no-open").strip().splitlines()[-1]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
