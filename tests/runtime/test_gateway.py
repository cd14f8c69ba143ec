"""The gateway, joined: what it refuses to start with, where its secret comes from, and how it leaves."""

from __future__ import annotations

import asyncio
import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from palinurus.config.home import Home, find_home
from palinurus.config.load import Config
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import ConfigError, HolderLost
from palinurus.gateway.settings import gateway_settings
from palinurus.operations.runs import submit_message
from support.behaviours import Hangs, Says, Waits
from support.wire import WireServer

sys.path.insert(0, str(Path(__file__).parent.parent / "gateway"))
from serving import PATIENCE, Visitor, configure, free_port, request, running

SECRET = "a-secret-that-is-long-enough"


def settings_of(**options: Any) -> Any:
    return gateway_settings(Config({"gateway": options}))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bind": "lan", "auth": {"mode": "none"}}, "without authentication"),
        ({"bind": "custom", "customBindHost": "192.168.1.5", "auth": {"mode": "none"}}, "without authentication"),
        ({"bind": "custom", "customBindHost": "::", "auth": {"mode": "none"}}, "without authentication"),
        ({"bind": "custom"}, "customBindHost"),
        ({"bind": "custom", "customBindHost": "pal.lan"}, "customBindHost"),
        ({"bind": "tailnet"}, "tailnet"),
        ({"auth": {"mode": "trusted-proxy"}}, "trusted-proxy"),
    ],
)
def test_a_config_that_cannot_be_served_safely_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        settings_of(**options)


def test_without_a_word_it_listens_on_this_machine_and_wants_a_token() -> None:
    settings = settings_of()
    assert (settings.hosts, settings.port, settings.mode) == (("127.0.0.1", "::1"), 18790, "token")
    assert settings.is_near
    assert not settings_of(bind="lan").is_near
    assert settings_of(auth={"password": "x"}).mode == "password"
    assert settings_of(bind="custom", customBindHost="[::1]", auth={"mode": "none"}).is_near


@pytest.mark.parametrize(
    ("gateway", "said"),
    [
        ({"auth": {"mode": "password"}}, "needs a password"),
        ({"auth": {"token": {"source": "file", "id": "/nowhere/secret"}}}, "no file of secrets"),
        ({"auth": {"token": {"source": "env", "id": "NOT_SET"}}}, "does not exist"),
        ({"bind": "lan", "auth": {"token": "short"}}, "could be guessed"),
    ],
)
async def test_a_secret_that_is_missing_or_weak_keeps_it_from_starting(
    home: Home, gateway: dict[str, Any], said: str
) -> None:
    configure(home, gateway=gateway)
    with pytest.raises(ConfigError, match=said):
        async with running(home):
            pass


async def test_a_port_that_is_taken_is_told_in_one_line(home: Home) -> None:
    async with running(home) as served:
        other = find_home({"PALINURUS_HOME": str(home.root.parent / "other"), "HOME": str(home.root.parent)})
        other.root.mkdir()
        with pytest.raises(ConfigError, match=f"cannot listen at 127.0.0.1:{served.port}"):
            async with running(other, port=served.port):
                pass


async def test_a_token_is_made_once_and_kept_for_the_owner_alone(home: Home) -> None:
    async with running(home) as served:
        first = served.token
        assert len(first) > 40
        assert stat.S_IMODE((home.root / "gateway.token").stat().st_mode) == 0o600
        assert served.runtime.agents.redact(f"it is {first}") == "it is [redacted]"
    async with running(home) as served:
        assert served.token == first


@pytest.mark.parametrize(
    ("config", "env", "where"),
    [
        ({"auth": {"token": SECRET}}, {"PALINURUS_GATEWAY_TOKEN": "another-secret-elsewhere"}, "gateway.auth.token"),
        ({"auth": {"token": "${MY_TOKEN}"}}, {"MY_TOKEN": SECRET}, "gateway.auth.token"),
        ({"auth": {"token": {"source": "env", "id": "MY_TOKEN"}}}, {"MY_TOKEN": SECRET}, "gateway.auth.token"),
        ({}, {"PALINURUS_GATEWAY_TOKEN": SECRET}, "PALINURUS_GATEWAY_TOKEN"),
        ({"auth": {"mode": "password", "password": SECRET}}, {}, "gateway.auth.password"),
        ({"auth": {"mode": "password"}}, {"PALINURUS_GATEWAY_PASSWORD": SECRET}, "PALINURUS_GATEWAY_PASSWORD"),
    ],
)
async def test_the_secret_comes_from_the_config_or_the_environment(
    home: Home, config: dict[str, Any], env: dict[str, str], where: str
) -> None:
    configure(home, gateway=config)
    async with running(home, env) as served:
        assert where in served.gateway.token_from
        assert not served.token
        visitor = await Visitor.enter(served.ws, SECRET)
        await visitor.leave()
        assert served.runtime.agents.redact(SECRET) == "[redacted]"


async def test_a_token_that_is_changed_in_the_config_is_in_force_at_once(home: Home) -> None:
    configure(home, gateway={"auth": {"token": SECRET}})
    async with running(home) as served:
        visitor = await Visitor.enter(served.ws, SECRET)
        configure(home, gateway={"auth": {"token": "a-newer-secret-of-the-owner"}})
        assert (await request(served.port, "/v1/models", Authorization=f"Bearer {SECRET}")).status == 401
        assert (await visitor.closed())[0] == 1008
        assert (
            await request(served.port, "/v1/models", Authorization="Bearer a-newer-secret-of-the-owner")
        ).status == 200
        # One that cannot be read lets nobody in, and nothing takes its place.
        configure(home, gateway={"auth": {"token": {"source": "file", "id": "/nowhere"}}})
        assert (
            await request(served.port, "/v1/models", Authorization="Bearer a-newer-secret-of-the-owner")
        ).status == 401


