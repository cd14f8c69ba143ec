"""What only Slack has: signatures, envelopes, mentions that come twice, threads, its text and its files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from time import time
from typing import Any

import pytest
from aiohttp import web

from channels.conftest import Account, RecordingInbox, until
from channels.network import SentFile
from channels.networks.slack import BOT, FakeSlack, signed
from palinurus.dispatch.channels import ChannelCommand, ChannelMessage, ChatTarget, OutgoingPart, ReceivedFile
from palinurus.domain.envelope import Button
from palinurus.domain.errors import ConfigError, JobError, JobFailed, JobRefused, QueueFull, WebError
from palinurus.extensions.channels.slack.manifest import SCOPES, slack_manifest


@pytest.fixture
async def network() -> AsyncIterator[FakeSlack]:
    fake = FakeSlack()
    await fake.start()
    yield fake
    await fake.stop()


@pytest.fixture
async def gateway() -> AsyncIterator[Account]:
    """An account in mode http, whose requests reach it without a gateway between."""
    fake = FakeSlack("http")
    await fake.start()
    account = Account(fake)
    async with account.running():
        fake.post = account.channel.handle
        yield account
    await fake.stop()


async def arrived(account: Account, many: int = 1) -> ChannelMessage:
    await until(lambda: len(account.inbox.messages) >= many)
    return account.inbox.messages[-1]


def event(**more: Any) -> bytes:
    said = {"type": "message", "user": "U42", "channel": "DU42", "channel_type": "im", "text": "hi", "ts": "1.1"}
    return json.dumps({"type": "event_callback", "team_id": "T1", "event": said | more}).encode()


# -- mode http


async def test_messages_commands_and_presses_arrive_by_signed_requests(gateway: Account) -> None:
    fake = gateway.network
    assert isinstance(fake, FakeSlack)
    await fake.write("hello")
    assert (await arrived(gateway)).text == "hello"
    fake.command("/agentstatus", "all", sender="43")
    command = await arrived(gateway, 2)
    assert (command.text, command.peer.kind, command.peer.id) == ("/status all", "direct", "U43")
    await gateway.channel.send(ChatTarget("U42"), OutgoingPart("Sure?", buttons=(Button("Yes", "v"),)))
    assert await fake.press(fake.sent[-1], "Yes") == "noted"


async def test_a_request_with_a_forged_or_old_signature_is_refused(gateway: Account) -> None:
    body = event()
    forged = signed(body, secret="guessed")
    altered = signed(body)
    altered = type(altered)(altered.method, altered.path, altered.headers, {}, event(text="rm"))
    unsigned = type(altered)("POST", altered.path, {"content-type": "application/json"}, {}, body)
    old, future = signed(body, at=time() - 301), signed(body, at=time() + 302)
    for request in (forged, altered, unsigned, old, future):
        assert (await gateway.channel.handle(request)).status == 401
    assert gateway.inbox.messages == []
    assert (await gateway.channel.handle(signed(body, at=time() - 290))).status == 200
    assert [each.text for each in gateway.inbox.messages] == ["hi"]


async def test_mode_http_without_a_signing_secret_refuses_to_start(offline: Account) -> None:
    with pytest.raises(ConfigError, match="signingSecret"):
        offline.make(mode="http", signingSecret=None)


@pytest.mark.parametrize("key", ["botToken", "appToken"])
async def test_a_missing_token_is_named_with_where_to_find_it(offline: Account, key: str) -> None:
    with pytest.raises(ConfigError, match=key) as caught:
        offline.make(**{key: None})
    assert "api.slack.com/apps" in caught.value.hint


async def test_the_challenge_is_answered_if_it_is_signed(gateway: Account) -> None:
    body = json.dumps({"type": "url_verification", "challenge": "c-1"}).encode()
    assert (await gateway.channel.handle(signed(body))).body == b"c-1"
    assert (await gateway.channel.handle(signed(body, secret="guessed"))).status == 401


async def test_a_request_that_was_not_taken_is_answered_so_that_slack_repeats_it(gateway: Account) -> None:
    gateway.inbox.refusals = [QueueFull("full")]
    assert (await gateway.channel.handle(signed(event()))).status == 503
    assert (await gateway.channel.handle(signed(event()))).status == 200
    assert len(gateway.inbox.messages) == 1


async def test_a_message_that_was_lost_by_a_mistake_of_ours_is_not_acknowledged(gateway: Account) -> None:
    gateway.inbox.refusals = [ValueError("a mistake")]
    assert (await gateway.channel.handle(signed(event()))).status == 503
    assert (await gateway.channel.handle(signed(event()))).status == 200
    assert len(gateway.inbox.messages) == 1


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"event": {"type": "message", "ts": 4}}'])
async def test_a_signed_request_without_sense_is_acknowledged_and_skipped(gateway: Account, body: bytes) -> None:
    assert (await gateway.channel.handle(signed(body))).status == 200
    form = signed(b"payload=" + body, "application/x-www-form-urlencoded")
    assert (await gateway.channel.handle(form)).status == 200
    assert gateway.inbox.messages == []


# -- Socket Mode


class SlowInbox(RecordingInbox):
    """Keeps messages of one chat waiting until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on = asyncio.Event()

    async def receive(self, message: ChannelMessage) -> None:
        if message.peer.id == "C1":
            await self.may_go_on.wait()
        await super().receive(message)


