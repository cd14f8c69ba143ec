"""What only the signed webhook has: signatures in both directions, and a program that gets nothing twice."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import unquote

import pytest
from aiohttp import web

from channels.conftest import Account
from channels.network import SentFile
from channels.networks.webhook import SECRET, FakeProgram, signature
from palinurus.dispatch.channels import ChannelRequest, ChatTarget, OutgoingFile, OutgoingPart
from palinurus.domain.errors import ConfigError, JobFailed, JobRefused, WebError

ADA = ChatTarget("42")
HELLO = b'{"id": "m1", "sender": "42", "text": "hello"}'


@pytest.fixture
async def network() -> AsyncIterator[FakeProgram]:
    fake = FakeProgram()
    await fake.start()
    try:
        yield fake
    finally:
        await fake.stop()


async def post(account: Account, body: bytes, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    signed = account.network.sign(body) if headers is None else headers
    answer = await account.channel.handle(ChannelRequest("POST", "/channel-webhook", signed, {}, body))
    return answer.status, answer.body


async def test_a_message_that_is_not_signed_is_refused(account: Account) -> None:
    right = account.network.sign(HELLO)
    for name in right:
        assert (await post(account, HELLO, {key: value for key, value in right.items() if key != name}))[0] == 401
        for wrong in ("", "v1,", "v1,AAAA", "0", "-1", "٣", "9" * 400, "ü", right[name].upper() + "x"):
            assert (await post(account, HELLO, {**right, name: wrong}))[0] == 401
    assert (await post(account, HELLO + b" ", right))[0] == 401
    assert account.inbox.messages == []
    assert (await post(account, HELLO, right))[0] == 200


async def test_a_signature_is_found_among_few_only(account: Account) -> None:
    right = account.network.sign(HELLO)
    said = right["webhook-signature"].split()[-1]
    assert (await post(account, HELLO, {**right, "webhook-signature": "v1,AAAA " * 15 + said}))[0] == 200
    assert (await post(account, HELLO, {**right, "webhook-signature": "v1,AAAA " * 16 + said}))[0] == 401


@pytest.mark.parametrize(("age", "status"), [(0, 200), (290, 200), (-290, 200), (400, 401), (-400, 401)])
async def test_an_old_message_is_refused(account: Account, age: int, status: int) -> None:
    assert (await post(account, HELLO, account.network.sign(HELLO, age)))[0] == status


async def test_a_message_that_is_posted_again_keeps_its_name(account: Account) -> None:
    headers = account.network.sign(HELLO)
    assert (await post(account, HELLO, headers))[0] == 200
    assert (await post(account, HELLO, headers))[0] == 200
    assert (await post(account, HELLO))[0] == 200  # signed anew
    assert len({message.update for message in account.inbox.messages}) == 1


async def test_the_same_id_in_other_chats_is_another_message(account: Account) -> None:
    places: list[dict[str, str]] = [{}, {"chat": "7"}, {"chat": "8"}, {"chat": "8", "thread": "1"}, {"sender": "43"}]
    for place in places:
        body = json.dumps({"id": "m1", "sender": "42", "text": "hello", **place}).encode()
        assert (await post(account, body))[0] == 200
    assert len({message.update for message in account.inbox.messages}) == len(places)


@pytest.mark.parametrize(
    ("said", "kind", "peer"),
    [
        ({}, "direct", "42"),
        ({"chat": "42"}, "direct", "42"),
        ({"chat": "7"}, "group", "7"),  # what is not said to be private is not
        ({"chat": "7", "kind": "direct"}, "direct", "7"),
        ({"chat": "7", "kind": "channel"}, "channel", "7"),
    ],
)
async def test_a_chat_is_private_only_if_it_is_the_senders_or_said_to_be(
    account: Account, said: dict[str, str], kind: str, peer: str
) -> None:
    body = json.dumps({"id": "m1", "sender": "42", "text": "hello", **said}).encode()
    assert (await post(account, body))[0] == 200
    assert (account.inbox.messages[0].peer.kind, account.inbox.messages[0].peer.id) == (kind, peer)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"nonsense", b"\xff\xfe", b"[]", b"[" * 1_000_000, b'{"x": ' + b"[" * 1_000_000,
        b'{"id": "m1", "sender": "42"}', b'{"id": "", "sender": "42", "text": "x"}',
        b'{"id": 7, "sender": "42", "text": "x"}', b'{"id": "m1", "text": "x"}',
        b'{"id": "m1", "sender": "42", "text": "x", "kind": "group"}',
        b'{"id": "m1", "sender": "42", "text": "x", "kind": "secret"}',
        b'{"id": "m1", "sender": "42", "files": [{"data": "not base64!"}]}',
        b'{"id": "' + b"m" * 300 + b'", "sender": "42", "text": "x"}',
    ],
)  # fmt: skip
async def test_a_signed_message_that_makes_no_sense_is_answered_in_one_line(account: Account, body: bytes) -> None:
    status, why = await post(account, body)
    assert status == 400
    assert len(why.splitlines()) == 1
    assert len(why) <= 300
    assert account.inbox.messages == []


async def test_a_large_file_costs_little(
    account: Account, cpu_limit: Callable[[float], AbstractContextManager[None]]
) -> None:
    data = bytes(range(256)) * 40_000
    said = {"name": "a.bin", "mimeType": "image/png", "data": base64.b64encode(data).decode()}
    body = json.dumps({"id": "m1", "sender": "42", "files": [said]}).encode()
    with cpu_limit(3):
        assert (await post(account, body))[0] == 200
        [file] = account.inbox.messages[0].files
        assert b"".join([piece async for piece in account.channel.fetch(file)]) == data
    assert (file.kind, file.size) == ("image", len(data))


@pytest.mark.parametrize(
    ("changed", "about"),
    [
        ({"secret": ""}, "is missing"),
        ({"secret": None}, "is missing"),
        ({"secret": "whsec_"}, "is missing"),
        ({"secret": "whsec_%%%"}, "no base64|not base64"),
        ({"secret": "short"}, "less than 16"),
        ({"sendUrl": ""}, "sendUrl"),
        ({"sendUrl": "ftp://127.0.0.1/"}, "sendUrl"),
        ({"sendUrl": "http://user:password@127.0.0.1/"}, "sendUrl"),
    ],
)
def test_it_refuses_to_start_with(offline: Account, changed: dict[str, Any], about: str) -> None:
    with pytest.raises(ConfigError, match=about) as caught:
        offline.make(**changed)
    assert caught.value.hint
    assert "password@" not in str(caught.value)


async def test_a_plain_secret_signs_as_it_is_written(offline: Account) -> None:
    channel = offline.make(secret="a plain secret of some length")
    headers = offline.network.sign(HELLO)
    seconds = int(headers["webhook-timestamp"])
    headers["webhook-signature"] = signature("k", seconds, HELLO, b"a plain secret of some length")
    answer = await channel.handle(ChannelRequest("POST", "/channel-webhook", {**headers, "webhook-id": "k"}, {}, HELLO))
    assert answer.status == 503  # believed, but it does not run


@pytest.mark.parametrize(
    "url",
    ["http://169.254.169.254/latest/", "http://10.0.0.1/", "http://[::ffff:127.0.0.1]/", "http://printer.local/"],
)
async def test_it_posts_to_no_private_address_that_was_not_named(offline: Account, url: str) -> None:
    with pytest.raises(JobRefused, match=r"not a public address|name of the local network"):
        await offline.make(sendUrl=url).send(ADA, OutgoingPart("hello", idempotency_key="k"))


async def test_a_redirect_is_not_followed(account: Account) -> None:
    account.network.answers = [web.Response(status=307, headers={"Location": f"{account.network.root}/messages"})]
    with pytest.raises(JobRefused, match="redirects"):
        await account.channel.send(ADA, OutgoingPart("hello", idempotency_key="k"))
    assert account.network.sent == []


@pytest.mark.parametrize("key", ["run-1:reply:0", "agent:home:näher\r\nX: 1", "日本"])
async def test_any_key_is_sent_in_a_header(account: Account, key: str) -> None:
    await account.channel.send(ADA, OutgoingPart("hello", idempotency_key=key))
    assert [unquote(each) for each in account.network.keys] == [key]


async def test_a_message_that_is_sent_again_under_its_key_is_shown_once(account: Account) -> None:
    assert account.channel.capabilities.repeatable
    account.network.fail("cut-after", "malformed")
    part = OutgoingPart("hello", idempotency_key="run-1:reply")
    for _ in range(2):
        with pytest.raises(WebError):
            await account.channel.send(ADA, part)
    sent = await account.channel.send(ADA, part)
    assert [(message.id, message.text) for message in account.network.sent] == [(sent, "hello")]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, JobRefused), (401, JobRefused), (404, JobRefused), (410, JobRefused), (302, JobRefused),
        (408, JobFailed), (425, JobFailed), (429, JobFailed), (503, JobFailed), (500, WebError), (502, WebError),
    ],
)  # fmt: skip
async def test_the_status_says_what_became_of_the_message(account: Account, status: int, kind: type[Exception]) -> None:
    account.network.answers = [web.Response(status=status, text=SECRET) for _ in range(3)]
    with pytest.raises(kind) as caught:
        await account.channel.send(ADA, OutgoingPart("hello", idempotency_key="k"))
    assert SECRET not in str(caught.value)
    assert len(account.network.answers) == (0 if kind is JobFailed else 2)


@pytest.mark.parametrize(
    ("answer", "receipt"),
    [
        ({"text": "OK"}, "k"),
        ({"status": 204}, "k"),
        ({"text": "", "content_type": "application/json"}, "k"),
        ({"text": "{}", "content_type": "application/json"}, "k"),
        ({"text": '{"id": "s9"}', "content_type": "application/json"}, "s9"),
    ],
)
async def test_any_success_is_a_receipt(account: Account, answer: dict[str, Any], receipt: str) -> None:
    account.network.answers = [web.Response(**answer)]
    assert await account.channel.send(ADA, OutgoingPart("hello", idempotency_key="k")) == receipt


async def test_a_program_that_is_not_there_has_taken_nothing(offline: Account) -> None:
    await offline.network.stop()
    try:
        with pytest.raises(JobFailed, match="cannot be reached"):
            await offline.channel.send(ADA, OutgoingPart("hello", idempotency_key="k"))
        [check] = await offline.channel.check()
        assert not check.ok
        assert check.hint
    finally:
        await offline.network.start()


async def test_everything_of_a_message_reaches_the_program(account: Account) -> None:
    file = OutgoingFile("a.txt", "text/plain", b"\x00\xff")
    part = OutgoingPart("hello", reply_to="m1", silent=True, file=file, idempotency_key="k")
    await account.channel.send(ChatTarget("7", "31"), part)
    [message] = account.network.sent
    assert (message.chat, message.thread, message.reply_to) == ("7", "31", "m1")
    assert message.files == (SentFile("a.txt", b"\x00\xff", "text/plain"),)
    assert message.raw["silent"] is True


def test_it_signs_as_the_specification_shows() -> None:
    """The example of standardwebhooks.com."""
    secret = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    said = signature("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}', secret)
    assert said == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
