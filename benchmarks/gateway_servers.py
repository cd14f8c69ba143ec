"""The servers we measure side by side, each with an OpenAI-compatible door: how it is set up, started and asked.

Each runs in a process group of its own, whose processor time and memory are counted as a whole: a peer may start
helpers.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gateway_client import Connection, Question
from benchmarks.peers import FOLDER
from benchmarks.processes import Broken

TOKEN = "a-token-of-the-benchmark"
READY_SECONDS = 120.0
STOP_SECONDS = 20.0
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Server:
    """`files` under the home say what stands in its config; PORT, MODEL and TOKEN are put in."""

    name: str
    argv: tuple[str, ...]
    ready: str  # the address that answers 200 once it can work
    question: Question
    files: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    prepare: tuple[str, ...] = ()  # run before it is started


def _bearer(**more: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {TOKEN}", **more}


def _said(words: str, **more: Any) -> Mapping[str, Any]:
    return {"messages": [{"role": "user", "content": words}], **more}


def ours(pal: Path) -> Server:
    config = {
        "models": {"providers": {"bench": {"baseUrl": "MODEL", "models": [{"id": "test"}]}}},
        "agents": {"defaults": {"model": "bench/test"}},
        "gateway": {"auth": {"token": "TOKEN"}, "http": {"endpoints": {"chatCompletions": {"enabled": True}}}},
    }
    return Server(
        name="pal",
        argv=(str(pal), "gateway", "run", "--port", "PORT"),
        ready="/readyz",
        question=Question(lambda _: _bearer(), lambda name, words: _said(words, model="palinurus", user=name)),
        files={".palinurus/palinurus.json": json.dumps(config)},
        prepare=(str(pal), "setup"),
    )


_NANOBOT = {
    "agents": {"defaults": {"model": "test", "provider": "custom"}},
    "providers": {"custom": {"apiKey": "none", "apiBase": "MODEL"}},
}
_HERMES = """model: {default: test, provider: custom, base_url: MODEL, api_key: none}
gateway: {api_server: {max_concurrent_runs: 0}}
"""
_OPENCLAW = {
    "gateway": {
        "mode": "local",
        "bind": "loopback",
        "auth": {"mode": "token", "token": "TOKEN"},
        "http": {"endpoints": {"chatCompletions": {"enabled": True}}},
    },
    "models": {
        "providers": {
            "bench": {
                "baseUrl": "MODEL",
                "apiKey": "none",
                "api": "openai-completions",
                "models": [{"id": "test", "name": "test"}],
            }
        }
    },
    "agents": {"defaults": {"model": {"primary": "bench/test"}, "skipBootstrap": True}},
}
_NODE, _COMMAND = FOLDER / "openclaw/node/bin/node", FOLDER / "openclaw/node_modules/openclaw/openclaw.mjs"
PEERS = (
    Server(
        name="nanobot",
        argv=(str(FOLDER / "nanobot-ai/bin/nanobot"), "serve", "--port", "PORT"),
        ready="/health",
        question=Question(lambda _: {}, lambda name, words: _said(words, session_id=name)),
        files={".nanobot/config.json": json.dumps(_NANOBOT)},
    ),
    Server(
        name="hermes",
        argv=(str(FOLDER / "hermes-agent/bin/hermes"), "gateway", "run", "--quiet"),
        ready="/health",
        question=Question(
            lambda name: _bearer(**{"X-Hermes-Session-Id": name}), lambda _, words: _said(words, model="hermes-agent")
        ),
        files={".hermes/config.yaml": _HERMES},
        # Without a limit of its own to those who ask at once: it would refuse the eleventh.
        env={"API_SERVER_ENABLED": "true", "API_SERVER_KEY": "TOKEN", "API_SERVER_PORT": "PORT"},
    ),
    Server(
        name="openclaw",
        argv=(
            str(_NODE),
            str(_NODE.parents[2] / "node_modules/openclaw/openclaw.mjs"),
            "gateway",
            "run",
            "--port",
            "PORT",
        ),
        ready="/readyz",
        question=Question(lambda _: _bearer(), lambda name, words: _said(words, model="openclaw", user=name)),
        files={".openclaw/openclaw.json": json.dumps(_OPENCLAW)},
    ),
)


class Running:
    """A server that was started. Its figures are those of its whole process group."""

    def __init__(self, server: Server, home: Path, model: str, env: Mapping[str, str]) -> None:
        self.server = server
        self.port = _free_port()
        self._words = {"PORT": str(self.port), "MODEL": model, "TOKEN": TOKEN}
        for path, text in server.files.items():
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).write_text(self._put_in(text), encoding="utf-8")
        env = {**env, **{name: self._put_in(value) for name, value in server.env.items()}}
        if server.prepare:
            subprocess.run(server.prepare, env=env, cwd=home, check=True, capture_output=True, timeout=60)
        self._log = home / f"{server.name}.log"
        self._began = time.monotonic()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(self.port) if word == "PORT" else word for word in server.argv],
                env=env,
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._group = self._process.pid

    def _put_in(self, text: str) -> str:
        for word, value in self._words.items():
            text = text.replace(word, value)
        return text

    async def ready(self) -> tuple[float, float]:
        """Seconds until it says that it is ready, and the processor time that this took. Raises Broken."""
        while time.monotonic() - self._began < READY_SECONDS:
            if self._process.poll() is not None:
                break
            connection = Connection(self.port)
            with suppress(OSError, asyncio.IncompleteReadError):
                if (await connection.get(self.server.ready))[0] == 200:
                    seconds = time.monotonic() - self._began
                    return seconds, self.cpu()
            connection.close()
            await asyncio.sleep(0.01)
        said = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise Broken(f"not ready after {READY_SECONDS:g} s: {said[-1] if said else 'it said nothing'}")

    def cpu(self) -> float:
        """Seconds so far."""
        return sum(sum(map(int, fields[11:15])) for fields in self._stats()) / TICKS

    def megabytes(self) -> float:
        pages = sum(int(fields[21]) for fields in self._stats())
        return pages * os.sysconf("SC_PAGESIZE") / 1e6

    def _stats(self) -> list[list[str]]:
        """The fields of /proc/PID/stat behind the name, of everybody in the group."""
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                fields = path.read_text().rpartition(")")[2].split()
                if int(fields[2]) == self._group:
                    found.append(fields)
        return found

    def stop(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._group, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(self._group, signal.SIGKILL)
        self._process.wait()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
