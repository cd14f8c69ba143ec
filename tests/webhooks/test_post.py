"""Requests that are sent: through the guard of web_fetch, repeated until they have arrived, with a token that is
nowhere stored."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hooks_home import PATIENCE, configure

from palinurus.config.home import Home
from palinurus.domain.errors import AddressRefused
from palinurus.extensions.webhooks.post import POST, post_webhook
from palinurus.runtime.runtime import Runtime
from palinurus.storage.jobs import Job

TOKEN = "the-token-of-the-receiver"


class Receiver:
    """A server of somebody else. It answers as the script says, then with 200."""

    def __init__(self, *script: str) -> None:
        self.script = list(script)
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.requests.append((first, headers, body))
        answer = self.script.pop(0) if self.script else "200 OK"
        if answer:
            writer.write(f"HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n".encode())
        writer.close()


@asynccontextmanager
async def sending(home: Home, *script: str, allowed: bool = True) -> AsyncIterator[tuple[Runtime, Receiver]]:
    receiver = Receiver(*script)
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    fetch = {"allowPrivate": [f"127.0.0.1:{receiver.port}"] if allowed else []}
    configure(home, tools={"web": {"fetch": fetch}}, cron={"webhookToken": TOKEN})
    runtime = Runtime(home, {})
    try:
        yield runtime, receiver
    finally:
        await runtime.close()
        server.close()


async def outcome(runtime: Runtime, job: Job) -> Job:
    async with asyncio.timeout(PATIENCE):
        await runtime.services.jobs.idle()
    found = await runtime.services.jobs.find(POST, job.idempotency_key)
    assert found is not None
    return found


async def post(runtime: Runtime, receiver: Receiver, **more: Any) -> Job:
    url = f"http://127.0.0.1:{receiver.port}/done?x=1"
    return await outcome(runtime, await post_webhook(runtime.services, url, {"text": "ahoy é"}, "key-1", **more))


async def test_a_post_arrives_once_with_its_key_and_token(home: Home) -> None:
    async with sending(home) as (runtime, receiver):
        done = await post(runtime, receiver, token_at="cron.webhookToken")
        again = await post(runtime, receiver, token_at="cron.webhookToken")
        assert (done.state, again.id) == ("done", done.id)
        ((first, headers, body),) = receiver.requests
        assert first == "POST /done?x=1 HTTP/1.1"
        assert headers["authorization"] == f"Bearer {TOKEN}"
        assert headers["idempotency-key"] == "key-1"
        assert headers["content-type"] == "application/json"
        assert json.loads(body) == {"text": "ahoy é"}
    for kept in home.root.glob("home.sqlite*"):
        assert TOKEN.encode() not in kept.read_bytes()
    rows = sqlite3.connect(home.root / "home.sqlite").execute("SELECT payload FROM jobs").fetchall()
    assert json.loads(rows[0][0])["tokenAt"] == "cron.webhookToken"


async def test_a_failure_that_may_pass_is_repeated_under_the_same_key(home: Home) -> None:
    async with sending(home, "503 Busy", "429 Slowly\r\nRetry-After: 7", "") as (runtime, receiver):
        waiting = await post(runtime, receiver)
        assert (waiting.state, waiting.doubtful_at) == ("retry", 0)
        assert "HTTP 503" in waiting.trouble
        for why in ("HTTP 429", "RemoteProtocolError", ""):
            await runtime.services.jobs.retry(waiting.id)
            now = await outcome(runtime, waiting)
            assert why in now.trouble or now.doubtful_at
        assert now.state == "done"
        assert {headers["idempotency-key"] for _, headers, _ in receiver.requests} == {"key-1"}
        assert len(receiver.requests) == 4


@pytest.mark.parametrize(
    ("status", "why"),
    [("404 Gone", "HTTP 404"), ("302 Found\r\nLocation: http://127.0.0.1:1/", "redirects are not followed")],
)
async def test_what_a_retry_cannot_help_is_given_up(home: Home, status: str, why: str) -> None:
    async with sending(home, status) as (runtime, receiver):
        failed = await post(runtime, receiver)
        assert failed.state == "failed"
        assert why in failed.trouble
        assert len(receiver.requests) == 1


async def test_private_addresses_are_not_reached_unless_the_owner_named_them(home: Home) -> None:
    async with sending(home, allowed=False) as (runtime, receiver):
        for number, host in enumerate(
            (f"127.0.0.1:{receiver.port}", f"[::1]:{receiver.port}", "169.254.169.254", "nas.local")
        ):
            refused = await outcome(
                runtime,
                await post_webhook(runtime.services, f"http://{host}/", {}, f"k{number}", token_at="cron.webhookToken"),
            )
            assert refused.state == "failed", host
            assert "allowPrivate" in refused.trouble
        for url in ("file:///etc/passwd", "http://user:pw@example.org/", "http://2130706433/", "ftp://x/"):
            with pytest.raises(AddressRefused):
                await post_webhook(runtime.services, url, {}, "k")
        assert not receiver.requests


async def test_a_token_that_is_not_there_sends_nothing(home: Home) -> None:
    async with sending(home) as (runtime, receiver):
        failed = await post(runtime, receiver, token_at="cron.noSuchToken")
        assert failed.state == "failed"
        assert "cron.noSuchToken" in failed.trouble
        assert not receiver.requests