async def test_an_envelope_is_acknowledged_when_it_was_taken_and_a_slow_chat_holds_up_no_other(
    network: FakeSlack,
) -> None:
    account = Account(network)
    inbox = account.inbox = SlowInbox()
    async with account.running():
        await network.write("one", chat="1")
        await network.write("two", chat="1")
        await network.write("other", chat="2")
        await until(lambda: network.acknowledged)
        assert [each.text for each in inbox.messages] == ["other"]
        assert len(network.acknowledged) == 1
        inbox.may_go_on.set()
        await until(lambda: len(set(network.acknowledged)) == 3)
        assert [each.text for each in inbox.messages] == ["other", "one", "two"]


async def test_a_replayed_envelope_is_known_by_its_update_also_after_a_restart(network: FakeSlack) -> None:
    updates = []
    for _ in range(2):
        account = Account(network)
        async with account.running():
            if not updates:
                await network.write("once")
            else:
                await network.repeat()
            updates.append((await arrived(account)).update)
    assert updates[0] == updates[1]


async def test_slack_replaces_the_socket_and_nothing_is_lost_or_reported(account: Account, network: FakeSlack) -> None:
    await network.write("before")
    await arrived(account)
    refresh = asyncio.create_task(network.refresh())
    for number in range(20):
        await network.write(f"during {number}")
        await asyncio.sleep(0)
    await refresh
    await network.write("after")
    await arrived(account, 22)
    assert network.connections == 2
    assert sorted(each.text for each in account.inbox.messages) == sorted(
        ["before", "after", *(f"during {number}" for number in range(20))]
    )
    assert account.inbox.troubles == []


