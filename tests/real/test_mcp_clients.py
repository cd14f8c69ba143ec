"""Real MCP clients on `pal mcp serve` and on the gateway: the SDKs of Python and TypeScript, and the inspector."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "gateway"))
from mcp_clients import CALLBACK, Flow, address, client
from serving import Running, running

from palinurus.config.home import Home
from support.compatibility import require

PLACE = Path(__file__).parents[2] / ".peers" / "mcp"
NODE = PLACE / "node" / "bin" / "node"
MODULES = PLACE / "node_modules" / "@modelcontextprotocol"
INSPECTOR = MODULES / "inspector" / "clients" / "launcher" / "build" / "index.js"
SCRIPT = Path(__file__).with_name("mcp_client.mjs")
PAL = Path(sys.executable).with_name("pal")
SECONDS = 60.0
TOOLS = {"message_send", "messages_read", "memory_search", "status"}

pytestmark = pytest.mark.real


@pytest.fixture
def peers() -> None:
    require("mcp")


@pytest.fixture
async def served(home: Home) -> AsyncIterator[Running]:
    async with running(home) as here:
        yield here


@pytest.fixture
def env(home: Home, tmp_path: Path) -> dict[str, str]:
    """Of a client that starts `pal mcp serve` in the same home."""
    return {"PATH": os.defpath, "HOME": str(tmp_path), "PALINURUS_HOME": str(home.root)}


@contextlib.asynccontextmanager
async def node(*words: str | Path, env: dict[str, str]) -> AsyncIterator[asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    started = await asyncio.create_subprocess_exec(NODE, *words, env=env, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(SECONDS):
            yield started
    finally:
        if started.returncode is None:
            started.kill()
            await started.wait()


async def said(process: asyncio.subprocess.Process) -> Any:
    """What it printed in the end."""
    out, err = await process.communicate()
    assert process.returncode == 0, out + err
    return json.loads(out.splitlines()[-1]) if out.count(b"\n") == 1 else json.loads(out)


def check(shown: Any, workspace: Path) -> None:
    assert set(shown["tools"]) >= TOOLS
    assert "kayak is yellow" in shown["reply"]
    assert shown["agents"] == (workspace / "AGENTS.md").read_text()
    assert shown["prompts"] > 0


@pytest.mark.shows("MCP SDK (TypeScript)", "stdio: tools, a message, resources, prompts")
async def test_the_typescript_sdk_over_stdio(peers: None, env: dict[str, str], home: Home, workspace: Path) -> None:
    async with node(SCRIPT, MODULES / "sdk", "stdio", PAL, "mcp", "serve", env=env) as process:
        check(await said(process), workspace)


@pytest.mark.shows("MCP SDK (TypeScript)", "HTTP with a token: tools, a message, resources, prompts")
async def test_the_typescript_sdk_over_http(peers: None, env: dict[str, str], served: Running, workspace: Path) -> None:
    async with node(SCRIPT, MODULES / "sdk", "http", address(served), served.token, env=env) as process:
        check(await said(process), workspace)


@pytest.mark.shows("MCP SDK (TypeScript)", "HTTP with OAuth: registration, consent, tokens")
async def test_the_typescript_sdk_logs_in_by_oauth(
    peers: None, env: dict[str, str], served: Running, workspace: Path
) -> None:
    async with node(SCRIPT, MODULES / "sdk", "http", address(served), env=env) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        where = json.loads(await process.stdout.readline())["open"]
        told = await Flow(served).consent(urlsplit(where).query, allow=True, scopes=["read", "write"])
        process.stdin.write(told.json["redirect"].encode() + b"\n")
        check(await said(process), workspace)
    (program,) = [each for each in served.register.devices() if each.kind == "program"]
    assert program.name == "TypeScript SDK"


async def inspect(*words: str | Path, env: dict[str, str]) -> Any:
    async with node(INSPECTOR, "--cli", *words, env=env) as process:
        assert process.stdin is not None
        process.stdin.close()
        return await said(process)


async def use_inspector(*target: str | Path, env: dict[str, str]) -> None:
    listed = await inspect(*target, "--method", "tools/list", env=env)
    assert {tool["name"] for tool in listed["tools"]} >= TOOLS
    words = ("--method", "tools/call", "--tool-name", "message_send", "--tool-arg", "message=remember my kayak is red")
    sent = await inspect(*target, *words, env=env)
    assert "kayak is red" in json.dumps(sent)
    found = await inspect(*target, "--method", "resources/list", env=env)
    uri = next(each["uri"] for each in found["resources"] if each["name"].endswith("AGENTS.md"))
    assert (await inspect(*target, "--method", "resources/read", "--uri", uri, env=env))["contents"][0]["text"]
    assert (await inspect(*target, "--method", "prompts/list", env=env))["prompts"]


@pytest.mark.shows("MCP inspector", "stdio: tools, a message, resources, prompts")
async def test_the_inspector_over_stdio(peers: None, env: dict[str, str], home: Home) -> None:
    await use_inspector(PAL, "mcp", "serve", env=env)


@pytest.mark.shows("MCP inspector", "HTTP with a token: tools, a message, resources, prompts")
async def test_the_inspector_over_http(peers: None, env: dict[str, str], served: Running) -> None:
    token = ("--header", f"Authorization: Bearer {served.token}")
    await use_inspector(address(served), "--transport", "http", *token, env=env)


async def use_python(connected: Any) -> None:
    assert {tool.name for tool in (await connected.list_tools()).tools} >= TOOLS
    sent = await connected.call_tool("message_send", {"message": "remember that my kayak is blue"})
    assert "kayak is blue" in sent.structured_content["reply"]
    found = (await connected.list_resources()).resources
    assert (await connected.read_resource(found[0].uri)).contents[0].text
    prompts = (await connected.list_prompts()).prompts
    assert (await connected.get_prompt(prompts[0].name)).messages


@pytest.mark.shows("MCP SDK (Python)", "stdio: tools, a message, resources, prompts")
async def test_the_python_sdk_over_stdio(env: dict[str, str], home: Home) -> None:
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    started = stdio_client(StdioServerParameters(command=str(PAL), args=["mcp", "serve"], env=env))
    async with asyncio.timeout(SECONDS), Client(started) as connected:
        await use_python(connected)


@pytest.mark.shows("MCP SDK (Python)", "HTTP with a token: tools, a message, resources, prompts")
async def test_the_python_sdk_over_http(served: Running) -> None:
    async with asyncio.timeout(SECONDS), client(served, served.token) as connected:
        await use_python(connected)


@pytest.mark.shows("MCP SDK (Python)", "HTTP with OAuth: registration, consent, tokens")
async def test_the_python_sdk_logs_in_by_oauth(served: Running) -> None:
    from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
    from mcp.shared.auth import OAuthClientMetadata

    opened: list[str] = []

    class Storage:
        """Nothing is stored."""

        async def get_tokens(self) -> Any: ...
        async def set_tokens(self, tokens: Any) -> None: ...
        async def get_client_info(self) -> Any: ...
        async def set_client_info(self, client_info: Any) -> None: ...

    async def open_browser(url: str) -> None:
        opened.append(url)

    async def wait_for_answer() -> AuthorizationCodeResult:
        told = await Flow(served).consent(urlsplit(opened[0]).query, allow=True, scopes=["read", "write"])
        answer = dict(parse_qsl(urlsplit(told.json["redirect"]).query))
        return AuthorizationCodeResult(code=answer["code"], state=answer["state"], iss=answer["iss"])

    metadata = OAuthClientMetadata(redirect_uris=[CALLBACK], client_name="Python SDK")
    auth = OAuthClientProvider(address(served), metadata, Storage(), open_browser, wait_for_answer)
    async with asyncio.timeout(SECONDS), client(served, auth=auth) as connected:
        await use_python(connected)
