"""What only Telegram has: topics, UTF-16, confirmed offsets, webhooks, supergroups, tokens in addresses."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from channels.conftest import Account, until
from channels.network import SentFile
from channels.networks.telegram import USERNAME, FakeTelegram, Json, person
from palinurus.config.load import Config
from palinurus.dispatch.channels import (
    ChannelCommand,
    ChannelMessage,
    ChannelRequest,
    ChatTarget,
    OutgoingFile,
    OutgoingPart,
    ReceivedFile,
)
from palinurus.domain.envelope import Button
from palinurus.domain.errors import ConfigError, JobFailed, JobRefused, PalinurusError, QueueFull
from palinurus.extensions.channels.telegram.channel import TelegramChannel

GROUP = "-100700"
FORUM = {"id": -100700, "type": "supergroup", "title": "Harbour", "is_forum": True}
SECRET = "secret-of-the-webhook"
WEBHOOK = {"webhookUrl": "https://pal.example/telegram-webhook", "webhookSecret": SECRET}


@pytest.fixture
async def network() -> AsyncIterator[FakeTelegram]:
    fake = FakeTelegram()
    await fake.start()
    yield fake
    await fake.stop()


def part(text: str, **more: Any) -> OutgoingPart:
    return OutgoingPart(text, text, **more)


def entity(kind: str, text: str, piece: str, **more: Any) -> Json:
    """As Telegram counts: in UTF-16 units."""
    before, inside = (len(each.encode("utf-16-le")) // 2 for each in (text[: text.index(piece)], piece))
    return {"type": kind, "offset": before, "length": inside, **more}


async def received(account: Account, text: str, **more: Any) -> ChannelMessage:
    """What the adapter makes of a message in a group."""
    known = len(account.inbox.messages)
    await account.network.write(text, chat=GROUP, **more)
    await until(lambda: len(account.inbox.messages) > known)
    return account.inbox.messages[-1]


# Reading


async def test_a_mention_is_found_behind_characters_of_two_units(account: Account) -> None:
    text = f"👩‍🚀🌊 ahoy @{USERNAME.upper()} there"
    named = await received(account, text, entities=[entity("mention", text, f"@{USERNAME.upper()}")])
    other = await received(account, text, entities=[entity("mention", text, "ahoy @PAL")])
    assert (named.peer.mentioned, named.text) == (True, text)
    assert not other.peer.mentioned


async def test_a_mention_by_id_needs_no_name(account: Account) -> None:
    text = "🌊 Pal, look"
    own = entity("text_mention", text, "Pal", user=person(account.network.self_id, "Pal"))
    other = entity("text_mention", text, "Pal", user=person("9", "Pal"))
    assert (await received(account, text, entities=[own])).peer.mentioned
    assert not (await received(account, text, entities=[other])).peer.mentioned


async def test_a_command_for_this_bot_loses_its_name_and_one_for_another_is_no_mention(account: Account) -> None:
    own = await received(account, f"/status@{USERNAME} now")
    plain = await received(account, "/status now")
    answered = await account.channel.send(ChatTarget(GROUP), part("something"))
    other = await received(account, "/status@other_bot now", reply_to=answered)
    assert [(each.text, each.peer.mentioned) for each in (own, plain, other)] == [
        ("/status now", True),
        ("/status now", False),
        ("/status@other_bot now", False),
    ]


async def test_the_general_topic_is_a_thread_that_sends_do_not_name(account: Account, network: FakeTelegram) -> None:
    general = await received(account, "in General", chat_of=FORUM)
    assert general.peer.thread == "1"
    target = ChatTarget(general.peer.id, general.peer.thread)
    await account.channel.send(target, part("answer"))
    await account.channel.typing(target)
    calls = dict(network.calls)
    assert "message_thread_id" not in calls["sendMessage"]
    assert calls["sendChatAction"]["message_thread_id"] == "1"


async def test_answers_in_a_group_without_topics_are_no_threads(account: Account) -> None:
    assert (await received(account, "an answer to an answer", message_thread_id=77)).peer.thread == ""


async def test_the_beginning_of_a_topic_is_not_quoted(account: Account, network: FakeTelegram) -> None:
    beginning = {"message_id": 5, "date": 1, "chat": FORUM, "from": network.user()}
    beginning["forum_topic_created"] = {"name": "Tides", "icon_color": 1}
    message = await received(account, "high or low?", thread="5", reply_to_message=beginning)
    assert (message.quoted, message.peer.mentioned, message.peer.thread) == (None, False, "5")


async def test_the_quoted_part_of_a_message_is_what_counts(account: Account) -> None:
    first = await received(account, "one thing and another")
    message = await received(account, "why?", reply_to=first.id, quote={"text": "another", "position": 14})
    assert message.quoted is not None
    assert (message.quoted.text, message.quoted.is_own, message.quoted.sender) == ("another", False, "42")


async def test_who_writes_as_a_chat_is_that_chat_and_bots_are_not_heard(account: Account) -> None:
    anonymous = {"id": 1087968824, "is_bot": True, "first_name": "Group"}
    await account.network.write("from a bot", chat=GROUP, **{"from": anonymous})
    message = await received(account, "from an administrator", sender_chat=FORUM, **{"from": anonymous})
    assert [each.text for each in account.inbox.messages] == ["from an administrator"]
    assert (message.sender, message.peer.sender_name) == (GROUP, "Harbour")


@pytest.mark.parametrize(
    ("fields", "text", "kind", "ref"),
    [
        ({"sticker": {"emoji": "🐙", "width": 9, "height": 9, "is_animated": False, "is_video": False}}, "🐙", "", ""),
        ({"location": {"latitude": 53.5, "longitude": 8.25}}, "location: 53.5, 8.25", "", ""),
        ({"video_note": {"length": 9, "duration": 3}}, "", "video", "f"),
        ({"audio": {"duration": 3, "mime_type": "audio/mpeg"}}, "", "audio", "f"),
        ({"document": {"mime_type": "image/png", "file_name": "a.png"}}, "", "image", "f"),
        ({"photo": [{"width": 9, "height": 9}, {"width": 90, "height": 90}]}, "", "image", "f1"),
    ],
)
async def test_what_is_no_text_is_read_too(account: Account, fields: Json, text: str, kind: str, ref: str) -> None:
    for value in fields.values():
        for number, file in enumerate(value if isinstance(value, list) else [value]):
            file |= {"file_id": f"f{number or ''}", "file_unique_id": "u", "type": "regular"}
    message = await received(account, "", **fields)
    assert message.text == text
    assert [(file.kind, file.ref) for file in message.files] == ([(kind, ref)] if kind else [])


async def test_a_file_that_telegram_gives_to_no_bot_is_said_to_be_too_large(account: Account) -> None:
    with pytest.raises(JobRefused, match="20 MB"):
        [piece async for piece in account.channel.fetch(ReceivedFile("video", "f", size=21 * 1024 * 1024))]
    network: Any = account.network
    network.refuse("getFile", 400, "Bad Request: file is too big")
    with pytest.raises(JobRefused, match="too big"):
        [piece async for piece in account.channel.fetch(ReceivedFile("video", "f"))]


# Polling


async def test_after_a_refusal_order_is_kept_and_nothing_is_confirmed(account: Account, network: FakeTelegram) -> None:
    refused = asyncio.Event()
    takes = account.inbox.receive

    async def receive(message: ChannelMessage) -> None:
        if message.text == "first" and not refused.is_set():
            refused.set()
            raise QueueFull("the disk is full")
        await takes(message)

    account.inbox.receive = receive  # type: ignore[method-assign]
    network.hold()
    for text in ("first", "second"):
        await network.write(text, sender="42")
    await network.write("of somebody else", sender="43")
    numbers = [each["update_id"] for each in network.pending]
    network.let_go()
    await until(lambda: len(account.inbox.messages) == 3)
    assert [each.text for each in account.inbox.messages] == ["of somebody else", "first", "second"]
    await until(lambda: not network.pending)
    assert [offset for offset in network.offsets if offset] == [numbers[-1] + 1]


async def test_a_slow_chat_holds_up_no_other_and_is_confirmed_last(account: Account, network: FakeTelegram) -> None:
    done = asyncio.Event()
    takes = account.inbox.receive

    async def receive(message: ChannelMessage) -> None:
        if message.sender == "42":
            await done.wait()
        await takes(message)

    account.inbox.receive = receive  # type: ignore[method-assign]
    await network.write("slow", sender="42")
    slow = network.pending[0]["update_id"]
    for text in ("one", "two", "three"):
        await network.write(text, sender="43")
        await until(lambda text=text: text in [each.text for each in account.inbox.messages])
    assert network.pending[0]["update_id"] == slow
    await network.write("slow, too", sender="42")
    done.set()
    await until(lambda: not network.pending)
    assert [each.text for each in account.inbox.messages] == ["one", "two", "three", "slow", "slow, too"]


async def test_what_was_taken_but_not_confirmed_comes_again_under_the_same_name(network: FakeTelegram) -> None:
    account = Account(network)
    stuck = asyncio.Event()
    takes = account.inbox.receive

    async def receive(message: ChannelMessage) -> None:
        await takes(message)
        if message.text == "second":
            stuck.set()
            await asyncio.Event().wait()  # ended by the end of the process

    account.inbox.receive = receive  # type: ignore[method-assign]
    async with account.running():
        network.hold()
        await network.write("first")
        await network.write("second")
        network.let_go()
        await asyncio.wait_for(stuck.wait(), 60)
    again = Account(network)
    async with again.running():
        await until(lambda: len(again.inbox.messages) == 2)
    assert [each.update for each in again.inbox.messages] == [each.update for each in account.inbox.messages]


async def test_lower_numbers_after_a_quiet_week_are_received(account: Account, network: FakeTelegram) -> None:
    await network.write("before")
    await until(lambda: account.inbox.messages and network.offsets[-1])
    network.end_polls()  # as when there was nothing for half a minute
    await until(lambda: network.offsets[-1] == 0)
    network.next_number(5)
    await network.write("after")
    await until(lambda: len(account.inbox.messages) == 2)
    assert int(account.inbox.messages[1].update) < int(account.inbox.messages[0].update)


async def test_a_thousand_updates_in_one_poll_do_not_hold_the_loop(account: Account, network: FakeTelegram) -> None:
    network.most_updates = 1000
    network.hold()
    for number in range(1000):
        bold = [{"type": "bold", "offset": 0, "length": 7}] * 20
        await network.write(f"message {number}", sender=str(42 + number % 3), entities=bold)
    network.let_go()
    await until(lambda: len(account.inbox.messages) == 1000)  # the plugin fails the test if a callback takes too long
    assert len({each.update for each in account.inbox.messages}) == 1000


async def test_a_second_poller_is_reported_once_and_left_time(network: FakeTelegram) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    account = Account(network)
    account.channel = TelegramChannel(msgspec.structs.replace(account.channel.context, sleep=sleep))
    for _ in range(3):
        network.refuse("getUpdates", 409, "Conflict: terminated by other getUpdates request")
    async with account.running():
        await network.write("hello")
        await until(lambda: account.inbox.messages)
    [trouble] = account.inbox.troubles
    assert "another program" in trouble
    assert len(pauses) == 3
    assert min(pauses) >= 10


async def test_a_token_that_is_revoked_while_it_runs_ends_it(offline: Account, network: FakeTelegram) -> None:
    task = asyncio.create_task(offline.channel.run(offline.inbox))
    await asyncio.wait_for(offline.inbox.ready.wait(), 60)
    network.refuse_token()
    await network.disconnect()
    with pytest.raises(ConfigError) as caught:
        await asyncio.wait_for(task, 60)
    assert "@BotFather" in caught.value.hint


# Webhook


async def post(channel: Any, body: Any, secret: str | None = SECRET) -> int:
    headers = {} if secret is None else {"x-telegram-bot-api-secret-token": secret}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (await channel.handle(ChannelRequest("POST", "/telegram-webhook", headers, {}, content))).status


@pytest.fixture
async def posted(network: FakeTelegram) -> AsyncIterator[Account]:
    """An account whose updates are posted."""
    account = Account(network)
    account.channel = account.make(**WEBHOOK)
    async with account.running():
        yield account


async def test_a_webhook_takes_what_has_its_secret_and_nothing_else(posted: Account, network: FakeTelegram) -> None:
    await network.write("hello")
    [update] = network.pending
    wrong = [await post(posted.channel, update, secret) for secret in (None, "", "wrong", "é", SECRET[:-1])]
    assert wrong == [401] * 5
    assert posted.inbox.messages == []
    assert await post(posted.channel, update) == 200
    assert [each.text for each in posted.inbox.messages] == ["hello"]
    assert posted.channel.webhook_paths == ("/telegram-webhook",)
    assert network.webhook["secret_token"] == SECRET
    assert network.offsets == []


async def test_a_webhook_is_posted_again_what_was_not_taken(posted: Account, network: FakeTelegram) -> None:
    await network.write("hello")
    posted.inbox.refusals = [QueueFull("the disk is full")]
    assert [await post(posted.channel, network.pending[0]) for _ in range(2)] == [503, 200]
    assert [await post(posted.channel, body) for body in (b"{", b"[]", b'{"update_id": 7, "message": 3}')] == [200] * 3
    assert len(posted.inbox.messages) == 1


@pytest.mark.parametrize("secret", [{}, {"webhookSecret": ""}, {"webhookSecret": "two words"}])
async def test_a_webhook_without_a_secret_does_not_start(offline: Account, secret: Json) -> None:
    with pytest.raises(ConfigError, match="webhookSecret"):
        offline.make(webhookUrl=WEBHOOK["webhookUrl"], **secret)


async def test_a_webhook_that_telegram_refuses_is_a_wrong_config(offline: Account) -> None:
    channel = offline.make(**WEBHOOK | {"webhookUrl": "http://pal.example"})
    with pytest.raises(ConfigError, match="HTTPS"):
        await channel.run(offline.inbox)
    [*_, check] = await channel.check()
    assert (check.name, check.ok) == ("webhook", False)


async def test_polling_takes_a_webhook_away(offline: Account, network: FakeTelegram) -> None:
    network.webhook = {"url": "https://old.example"}
    async with offline.running():
        await network.write("hello")
        await until(lambda: offline.inbox.messages)
    assert network.webhook == {}


# Sending


async def test_a_group_that_became_a_supergroup_gets_the_message_at_its_new_place(
    account: Account, network: FakeTelegram
) -> None:
    about = "Bad Request: group chat was upgraded to a supergroup chat"
    network.refuse("sendMessage", 400, about, migrate_to_chat_id=-100800)
    for text in ("one", "two"):
        await account.channel.send(ChatTarget("-700"), part(text))
    assert [(each.chat, each.text) for each in network.sent] == [("-100800", "one"), ("-100800", "two")]
    assert [given["chat_id"] for method, given in network.calls if method == "sendMessage"] == ["-100800"] * 2


async def test_a_group_that_says_so_itself_is_written_to_at_its_new_place(
    account: Account, network: FakeTelegram
) -> None:
    await network.write("", chat="-700", migrate_to_chat_id=-100800)
    await network.write("done")
    await until(lambda: account.inbox.messages)
    await account.channel.send(ChatTarget("-700"), part("one"))
    assert network.sent[0].chat == "-100800"


@pytest.mark.parametrize(
    ("code", "about"),
    [
        (403, "Forbidden: bot was blocked by the user"),
        (403, "Forbidden: bot was kicked from the supergroup chat"),
        (400, "Bad Request: not enough rights to send text messages to the chat"),
        (413, "Request Entity Too Large"),
    ],
)
async def test_who_blocks_the_bot_is_not_written_to_again(
    account: Account, network: FakeTelegram, code: int, about: str
) -> None:
    network.refuse("sendMessage", code, about)
    with pytest.raises(JobRefused, match=about.partition(": ")[2] or about):
        await account.channel.send(ChatTarget("42"), part("hello"))
    assert network.sent == []


async def test_a_request_that_never_left_is_known_to_have_failed(account: Account, network: FakeTelegram) -> None:
    await network.stop()
    with pytest.raises(JobFailed):
        await account.channel.send(ChatTarget("42"), part("hello"))
    with pytest.raises(JobFailed, match="not connected"):
        await account.make().send(ChatTarget("42"), part("hello"))


async def test_an_edit_is_repeated_after_an_unclear_end_and_a_vanished_message_is_refused(
    account: Account, network: FakeTelegram
) -> None:
    sent = await account.channel.send(ChatTarget("42"), part("one", buttons=(Button("Yes", "y"),)))
    network.refuse("editMessageText", 502, "Bad Gateway")
    await account.channel.edit(ChatTarget("42"), sent, part("two"))
    assert (network.sent[0].text, network.sent[0].buttons) == ("two", ())
    await account.channel.delete(ChatTarget("42"), sent)
    await account.channel.delete(ChatTarget("42"), sent)
    with pytest.raises(JobRefused, match="not found"):
        await account.channel.edit(ChatTarget("42"), sent, part("three"))


@pytest.mark.parametrize(
    ("mime_type", "method"),
    [
        ("image/png", "sendPhoto"),
        ("image/gif", "sendAnimation"),
        ("audio/ogg; codecs=opus", "sendVoice"),
        ("audio/mpeg", "sendAudio"),
        ("video/mp4", "sendVideo"),
        ("application/pdf", "sendDocument"),
    ],
)
async def test_a_file_is_shown_as_what_it_is(
    account: Account, network: FakeTelegram, mime_type: str, method: str
) -> None:
    await account.channel.send(ChatTarget("42"), part("", file=OutgoingFile("a", mime_type, b"content")))
    assert [name for name, _ in network.calls if name.startswith("send")] == [method]
    assert network.sent[0].files[0].data == b"content"


async def test_a_picture_that_is_none_to_telegram_goes_as_a_document(account: Account, network: FakeTelegram) -> None:
    network.refuse("sendPhoto", 400, "Bad Request: PHOTO_INVALID_DIMENSIONS")
    await account.channel.send(ChatTarget("42"), part("", file=OutgoingFile("a.png", "image/png", b"content")))
    assert [(each.text, each.files) for each in network.sent] == [("", (SentFile("a.png", b"content", "image/png"),))]


async def test_a_reaction_is_written_as_telegram_lists_it(account: Account, network: FakeTelegram) -> None:
    written = await network.write("hello")
    for emoji in ("❤️", ""):
        await account.channel.react(ChatTarget("42"), written, emoji)
    assert [json.loads(given["reaction"]) for name, given in network.calls if name == "setMessageReaction"] == [
        [{"type": "emoji", "emoji": "❤"}],
        [],
    ]


async def test_commands_get_names_that_telegram_allows(offline: Account, network: FakeTelegram) -> None:
    offline.inbox.commands = (
        *(ChannelCommand(name, "x" * 300) for name in ("Dock-Ship", "naïve", "ß", "long" * 10)),
        *(ChannelCommand(f"more{number}", "more") for number in range(120)),
    )
    async with offline.running():
        await until(lambda: network.commands)
    assert network.commands[:3] == ["dock_ship", "nave", "long" * 8]
    assert len(network.commands) == 100


async def test_updates_arrive_while_commands_cannot_be_registered(offline: Account, network: FakeTelegram) -> None:
    network.refuse("setMyCommands", 429, "Too Many Requests: retry after 20", retry_after=20)
    async with offline.running():
        await network.write("hello")
        await until(lambda: offline.inbox.messages)
    assert network.commands == []


# Secrets


async def test_the_token_is_in_no_record_and_no_error(network: FakeTelegram, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    account = Account(network)
    shown: list[str] = [repr(account.channel)]
    async with account.running():
        await network.write("look", files=(SentFile("a.pdf", b"content", "application/pdf"),))
        await until(lambda: account.inbox.messages)
        shown += [repr(vars(account.channel)["_bot"])]
        shown += [repr([piece async for piece in account.channel.fetch(account.inbox.messages[0].files[0])])]
        network.fail("cut-before", "cut-after", "malformed", "server-error", "gone")
        for text in ("1", "2", "3", "4", "5"):
            with pytest.raises(PalinurusError) as caught:
                await account.channel.send(ChatTarget("42"), part(text))
            shown += errors_of(caught.value)
        network.refuse_token()
        shown += [repr(await account.channel.check())]
        with pytest.raises(JobFailed) as failed:
            await account.channel.send(ChatTarget("42"), part("6"))
        shown += errors_of(failed.value)
        network.refuse_token(refused=False)
    assert len(shown) > 12
    assert network.token not in caplog.text + "".join(shown)


def errors_of(error: BaseException | None) -> list[str]:
    return [repr(error), str(error), *errors_of(error.__cause__ or error.__context__)] if error else []


async def test_the_token_comes_from_the_config_a_file_or_the_environment(offline: Account, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{offline.config['botToken']}\n")
    root = {"apiRoot": offline.config["apiRoot"]}
    env = {"TELEGRAM_BOT_TOKEN": offline.config["botToken"]}
    for settings, env_of in (({"tokenFile": str(file)}, {}), ({}, env)):
        config = Config({"channels": {"telegram": root | settings}})
        context = msgspec.structs.replace(offline.channel.context, config=config, env=env_of)
        checks = await TelegramChannel(context).check()
        assert all(each.ok for each in checks)
        with pytest.raises(ConfigError, match="botToken"):
            TelegramChannel(msgspec.structs.replace(context, account="other", config=Config({}), env=env_of))
    with pytest.raises(ConfigError) as caught:
        offline.make(botToken="123 no token")
    assert "no token" not in str(caught.value)