async def test_a_proxy_of_the_environment_is_not_asked_for_hosts_that_need_none(
    offline: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    async with offline.running():
        await offline.network.write("hello")
        await arrived(offline)


async def test_a_lost_socket_is_reported_and_replaced(account: Account, network: FakeSlack) -> None:
    await network.disconnect()
    await until(lambda: network.connections == 2)
    assert len(account.inbox.troubles) == 1


# -- what people write


async def test_a_mention_comes_as_two_events_and_is_one_message(account: Account, network: FakeSlack) -> None:
    await network.write("look", chat="7", mention=True)
    await network.write("next", chat="7")
    await arrived(account, 2)
    assert [(each.text, each.peer.mentioned) for each in account.inbox.messages] == [("look", True), ("next", False)]


async def test_a_button_in_a_group_is_pressed_in_the_chat_that_its_messages_come_from(
    account: Account, network: FakeSlack
) -> None:
    await network.write("x", chat="G7")
    peer = (await arrived(account)).peer
    await account.channel.send(ChatTarget(peer.id, "5.000001"), OutgoingPart("Sure?", buttons=(Button("Yes", "v"),)))
    await network.press(network.sent[-1], "Yes", sender="43")
    [press] = account.inbox.presses
    assert (press.peer.kind, press.peer.id, press.peer.thread, press.sender) == ("group", "G7", "5.000001", "U43")


async def test_a_mention_that_comes_alone_is_placed_like_a_message(account: Account, network: FakeSlack) -> None:
    said = {"type": "app_mention", "user": "U42", "text": f"<@{BOT}>: look", "ts": "5.000001", "channel": "G7"}
    network.happen(said)
    message = await arrived(account)
    assert (message.text, message.peer.kind, message.peer.mentioned) == ("look", "group", True)
    assert message.peer.team == "T1"


async def test_chats_have_the_kinds_that_bindings_know(account: Account, network: FakeSlack) -> None:
    for chat in ("", "G1", "C1"):
        await network.write("x", chat=chat)
    await arrived(account, 3)
    peers = {(each.peer.kind, each.peer.id) for each in account.inbox.messages}
    assert peers == {("direct", "U42"), ("group", "G1"), ("channel", "C1")}


async def test_an_answer_in_a_thread_speaks_to_the_account_only_if_it_began_the_thread(
    account: Account, network: FakeSlack
) -> None:
    parent = await network.write("who knows?", chat="7")
    target = ChatTarget("C7", parent)
    await account.channel.send(target, OutgoingPart("I do."))
    await network.write("thanks", chat="7", reply_to=parent)
    own = await account.channel.send(ChatTarget("C7"), OutgoingPart("News."))
    await network.write("really?", chat="7", reply_to=own)
    await arrived(account, 3)
    first, second, third = account.inbox.messages
    assert [each.peer.thread for each in (first, second, third)] == ["", parent, own]
    assert [each.peer.mentioned for each in (first, second, third)] == [False, False, True]
    assert (first.quoted, second.quoted) == (None, None)
    assert third.quoted is not None
    assert third.quoted.is_own
    assert [each.thread for each in network.sent] == [parent, ""]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("<@U42> and <@U99|bob>", "@Ada and @bob"),
        (f"<@{BOT}> hi", "hi"),
        ("<#C1|general> <#C2>", "#general #C2"),
        ("<https://a.example/x?a=1&amp;b=2>", "https://a.example/x?a=1&b=2"),
        ("<https://a.example|here>", "here (https://a.example)"),
        ("<mailto:a@b.example|a@b.example>", "a@b.example"),
        ("<!here> <!subteam^S1|@team> <!date^1^{date}|today>", "@here @team today"),
        ("1 &lt; 2 &amp;&amp; &amp;lt;", "1 < 2 && &lt;"),
        ("<" * 20_000 + ">" + "<@U42" * 1_000 + "<a|" * 5_000, None),
    ],
)
async def test_text_arrives_as_people_see_it(
    account: Account, network: FakeSlack, written: str, shown: str | None
) -> None:
    network.names["U42"] = "Ada"
    network.happen(
        {"type": "message", "user": "U42", "channel": "DU42", "channel_type": "im"} | {"text": written, "ts": "1.1"}
    )
    message = await arrived(account)
    assert shown is None or message.text == shown


async def test_bots_notices_and_the_account_itself_are_not_heard(account: Account, network: FakeSlack) -> None:
    said = {"type": "message", "channel": "C7", "channel_type": "channel", "text": "x"}
    network.happen(said | {"ts": "1.1", "user": BOT})
    network.happen(said | {"ts": "1.2", "user": "U8", "bot_id": "B8"})
    network.happen(said | {"ts": "1.3", "subtype": "bot_message", "bot_id": "B8"})
    network.happen(said | {"ts": "1.4", "user": "U42", "subtype": "channel_join"})
    before = said | {"ts": "1.5", "user": "U42", "edited": {"user": "U42", "ts": "1.6"}}
    network.change(before, before | {"attachments": [{"title": "preview of a link"}]})
    network.change(before | {"user": BOT}, before | {"user": BOT, "edited": {"user": BOT, "ts": "1.9"}})
    await network.write("a person", chat="7")
    assert (await arrived(account)).text == "a person"
    assert len(account.inbox.messages) == 1


