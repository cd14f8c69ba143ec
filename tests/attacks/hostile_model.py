"""A home in a process of its own whose model does what an attack wants with its tools."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.wire import Calls, Json, Says, WireServer

PAL = Path(sys.executable).with_name("pal")
PATIENCE = 60.0  # of every process here: only spent when something is wrong, or the machine is very busy


class HostileHome:
    """One home, whose model is `server`."""

    def __init__(self, folder: Path, server: WireServer, **config: Any) -> None:
        self.root = folder / "home"
        self.server = server
        self.root.mkdir(mode=0o700)
        provider = {"baseUrl": server.base_url, "models": [{"id": "test", "contextWindow": 128_000}]}
        settings = {
            "agents": {"defaults": {"model": "wire/test"}},
            "models": {"providers": {"wire": provider}},
            "memory": {"search": {"provider": "none"}},  # by words alone: quick and certain
        }
        (self.root / "palinurus.json").write_text(json.dumps(settings | config))
        self.env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(folder),
            "PALINURUS_HOME": str(self.root),
            "PALINURUS_EMBEDDED": "0",
            "LANG": "C.UTF-8",
        }

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    async def pal(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
        """One command. It is killed, and the test fails, when it does not end."""
        process = await asyncio.create_subprocess_exec(
            PAL, *arguments, env=self.env, cwd=self.root.parent, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            out, err = await asyncio.wait_for(process.communicate(stdin), PATIENCE)
        except TimeoutError:
            raise AssertionError(f"pal {arguments[0]} did not end") from None
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        return subprocess.CompletedProcess(arguments, process.returncode or 0, out.decode(), err.decode())

    async def use(self, *calls: tuple[str, Json | str], session: str = "attack") -> list[str]:
        """What the model is told when it makes these calls in one reply, in their order."""
        heard = len(self.server.requests)
        self.server.script.extend([Calls(*calls, whole=True), Says("done")])
        done = await self.pal("agent", "-m", "go on", "--session-key", session)
        assert done.returncode == 0, done
        told = self.server.requests[heard + 1]["messages"][-len(calls) :]
        assert all(message["role"] == "tool" for message in told), told
        return [str(message["content"]) for message in told]
