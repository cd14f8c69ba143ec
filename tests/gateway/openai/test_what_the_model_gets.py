"""From a request of a client to the bytes that the model's server gets: a whole gateway, a fake server behind it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import httpx2
import msgspec
import pytest
from serving import configure, running
from test_openai_chat import PIXEL

from palinurus.config.home import Home
from palinurus.text.tokens import estimate_tokens
from support.behaviours import Says
from support.wire import WireServer

WORDS = "The tide table of the harbour says that the water is highest a little after noon, and so we sail at ten. " * 2


class PictureServer:
    """Serves a picture, and what is none, on loopback. `paths` are those that were asked for."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        self.paths.append(path)
        head, body = self._answer(path)
        writer.write(f"HTTP/1.1 {head}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    def _answer(self, path: str) -> tuple[str, bytes]:
        match path:
            case "/a.png":
                return "200 OK\r\nContent-Type: image/png", base64.b64decode(PIXEL)
            case "/page":
                return "200 OK\r\nContent-Type: text/html", b"<p>no picture</p>"
            case "/false.png":
                return "200 OK\r\nContent-Type: image/png", b"no picture"
            case "/large.png":
                return "200 OK\r\nContent-Type: image/png", bytes(11 * 1024 * 1024)
            case "/away":
                return "302 Found\r\nLocation: http://127.0.0.1:8080/a.png", b""
            case "/round":
                return "302 Found\r\nLocation: /round", b""
        return "404 Not Found", b""


@pytest.fixture
async def wire() -> AsyncIterator[WireServer]:
    async with WireServer(otherwise=Says(WORDS)) as server:
        yield server


@pytest.fixture
async def pictures() -> AsyncIterator[tuple[PictureServer, str]]:
    made = PictureServer()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    async with server:
        yield made, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.fixture
async def client(
    home: Home, wire: WireServer, pictures: tuple[PictureServer, str]
) -> AsyncIterator[httpx2.AsyncClient]:
    entry = {"baseUrl": wire.base_url, "models": [{"id": "test", "input": ["text", "image"], "contextWindow": 100_000}]}
    agents = msgspec.json.decode(home.config_path.read_bytes())["agents"]
    agents["defaults"]["model"] = "wire/test"
    fetch = {"allowPrivate": [pictures[1]]}
    configure(home, agents=agents, models={"providers": {"wire": entry}}, tools={"web": {"fetch": fetch}})
    async with running(home) as served:
        headers = {"authorization": f"Bearer {served.token}"}
        url = f"http://127.0.0.1:{served.port}/v1"
        async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=60) as opened:
            yield opened


async def ask(client: httpx2.AsyncClient, *messages: Any, **more: Any) -> httpx2.Response:
    return await client.post("/chat/completions", json={"model": "palinurus", "messages": messages, **more})


async def test_of_fifty_messages_at_least_95_percent_of_each_prompt_repeats_the_request_before(
    client: httpx2.AsyncClient, wire: WireServer, record_property: Any
) -> None:
    history: list[Any] = [{"role": "system", "content": "You help a sailor. Be brief and name your sources."}]
    for number in range(25):
        history.append({"role": "user", "content": f"Question {number}: when does the tide turn?"})
        history.append((await ask(client, *history)).json()["choices"][0]["message"])
    prompts = [as_prompt(request) for request in wire.requests]
    assert len(prompts) == 25
    shares = [
        estimate_tokens(after[: common_length(before, after)]) / estimate_tokens(after)
        for before, after in pairwise(prompts)
    ]
    record_property("least share", round(min(shares), 4))
    record_property("last share", round(shares[-1], 4))
    assert min(shares) >= 0.95


def common_length(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def as_prompt(request: Any) -> str:
    """In the order in which servers put it before a model: tools, then messages."""
    parts = [*request.get("tools", ()), *request["messages"]]
    return "\n".join(msgspec.json.encode(part).decode() for part in parts)


def picture(url: str) -> dict[str, Any]:
    content = [{"type": "text", "text": "what is it?"}, {"type": "image_url", "image_url": {"url": url}}]
    return {"role": "user", "content": content}


async def test_a_picture_is_fetched_once_and_sent_to_the_model(
    client: httpx2.AsyncClient, wire: WireServer, pictures: tuple[PictureServer, str]
) -> None:
    server, host = pictures
    asked = picture(f"http://{host}/a.png")
    answer = await ask(client, asked)
    assert answer.status_code == 200, answer.text
    (part,) = [each for each in wire.requests[-1]["messages"][-1]["content"] if each["type"] == "image_url"]
    assert part["image_url"]["url"].startswith("data:image/png;base64,")
    again = [asked, answer.json()["choices"][0]["message"], {"role": "user", "content": "are you sure?"}]
    assert (await ask(client, *again)).status_code == 200
    assert server.paths == ["/a.png"]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/page", "it is text/html"),
        ("/false.png", "PNG, JPEG, GIF, WebP and BMP"),
        ("/large.png", "too large"),
        ("/away", "not a public address"),
        ("/round", "more than 3 redirects"),
        ("/gone", "answered 404"),
    ],
)
async def test_what_is_no_picture_or_leads_elsewhere_is_refused(
    client: httpx2.AsyncClient, wire: WireServer, pictures: tuple[PictureServer, str], path: str, why: str
) -> None:
    answer = await ask(client, picture(f"http://{pictures[1]}{path}"))
    assert answer.status_code == 400
    assert why in answer.json()["error"]["message"]
    assert wire.requests == []


@pytest.mark.parametrize(
    "url", ["http://localhost/x", "http://[::1]/x", "http://169.254.169.254/x", "file:///etc/passwd"]
)
async def test_addresses_that_are_not_public_are_refused(
    client: httpx2.AsyncClient, wire: WireServer, url: str
) -> None:
    answer = await ask(client, picture(url))
    assert answer.status_code == 400
    assert "cannot be fetched" in answer.json()["error"]["message"]
    assert wire.requests == []


async def test_a_picture_that_is_refused_does_not_end_the_conversation(
    client: httpx2.AsyncClient, wire: WireServer
) -> None:
    asked = {"role": "user", "content": "hi"}
    reply = (await ask(client, asked)).json()["choices"][0]["message"]
    assert (await ask(client, asked, reply, picture("http://localhost/x"))).status_code == 400
    assert (await ask(client, asked, reply, {"role": "user", "content": "on"})).status_code == 200
    assert [each["role"] for each in wire.requests[-1]["messages"]] == ["system", "user", "assistant", "user"]


async def test_a_reply_that_was_cut_is_not_checked_for_its_form(client: httpx2.AsyncClient, wire: WireServer) -> None:
    wire.script = [Says('{"name": "As', finish="length")]
    answer = await ask(client, {"role": "user", "content": "which boat?"}, response_format={"type": "json_object"})
    choice = answer.json()["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ('{"name": "As', "length")