async def test_a_message_of_somebody_whose_name_is_not_told_arrives(account: Account, network: FakeSlack) -> None:
    network.scopes = network.scopes.replace("users:read", "")
    await network.write("hello")
    message = await arrived(account)
    assert (message.text, message.sender, message.peer.sender_name) == ("hello", "U42", "")


async def test_a_slash_command_speaks_to_the_account(account: Account, network: FakeSlack) -> None:
    network.command("/new", chat="7")
    message = await arrived(account)
    assert (message.text, message.peer.kind, message.peer.mentioned) == ("/new", "channel", True)
    await account.channel.send(ChatTarget("C7"), OutgoingPart("Done.", reply_to=message.id))
    await account.channel.react(ChatTarget("C7"), message.id, "👀")
    assert network.sent[-1].thread == ""
    await until(lambda: network.acknowledged)


# -- what is sent


async def test_a_direct_chat_is_opened_once(account: Account, network: FakeSlack) -> None:
    for text in ("one", "two"):
        await account.channel.send(ChatTarget("U55"), OutgoingPart(text))
    assert [message.chat for message in network.sent] == ["U55", "U55"]
    assert [method for method, _ in network.calls].count("conversations.open") == 1


async def test_links_unfold_nothing_and_buttons_fit_slacks_blocks(account: Account, network: FakeSlack) -> None:
    text = "\n".join(["word " * 19] * 40)
    sent = await account.channel.send(
        ChatTarget("C7"), OutgoingPart(text, buttons=(Button("L" * 80, "v"), Button("M", "w")))
    )
    form = network.sent[-1].raw
    assert (form["unfurl_links"], form["unfurl_media"]) == ("false", "false")
    *sections, actions = json.loads(form["blocks"])
    assert "".join(each["text"]["text"] for each in sections) == text
    assert max(len(each["text"]["text"]) for each in sections) <= 3_000
    assert len({each["action_id"] for each in actions["elements"]}) == 2
    assert len(actions["elements"][0]["text"]["text"]) == 75
    await account.channel.edit(ChatTarget("C7"), sent, OutgoingPart("decided"))
    assert network.sent[-1].buttons == ()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("channel_not_found", JobRefused),
        ("not_in_channel", JobRefused),
        ("is_archived", JobRefused),
        ("missing_scope", JobRefused),
        ("invalid_auth", JobFailed),
        ("account_inactive", JobFailed),
        ("internal_error", None),
        ("fatal_error", None),
    ],
)
async def test_an_error_of_slack_says_what_became_of_the_message(
    account: Account, network: FakeSlack, code: str, kind: type[JobError] | None
) -> None:
    network.codes = [code]
    with pytest.raises(Exception) as caught:
        await account.channel.send(ChatTarget("C7"), OutgoingPart("x"))
    assert isinstance(caught.value, kind) if kind else not isinstance(caught.value, JobError)
    assert network.sent == []


async def test_a_reaction_is_given_under_slacks_name_and_taken_back(account: Account, network: FakeSlack) -> None:
    written = await network.write("hello")
    await arrived(account)
    target = ChatTarget("U42")
    for emoji in ("👀", "👀", "⚠️"):
        await account.channel.react(target, written, emoji)
    assert network.reactions(written) == ["eyes", "warning"]
    await account.channel.react(target, written, "")
    assert network.reactions(written) == []
    with pytest.raises(JobRefused):
        await account.channel.react(target, written, "🦔")


async def test_deleting_twice_is_no_error(account: Account, network: FakeSlack) -> None:
    sent = await account.channel.send(ChatTarget("C7"), OutgoingPart("x"))
    for _ in range(2):
        await account.channel.delete(ChatTarget("C7"), sent)
    assert network.sent[-1].deleted


