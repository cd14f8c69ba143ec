"""No token, password or configured secret leaves by an answer, an event, a log, a state file or a problem.

Everything that the gateway says is recorded, everything that it wrote is read byte by byte. A secret is told once, to
the one for whom it was made, and lies only where its owner put it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from besieged import API_KEY, Besieged, besieged, exchange
from doors import methods, routes
from serving import PATIENCE, Key, Visitor, request, upgrade
from test_traversal import plain, texts

from palinurus.gateway.websocket.methods import Methods
from palinurus.runtime.gateway import METHODS as OWN
from palinurus.runtime.gateway import TABLE

pytestmark = pytest.mark.slow

OWNERS = "owner-secret-93f1a7c2e5b84d60"  # gateway.auth.token
MCP_KEY = "mcp-secret-5512aa90cc17fe34"
VARIABLE = "variable-secret-0d9e8f7a6b5c"
STARTING = {"sandbox.test", "sandbox.explain", "mcp.test", "mcp.list", "models.test", "memory.index", "memory.search"}
TOLD_ONCE = ("gateway.tokens.create", "gateway.tokens.rotate", "device.token.rotate")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    root = tmp_path_factory.mktemp("secrets")
    more = {
        "mcp": {
            "servers": {"far": {"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": f"Bearer {MCP_KEY}"}}}
        },
        "env": {"vars": {"PAL_TEST_API_KEY": VARIABLE}},
    }
    with besieged(root, "--verbose", gateway={"auth": {"token": OWNERS}}, more=more) as here:
        yield here


class Record:
    """All that was heard."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, bytes]] = []

    def __call__(self, where: str, data: bytes) -> None:
        self.heard.append((where, data))

    def places_of(self, secret: str) -> list[str]:
        return [where for where, data in self.heard if secret.encode() in data]


class Listening(Visitor):
    """A visitor that keeps every frame."""

    record: Record

    async def frame(self) -> dict[str, Any]:
        frame = await super().frame()
        self.record("socket", json.dumps(frame, ensure_ascii=False).encode())
        return frame

    @classmethod
    async def come(cls, url: str, token: str, record: Record, **params: Any) -> Listening:
        visitor = await cls.arrive(url)
        visitor.record = record
        await visitor.connect(token, **params)
        return visitor


async def test_secrets_stay_where_they_are(gateway: Besieged) -> None:
    record = Record()
    owner = await Listening.come(gateway.ws, OWNERS, record)
    await owner.ask("sessions.subscribe", sessionKey="*")
    made = await _tokens(gateway, owner)
    record.heard.clear()  # until here somebody was told what was made for him
    await _talk(owner, made)
    await _ask_everything(owner)
    await _knock(gateway, made, record)
    await owner.leave()
    secrets = {"the owner's": OWNERS, "the provider's": API_KEY, "of an MCP server": MCP_KEY, "a variable": VARIABLE}
    for name, secret in (secrets | made).items():
        assert record.places_of(secret) == [], name
        assert _written(gateway, secret) == [], name
    assert sum(len(data) for _, data in record.heard) > 100_000  # there was something to look at
    assert record.places_of("my secret is")
    assert _written(gateway, "my secret is")


async def _tokens(gateway: Besieged, owner: Listening) -> dict[str, str]:
    """One that lives, one that was rotated, one of a device."""
    first = (await owner.ask("gateway.tokens.create", name="one", scopes=["read"])).payload["secret"]
    second = (await owner.ask("gateway.tokens.rotate", token="one")).payload["secret"]
    device, visitor = Key(), await Visitor.arrive(gateway.ws)
    now = (await owner.ask("health")).payload["ts"]
    client = {"id": "test", "mode": "test", "platform": "Linux ", "deviceFamily": "Server", "displayName": "a phone"}
    told = await visitor.connect(OWNERS, device=device.proof(visitor.nonce, now, token=OWNERS), client=client)
    await visitor.leave()
    return {"a dead token": first, "a token": second, "of a device": told.payload["auth"]["deviceToken"]}