async def test_an_open_door_still_checks_where_a_request_comes_from(home: Home) -> None:
    configure(home, gateway={"auth": {"mode": "none"}})
    async with running(home) as served:
        assert (await request(served.port, "/v1/models")).status == 200
        assert (await request(served.port, "/v1/models", host="evil.example")).status == 421
        assert (await request(served.port, "/v1/models", Origin="https://evil.example")).status == 403
        visitor = await Visitor.arrive(served.ws)
        assert (await visitor.connect()).ok
        assert (await visitor.ask("gateway.status")).payload["auth"] == "none"
        await visitor.leave()


async def test_names_and_pages_of_the_config_may_speak_to_it(home: Home) -> None:
    configure(home, gateway={"allowedHosts": ["pal.lan"], "controlUi": {"allowedOrigins": ["https://ui.example"]}})
    async with running(home) as served:
        assert (await request(served.port, "/healthz", host="pal.lan", Origin="https://ui.example")).status == 200


async def test_it_says_where_it_is_as_long_as_it_is_there(home: Home) -> None:
    port = free_port()
    async with running(home, port=port) as served:
        told = json.loads((home.root / "gateway.json").read_text())
        assert told["url"] == f"http://127.0.0.1:{port}"
        assert served.gateway.standing().running
        assert served.runtime.services.holder.gateway is not None
    assert not (home.root / "gateway.json").exists()


async def test_every_route_and_method_is_described(home: Home) -> None:
    async with running(home) as served:
        told = (await request(served.port, "/openapi.json")).json
        assert {"/healthz", "/readyz", "/schema", "/v1/chat/completions", "/v1/models/{model}"} <= set(told["paths"])
        assert told["paths"]["/v1/models"]["get"]["security"] == [{"bearer": []}]
        schema = (await request(served.port, "/schema")).json
        visitor = await Visitor.enter(served.ws, served.token)
        assert visitor.hello is not None
        assert set(schema["methods"]) == set(visitor.hello.payload["features"]["methods"])
        for described in (told, schema):
            for place in references(described):
                assert looked_up(described, place), place
        await visitor.leave()


def references(data: Any) -> set[str]:
    if isinstance(data, dict):
        own = {data["$ref"]} if isinstance(data.get("$ref"), str) else set()
        return own.union(*map(references, data.values()))
    return set().union(*map(references, data)) if isinstance(data, list) else set()


def looked_up(data: Any, place: str) -> Any:
    for step in place.removeprefix("#/").split("/"):
        data = data[step]
    return data


@pytest.fixture
def talking(home: Home) -> Any:
    """The home's model is the one at this address."""

    def configured(server: WireServer) -> Home:
        providers = {"wire": {"baseUrl": server.base_url, "apiKey": "test-key-of-the-wire"}}
        workspace = json.loads(home.config_path.read_text())["agents"]["defaults"]["workspace"]
        defaults = {"model": "wire/test", "workspace": workspace}
        configure(home, models={"providers": providers}, agents={"defaults": defaults})
        return home

    return configured


async def test_one_that_leaves_finishes_what_runs_is_alive_and_not_ready_and_takes_nothing_new(talking: Any) -> None:
    let_go = asyncio.Event()
    slow = Waits(let_go, Says("at last"))
    async with WireServer(otherwise=slow) as server, running(talking(server)) as served:
        visitor = await Visitor.enter(served.ws, served.token)
        said = {"sessionKey": "agent:main:main", "message": "a long question"}
        told = await visitor.ask("chat.send", **said, idempotencyKey="1")
        await server.until(lambda known: len(known.requests) == 1, PATIENCE)
        closing = asyncio.create_task(served.gateway.close())
        async with asyncio.timeout(PATIENCE):
            while served.gateway.standing().ready:
                await asyncio.sleep(0)
        assert (await request(served.port, "/healthz")).status == 200
        assert (await request(served.port, "/readyz")).json == {"ok": False, "status": "leaving"}
        refused = await visitor.ask("chat.send", **said, idempotencyKey="2")
        with pytest.raises(HolderLost):
            await submit_message.handler(served.runtime.services, Inbound("x", "3"))
        let_go.set()  # before anything can fail: what runs would be waited for
        assert (refused.code, refused.error["retryable"]) == ("UNAVAILABLE", True)
        while (event := await visitor.event("chat"))["payload"]["state"] != "final":
            pass
        assert event["payload"]["runId"] == told.payload["runId"]
        await visitor.event("shutdown")
        await asyncio.wait_for(closing, PATIENCE)


async def test_asked_twice_to_leave_it_stops_what_runs(talking: Any) -> None:
    async with WireServer(otherwise=Hangs("I was about to say")) as server, running(talking(server)) as served:
        visitor = await Visitor.enter(served.ws, served.token)
        said = {"sessionKey": "agent:main:main", "message": "a long question", "idempotencyKey": "1"}
        await visitor.ask("chat.send", **said)
        await server.until(lambda known: len(known.requests) == 1, PATIENCE)
        served.gateway.leave()
        await asyncio.wait_for(served.gateway.left(), PATIENCE)
        closing = asyncio.create_task(served.gateway.close())
        served.gateway.leave()
        while (await visitor.event("chat"))["payload"]["state"] != "aborted":
            pass
        await asyncio.wait_for(closing, PATIENCE)