# -- files


@pytest.fixture
async def elsewhere() -> AsyncIterator[tuple[str, list[str]]]:
    """A server that is not Slack's: its address, and the credentials that it was shown."""
    shown: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        shown.append(request.headers.get("Authorization", ""))
        return web.Response(body=b"data")

    app = web.Application()
    app.router.add_get("/{any:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}", shown
    await runner.cleanup()


async def content(account: Account, file: ReceivedFile) -> bytes:
    return b"".join([piece async for piece in account.channel.fetch(file)])


async def test_the_token_is_shown_to_no_other_host(
    account: Account, network: FakeSlack, elsewhere: tuple[str, list[str]]
) -> None:
    address, shown = elsewhere
    refs = [
        f"{address}/f",
        "https://files.slack.com.evil.example/f",
        "https://u@files.slack.com/f",
        "http://files.slack.com/f",
    ]
    for ref in refs:
        with pytest.raises(WebError):
            await content(account, ReceivedFile("document", ref))
    assert shown == []
    network.moved["F1"] = f"{address}/kept"
    assert await content(account, ReceivedFile("document", f"{network.root}/files/F1/a.pdf")) == b"data"
    assert shown == [""]


async def test_slacks_page_for_signing_in_is_not_taken_for_the_file(account: Account, network: FakeSlack) -> None:
    await network.write("look", files=(SentFile("a.pdf", b"%PDF", "application/pdf"),))
    [file] = (await arrived(account)).files
    network.refuse_files = True
    with pytest.raises(WebError) as caught:
        await content(account, file)
    assert "files:read" in caught.value.hint


async def test_a_voice_message_is_told_from_a_file_and_one_without_an_address_is_looked_up(
    account: Account, network: FakeSlack
) -> None:
    await network.write("", files=(SentFile("a.m4a", b"sound", "audio/mp4"),), kind="voice")
    [file] = (await arrived(account)).files
    assert (file.kind, file.size) == ("voice", 5)
    assert await content(account, ReceivedFile("voice", file.ref.split("/")[-2])) == b"sound"


# -- what a person sets up


async def test_a_check_says_which_scope_is_missing(account: Account, network: FakeSlack) -> None:
    network.scopes = network.scopes.replace(",files:read", "")
    failed = [check for check in await account.channel.check() if not check.ok]
    assert [check.about for check in failed] == ["missing: files:read"]
    assert "files:read" in failed[0].hint
    assert "Reinstall" in failed[0].hint


async def test_a_missing_scope_is_named_when_a_message_is_refused(account: Account, network: FakeSlack) -> None:
    network.scopes = network.scopes.replace("chat:write,", "")
    with pytest.raises(JobRefused, match="chat:write") as caught:
        await account.channel.send(ChatTarget("C7"), OutgoingPart("x"))
    assert "chat:write" in caught.value.hint


async def test_a_check_tells_the_tokens_apart(offline: Account) -> None:
    channel = offline.make(appToken="xapp-wrong")
    checks = {check.name: check for check in await channel.check()}
    assert checks["bot token"].ok
    assert not checks["Socket Mode"].ok
    assert "xapp-" in checks["Socket Mode"].hint


def test_the_manifest_has_the_commands_and_what_the_adapter_needs() -> None:
    commands = (ChannelCommand("status", "show the state"), ChannelCommand("new", "start a new session"))
    manifest = slack_manifest(commands)
    assert [each["command"] for each in manifest["features"]["slash_commands"]] == ["/agentstatus", "/new"]
    assert manifest["oauth_config"]["scopes"]["bot"] == list(SCOPES)
    assert manifest["settings"]["socket_mode_enabled"]
    posted = slack_manifest(commands, url="https://pal.example/slack/events")
    assert not posted["settings"]["socket_mode_enabled"]
    assert posted["settings"]["event_subscriptions"]["request_url"] == "https://pal.example/slack/events"
    assert posted["features"]["slash_commands"][0]["url"] == "https://pal.example/slack/events"
