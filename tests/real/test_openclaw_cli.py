"""The real OpenClaw command, from npm, speaks to our gateway: with the token, as a device, as `openclaw agent` and as
its TUI. And to our registry of skills."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.behaviours import Behaviour, Calls, Json
from support.wire import WireServer

sys.path.insert(0, str(Path(__file__).parent.parent / "faults"))
sys.path.insert(0, str(Path(__file__).parent.parent / "terminal"))
from pseudo_terminal import ENTER, Terminal

from homes import PalHome, Talk, heard, parrot

PLACE = Path(__file__).parents[2] / ".peers" / "openclaw"
NODE = PLACE / "node" / "bin" / "node"
PROGRAM = (str(NODE), str(PLACE / "node_modules" / "openclaw" / "openclaw.mjs"))
COMPLAINT = re.compile(r"\berror\b|(?<!inspection )failed\b|unknown method|needs the scope|unreachable", re.IGNORECASE)
SECONDS = 120.0  # a call takes two; the machine may be busy

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

    def connect(self) -> None:
        """Have every command go to our gateway."""
        self.configure(gateway={"mode": "remote", "remote": {"url": self.gateway, "token": self.token}})

    @property
    def env(self) -> dict[str, str]:
        return {"HOME": str(self.folder.parent), "OPENCLAW_STATE_DIR": str(self.folder), "PATH": os.defpath}

    async def run(self, *words: str, **more: str) -> tuple[int, str, str]:
        """Its exit code and what it printed, on stdout and on stderr. `more` are variables of its environment."""
        process = await asyncio.create_subprocess_exec(
            *PROGRAM, *words, env=self.env | more, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(), SECONDS)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode or 0, out.decode(), err.decode()

    async def says(self, *words: str, **more: str) -> str:
        """What it prints for a person, if it is content."""
        code, out, err = await self.run(*words, **more)
        assert code == 0, out + err
        assert not COMPLAINT.search(out), out
        return out

    async def __call__(self, *words: str) -> tuple[int, Any]:
        """Its exit code and what it printed as JSON."""
        code, out, err = await self.run(*words, "--json")
        assert out, err
        return code, json.loads(out)

    async def call(self, method: str, *more: str, auth: str = "--token", **params: Any) -> Any:
        asked = ("--params", json.dumps(params), "--url", self.gateway, auth, self.token)
        return (await self("gateway", "call", method, *asked, *more))[1]


def writer(body: Json) -> Behaviour:
    """A model that runs what it is told to run."""
    words = heard(body)
    if words.startswith("run ") and body["messages"][-1]["role"] == "user":
        return Calls(("exec", {"command": words.removeprefix("run ")}), text="Let me.")
    return parrot(body)


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[tuple[Talk, PalHome, str]]:
    async with WireServer(otherwise=writer) as wire:
        home = PalHome(tmp_path / "home")
        home.set_up(wire.base_url, agents={"sandbox": {"mode": "off"}})  # where commands ask
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
    openclaw.connect()
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


@pytest.mark.shows("OpenClaw", "`health`, `status`, `channels status`, `devices|cron|nodes|skills list` print no error")
async def test_its_commands_for_people_find_what_they_ask_for(openclaw: OpenClaw) -> None:
    openclaw.connect()
    assert "Agents: main (default)" in await openclaw.says("health")
    assert re.search(r"reachable \d+ms · auth token", await openclaw.says("status"))
    assert "Gateway reachable." in await openclaw.says("channels", "status")
    assert "No device pairing entries." in await openclaw.says("devices", "list")
    assert "No automations." in await openclaw.says("cron", "list")
    assert "Paired: 0" in await openclaw.says("nodes", "list")
    assert "checklists" in await openclaw.says("skills", "list")
    present = (await openclaw("system", "presence"))[1]
    assert [each["mode"] for each in present] == ["gateway", "cli"]


@pytest.mark.shows("OpenClaw", "TUI: starts without an error line, a message, an approval answered there")
@pytest.mark.shows("OpenClaw", "`approvals pending`, `approvals resolve`")
async def test_its_tui_chats_and_an_approval_is_answered_in_it_and_by_its_command(
    openclaw: OpenClaw, gateway: tuple[Talk, PalHome, str]
) -> None:
    openclaw.connect()
    _, home, _ = gateway
    async with Terminal(openclaw.env, "tui", columns=110, rows=40, program=PROGRAM) as tui:
        await tui.sees("connected | idle", seconds=2 * SECONDS)
        assert not COMPLAINT.search(tui.shown), tui.shown
        await write(tui, "ahoy")
        await tui.sees("heard: ahoy", "connected | idle", in_order=True)

        await write(tui, "run touch first.txt")
        await tui.sees("/approve ")
        (waiting,) = (await openclaw("approvals", "pending"))[1]["approvals"]
        assert waiting["summary"] == "touch first.txt"
        assert not (home.workspace / "first.txt").exists()
        code, done = await openclaw("approvals", "resolve", waiting["id"], "allow-once")
        assert (code, done["applied"], done["approval"]["status"]) == (0, True, "allowed")
        await tui.sees("heard: run touch first.txt", "connected | idle", in_order=True)
        assert (home.workspace / "first.txt").exists()

        await write(tui, "run touch second.txt")
        shown = re.search(r"/approve (\w+) allow-once", await tui.sees("/approve "))
        assert shown is not None
        await write(tui, f"/approve {shown[1]} allow-once")
        await tui.sees("heard: run touch second.txt")
        assert (home.workspace / "second.txt").exists()
        assert not COMPLAINT.search(tui.shown), tui.shown


async def write(tui: Terminal, line: str) -> None:
    """Enter comes by itself, once the line is shown: it takes what comes in one piece for a paste."""
    tui.type(line)
    await tui.sees(line)
    tui.type(ENTER)


@pytest.mark.shows("OpenClaw", "`skills search|install|update|verify` with `pal registry`")
async def test_it_finds_installs_and_verifies_a_skill_of_our_registry(tmp_path: Path) -> None:
    home = PalHome(tmp_path / "home")
    home.configure("http://127.0.0.1:9/v1")
    source, folder = tmp_path / "tide-table", str(tmp_path / "registry")
    source.mkdir()
    (source / "SKILL.md").write_text("---\nname: tide-table\ndescription: Tells when to sail.\n---\nRead the table.\n")
    async with home.talking("registry", "serve", folder, "--port", "0") as talk:
        url = (await talk.until(lambda said: said.startswith("pal registry at "))).split()[3]
        made = (await home.pal("registry", "token", "create", folder, "--owner", "ada", "--json")).json
        home.variables |= {"CLAWHUB_REGISTRY": url, "CLAWHUB_TOKEN": made["secret"]}
        published = await home.pal("skills", "publish", str(source), "--version", "1.0.0", "--yes")
        assert published.code == 0, published
        openclaw = OpenClaw(tmp_path / "openclaw", "", "")
        openclaw.configure()

        async def skills(*words: str) -> str:
            return await openclaw.says("skills", *words, OPENCLAW_CLAWHUB_URL=url)

        assert "@ada/tide-table v1.0.0" in await skills("search", "sail")
        assert "@ada/tide-table" in await skills("search")
        said = await skills("install", "@ada/tide-table")
        assert "Published by ada. Not scanned." in said
        assert "Installed tide-table@1.0.0" in said
        assert (openclaw.folder / "workspace" / "skills" / "tide-table" / "SKILL.md").read_bytes() == (
            source / "SKILL.md"
        ).read_bytes()
        assert "already at 1.0.0" in await skills("update", "tide-table")
        assert json.loads(await skills("verify", "@ada/tide-table"))["ok"] is True
        blocked = await home.pal("registry", "block", folder, "tide-table", "--reason", "reads keys")
        assert blocked.code == 0, blocked
        code, out, err = await openclaw.run("skills", "install", "@ada/tide-table", "--force", OPENCLAW_CLAWHUB_URL=url)
        assert code != 0, out
        assert "reads keys" in out + err
