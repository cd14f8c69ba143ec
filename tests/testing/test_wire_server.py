"""The loopback model server behaves as its script says, also without a stream and as a program."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from support import TESTS
from support.wire import Answers, Calls, Hangs, Says, WireServer, echo


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as opened:
        yield opened


def asking(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **fields}


async def test_without_stream_it_answers_with_one_object(client: httpx2.AsyncClient) -> None:
    async with WireServer(Calls(("ls", {"path": "."}))) as server:
        url = f"{server.base_url}/chat/completions"
        called = (await client.post(url, json=asking("x"))).json()
        echoed = (await client.post(url, json=asking("hello"))).json()
    assert called["choices"][0]["message"]["tool_calls"][0]["function"] == {"name": "ls", "arguments": '{"path":"."}'}
    assert called["choices"][0]["finish_reason"] == "tool_calls"
    assert echoed["choices"][0]["message"]["content"] == "hello"
    assert server.connections == 1


async def test_the_script_is_used_in_order_then_otherwise(client: httpx2.AsyncClient) -> None:
    async with WireServer(Answers(529, "busy"), otherwise=Says("always")) as server:
        url = f"{server.base_url}/chat/completions"
        statuses = [(await client.post(url, json=asking("x"))).status_code for _ in range(3)]
        models = (await client.get(f"{server.base_url}/models")).json()
    assert statuses == [529, 200, 200]
    assert [model["id"] for model in models["data"]] == ["test"]
    assert [body["messages"][0]["content"] for body in server.requests] == ["x", "x", "x"]


async def test_a_stream_comes_in_as_many_chunks_as_asked(client: httpx2.AsyncClient) -> None:
    async with WireServer(Says("abcdef", chunks=3)) as server:
        answer = await client.post(f"{server.base_url}/chat/completions", json=asking("x", stream=True))
    assert [line.count('"content"') for line in answer.text.split("\n\n")].count(1) == 3
    assert answer.text.endswith("data: [DONE]\n\n")


async def test_a_closing_server_lets_go_of_a_client_that_hangs(client: httpx2.AsyncClient) -> None:
    async with WireServer(Hangs()) as server:
        waiting = asyncio.create_task(client.post(f"{server.base_url}/chat/completions", json=asking("x", stream=True)))
        await server.until(lambda seen: len(seen.requests) == 1)
    with pytest.raises(httpx2.RemoteProtocolError):
        await asyncio.wait_for(waiting, 60)


async def test_waiting_for_what_never_happens_ends() -> None:
    async with WireServer() as server:
        with pytest.raises(TimeoutError):
            await server.until(lambda seen: seen.departed > 0, timeout=0.01)


def test_echo_says_hello_to_what_has_no_text() -> None:
    assert echo({"messages": []}) == Says("hello")


async def test_as_a_program_it_prints_its_address_first(client: httpx2.AsyncClient) -> None:
    command = [sys.executable, "-m", "support.wire", "--reply", "ahoy", "--chunks", "2", "--delay-ms", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=TESTS) as program:
        try:
            assert program.stdout is not None
            base_url = (await asyncio.wait_for(asyncio.to_thread(program.stdout.readline), 60)).strip()
            answer = await client.post(f"{base_url}/chat/completions", json=asking("x"))
        finally:
            program.kill()
    assert answer.json()["choices"][0]["message"]["content"] == "ahoy"
