"""The real OpenClaw command, from npm, speaks to our gateway: with the token, as a device, and as `openclaw agent`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.wire import WireServer

sys.path.insert(0, str(Path(__file__).parent.parent / "faults"))
from homes import PalHome, Talk, parrot

PLACE = Path(__file__).parents[2] / ".peers" / "openclaw"
NODE = PLACE / "node" / "bin" / "node"
COMMAND = PLACE / "node_modules" / "openclaw" / "openclaw.mjs"
SECONDS = 60.0  # a call takes two; the machine may be busy

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def _installed() -> None:
    if (PLACE / ".installed").exists():
        return
    missing = "OpenClaw is not installed: `make test-real` does it where npm can be reached"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


@dataclass(frozen=True)
class OpenClaw:
    """The command in a state directory of its own; `gateway` is our gateway."""

    folder: Path
    gateway: str
    token: str

    def configure(self, **sections: Any) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "openclaw.json").write_text(json.dumps(sections))

    async def __call__(self, *words: str) -> tuple[int, Any]:
        """Its exit code and what it printed as JSON."""
        env = {"HOME": str(self.folder.parent), "OPENCLAW_STATE_DIR": str(self.folder), "PATH": os.defpath}
        process = await asyncio.create_subprocess_exec(
            NODE, COMMAND, *words, "--json", env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(), SECONDS)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert out, err.decode()
        return process.returncode or 0, json.loads(out)

    async def call(self, method: str, *more: str, auth: str = "--token", **params: Any) -> Any:
        asked = ("--params", json.dumps(params), "--url", self.gateway, auth, self.token)
        return (await self("gateway", "call", method, *asked, *more))[1]


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[tuple[Talk, PalHome, str]]:
    async with WireServer(otherwise=parrot) as wire:
        home = PalHome(tmp_path / "home")
        home.set_up(wire.base_url)
        async with home.talking("gateway", "run", "--port", "0") as talk:
            line = await talk.until(lambda said: said.startswith("pal gateway at "))
            yield talk, home, line.split()[3].replace("http", "ws")
        assert "Traceback" not in talk.complaints, talk.complaints


@pytest.fixture
def openclaw(tmp_path: Path, gateway: tuple[Talk, PalHome, str]) -> OpenClaw:
    _, home, url = gateway
    return OpenClaw(tmp_path / "openclaw", url, (home.root / "gateway.token").read_text().strip())


def words(message: dict[str, Any]) -> tuple[str, str]:
    return message["role"], message["content"][0]["text"]


@pytest.mark.shows("OpenClaw", "`gateway call`: health, chat.send, agent.wait, chat.history")
async def test_health_chat_send_and_chat_history_are_answered(openclaw: OpenClaw) -> None:
    assert (await openclaw.call("health"))["ok"] is True
    said = {"sessionKey": "agent:main:main", "message": "ahoy", "idempotencyKey": "first"}
    sent = await openclaw.call("chat.send", **said)
    assert sent["status"] == "accepted"
    again = await openclaw.call("chat.send", **said)
    assert again["runId"] == sent["runId"]
    ended = await openclaw.call("agent.wait", runId=sent["runId"], timeoutMs=10_000)
    assert ended["status"] == "ok"
    history = await openclaw.call("chat.history", sessionKey="main", limit=10)
    assert [words(message) for message in history["messages"]] == [("user", "ahoy"), ("assistant", "heard: ahoy")]


@pytest.mark.shows("OpenClaw", "`agent --message` through our gateway")
async def test_an_agents_final_answer_reaches_the_command_that_waits_for_it(openclaw: OpenClaw) -> None:
    openclaw.configure(gateway={"mode": "remote", "remote": {"url": openclaw.gateway, "token": openclaw.token}})
    code, told = await openclaw("agent", "--session-key", "agent:main:cli", "--message", "are you there?")
    assert code == 0
    assert told["status"] == "ok"
    assert told["result"]["payloads"][0]["text"] == "heard: are you there?"
    asked = {"message": "and again", "sessionKey": "agent:main:cli", "idempotencyKey": "second"}
    final = await openclaw.call("agent", "--expect-final", **asked)
    assert final["result"]["payloads"][0]["text"] == "heard: and again"


@pytest.mark.shows("OpenClaw", "a device is paired, comes back, is revoked")
async def test_its_device_is_paired_and_comes_back_with_the_devices_token_alone(
    openclaw: OpenClaw, gateway: tuple[Talk, PalHome, str]
) -> None:
    # Where its own config speaks of no secret, `openclaw agent` proves its device, and keeps the token it is given.
    remote = {"url": openclaw.gateway, "token": openclaw.token}
    openclaw.configure(gateway={"mode": "remote", "remote": remote, "auth": {"mode": "none"}})
    assert (await openclaw("agent", "--session-key", "agent:main:cli", "--message", "ahoy"))[0] == 0
    _, home, _ = gateway
    devices = (await home.pal("devices", "list", "--json")).json["devices"]
    assert [each["status"] for each in devices] == ["paired"]
    openclaw.configure(gateway={"mode": "remote", "remote": {"url": openclaw.gateway}})
    assert (await openclaw("gateway", "call", "health"))[1]["ok"] is True
    assert (await home.pal("devices", "revoke", devices[0]["id"])).code == 0
    code, refused = await openclaw("gateway", "call", "health")
    assert code != 0
    assert refused["ok"] is False


@pytest.mark.shows("OpenClaw", "refusals: wrong token, missing scope, unknown method")
async def test_a_wrong_token_a_missing_scope_and_an_unknown_method_are_told_as_it_expects(
    openclaw: OpenClaw, gateway: tuple[Talk, PalHome, str]
) -> None:
    _, home, _ = gateway
    made = (await home.pal("gateway", "token", "create", "--name", "r", "--scope", "read", "--json")).json
    reader = OpenClaw(openclaw.folder, openclaw.gateway, made["secret"])
    refused = await reader.call("chat.send", sessionKey="main", message="no", idempotencyKey="third")
    assert refused["ok"] is False
    assert "write" in refused["error"]["message"]
    unknown = await openclaw.call("nothing.of.this.name")
    assert unknown["error"]["code"] == "UNKNOWN_METHOD"
    stranger = OpenClaw(openclaw.folder, openclaw.gateway, "not-the-token-of-this-gateway")
    assert (await stranger.call("health"))["ok"] is False
