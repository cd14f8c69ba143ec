"""What the adapter of every network does, tried with the network's own library against a fake server of the network."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, get_args

import pytest

from channels.conftest import Account, until
from channels.network import Fault, SentFile
from palinurus.dispatch.channels import ChatTarget, OutgoingFile, OutgoingPart
from palinurus.domain.envelope import Button
from palinurus.domain.errors import ConfigError, JobFailed, JobRefused, QueueFull

SECRETS = ("token", "secret", "password")
HARMLESS: tuple[Fault, ...] = ("rate-limit", "no-parse")


def needs(account: Account, *features: str) -> None:
    if lacking := set(features) - account.network.features:
        pytest.skip(f"{account.network.channel} has no {', '.join(sorted(lacking))}")


def part(text: str, **more: Any) -> OutgoingPart:
    return OutgoingPart(text, text, idempotency_key=f"key-{text}", **more)


async def direct(account: Account) -> ChatTarget:
    """A chat with a person, who has written first."""
    await account.network.write("hello")
    await until(lambda: account.inbox.messages)
    return target(account)


def target(account: Account) -> ChatTarget:
    peer = account.inbox.messages[-1].peer
    return ChatTarget(peer.id, peer.thread)


async def test_a_message_arrives_with_its_sender_and_its_chat(account: Account) -> None:
    written = await account.network.write("hello there", sender="42", sender_name="Ada")
    await until(lambda: account.inbox.messages)
    [message] = account.inbox.messages
    assert message.id == written
    assert message.text.strip() == "hello there"
    assert message.peer.kind == "direct"
    assert message.peer.sender_name == "Ada"
    assert message.sender
    assert message.update
    assert not message.is_edit


async def test_messages_arrive_in_their_order(account: Account) -> None:
    for number in range(10):
        await account.network.write(f"message {number}")
    await until(lambda: len(account.inbox.messages) >= 10)
    assert [message.text.strip() for message in account.inbox.messages] == [f"message {n}" for n in range(10)]
    assert len({message.update for message in account.inbox.messages}) == 10


async def test_a_group_is_told_from_a_direct_chat_and_a_mention_is_seen(account: Account) -> None:
    needs(account, "groups")
    await account.network.write("to all", chat="700", sender="42")
    await account.network.write("to you", chat="700", sender="42", mention=True)
    await until(lambda: len(account.inbox.messages) == 2)
    first, second = account.inbox.messages
    assert first.peer.kind != "direct"
    assert (first.peer.mentioned, second.peer.mentioned) == (False, True)
    assert first.peer.id == second.peer.id
    assert "to you" in second.text
    assert first.sender == second.sender


async def test_an_answer_to_the_account_counts_as_a_mention_and_is_quoted(account: Account) -> None:
    needs(account, "groups")
    await account.network.write("start", chat="700", mention=True)
    await until(lambda: account.inbox.messages)
    sent = await account.channel.send(target(account), part("what the agent said"))
    await account.network.write("and why?", chat="700", reply_to=sent)
    await until(lambda: len(account.inbox.messages) == 2)
    answer = account.inbox.messages[-1]
    assert answer.peer.mentioned
    assert answer.quoted is not None
    assert answer.quoted.id == sent


async def test_a_thread_is_part_of_the_chat_in_both_directions(account: Account) -> None:
    needs(account, "threads")
    await account.network.write("in the thread", chat="700", thread="31", mention=True)
    await until(lambda: account.inbox.messages)
    assert account.inbox.messages[0].peer.thread
    sent = await account.channel.send(target(account), part("answer"))
    message = next(each for each in account.network.sent if each.id == sent)
    assert message.thread == "31"


async def test_a_message_is_sent_and_its_id_returned(account: Account) -> None:
    chat = await direct(account)
    ids = [await account.channel.send(chat, part(text)) for text in ("one", "two", "three")]
    assert [message.text.strip() for message in account.network.sent] == ["one", "two", "three"]
    assert [message.id for message in account.network.sent] == ids
    assert len(set(ids)) == 3


async def test_a_message_answers_another_one(account: Account) -> None:
    chat = await direct(account)
    answered = account.inbox.messages[-1].id
    await account.channel.send(chat, part("an answer", reply_to=answered))
    assert account.network.sent[-1].reply_to in (answered, "")
    if account.network.features & {"groups"}:
        assert account.network.sent[-1].reply_to == answered


async def attempt(account: Account, chat: ChatTarget) -> tuple[str, Exception | None]:
    try:
        async with asyncio.timeout(50):
            return await account.channel.send(chat, part("a line")), None
    except Exception as error:  # noqa: BLE001  what kind it is decides what happens to the message
        return "", error


@pytest.mark.parametrize("fault", get_args(Fault))
async def test_what_a_failed_attempt_says_of_the_message_is_true(account: Account, fault: Fault) -> None:
    chat = await direct(account)
    account.network.fail(fault)
    sent, error = await attempt(account, chat)
    arrived = [message.id for message in account.network.sent]
    if error is None:
        assert fault not in ("gone", "long-rate-limit")
        assert arrived == [sent]
    elif isinstance(error, JobFailed | JobRefused):  # then it is sent again, or given up
        assert fault not in HARMLESS
        assert arrived == []
        assert isinstance(error, JobRefused) == (fault == "gone")
        assert fault != "long-rate-limit" or (isinstance(error, JobFailed) and (error.retry_after or 0) >= 60)
    else:  # nobody knows: a person decides
        assert fault not in (*HARMLESS, "gone", "long-rate-limit")
        assert len(arrived) <= 1


async def test_a_short_rate_limit_is_waited_for(account: Account) -> None:
    chat = await direct(account)
    account.network.fail("rate-limit", "rate-limit")
    await account.channel.send(chat, part("a line"))
    assert [message.text.strip() for message in account.network.sent] == ["a line"]


async def test_markup_that_the_network_refuses_is_sent_as_plain_text(account: Account) -> None:
    chat = await direct(account)
    account.network.fail("no-parse")
    await account.channel.send(chat, OutgoingPart("<b>bold", "bold", idempotency_key="k"))
    assert len(account.network.sent) == 1
    assert account.network.sent[0].text.strip() in ("bold", "<b>bold")


async def test_a_message_is_changed_and_deleted(account: Account) -> None:
    needs(account, "edits")
    chat = await direct(account)
    sent = await account.channel.send(chat, part("first"))
    await account.channel.edit(chat, sent, part("second"))
    await account.channel.edit(chat, sent, part("second"))  # the same again is no error
    assert account.network.sent[-1].text == "second"
    if "deletes" in account.network.features:
        await account.channel.delete(chat, sent)
        assert account.network.sent[-1].deleted


async def test_a_reaction_and_typing_are_shown(account: Account) -> None:
    needs(account, "reactions", "typing")
    chat = await direct(account)
    await account.channel.react(chat, account.inbox.messages[-1].id, "👀")
    await account.channel.typing(chat)
    assert account.network.typing


async def test_a_pressed_button_comes_back_with_who_pressed_it(account: Account) -> None:
    needs(account, "buttons")
    chat = await direct(account)
    sender = account.inbox.messages[-1].sender
    buttons = (Button("Yes", "a:1:yes"), Button("No", "a:1:no"))
    sent = await account.channel.send(chat, part("Really?", buttons=buttons))
    message = account.network.sent[-1]
    assert message.buttons == (("Yes", "a:1:yes"), ("No", "a:1:no"))
    assert await account.network.press(message, "No") == "noted"
    [press] = account.inbox.presses
    assert (press.value, press.message, press.sender) == ("a:1:no", sent, sender)
    assert press.peer.id == chat.to


async def test_a_received_file_can_be_fetched(account: Account) -> None:
    needs(account, "media")
    data = bytes(range(256)) * 300
    await account.network.write("look", files=(SentFile("table.pdf", data, "application/pdf"),))
    await until(lambda: account.inbox.messages)
    [file] = account.inbox.messages[0].files
    assert b"".join([piece async for piece in account.channel.fetch(file)]) == data
    assert file.name == "table.pdf" or account.network.channel == "whatsapp"


async def test_a_file_is_sent(account: Account) -> None:
    needs(account, "media")
    chat = await direct(account)
    file = OutgoingFile("notes.txt", "text/plain", b"some notes")
    await account.channel.send(chat, part("", file=file))
    [sent] = account.network.sent[-1].files
    assert (sent.name, sent.data) == ("notes.txt", b"some notes")


async def test_an_edit_of_a_person_is_marked_as_one(account: Account) -> None:
    needs(account, "received-edits")
    written = await account.network.write("helo")
    await until(lambda: account.inbox.messages)
    await account.network.rewrite(written, "hello")
    await until(lambda: len(account.inbox.messages) == 2)
    first, second = account.inbox.messages
    assert second.is_edit
    assert (second.id, second.text.strip()) == (first.id, "hello")
    assert second.update != first.update


async def test_a_repeated_update_has_the_same_name(account: Account) -> None:
    await account.network.write("once")
    await until(lambda: account.inbox.messages)
    await account.network.repeat()
    await account.network.write("after")
    await until(lambda: any("after" in message.text for message in account.inbox.messages))
    once = [message.update for message in account.inbox.messages if "once" in message.text]
    assert len(set(once)) == 1


async def test_a_message_that_was_not_taken_is_delivered_again(account: Account) -> None:
    needs(account, "redelivery")
    account.inbox.refusals = [QueueFull("the disk is full")]
    await account.network.write("important")
    await until(lambda: account.inbox.messages)
    assert [message.text.strip() for message in account.inbox.messages] == ["important"]


async def test_an_update_that_makes_no_sense_stops_nothing(account: Account) -> None:
    await account.network.garble()
    await account.network.write("still there?")
    await until(lambda: any("still there?" in message.text for message in account.inbox.messages))


async def test_a_lost_connection_is_made_again(account: Account) -> None:
    await account.network.write("before")
    await until(lambda: account.inbox.messages)
    await account.network.disconnect()
    await account.network.write("after")
    await until(lambda: any("after" in message.text for message in account.inbox.messages))
    assert sum("before" in message.text for message in account.inbox.messages) == 1


async def test_commands_are_registered_with_the_network(account: Account) -> None:
    needs(account, "commands")
    await until(lambda: {"status", "new"} <= set(account.network.commands))


async def test_a_wrong_token_ends_it_and_says_what_to_do(offline: Account) -> None:
    offline.network.refuse_token()
    if offline.channel.webhook_paths:
        pytest.skip("it does not connect: a wrong token is found by a check")
    async with asyncio.timeout(60):
        with pytest.raises(ConfigError) as caught:
            await offline.channel.run(offline.inbox)
    assert caught.value.hint


async def test_a_check_finds_a_wrong_token(offline: Account) -> None:
    offline.network.refuse_token()
    checks = await offline.channel.check()
    failed = [check for check in checks if not check.ok]
    assert failed
    assert failed[0].hint


async def test_a_check_of_a_good_account_finds_nothing_wrong(account: Account) -> None:
    checks = await account.channel.check()
    assert checks
    assert [check for check in checks if not check.ok] == []


async def test_no_secret_is_logged(account: Account, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "palinurus")
    chat = await direct(account)
    account.network.fail("server-error", "gone")
    shown = [repr(error) for _, error in [await attempt(account, chat) for _ in range(2)]]
    secret = [str(value) for name, value in account.config.items() if name.lower().endswith(SECRETS)]
    assert secret
    assert not [each for each in secret if each in caplog.text or each in "".join(shown)]


async def test_it_ends_at_once_and_leaves_no_task_behind(offline: Account) -> None:
    before = asyncio.all_tasks()
    async with asyncio.timeout(30):
        async with offline.running():
            await offline.network.write("hello")
            await until(lambda: offline.inbox.messages)
    await until(lambda: not [task for task in asyncio.all_tasks() - before if "channels/network" not in repr(task)])
