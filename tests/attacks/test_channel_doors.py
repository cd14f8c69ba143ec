"""The doors that networks post to, and the secrets behind them: forged posts, replays, probes, too large bodies."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import io
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from channels.channel_home import configure, running
from channels.conftest import until
from channels.networks.discord import TOKEN as DISCORD_TOKEN
from channels.networks.discord import FakeDiscord
from channels.networks.slack import APP_TOKEN, BOT_TOKEN, SIGNING_SECRET, FakeSlack
from channels.networks.telegram import FakeTelegram
from channels.networks.webhook import SECRET, FakeProgram, signature
from channels.networks.whatsapp import APP_SECRET, NUMBER_ID, TOKEN, VERIFY_TOKEN, FakeWhatsApp
from palinurus.config.home import Home
from palinurus.extensions.channels.host import ChannelHost
from palinurus.extensions.channels.operations import list_channels
from support.wire import Says, WireServer

HOOK_SECRET = "telegram-hook-secret-77ab"
TYPED = "sk-ant-api03-Zq8Lw2Vn6Rk4Tb9Xc1Hd7Fm3Gs5Jp0Ya"  # by a person in a chat
PATHS = {
    "telegram": "/telegram-webhook",
    "slack": "/slack/events",
    "whatsapp": "/whatsapp-webhook",
    "custom": "/channel-webhook",
}
Sign = Callable[[bytes, float], dict[str, str]]


def whatsapp_post(text: str) -> bytes:
    message = {"id": f"wamid.{text}", "from": "42", "type": "text", "timestamp": "1", "text": {"body": text}}
    value = {"metadata": {"phone_number_id": NUMBER_ID}, "messages": [message]}
    return json.dumps({"entry": [{"changes": [{"field": "messages", "value": value}]}]}).encode()


def slack_post(text: str) -> bytes:
    event = {
        "type": "message",
        "channel": "D42",
        "channel_type": "im",
        "user": "U42",
        "text": text,
        "ts": "1700000000.1",
    }
    return json.dumps({"type": "event_callback", "team_id": "T1", "event": event}).encode()


def telegram_post(text: str) -> bytes:
    person = {"id": 42, "is_bot": False, "first_name": "Ada"}
    chat = {"id": 42, "type": "private", "first_name": "Ada"}
    message = {"message_id": 5, "date": int(time.time()), "from": person, "chat": chat, "text": text}
    return json.dumps({"update_id": 700, "message": message}).encode()


def custom_post(text: str) -> bytes:
    return json.dumps({"id": "c1", "sender": "42", "text": text}).encode()


BODIES = {"telegram": telegram_post, "slack": slack_post, "whatsapp": whatsapp_post, "custom": custom_post}


def sign_whatsapp(body: bytes, _: float) -> dict[str, str]:
    return {"x-hub-signature-256": "sha256=" + hmac.new(APP_SECRET.encode(), body, "sha256").hexdigest()}


def sign_slack(body: bytes, at: float) -> dict[str, str]:
    stamp = str(int(at))
    signed = hmac.new(SIGNING_SECRET.encode(), f"v0:{stamp}:".encode() + body, hashlib.sha256).hexdigest()
    return {"x-slack-request-timestamp": stamp, "x-slack-signature": f"v0={signed}"}


def sign_telegram(_: bytes, __: float) -> dict[str, str]:
    return {"x-telegram-bot-api-secret-token": HOOK_SECRET}


def sign_custom(body: bytes, at: float) -> dict[str, str]:
    return {
        "webhook-id": "p1",
        "webhook-timestamp": str(int(at)),
        "webhook-signature": signature("p1", int(at), body),
    }


SIGNS: dict[str, Sign] = {
    "telegram": sign_telegram,
    "slack": sign_slack,
    "whatsapp": sign_whatsapp,
    "custom": sign_custom,
}


class Doors:
    """A gateway with every network that posts, and who knocks."""

    def __init__(self, served: Any, model: WireServer, tokens: dict[str, str]) -> None:
        self.served, self.model, self.tokens = served, model, tokens
        self.told: list[tuple[int, bytes]] = []

    @property
    def services(self) -> Any:
        return self.served.runtime.services

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
        named = {"content-type": "application/json"} | {key.replace("_", "-"): value for key, value in headers.items()}
        url = f"http://127.0.0.1:{self.served.port}{path}"
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60)) as session,
            session.request(method, url, data=io.BytesIO(body) if body else None, headers=named) as response,
        ):
            answer = response.status, await response.read()
        self.told.append(answer)
        return answer

    async def post(self, channel: str, body: bytes, headers: dict[str, str]) -> int:
        return (await self.ask("POST", PATHS[channel], body, **headers))[0]

    async def rests(self) -> None:
        async with asyncio.timeout(60):
            await self.services.dispatcher.idle()
            await self.services.jobs.idle()


@asynccontextmanager
async def doors(home: Home, **lacking: str) -> AsyncIterator[Doors]:
    """`lacking`: a key that is missing in the config of a channel."""
    fakes: dict[str, Any] = {
        "telegram": FakeTelegram(), "slack": FakeSlack(), "whatsapp": FakeWhatsApp(), "custom": FakeProgram(),
        "discord": FakeDiscord(),
    }  # fmt: skip
    for fake in fakes.values():
        await fake.start()
    more = {
        "telegram": {"webhookUrl": "https://pal.example.org/telegram-webhook", "webhookSecret": HOOK_SECRET},
        "slack": {"mode": "http"},
    }
    accounts = {name: {**fake.config(), **more.get(name, {})} for name, fake in fakes.items()}
    for channel, key in lacking.items():
        del accounts[channel][key]
    owners = ["telegram:42", "slack:U42", "whatsapp:42", "custom:42"]
    tokens = {
        "telegram": fakes["telegram"].token, "telegram hook": HOOK_SECRET, "discord": DISCORD_TOKEN, "slack": BOT_TOKEN,
        "slack app": APP_TOKEN, "slack signing": SIGNING_SECRET, "whatsapp": TOKEN, "whatsapp app": APP_SECRET,
        "whatsapp verify": VERIFY_TOKEN, "custom": SECRET, "typed": TYPED,
    }  # fmt: skip
    try:
        async with WireServer(otherwise=Says("aye")) as model:
            provider = {"baseUrl": model.base_url, "models": [{"id": "test", "contextWindow": 32000}]}
            known = json.loads(home.config_path.read_text())["agents"]["defaults"]
            configure(
                home,
                agents={"defaults": known | {"model": "mine/test"}},
                models={"providers": {"mine": provider}},
                channels={name: {"allowFrom": ["42", "U42"], **said} for name, said in accounts.items()},
                commands={"ownerAllowFrom": owners},
            )
            async with running(home) as served:
                served.runtime.keep_up()
                host = served.runtime.services.keep(ChannelHost)
                await until(lambda: [each.state for each in host.statuses()].count("connected") == 5 - len(lacking))
                yield Doors(served, model, tokens)
    finally:
        for fake in fakes.values():
            await fake.stop()


def forged(channel: str, body: bytes) -> list[dict[str, str]]:
    """Headers that must not open the door."""
    sign, now = SIGNS[channel], time.time()
    right = sign(body, now)
    last = list(right)[-1]
    made = [
        {},
        right | {last: ""},
        right | {last: right[last][:-1]},
        right | {last: "é" * 64},
        right | {last: "x" * 7000},
    ]
    if channel != "telegram":  # its secret is the same for each post
        made += [sign(body + b" ", now)]
    if channel in ("slack", "custom"):
        made += [sign(body, now - 301), sign(body, now + 400)]
        stamp = list(right)[-2] if channel == "custom" else next(iter(right))
        made += [right | {stamp: value} for value in ("", "0", str(int(now) + 1), "1" * 5000, "-1", "nan")]
    return made


async def test_no_forged_post_opens_a_door_and_a_replayed_one_opens_it_once(home: Home) -> None:
    async with doors(home) as here:
        for channel, path in PATHS.items():
            body = BODIES[channel](f"hello by {channel}")
            for headers in forged(channel, body):
                assert await here.post(channel, body, headers) == 401, (channel, headers)
            for method in ("GET", "PUT", "DELETE", "OPTIONS"):
                status, said = await here.ask(
                    method, f"{path}?hub.mode=subscribe&hub.challenge=open&hub.verify_token=x"
                )
                assert status >= 400, (channel, method)
                assert b"open" not in said
        await here.rests()
        assert here.model.requests == []
        for channel in PATHS:
            body = BODIES[channel](f"hello by {channel}")
            headers = SIGNS[channel](body, time.time())
            assert [await here.post(channel, body, headers) for _ in range(3)] == [200] * 3
        await here.rests()
        assert len(here.model.requests) == len(PATHS)
        for name, token in here.tokens.items():
            assert not any(token.encode() in said for _, said in here.told), name


async def test_bodies_that_are_too_much_or_make_no_sense_cost_one_answer(home: Home) -> None:
    async with doors(home) as here:
        for channel in PATHS:
            assert await here.post(channel, bytes(10_000_001), {}) == 413
            for body in (b"", b"\xff\xfe", b"[" * 100_000, b"null", b"7", b'{"entry": 7}', b'{"update_id": "x"}'):
                status = await here.post(channel, body, SIGNS[channel](body, time.time()))
                assert status in (200, 400), (channel, body[:20])
        slack = {"content-type": "application/x-www-form-urlencoded"}
        for body in (b"payload=", b"payload=%7B%7D", b"&" * 100_000, b"command=" + b"x" * 100_000):
            assert await here.post("slack", body, SIGNS["slack"](body, time.time()) | slack) == 200
        await here.rests()
        assert here.model.requests == []


@pytest.mark.parametrize(
    ("channel", "key"),
    [("telegram", "webhookSecret"), ("slack", "signingSecret"), ("whatsapp", "appSecret"), ("custom", "secret")],
)
async def test_without_its_secret_a_channel_does_not_start(home: Home, channel: str, key: str) -> None:
    async with doors(home, **{channel: key}) as here:
        [status] = [each for each in here.services.keep(ChannelHost).statuses() if each.channel == channel]
        assert status.state == "failed"
        assert status.hint
        body = BODIES[channel]("hello")
        assert await here.post(channel, body, SIGNS[channel](body, time.time())) in (401, 404, 503)
        await here.rests()
        assert here.model.requests == []


async def test_the_id_of_another_channel_is_not_the_owners_on_the_channel_of_programs(home: Home) -> None:
    async with doors(home) as here:
        for number, sender in enumerate(("telegram:42", "custom:42", " 42", "4\u200b2")):
            body = json.dumps({"id": f"f{number}", "sender": sender, "text": "/whoami"}).encode()
            await here.post("custom", body, SIGNS["custom"](body, time.time()))
        await here.rests()
        shown = await here.services.deliveries.recent(limit=50)
        assert not any("treated as owner" in each.text for each in shown)
        assert here.model.requests == []


async def test_no_secret_of_a_channel_is_written_or_said(home: Home) -> None:
    async with doors(home) as here:
        body = telegram_post(f"my key is {TYPED}, keep it")
        assert await here.post("telegram", body, SIGNS["telegram"](body, time.time())) == 200
        await here.rests()
        listed = str(await list_channels(here.services))
        heard = listed + json.dumps(here.model.requests) + repr(vars(here.services.keep(ChannelHost)))
        heard += "".join(
            repr(each.channel.__dict__.get("_graph")) for each in here.services.keep(ChannelHost).accounts.values()
        )
        tokens = here.tokens
    config = {home.config_path, *home.root.glob("palinurus.json*")}
    files = [path for path in home.root.parent.rglob("*") if path.is_file() and path not in config]
    for name, token in tokens.items():
        assert token not in heard, name
        held = [path for path in files if token.encode() in path.read_bytes() and not _is_backup_of_config(path)]
        assert held == [], name


def _is_backup_of_config(path: Path) -> bool:
    return path.name.startswith("palinurus") or "config" in path.name
