"""One operation by every surface: the same parameters, items and errors; who calls is said by the surface alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from family_asking import Asking, Line
from msgspec import Struct

from palinurus.config.home import Home
from palinurus.domain.errors import BadRequest
from palinurus.gateway.websocket.methods import Methods
from palinurus.operations.operation import operation
from palinurus.operations.remote import Hello, HomeIdentity, RemoteCaller, Server
from palinurus.operations.scopes import LOCAL, Caller
from palinurus.operations.services import Services
from palinurus.operations.session_changes import PatchSession, delete_session, patch_session
from palinurus.operations.table import LocalCaller, OperationClient, Table
from palinurus.testing.harness import Harness

HELLO = Hello(HomeIdentity("config", "workspace"), 1, "pal test")


class Seen(Struct, frozen=True):
    word: str
    caller: str
    surface: str
    key: str = ""


@operation("test.see", scope="write")
async def see(
    services: Services,
    word: Annotated[str, "Said back."],
    caller: Caller = LOCAL,
    idempotency_key: str = "",
) -> Seen:
    """Who calls, and under which key."""
    return Seen(word, caller.id, caller.surface, idempotency_key)


@operation("test.count", scope="read")
async def count(services: Services, upto: int, caller: Caller = LOCAL) -> AsyncIterator[Seen]:
    """A few items."""
    for number in range(upto):
        yield Seen(str(number), caller.id, caller.surface)


@pytest.fixture(params=["local", "unix socket"])
async def here(
    request: pytest.FixtureRequest, pal: Harness, home: Home, tmp_path: Path
) -> AsyncIterator[OperationClient]:
    services = pal.services(home)
    if request.param == "local":
        yield LocalCaller(services)
        return
    server = Server(services, Table([see, count]), HELLO)
    await server.start(tmp_path / "pal.sock")
    remote = await RemoteCaller.connect(tmp_path / "pal.sock", HELLO)
    yield remote
    await remote.close()
    await asyncio.wait_for(server.close(), 60)


async def test_on_this_machine_the_owner_calls(here: OperationClient) -> None:
    async with asyncio.timeout(60):
        assert await here.call(see, see.params(word="ahoy"), "k") == Seen("ahoy", "owner", "local", "k")
        items = [item async for item in here.follow(count, count.params(upto=2))]
    assert items == [Seen("0", "owner", "local"), Seen("1", "owner", "local")]


def _seen(frame: dict[str, Any]) -> tuple[str, str, str]:
    return frame["word"], frame["surface"], frame["key"]


async def test_by_the_gateway_the_credential_calls(ask: Asking) -> None:
    ask.methods = Methods((), Table([see, count]))
    async with Line(ask) as line:
        client = await line.connect()
        told = (await line.call(client, "test.see", word="ahoy", idempotencyKey="k"))["payload"]
        assert told == {"word": "ahoy", "caller": "configured", "surface": "gateway", "key": "k"}
        await line.send(client, "test.see", {"word": "again"}, idempotencyKey="of the frame")
        assert _seen((await line.answer(client))["payload"]) == ("again", "gateway", "of the frame")
        await line.send(client, "test.count", {"upto": 2})
        items = [(await line.until(client, "feed"))["item"] for _ in range(2)]
        assert [_seen({"key": "", **item}) for item in items] == [("0", "gateway", ""), ("1", "gateway", "")]
        assert (await line.answer(client))["payload"] == {"items": 2}


@pytest.mark.parametrize("forged", ["caller", "idempotency_key", "services"])
async def test_nobody_sends_who_they_are(ask: Asking, forged: str) -> None:
    ask.methods = Methods((), Table([see, count]))
    with pytest.raises(BadRequest, match=f"test.see: there is no parameter {forged!r}"):
        await ask("test.see", word="ahoy", **{forged: "admin"})


async def test_no_method_takes_its_caller_from_its_parameters(ask: Asking) -> None:
    assert not [method.name for method in ask.methods.all() if "caller" in method.params.__struct_fields__]


async def test_what_is_changed_on_this_machine_is_told_to_those_who_listen_by_the_gateway(ask: Asking) -> None:
    await ask.pal.hears("hello")
    await ask("sessions.subscribe")
    here = LocalCaller(ask.services)
    await here.call(patch_session, PatchSession("agent:main:main", label="The boat"))
    await here.call(delete_session, delete_session.params(key="agent:main:main"))
    changes = [told["reason"] for event, told in ask.heard if event == "sessions.changed"]
    assert changes == ["patch", "delete"]
