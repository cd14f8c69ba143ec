"""`pal gateway` and `pal devices`: on a home by itself, and with a real gateway in a process of its own."""

from __future__ import annotations

import asyncio
import hashlib
import json
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from called import Pal

from palinurus.config.home import Home
from support.behaviours import Hangs, Says, Waits
from support.wire import WireServer

sys.path[:0] = [str(Path(__file__).parent.parent / "faults"), str(Path(__file__).parent.parent / "gateway")]
from serving import Visitor, free_port, request  # noqa: E402

from homes import PATIENCE, PalHome, Talk, parrot  # noqa: E402


def test_a_token_is_shown_once_listed_without_its_secret_renewed_and_taken_away(pal_command: Pal) -> None:
    asked = ("--name", "phone", "--scope", "read,write", "--days", "30")
    made = pal_command("gateway", "token", "create", *asked, "--json").json
    assert made["secret"].startswith("pal_")
    assert made["scopes"] == ["read", "write"]
    listed = pal_command("gateway", "token", "list")
    assert made["secret"] not in listed.out
    assert "phone  read, write  never used, until" in listed.out
    renewed = pal_command("gateway", "token", "rotate", "phone", "--json").json
    assert renewed["secret"] != made["secret"]
    assert renewed["id"] == made["id"]
    assert pal_command("gateway", "token", "revoke", "phone").out == "The token phone is revoked.\n"
    assert "revoked" in pal_command("gateway", "token", "list").out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("token", "create", "--name", "x", "--scope", "root"), "there is no scope 'root'"),
        (("token", "create", "--name", "x", "--scope", ""), "which scopes?"),
        (("token", "revoke", "nobody"), "there is no token 'nobody'"),
        (("call", "health"), "no gateway is running"),
        (("call", "health", "--params", "[1]"), "--params is not a JSON object"),
        (("call", "health", "--url", "ws://127.0.0.1:1"), "--url needs --token"),
        (("call", "health", "--url", "http://127.0.0.1:1", "--token", "x"), "is not the address of a gateway"),
        (("call", "health", "--url", "ws://127.0.0.1:1", "--token", "x"), "cannot be reached"),
        (("uninstall",), "there is no unit"),
    ],
)
def test_what_cannot_be_done_is_one_clear_line(
    pal_command: Pal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    ended = pal_command("gateway", *words)
    assert ended.code != 0
    assert ended.out == ""
    assert said in ended.err
    assert len(ended.err.splitlines()) == 1


def test_without_devices_the_list_says_so_and_an_unknown_one_is_told(pal_command: Pal) -> None:
    assert pal_command("devices", "list").out == "There are no devices.\n"
    ended = pal_command("devices", "approve", "abc")
    assert (ended.code, ended.out) == (1, "")
    assert "there is no device 'abc'" in ended.err


def test_status_and_stop_without_a_gateway_say_so_and_make_nothing(pal_command: Pal, home: Home) -> None:
    ended = pal_command("gateway", "status")
    assert (ended.code, ended.out.partition(".")[0]) == (1, "No gateway is running")
    assert pal_command("gateway", "status", "--json").json["running"] is False
    assert pal_command("gateway", "stop").out == "No gateway is running.\n"
    assert not (home.root / "home.sqlite").exists()


def test_the_unit_for_systemd_is_shown_and_holds_no_secret(
    pal_command: Pal, home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PALINURUS_GATEWAY_TOKEN", "not-to-be-written-down")
    shown = pal_command("gateway", "install", "--dry-run", "--json").json
    assert shown["unit"] == str(tmp_path / "config" / "systemd" / "user" / "palinurus-gateway.service")
    assert f"Environment=PALINURUS_HOME={home.root}" in shown["text"]
    assert "palinurus gateway run" in shown["text"]
    assert "not-to-be-written-down" not in shown["text"]
    assert not Path(shown["unit"]).exists()


def test_install_and_uninstall_call_systemctl_for_this_user(
    pal_command: Pal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    fake = programs / "systemctl"
    fake.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert "runs" in pal_command("gateway", "install").out
    unit = tmp_path / "config" / "systemd" / "user" / "palinurus-gateway.service"
    assert unit.exists()
    assert "is gone" in pal_command("gateway", "uninstall").out
    assert not unit.exists()
    assert (tmp_path / "asked").read_text().splitlines() == [
        "--user daemon-reload",
        "--user enable --now palinurus-gateway.service",
        "--user disable --now palinurus-gateway.service",
        "--user daemon-reload",
    ]


def test_a_config_that_must_not_be_served_is_refused_by_run_and_by_install(pal_command: Pal, home: Home) -> None:
    config = json.loads(home.config_path.read_text())
    home.config_path.write_text(json.dumps(config | {"gateway": {"bind": "lan", "auth": {"mode": "none"}}}))
    for words in (("run", "--port", "0"), ("install", "--dry-run")):
        ended = pal_command("gateway", *words)
        assert ended.code == 2
        assert ended.err.startswith("pal: the gateway does not listen at 0.0.0.0 without authentication")


# Processes.


@pytest.fixture
async def wire() -> AsyncIterator[WireServer]:
    async with WireServer(otherwise=parrot) as server:
        yield server


@pytest.fixture
def place(tmp_path: Path, wire: WireServer) -> PalHome:
    services = PalHome(tmp_path / "home")
    services.set_up(wire.base_url)
    return services


@asynccontextmanager
async def gateway_of(place: PalHome, *options: str) -> AsyncIterator[tuple[Talk, str]]:
    """A `pal gateway run`, and its address."""
    async with place.talking("gateway", "run", "--port", "0", *options) as talk:
        line = await talk.until(lambda said: said.startswith("pal gateway at "))
        yield talk, line.split()[3]


def token_of(place: PalHome) -> str:
    return (place.root / "gateway.token").read_text().strip()


@pytest.mark.slow
async def test_a_gateway_says_where_it_is_answers_calls_and_is_stopped(place: PalHome) -> None:
    async with gateway_of(place) as (talk, url):
        assert json.loads((place.root / "gateway.json").read_text())["pid"] == talk.pid == place.holder()
        status = (await place.pal("gateway", "status", "--json")).json
        assert (status["running"], status["pid"], status["url"]) == (True, talk.pid, url)
        sent = {"sessionKey": "agent:main:main", "message": "ahoy", "idempotencyKey": "k"}
        asked = (await place.pal("gateway", "call", "chat.send", "--params", json.dumps(sent))).json
        waited = json.dumps({"runId": asked["runId"]})
        assert (await place.pal("gateway", "call", "agent.wait", "--params", waited)).code == 0
        assert (await place.pal("agent", "-m", "through the socket")).out == "heard: through the socket\n"
        made = (await place.pal("gateway", "token", "create", "--name", "r", "--scope", "read", "--json")).json
        elsewhere = ("--url", url.replace("http", "ws"), "--token", made["secret"])
        refused = await place.pal("gateway", "call", "chat.send", "--params", json.dumps(sent), *elsewhere)
        assert "FORBIDDEN" in refused.one_clear_line()
        second = await place.pal("gateway", "run", "--port", "0")
        assert f"a gateway holds this home: pid {talk.pid}" in second.one_clear_line()
        assert (await place.pal("gateway", "stop")).out == "The gateway has stopped.\n"
        ended = await talk.ended()
        assert (ended.code, ended.err) == (0, "")
    assert (await place.pal("gateway", "status")).code == 1
    assert not (place.root / "gateway.json").exists()


@pytest.mark.slow
async def test_its_token_is_never_written_to_the_log(place: PalHome) -> None:
    async with gateway_of(place, "--verbose") as (talk, url):
        port = int(url.rpartition(":")[2])
        await request(port, "/v1/models", Authorization=f"Bearer {token_of(place)}")
        await request(port, f"/v1/models?token={token_of(place)}")
        talk.process.send_signal(signal.SIGTERM)
        ended = await talk.ended()
    logged = (place.root / "logs" / "pal.jsonl").read_text() if (place.root / "logs" / "pal.jsonl").exists() else ""
    logged += "".join(path.read_text() for path in (place.root / "logs").iterdir())
    assert "the gateway listens at" in logged
    assert "the gateway listens at" in ended.err  # --verbose
    assert token_of(place) not in logged + ended.out + ended.err


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_once_it_has_finished_what_runs(
    place: PalHome, wire: WireServer, number: signal.Signals
) -> None:
    wire.script.append(Says("a reply that takes its time", chunks=9, delay=0.05))
    async with gateway_of(place) as (talk, url):
        visitor = await Visitor.enter(url.replace("http", "ws"), token_of(place))
        said = {"sessionKey": "agent:main:main", "message": "a long question", "idempotencyKey": "1"}
        await visitor.ask("chat.send", **said)
        await wire.until(lambda server: len(server.requests) == 1, PATIENCE)
        talk.process.send_signal(number)
        while (event := await visitor.event("chat"))["payload"]["state"] != "final":
            pass
        assert event["payload"]["message"]["content"][0]["text"] == "a reply that takes its time"
        await visitor.event("shutdown")
        ended = await talk.ended()
        assert (ended.code, ended.err) == (0, "pal: finishing 1 run(s); Ctrl-C again stops them\n")


@pytest.mark.slow
async def test_a_second_signal_stops_what_runs(place: PalHome, wire: WireServer) -> None:
    wire.script.append(Hangs("I was about to"))
    async with gateway_of(place) as (talk, url):
        visitor = await Visitor.enter(url.replace("http", "ws"), token_of(place))
        said = {"sessionKey": "agent:main:main", "message": "a long question", "idempotencyKey": "1"}
        await visitor.ask("chat.send", **said)
        await wire.until(lambda server: len(server.requests) == 1, PATIENCE)
        talk.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            while "again stops them" not in talk.complaints:
                await asyncio.sleep(0.01)
        talk.process.send_signal(signal.SIGTERM)
        while (await visitor.event("chat"))["payload"]["state"] != "aborted":
            pass
        assert (await talk.ended()).code == 0


@pytest.mark.slow
async def test_a_port_that_is_taken_is_one_clear_line(place: PalHome) -> None:
    port = free_port()
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", port)
    ended = await place.pal("gateway", "run", "--port", str(port))
    server.close()
    assert f"cannot listen at 127.0.0.1:{port}" in ended.one_clear_line()


@pytest.mark.slow
async def test_a_chat_hands_the_home_over_and_goes_on_as_a_client(place: PalHome, wire: WireServer) -> None:
    async with AsyncExitStack() as both:
        chat = await both.enter_async_context(place.talking("chat"))
        assert await chat.answer("first words") == "heard: first words"
        other = await both.enter_async_context(place.talking("chat"))
        assert await other.answer("of another") == "heard: of another"
        assert place.holder() == chat.pid
        async with gateway_of(place) as (talk, url):
            assert place.holder() == talk.pid
            assert talk.complaints == f"pal: pid {chat.pid} (pal chat) hands the home over\n"
            assert await chat.answer("and on") == "heard: and on"
            assert await other.answer("me too") == "heard: me too"
            visitor = await Visitor.enter(url.replace("http", "ws"), token_of(place))
            told = await visitor.ask("chat.history", sessionKey="agent:main:main")
            said = [each["content"] for each in told.payload["messages"] if each["role"] == "user"]
            assert len(said) == 4
            await visitor.leave()
            assert (await place.pal("gateway", "stop")).code == 0
            assert (await talk.ended()).code == 0
        assert await chat.answer("alone again") == "heard: alone again"
        assert place.holder() in (chat.pid, other.pid)
        for leaving in (chat, other):
            ended = await leaving.leave()
            assert (ended.code, ended.err) == (0, "")


@pytest.mark.slow
async def test_what_runs_in_a_chat_is_finished_before_the_home_is_handed_over(place: PalHome, wire: WireServer) -> None:
    async with place.talking("chat") as chat:
        assert await chat.answer("first words") == "heard: first words"
        let_go = asyncio.Event()
        wire.script.append(Waits(let_go, Says("a reply that takes its time")))
        await chat.say("a long question")
        await wire.until(lambda server: len(server.requests) == 2, PATIENCE)
        async with place.talking("gateway", "run", "--port", "0") as talk:
            await talk.until_complaint("once it has finished 1 run(s)")
            let_go.set()
            await talk.until(lambda said: said.startswith("pal gateway at "))
            await chat.until(lambda line: line.endswith("a reply that takes its time"))
            assert place.holder() == talk.pid
            assert await chat.answer("and on") == "heard: and on"
    assert len(wire.requests) == 3


@pytest.mark.slow
async def test_a_stopped_holder_is_not_waited_for_for_ever(place: PalHome) -> None:
    async with place.talking("chat") as chat:
        assert await chat.answer("first words") == "heard: first words"
        chat.process.send_signal(signal.SIGSTOP)
        ended = await place.pal("gateway", "run", "--port", "0")
        assert f"pid {chat.pid} (pal chat) holds the home" in ended.one_clear_line()
        chat.process.send_signal(signal.SIGCONT)


@pytest.mark.slow
async def test_the_network_meets_the_certificate_whose_fingerprint_was_shown(place: PalHome) -> None:
    port = free_port()
    async with gateway_of(place, "--lan", "--lan-port", str(port)) as (talk, url):
        told = await talk.until(lambda line: "SHA-256 " in line)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        _, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port, ssl=context), PATIENCE)
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        assert told.endswith(_spaced(shown))
        assert url.startswith("http://127.0.0.1:")
        status = (await place.pal("gateway", "status", "--json")).json
        assert status["fingerprint"] == _spaced(shown)
        assert status["bind"] == "loopback"


def _spaced(certificate: bytes) -> str:
    return hashlib.sha256(certificate).digest().hex(":").upper()


def test_the_network_is_opened_in_one_way_at_a_time(pal_command: Pal) -> None:
    ended = pal_command("gateway", "run", "--lan", "--bind", "lan")
    assert "--lan uses TLS and --bind lan does not" in ended.err
