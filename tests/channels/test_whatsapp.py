"""What only WhatsApp has: Meta's webhook, the codes of the Graph API, and the limits of its messages."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from channels.conftest import Account, until
from channels.network import SentFile
from channels.networks.whatsapp import APP_SECRET, NUMBER_ID, TOKEN, VERIFY_TOKEN, FakeWhatsApp, problem
from palinurus.dispatch.channels import ChannelRequest, ChatTarget, OutgoingFile, OutgoingPart
from palinurus.domain.envelope import Button
from palinurus.domain.errors import BadRequest, ConfigError, JobFailed, JobRefused, QueueFull, StorageError, WebError

ADA = ChatTarget("42")
YES = (Button("Yes", "a:yes"), Button("No", "a:no"))


@pytest.fixture
async def network() -> AsyncIterator[FakeWhatsApp]:
    fake = FakeWhatsApp()
    await fake.start()
    try:
        yield fake
    finally:
        await fake.stop()


async def sent_by(account: Account, part: OutgoingPart) -> Exception | None:
    try:
        await account.channel.send(ADA, part)
    except Exception as error:  # noqa: BLE001  which one it is says what became of the message
        return error
    return None


async def post(account: Account, body: bytes, **headers: str) -> int:
    signed = headers or account.network.sign(body)
    return (await account.channel.handle(ChannelRequest("POST", "/whatsapp-webhook", signed, {}, body))).status


# The webhook


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"hub.mode": "subscribe", "hub.verify_token": VERIFY_TOKEN, "hub.challenge": "1158201444"}, 200),
        ({"hub.mode": "subscribe", "hub.verify_token": "guess", "hub.challenge": "1158201444"}, 403),
        ({"hub.mode": "subscribe", "hub.challenge": "1158201444"}, 403),
        ({"hub.verify_token": VERIFY_TOKEN, "hub.challenge": "1158201444"}, 403),
    ],
)
async def test_the_webhook_is_ours_to_whoever_knows_the_verify_token(
    account: Account, query: dict[str, str], status: int
) -> None:
    answer = await account.channel.handle(ChannelRequest("GET", "/whatsapp-webhook", {}, query, b""))
    assert answer.status == status
    assert (answer.body == b"1158201444") == (status == 200)


async def test_without_a_verify_token_nobody_can_subscribe(offline: Account) -> None:
    channel = offline.make(verifyToken=None)
    query = {"hub.mode": "subscribe", "hub.verify_token": "", "hub.challenge": "1"}
    assert (await channel.handle(ChannelRequest("GET", "/whatsapp-webhook", {}, query, b""))).status == 403


async def test_a_post_that_meta_did_not_sign_is_refused(account: Account) -> None:
    body = json.dumps(account.network.body(messages=[{"from": "42", "id": "w", "type": "text"}])).encode()
    right = account.network.sign(body)["x-hub-signature-256"]
    for wrong in ("", "sha256=", right[7:], right.replace("sha256", "sha1"), right[:-1] + "x", "sha256=ü"):
        assert await post(account, body, **{"x-hub-signature-256": wrong}) == 401
    assert await post(account, body, **{"x-hub-signature": right}) == 401
    assert await post(account, body + b" ", **{"x-hub-signature-256": right}) == 401
    assert account.inbox.messages == []


@pytest.mark.parametrize("missing", ["appSecret", "accessToken", "phoneNumberId"])
def test_it_refuses_to_start_without(offline: Account, missing: str) -> None:
    with pytest.raises(ConfigError, match=missing) as caught:
        offline.make(**{missing: ""})
    assert caught.value.hint


@pytest.mark.parametrize("root", ["http://graph.facebook.com/v23.0", "graph.facebook.com", "https://a@b/v1", ""])
def test_the_token_is_sent_by_https_only(offline: Account, root: str) -> None:
    with pytest.raises(ConfigError, match="apiRoot"):
        offline.make(apiRoot=root)


async def test_a_wrong_token_stops_it_with_a_hint(offline: Account) -> None:
    offline.network.refuse_token()
    with pytest.raises(ConfigError, match="access token") as caught:
        await offline.channel.run(offline.inbox)
    assert "permanent token" in caught.value.hint


async def test_a_wrong_number_stops_it_with_a_hint(offline: Account) -> None:
    channel = offline.make(phoneNumberId="999")
    with pytest.raises(ConfigError) as caught:
        await channel.run(offline.inbox)
    assert "phoneNumberId" in caught.value.hint


async def test_what_comes_for_another_number_is_not_read(account: Account) -> None:
    message = {"from": "42", "id": "wamid.1", "type": "text", "text": {"body": "for the neighbour"}}
    body = json.dumps(account.network.body(number_id="7", messages=[message])).encode()
    assert await post(account, body) == 200
    assert account.inbox.messages == []


async def test_a_message_of_a_group_is_not_taken_for_a_private_one(account: Account) -> None:
    account.network.post({"type": "text", "text": {"body": "to all"}, "group_id": "g1"})
    await account.network.write("to you")
    await until(lambda: account.inbox.messages)
    assert [message.text for message in account.inbox.messages] == ["to you"]


async def test_one_post_with_several_messages_brings_them_all_in_order(account: Account) -> None:
    def message(number: int) -> dict[str, Any]:
        return {"from": "42", "id": f"wamid.{number}", "type": "text", "text": {"body": f"{number}"}}

    whole = account.network.body(messages=[message(1), {"type": "text"}, message(2)])
    whole["entry"] += account.network.body(messages=[message(3)])["entry"]
    whole["entry"][0]["changes"].append({"field": "account_alerts", "value": {"alert": 1}})
    assert await post(account, json.dumps(whole).encode()) == 200
    assert [each.text for each in account.inbox.messages] == ["1", "2", "3"]


@pytest.mark.parametrize("body", [b"", b"nonsense", b"\xff\xfe", b"[]", b'{"entry": 7}', b'{"x":' + b"[" * 1_000_000])
async def test_a_signed_post_that_makes_no_sense_is_answered_in_one_line(account: Account, body: bytes) -> None:
    request = ChannelRequest("POST", "/whatsapp-webhook", account.network.sign(body), {}, body)
    answer = await account.channel.handle(request)
    assert answer.status == 400
    assert 0 < len(answer.body.splitlines()[0]) < 400


async def test_a_post_that_was_taken_in_part_comes_again_under_the_same_names(account: Account) -> None:
    account.inbox.refusals = [StorageError("the disk is full")]
    lost = [
        {"from": sender, "id": f"wamid.{sender}", "type": "text", "text": {"body": "hi"}} for sender in ("41", "42")
    ]
    body = json.dumps(account.network.body(messages=lost)).encode()
    assert await post(account, body) == 503
    assert [each.sender for each in account.inbox.messages] == ["42"]
    assert await post(account, body) == 200
    assert sorted({each.update for each in account.inbox.messages}) == ["wamid.41", "wamid.42"]


async def test_an_error_of_the_home_is_never_taken_for_one_of_the_post(account: Account) -> None:
    account.inbox.refusals = [BadRequest("something of the home's own")]
    message = {"from": "42", "id": "wamid.1", "type": "text", "text": {"body": "hi"}}
    body = json.dumps(account.network.body(messages=[message])).encode()
    assert await post(account, body) == 503  # so that the post comes again


async def test_a_press_whose_chat_was_not_taken_is_not_lost(account: Account) -> None:
    await account.network.write("hello")
    await until(lambda: account.inbox.messages)
    await account.channel.send(ADA, OutgoingPart("Really?", buttons=YES))
    account.inbox.refusals = [QueueFull("no room")]
    await account.network.write("first")
    assert await account.network.press(account.network.sent[-1], "Yes") == "noted"
    assert [message.text for message in account.inbox.messages] == ["hello", "first"]


async def test_a_press_that_is_posted_twice_is_one(account: Account) -> None:
    await account.channel.send(ADA, OutgoingPart("Really?", buttons=YES))
    await account.network.press(account.network.sent[-1], "Yes")
    await account.network.repeat()
    await account.network.write("after")
    await until(lambda: account.inbox.messages)
    assert [press.value for press in account.inbox.presses] == ["a:yes"]
    assert [message.text for message in account.network.sent] == ["Really?", "noted"]


async def test_a_press_counts_though_its_answer_cannot_be_sent(account: Account) -> None:
    await account.channel.send(ADA, OutgoingPart("Really?", buttons=YES))
    account.network.fail("gone")
    chosen = {"type": "button_reply", "button_reply": {"id": "a:no", "title": "No"}}
    account.network.post({"type": "interactive", "interactive": chosen}, reply_to=account.network.sent[0].id)
    await account.network.write("after")
    await until(lambda: account.inbox.messages)
    assert [press.value for press in account.inbox.presses] == ["a:no"]


async def test_a_slow_chat_holds_up_no_other_and_keeps_its_order(account: Account) -> None:
    gate, taken = asyncio.Event(), []

    async def receive(message: Any) -> None:
        if message.text == "slow":
            await gate.wait()
        taken.append(message.text)

    account.inbox.receive = receive  # type: ignore[method-assign]

    def body(sender: str, text: str) -> bytes:
        message = {"from": sender, "id": f"wamid.{text}", "type": "text", "text": {"body": text}}
        return json.dumps(account.network.body(messages=[message])).encode()

    first = asyncio.create_task(post(account, body("1", "slow")))
    second = asyncio.create_task(post(account, body("1", "behind it")))
    assert await post(account, body("2", "other")) == 200
    assert taken == ["other"]
    gate.set()
    assert await asyncio.gather(first, second) == [200, 200]
    assert taken == ["other", "slow", "behind it"]


async def test_too_many_posts_at_a_time_are_sent_away_to_come_again(account: Account) -> None:
    gate = asyncio.Event()

    async def receive(message: Any) -> None:
        await gate.wait()

    account.inbox.receive = receive  # type: ignore[method-assign]
    message = {"from": "1", "id": "wamid.1", "type": "text", "text": {"body": "hi"}}
    body = json.dumps(account.network.body(messages=[message])).encode()
    posts = [asyncio.create_task(post(account, body)) for _ in range(64)]
    await asyncio.sleep(0)
    assert await post(account, body) == 503
    gate.set()
    assert await asyncio.gather(*posts) == [200] * 64
    assert await post(account, body) == 200


async def test_it_is_posted_to_over_http_as_well(account: Account) -> None:
    """As when the gateway is another process."""

    async def handle(request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        query = dict(request.query)
        asked = ChannelRequest(request.method, request.path, headers, query, await request.read())
        answer = await account.channel.handle(asked)
        return web.Response(status=answer.status, body=answer.body)

    app = web.Application()
    app.router.add_post("/whatsapp-webhook", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    account.network.deliver = None
    await account.network.write("before there is a gateway")
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    account.network.gateway_url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    await until(lambda: account.inbox.messages)
    await runner.cleanup()
    assert account.inbox.messages[0].text == "before there is a gateway"


# Kinds of messages


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (
            {"type": "location", "location": {"latitude": 52.5, "longitude": 13.4, "name": "Café"}},
            "Location: Café (52.5, 13.4)",
        ),
        ({"type": "location", "location": {"latitude": 52, "longitude": -13}}, "Location: (52.0, -13.0)"),
        (
            {"type": "contacts", "contacts": [{"name": {"formatted_name": "Bo"}, "phones": [{"phone": "+49 1"}]}, {}]},
            "Contact: Bo, +49 1\nContact: ",
        ),
        ({"type": "button", "button": {"payload": "p", "text": "Yes please"}}, "Yes please"),
        ({"type": "text", "text": {"body": "*bold*"}}, "*bold*"),
    ],
)  # fmt: skip
async def test_what_is_no_text_is_told_as_text(account: Account, content: dict[str, Any], text: str) -> None:
    account.network.post(content)
    await until(lambda: account.inbox.messages)
    assert account.inbox.messages[0].text == text
    assert account.inbox.messages[0].sent_at == 1739321024000


@pytest.mark.parametrize(
    "content",
    [
        {"type": "reaction", "reaction": {"message_id": "wamid.1", "emoji": "👍"}},
        {"type": "system", "system": {"body": "Ada changed from 1 to 2", "type": "user_changed_number"}},
        {"type": "unsupported", "errors": [{"code": 131051, "title": "Unsupported message type"}]},
        {"type": "location"},
        {"type": "image", "image": {"mime_type": "image/png"}},
    ],
)
async def test_what_says_nothing_is_passed_over(account: Account, content: dict[str, Any]) -> None:
    account.network.post(content)
    await account.network.write("after")
    await until(lambda: account.inbox.messages)
    assert [message.text for message in account.inbox.messages] == ["after"]


@pytest.mark.parametrize(
    ("content", "kind", "name"),
    [
        ({"type": "image", "image": {"mime_type": "image/jpeg", "caption": "see"}}, "image", ""),
        ({"type": "sticker", "sticker": {"mime_type": "image/webp"}}, "image", ""),
        ({"type": "audio", "audio": {"mime_type": "audio/ogg; codecs=opus", "voice": True}}, "voice", ""),
        ({"type": "audio", "audio": {"mime_type": "audio/mpeg", "voice": False}}, "audio", ""),
        ({"type": "video", "video": {"mime_type": "video/mp4", "caption": "see"}}, "video", ""),
        ({"type": "document", "document": {"mime_type": "application/pdf", "filename": "a.pdf"}}, "document", "a.pdf"),
    ],
)
async def test_files_come_with_their_kind(account: Account, content: dict[str, Any], kind: str, name: str) -> None:
    media = content[content["type"]]
    media["id"] = account.network.keep(SentFile("x", b"data"))
    account.network.post(content)
    await until(lambda: account.inbox.messages)
    [file] = account.inbox.messages[0].files
    assert (file.kind, file.name, file.mime_type) == (kind, name, media["mime_type"])
    assert account.inbox.messages[0].text == media.get("caption", "")
    assert b"".join([piece async for piece in account.channel.fetch(file)]) == b"data"


async def test_an_answer_names_the_message_that_it_answers(account: Account) -> None:
    own = await account.channel.send(ADA, OutgoingPart("what the agent said"))
    first = await account.network.write("and why?", reply_to=own)
    await account.network.write("I mean:", reply_to=first)
    await until(lambda: len(account.inbox.messages) == 2)
    quoted = [message.quoted for message in account.inbox.messages]
    assert [(each.id, each.is_own) for each in quoted if each] == [(own, True), (first, False)]


async def test_somebody_who_hides_their_number_is_answered(account: Account) -> None:
    body = account.network.body(
        messages=[{"from_user_id": "US.134912", "id": "wamid.1", "type": "text", "text": {"body": "hi"}}],
        contacts=[{"profile": {"name": "Ada", "username": "boss"}, "user_id": "US.134912"}],
    )
    assert await post(account, json.dumps(body).encode()) == 200
    [message] = account.inbox.messages
    assert (message.sender, message.peer.sender_name) == ("US.134912", "Ada")
    await account.channel.send(ChatTarget(message.peer.id), OutgoingPart("hello"))
    assert account.network.sent[0].chat == "US.134912"
    assert "to" not in account.network.sent[0].raw


async def test_a_message_that_was_not_delivered_after_all_is_reported(account: Account) -> None:
    errors = [{"code": 131047, "title": "Re-engagement message", "message": "Re-engagement message"}]
    status = {"id": "wamid.7", "status": "failed", "timestamp": "1", "recipient_id": "42", "errors": errors}
    body = json.dumps(account.network.body(statuses=[{"id": "wamid.6", "status": "read"}, status])).encode()
    assert await post(account, body) == 200
    [(to, message_id, why)] = account.inbox.failures
    assert (to, message_id) == ("42", "wamid.7")
    assert "131047" in why


# Sending


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, 131047, JobRefused),
        (400, 131026, JobRefused),
        (400, 131030, JobRefused),
        (400, 100, JobRefused),
        (403, 368, JobRefused),
        (403, 10, JobRefused),
        (400, 132000, JobRefused),
        (401, 190, JobFailed),
        (400, 4, JobFailed),
        (400, 80007, JobFailed),
        (429, 130429, JobFailed),
        (400, 131056, JobFailed),
        (500, 131000, WebError),
        (400, 131000, WebError),
        (500, 1, WebError),
        (503, 2, WebError),
        (401, 0, JobFailed),
    ],
)
async def test_the_code_of_an_error_says_what_became_of_the_message(
    account: Account, status: int, code: int, kind: type[Exception]
) -> None:
    account.network.answers = [problem(status, code, f"what Meta says; the token is {TOKEN}") for _ in range(3)]
    error = await sent_by(account, OutgoingPart("a line"))
    assert isinstance(error, kind)
    assert TOKEN not in str(error)
    assert str(code) in str(error)
    assert account.network.sent == []
    assert len(account.network.answers) == (0 if kind is JobFailed and code not in (0, 190) else 2)


@pytest.mark.parametrize("body", [b"", b"<html>bad gateway</html>", b"{}", b'{"messages": []}', b"[" * 200_000])
async def test_an_answer_that_is_none_leaves_the_outcome_open(account: Account, body: bytes) -> None:
    for status in (200, 302, 400, 502):
        account.network.answers = [web.Response(status=status, body=body, content_type="application/json")]
        error = await sent_by(account, OutgoingPart("a line"))
        assert isinstance(error, WebError)
        assert account.network.answers == []


async def test_a_closed_window_is_told_in_words(account: Account) -> None:
    account.network.answers = [problem(400, 131047, "Re-engagement message")]
    error = await sent_by(account, OutgoingPart("a line"))
    assert "24 hours" in str(error)
    assert "write first" in str(error)


async def test_an_expired_token_keeps_the_message_for_the_next_one(account: Account) -> None:
    account.network.refuse_token()
    error = await sent_by(account, OutgoingPart("a line"))
    assert isinstance(error, JobFailed)
    assert (error.retry_after or 0) >= 60
    account.network.refuse_token(refused=False)
    assert await sent_by(account, OutgoingPart("a line")) is None


async def test_a_network_that_is_not_there_has_taken_nothing(account: Account) -> None:
    await account.channel.send(ADA, OutgoingPart("before"))
    await account.network.disconnect()
    channel = account.make(apiRoot="http://127.0.0.1:9/v23.0", retry={"attempts": 1})
    async with channel._graph.opened():  # type: ignore[attr-defined]
        with pytest.raises(JobFailed, match="cannot be reached"):
            await channel.send(ADA, OutgoingPart("a line"))
    [check] = await channel.check()
    assert not check.ok


async def test_a_long_text_with_buttons_goes_first_and_whole(account: Account) -> None:
    text = "long " * 300
    sent = await account.channel.send(ADA, OutgoingPart(text, buttons=YES, reply_to="wamid.0"))
    first, second = account.network.sent
    assert (first.text, first.reply_to, first.buttons) == (text, "wamid.0", ())
    assert (second.id, second.buttons) == (sent, (("Yes", "a:yes"), ("No", "a:no")))


async def test_if_only_the_first_of_two_messages_arrives_nobody_sends_both_again(account: Account) -> None:
    words = "words " * 300
    original = account.network._refusal

    def refusal(fault: str, asked: dict[str, Any]) -> web.Response | None:
        return problem(400, 131026, "gone") if asked["type"] == "interactive" else original(fault, asked)

    account.network._refusal = refusal
    error = await sent_by(account, OutgoingPart(words, buttons=YES))
    assert isinstance(error, WebError)
    assert "a part" in str(error)
    assert [message.text for message in account.network.sent] == [words]


@pytest.mark.parametrize(("count", "shown"), [(1, 1), (3, 3), (4, 4), (10, 10)])
async def test_many_buttons_are_a_list(account: Account, count: int, shown: int) -> None:
    buttons = tuple(Button(f"The option number {each} of many", f"v{each}") for each in range(count))
    await account.channel.send(ADA, OutgoingPart("Choose", buttons=buttons))
    message = account.network.sent[0]
    assert [value for _, value in message.buttons] == [f"v{each}" for each in range(count)]
    assert await account.network.press(message, message.buttons[-1][0]) == "noted"
    assert account.inbox.presses[0].value == f"v{count - 1}"


async def test_more_buttons_than_a_list_has_rows_are_refused(account: Account) -> None:
    buttons = tuple(Button(f"{each}", f"v{each}") for each in range(11))
    assert isinstance(await sent_by(account, OutgoingPart("Choose", buttons=buttons)), JobRefused)
    assert isinstance(await sent_by(account, OutgoingPart("")), JobRefused)
    assert account.network.sent == []


@pytest.mark.parametrize(
    ("mime_type", "size", "kind", "uploaded"),
    [
        ("image/png", 10, "image", "image/png"),
        ("image/png", 5_000_001, "document", "image/png"),
        ("image/tiff", 10, "document", "image/tiff"),
        ("audio/ogg; codecs=opus", 10, "audio", "audio/ogg; codecs=opus"),
        ("video/mp4", 10, "video", "video/mp4"),
        ("text/csv; charset=utf-8", 10, "document", "text/plain"),
        ("application/json", 10, "document", "text/plain"),
        ("application/pdf", 10, "document", "application/pdf"),
    ],
)
async def test_files_are_sent_as_what_whatsapp_shows(
    account: Account, mime_type: str, size: int, kind: str, uploaded: str
) -> None:
    data = b"x" * size
    await account.channel.send(ADA, OutgoingPart("", file=OutgoingFile("näme.bin", mime_type, data)))
    message = account.network.sent[-1]
    assert (message.raw["type"], message.files) == (kind, (SentFile("näme.bin", data, uploaded),))


async def test_a_file_that_whatsapp_does_not_take_is_refused_before_anything_is_sent(account: Account) -> None:
    file = OutgoingFile("a.zip", "application/zip", b"PK")
    assert isinstance(await sent_by(account, OutgoingPart("", file=file)), JobRefused)
    assert account.network.sent == []


async def test_typing_is_shown_below_the_last_message_and_reactions_come_and_go(account: Account) -> None:
    await account.channel.typing(ADA)  # nobody has written yet
    assert account.network.typing == []
    wamid = await account.network.write("hello")
    await until(lambda: account.inbox.messages)
    await account.channel.typing(ADA)
    assert account.network.typing == ["42"]
    await account.channel.react(ADA, wamid, "👀")
    assert account.network.reactions == {wamid: "👀"}
    await account.channel.react(ADA, wamid, "")
    assert account.network.reactions == {wamid: ""}


# The token


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/a", "http://lookaside.fbsbx.com/a", "https://lookaside.fbsbx.com:8443/a",
        "https://lookaside.fbsbx.com@evil.example/a", "https://lookaside.fbsbx.com.evil.example/a",
        "https://evil.example\\@lookaside.fbsbx.com/", "file:///etc/passwd", "//evil", "https://[", "http://127.0.0.1:1/a",
    ],
)  # fmt: skip
async def test_the_token_is_sent_to_no_other_host(account: Account, url: str) -> None:
    account.network.media_url = url
    key = account.network.keep(SentFile("x", b"data"))
    account.network.post({"type": "image", "image": {"id": key, "mime_type": "image/png"}})
    await until(lambda: account.inbox.messages)
    with pytest.raises(WebError, match="not Meta's"):
        async for _ in account.channel.fetch(account.inbox.messages[0].files[0]):
            pass


async def test_a_file_id_leads_nowhere_else(account: Account) -> None:
    account.network.post({"type": "image", "image": {"id": f"../{NUMBER_ID}?x=", "mime_type": "image/png"}})
    await until(lambda: account.inbox.messages)
    with pytest.raises((JobRefused, WebError)):
        async for _ in account.channel.fetch(account.inbox.messages[0].files[0]):
            pass


async def test_the_token_is_in_no_log(account: Account, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await account.network.write("hello")
    await until(lambda: account.inbox.messages)
    account.network.answers = [problem(401, 190, f"Malformed access token {TOKEN}")]
    assert TOKEN not in str(await sent_by(account, OutgoingPart("a line")))
    assert [each for each in (TOKEN, APP_SECRET, VERIFY_TOKEN) if each in caplog.text] == []


# Checks


async def test_a_check_looks_where_whatsapp_posts_to(account: Account) -> None:
    async def webhook() -> tuple[bool, str]:
        checks = {check.name: check for check in await account.channel.check()}
        assert checks["number"].ok
        assert "+1 555-078-3881" in checks["number"].about
        return checks["webhook"].ok, checks["webhook"].hint

    assert (await webhook())[0]
    account.network.webhook = ""
    is_ok, hint = await webhook()
    assert not is_ok
    assert "/whatsapp-webhook" in hint
    account.network.webhook = "https://elsewhere.example/hook"
    assert not (await webhook())[0]
    account.network.may_read_settings = False
    is_ok, hint = await webhook()
    assert is_ok
    assert "whatsapp_business_management" in hint
