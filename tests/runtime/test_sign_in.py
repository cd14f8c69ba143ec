"""Sign-ins at a provider, on loopback: a person signs in, and what was given is renewed before it ends."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from palinurus.config.home import Home, find_home
from palinurus.config.load import load_config
from palinurus.domain.clock import SystemClock
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import ConfigError, ProviderError
from palinurus.domain.events import RunResult
from palinurus.operations.credentials import sign_in, store_credential
from palinurus.operations.runs import converse
from palinurus.operations.services import Services
from palinurus.operations.table import LocalCaller
from palinurus.runtime.checks.agents import check_model
from palinurus.runtime.runtime import Runtime
from support.sign_in import SignInServer
from support.wire import Answers, Says, WireServer

wait_for_run = 60.0
NUMBERS = itertools.count(1)


def home_with(tmp_path: Path, server: SignInServer, wire: WireServer | None = None, **provider: Any) -> Home:
    root = tmp_path / "home"
    (root / "workspace").mkdir(parents=True)
    entry = {"oauth": server.options, **({"baseUrl": wire.base_url} if wire else {}), **provider}
    config = {"models": {"providers": {"mock": entry}}, "agents": {"defaults": {"model": "mock/m"}}}
    (root / "palinurus.json").write_text(json.dumps(config))
    return find_home({"PALINURUS_HOME": str(root), "HOME": str(tmp_path)})


def services_of(home: Home) -> Services:
    return Services(home=home, env={"HOME": str(home.user_home)})


def stored(home: Home, name: str = "mock:default") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((home.root / "credentials.json").read_text())["profiles"][name]
    return found


def store(home: Home, server: SignInServer, *, seconds: float) -> dict[str, Any]:
    """A sign-in as OpenClaw stores one, that ends in so many seconds."""
    given = server.tokens()
    ends = SystemClock().now_ms() + int(seconds * 1000)
    profile = {"type": "oauth", "provider": "mock", "access": given["access_token"], "expires": ends, "email": "a@b"}
    profile |= {"refresh": given["refresh_token"]}
    path = home.root / "credentials.json"
    path.write_text(json.dumps({"version": 1, "profiles": {"mock:default": profile}}))
    path.chmod(0o600)
    return profile


@asynccontextmanager
async def living(home: Home) -> AsyncIterator[Runtime]:
    runtime = Runtime(home, {"HOME": str(home.user_home)})
    try:
        yield runtime
    finally:
        await runtime.close()


async def hears(runtime: Runtime, text: str = "hi", key: str = "") -> RunResult:
    inbound = Inbound(text, f"message-{next(NUMBERS)}", session_key=key)
    return await converse(LocalCaller(runtime.services), inbound, lambda _: None)


async def test_the_command_signs_in_with_a_browser_and_the_model_is_asked_with_what_was_given(tmp_path: Path) -> None:
    async with SignInServer() as server, WireServer(otherwise=Says("hello")) as wire:
        home = home_with(tmp_path, server, wire)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "palinurus", "models", "auth", "login", "mock", "--no-browser", "--json",
            env={**os.environ, "PALINURUS_HOME": str(home.root), "HOME": str(tmp_path)},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stderr
        async with asyncio.timeout(wait_for_run):
            while "/authorize?" not in (line := (await process.stderr.readline()).decode()):
                assert line
            address = line.strip()
            async with httpx2.AsyncClient(trust_env=False, follow_redirects=True) as browser:
                asked = parse_qs(urlsplit(address).query)
                back = asked["redirect_uri"][0]
                assert (await browser.get(f"{back}?state=wrong&code=stolen")).status_code == 400
                assert "close this window" in (await browser.get(address)).text
            out, _ = await process.communicate()
        assert (process.returncode, json.loads(out)["id"]) == (0, "mock:default")
        assert (asked["code_challenge_method"], asked["scope"]) == (["S256"], ["models offline"])
        assert urlsplit(back).hostname == "127.0.0.1"
        kept = stored(home)
        assert (kept["type"], kept["access"][:13], kept["refresh"][:14]) == ("oauth", "access-token-", "refresh-token-")
        assert kept["expires"] > SystemClock().now_ms()
        assert kept["access"] not in out.decode()
        async with living(home) as runtime:
            assert (await hears(runtime)).text == "hello"
        assert wire.headers[0]["authorization"] == f"Bearer {kept['access']}"


async def test_a_device_is_let_in_once_somebody_has_entered_its_code(tmp_path: Path) -> None:
    shown: list[tuple[str, str]] = []
    async with SignInServer(pending=1) as server:
        home = home_with(tmp_path, server)
        made = await sign_in(
            services_of(home), SystemClock(), "mock", lambda *told: shown.append(told), name="work", device=True
        )
        assert shown == [(f"{server.base_url}/enter", "WDJB-MJHT")]
    assert made.id == "mock:work"
    assert server.grants == ["device_code", "device_code"]
    assert stored(home, "mock:work")["type"] == "oauth"


async def test_who_says_no_in_the_browser_is_told_in_one_line_and_nothing_is_stored(tmp_path: Path) -> None:
    async with SignInServer() as server:
        home = home_with(tmp_path, server)
        server.refuses = "access_denied"
        browsers: list[asyncio.Task[None]] = []

        async def browse(address: str) -> None:
            async with httpx2.AsyncClient(trust_env=False, follow_redirects=True) as browser:
                await browser.get(address)

        with pytest.raises(ProviderError, match="mock refused the sign-in"):
            await sign_in(
                services_of(home),
                SystemClock(),
                "mock",
                lambda url, _: browsers.append(asyncio.create_task(browse(url))),
            )
        await asyncio.gather(*browsers)
    assert not (home.root / "credentials.json").exists()


@pytest.mark.parametrize("provider", ["anthropic", "openai", "google"])
async def test_nobody_else_s_client_id_is_used(tmp_path: Path, provider: str) -> None:
    async with SignInServer() as server:
        home = home_with(tmp_path, server)
        with pytest.raises(ConfigError, match="has no client id of its own there") as refused:
            await sign_in(services_of(home), SystemClock(), provider, lambda *_: None)
    assert f"pal models auth add {provider}" in refused.value.hint


async def test_tokens_are_sent_to_no_address_that_others_can_listen_to(tmp_path: Path) -> None:
    async with SignInServer() as server:
        home = home_with(tmp_path, server, oauth={**server.options, "tokenUrl": "http://example.org/token"})
        with pytest.raises(ConfigError, match="tokenUrl is not a secure address"):
            await sign_in(services_of(home), SystemClock(), "mock", lambda *_: None)


@pytest.mark.parametrize("seconds", [60, -60], ids=["soon ends", "has ended"])
async def test_a_sign_in_is_renewed_before_it_is_used_and_kept(tmp_path: Path, seconds: float) -> None:
    async with SignInServer() as server, WireServer(otherwise=Says("hello")) as wire:
        home = home_with(tmp_path, server, wire)
        old = store(home, server, seconds=seconds)
        async with living(home) as runtime:
            assert [(await hears(runtime)).text for _ in range(2)] == ["hello", "hello"]
            new = stored(home)
            assert runtime.agents.redact(f"{new['access']} {new['refresh']}") == "[redacted] [redacted]"
        async with living(home) as runtime:
            assert (await hears(runtime)).text == "hello"
    assert server.grants == ["refresh_token"]
    assert server.asked[0][1]["refresh_token"] == old["refresh"]
    assert (new["email"], new["access"] != old["access"], new["refresh"] != old["refresh"]) == ("a@b", True, True)
    assert new["expires"] > SystemClock().now_ms() + 3_000_000
    assert {headers["authorization"] for headers in wire.headers} == {f"Bearer {new['access']}"}
    assert (home.root / "credentials.json").stat().st_mode & 0o077 == 0


async def test_turns_and_processes_that_come_together_renew_once(tmp_path: Path) -> None:
    """`pal doctor` asks the model by itself, whoever holds the home: it stands for another process."""
    async with SignInServer() as server, WireServer(otherwise=Says("hello")) as wire:
        server.hold = asyncio.Event()
        home = home_with(tmp_path, server, wire)
        store(home, server, seconds=-60)
        env = {"HOME": str(tmp_path)}
        async with living(home) as runtime, asyncio.timeout(wait_for_run):
            keys = [f"agent:main:explicit:{name}" for name in "abc"]
            turns = [asyncio.create_task(hears(runtime, key=key)) for key in keys]
            await server.heard.wait()
            other = asyncio.create_task(check_model(home, env, load_config(home, env)))
            for _ in range(5):  # it has read the old tokens by then
                await asyncio.sleep(0)
            server.hold.set()
            assert [turn.text for turn in await asyncio.gather(*turns)] == ["hello"] * 3
            assert "mock/m answers" in (await other).what
    assert server.grants == ["refresh_token"]
    assert len(wire.requests) == 4


async def test_a_refused_renewal_says_what_to_do_and_another_key_goes_on(tmp_path: Path) -> None:
    async with SignInServer() as server, WireServer(otherwise=Says("hello")) as wire:
        home = home_with(tmp_path, server, wire)
        old = store(home, server, seconds=-60)
        server.refuses = "invalid_grant"
        async with living(home) as runtime:
            refused = await hears(runtime)
            assert (refused.status, refused.error_kind) == ("error", "auth")
            assert "log in again: pal models auth login mock" in refused.error
            assert not {old["access"], old["refresh"]} & set(refused.error.split())
            assert wire.requests == []
            store_credential(services_of(home), "mock", "a-plain-key-0123456789", name="key")
            assert (await hears(runtime)).text == "hello"
        assert stored(home) == old


async def test_a_server_that_gives_nothing_now_is_asked_again_and_the_sign_in_serves_while_it_lasts(
    tmp_path: Path,
) -> None:
    async with SignInServer() as server, WireServer(otherwise=Says("hello")) as wire:
        home = home_with(tmp_path, server, wire)
        old = store(home, server, seconds=60)
        server.refuses, server.status = "temporarily_unavailable", 503
        async with living(home) as runtime:
            assert (await hears(runtime)).text == "hello"
            server.refuses = ""
            assert (await hears(runtime)).text == "hello"
    used = [headers["authorization"] for headers in wire.headers]
    assert used[0] == f"Bearer {old['access']}"
    assert used[1] == f"Bearer {stored(home)['access']}" != used[0]


async def test_a_token_that_was_taken_back_before_its_end_is_renewed_once(tmp_path: Path) -> None:
    async with (
        SignInServer() as server,
        WireServer(Answers(401), Says("hello"), Answers(401), otherwise=Answers(401)) as wire,
    ):
        home = home_with(tmp_path, server, wire)
        old = store(home, server, seconds=3600)
        async with living(home) as runtime:
            assert (await hears(runtime)).text == "hello"
            new = stored(home)
            assert (await hears(runtime)).error_kind == "auth"  # and it is not renewed without end
    assert server.grants == ["refresh_token"] * 2
    used = [headers["authorization"] for headers in wire.headers]
    assert used == [f"Bearer {each['access']}" for each in (old, new, new, stored(home))]


async def test_a_renewal_is_not_lost_when_the_turn_that_waited_for_it_is_stopped(tmp_path: Path) -> None:
    async with SignInServer() as server, WireServer(otherwise=Says("hello")) as wire:
        server.hold = asyncio.Event()
        home = home_with(tmp_path, server, wire)
        old = store(home, server, seconds=-60)
        async with living(home) as runtime:
            run = await runtime.services.dispatcher.submit(Inbound("hi", "1"))
            await asyncio.wait_for(server.heard.wait(), wait_for_run)
            run.stop.request()
            assert (await run.wait(wait_for_run)).status == "aborted"
            server.hold.set()
        assert stored(home)["refresh"] != old["refresh"]
        assert stored(home)["refresh"] in server.renewable


async def test_a_sign_in_that_nobody_here_can_renew_says_so_when_it_has_ended(tmp_path: Path) -> None:
    async with SignInServer() as server, WireServer(otherwise=Answers(401)) as wire:
        home = home_with(tmp_path, server, wire, oauth={})
        store(home, server, seconds=-60)
        async with living(home) as runtime:
            states = runtime.agents.credential_states("main")
            assert [(key.id, key.state) for key in states] == [("mock:default", "expired")]
    assert server.asked == []
