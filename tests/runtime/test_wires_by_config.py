"""Which wire is spoken goes by the config, seen from the front door."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from palinurus.parts import WIRES
from support.wire import Says, WireServer


async def ask(home: Path, config: dict[str, Any]) -> tuple[int | None, str]:
    (home / "workspace").mkdir(parents=True)
    (home / "palinurus.json").write_text(json.dumps(config))
    env = {"PATH": os.environ["PATH"], "HOME": str(home.parent), "PALINURUS_HOME": str(home)}
    command = (sys.executable, "-m", "palinurus", "agent", "--message", "ahoy", "--json")
    run = await asyncio.create_subprocess_exec(
        *command, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await asyncio.wait_for(run.communicate(), 60)
    return run.returncode, output.decode()


def configured(base_url: str, **entry: str) -> dict[str, Any]:
    provider = {"baseUrl": base_url, "apiKey": "loopback-key-1", **entry}
    return {"models": {"providers": {"mine": provider}}, "agents": {"defaults": {"model": {"primary": "mine/m"}}}}


ADDRESSES = {
    "": "/v1/chat/completions",
    "openai-completions": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic-messages": "/v1/messages",
    "google-generative-ai": "/v1/models/m:streamGenerateContent?alt=sse",
}


@pytest.mark.parametrize("api", ADDRESSES)
async def test_a_provider_is_spoken_to_on_the_wire_that_the_config_names(api: str, tmp_path: Path) -> None:
    async with WireServer(Says("hello from the wire")) as server:
        code, output = await ask(tmp_path / "home", configured(server.base_url, **({"api": api} if api else {})))
        assert (code, server.paths) == (0, [ADDRESSES[api]]), output
    assert json.loads(output)["text"] == "hello from the wire"


async def test_a_wire_that_nobody_speaks_is_one_clear_line_that_names_those_we_speak(tmp_path: Path) -> None:
    code, output = await ask(tmp_path / "home", configured("http://127.0.0.1:9/v1", api="smoke-signals"))
    assert code != 0
    assert "smoke-signals" in output
    assert all(wire in output for wire in WIRES)