async def _talk(owner: Listening, made: dict[str, str]) -> None:
    """Somebody says his secrets aloud, and the agent hears them."""
    for number, secret in enumerate((OWNERS, API_KEY, MCP_KEY, VARIABLE, *made.values())):
        words = f"my secret is {secret}, keep it"
        told = await owner.ask("chat.send", sessionKey="main", message=words, idempotencyKey=f"said-{number}")
        await owner.ask("agent.wait", runId=told.payload["runId"], timeoutMs=10_000)
    told = await owner.ask("chat.inject", sessionKey="agent:main:main", message=f"it was {API_KEY} and {OWNERS}")
    assert told.ok
    await owner.ask("tools.invoke", tool="web_fetch", args={"url": f"http://127.0.0.1:9/?key={API_KEY}"})
    await owner.ask("tools.invoke", tool="read", args={"path": f"{OWNERS}.md"})


async def _ask_everything(owner: Listening) -> None:
    table = Methods(OWN, TABLE)
    for scope, name in methods():
        params = plain(table.get(name).params)
        if name in STARTING or name in TOLD_ONCE:
            continue
        await owner.ask(name, **params)
        for field in {"session_key", "sessionKey"} & {*texts(table.get(name).params)} if scope == "read" else ():
            await owner.ask(name, **(params | {field: "agent:main:main"}))
    for name in ("sessions.show", "context.show", "status.session"):
        assert (await owner.ask(name, sessionKey="agent:main:main")).ok
    for name, params in (
        ("chat.history", {"sessionKey": "agent:main:main"}),
        ("logs.tail", {}),
        ("config.get", {}),
        ("devices.list", {}),
        ("gateway.tokens.list", {}),
        ("gateway.status", {}),
        ("audit.show", {}),
        ("sessions.search", {"query": "secret"}),
    ):
        assert (await owner.ask(name, **params)).ok, name


async def _knock(gateway: Besieged, made: dict[str, str], record: Record) -> None:
    """With good secrets in all the wrong places, so that whoever repeats what he was told is found out."""
    for _, verb, path in routes():
        for secret in (OWNERS, *made.values()):
            body = json.dumps({"messages": [{"role": secret}], "input": [{"type": secret}], "tool": secret}).encode()
            for said in ({}, {"Authorization": f"Bearer {secret}"}, {"Origin": "https://evil.example"}):
                told = await request(
                    gateway.port, path, method=verb, body=body, Content_Type="application/json", **said
                )
                # Who comes in and sends nonsense may be told which nonsense: he knows it.
                shown = b"" if "Authorization" in said else told.body
                record(f"{verb} {path}", str(told.headers).encode() + shown)
            told = await request(gateway.port, f"{path}?token={secret}", method=verb)
            record(f"{verb} {path} with a query", str(told.headers).encode() + told.body)
    for secret in (OWNERS, *made.values()):
        for headers in ({"Path": f"/?token={secret}"}, {"Cookie": f"token={secret}"}, {"Path": f"/{secret}"}):
            told = await upgrade(gateway.port, **headers)
            record("the upgrade", str(told.headers).encode() + told.body)
        nonsense = f"GET {secret} HTTP/9\r\nAuthorization: {secret}\r\n\r\n"
        record("no HTTP", await exchange(gateway.port, nonsense.encode()))
        stranger = await Listening.come(gateway.ws, secret, record, role="node")
        record("the end", str(await asyncio.wait_for(stranger.closed(), PATIENCE)).encode())


def _written(gateway: Besieged, secret: str) -> list[str]:
    """Files in which the secret stands, besides the one its owner wrote it into and the copy of that."""
    found = [path for path in gateway.root.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    return [str(path.relative_to(gateway.root)) for path in found if not path.name.startswith("palinurus.json")]


async def test_what_it_says_to_the_terminal_holds_no_secret(tmp_path_factory: pytest.TempPathFactory) -> None:
    with besieged(tmp_path_factory.mktemp("spoken"), "--verbose") as here:
        token = here.token
        for said in ({}, {"Authorization": f"Bearer {token}"}, {"Authorization": f"Basic {token}"}):
            await request(here.port, f"/v1/models/{token}", **said)
            await request(here.port, f"/v1/models?token={token}", **said)
        here.process.terminate()
        out, err = await asyncio.to_thread(here.process.communicate, timeout=PATIENCE)
        assert "the gateway listens at" in err
        assert token not in out + err
        assert token not in json.dumps(here.logged())
        assert (here.home / "gateway.token").stat().st_mode & 0o077 == 0
