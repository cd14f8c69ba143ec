"""The adapter of IRC and a real server: what every adapter does, and what only IRC asks for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from shutil import which
from typing import Any

import pytest
from irc_network import IrcNetwork, IrcPerson
from palinurus_irc.channel import LINE_BYTES
from palinurus_irc.protocol import IrcLine, names, parse_line, shown

from channels import test_adapters as suite
from channels.conftest import Account, until
from palinurus.dispatch.channels import ChatTarget, OutgoingPart
from palinurus.domain.errors import ConfigError, JobFailed, JobRefused
from palinurus.extensions.channels.networks import NETWORKS, Network
from palinurus.text.markdown import render_parts

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not which("ngircd", path="/usr/sbin:/usr/bin"), reason="Debian's ngircd is not installed"),
]
APPLICABLE = (
    "messages_arrive_in_their_order a_message_is_sent_and_its_id_returned"
    " a_group_is_told_from_a_direct_chat_and_a_mention_is_seen a_repeated_update_has_the_same_name"
    " an_update_that_makes_no_sense_stops_nothing a_lost_connection_is_made_again"
    " a_wrong_token_ends_it_and_says_what_to_do a_check_finds_a_wrong_token"
    " a_check_of_a_good_account_finds_nothing_wrong"
)
for name in APPLICABLE.split():
    globals()[f"test_{name}"] = getattr(suite, f"test_{name}")


@pytest.fixture
async def network(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[IrcNetwork]:
    monkeypatch.setitem(NETWORKS, "irc", Network("palinurus_irc.channel:IrcChannel", "IRC"))
    network = IrcNetwork()
    await network.start()
    try:
        yield network
    finally:
        await network.stop()


@pytest.fixture
def offline(network: IrcNetwork) -> Account:
    return Account(network)


@pytest.fixture
async def account(offline: Account) -> AsyncIterator[Account]:
    async with offline.running():
        yield offline


def part(text: str) -> OutgoingPart:
    return OutgoingPart(text, text, idempotency_key=text)


async def ada(account: Account) -> tuple[IrcPerson, ChatTarget]:
    """Ada, who has written."""
    person = await account.network.person()
    await account.network.write("hello there")
    await until(lambda: account.inbox.messages)
    return person, ChatTarget(account.inbox.messages[-1].peer.id)


async def test_a_person_is_known_by_nick_user_and_host(account: Account) -> None:
    await ada(account)
    [message] = account.inbox.messages
    assert (message.text, message.peer.kind, message.peer.sender_name) == ("hello there", "direct", "Ada")
    assert message.sender.startswith("ada!~ada@")
    assert message.sender == message.peer.id


@pytest.mark.parametrize("fault", ["cut-before", "cut-after"])
async def test_of_a_message_that_was_cut_off_nobody_says_it_was_not_sent(account: Account, fault: Any) -> None:
    _, chat = await ada(account)
    account.network.fail(fault)
    sent, error = await suite.attempt(account, chat)
    assert sent == ""
    assert not isinstance(error, JobFailed | JobRefused)


async def test_a_reply_in_a_group_is_heard_by_all_and_one_in_a_query_by_one(account: Account) -> None:
    person, chat = await ada(account)
    other = await account.network.person("43", "Bob")
    await account.network.write("all", sender="43", chat="700")
    await account.network.write("here too", chat="700")
    await account.channel.send(ChatTarget("#700"), part("to all"))
    await account.channel.send(chat, part("to Ada"))
    await until(lambda: ("Ada", "to Ada") in person.heard)
    await until(lambda: ("#700", "to all") in other.heard)
    assert ("#700", "to all") in person.heard
    assert [text for _, text in other.heard if "to Ada" in text] == []


async def test_who_takes_over_a_nick_gets_nothing_that_was_meant_for_its_owner(account: Account) -> None:
    person, chat = await ada(account)
    await person.leave()
    thief = IrcPerson("Ada")
    await thief.connect(account.network.server_port, user="thief")
    with pytest.raises(JobFailed, match="somebody else"):
        await account.channel.send(chat, part("the key is under the mat"))
    await thief.say("PRIVMSG pal :it is me, Ada")
    await until(lambda: len(account.inbox.messages) == 2)
    assert account.inbox.messages[1].sender != account.inbox.messages[0].sender
    assert thief.heard == []
    await thief.leave()


async def test_a_person_who_is_away_is_tried_later_and_a_closed_channel_never(account: Account) -> None:
    person, chat = await ada(account)
    await person.say("QUIT :bye")
    await until(lambda: any("ERROR" in line for line in person.lines))
    with pytest.raises(JobFailed) as away:
        await account.channel.send(chat, part("hello?"))
    assert (away.value.retry_after or 0) >= 60
    with pytest.raises(JobRefused):
        await account.channel.send(ChatTarget("#nowhere"), part("hello?"))


async def test_a_line_break_in_a_message_is_no_command(account: Account) -> None:
    person, chat = await ada(account)
    await account.channel.send(chat, part("one\r\nQUIT :bye\r\nPRIVMSG Ada :two"))
    await account.channel.send(chat, part("three"))
    await until(lambda: len(person.heard) == 2)
    assert person.heard == [("Ada", "one QUIT :bye PRIVMSG Ada :two"), ("Ada", "three")]


async def test_a_long_reply_arrives_whole_in_lines_that_irc_takes(account: Account) -> None:
    person, chat = await ada(account)
    text = "\n\n".join(f"paragraph {n}: " + "größer als 512 — " * 30 for n in range(3))
    able = account.channel.capabilities
    parts = render_parts(text, able.dialect, able.limits, "length")
    for each in parts:
        await account.channel.send(chat, OutgoingPart(each.text, each.plain))
    await until(lambda: len(person.heard) == len(parts))
    assert max(len(heard.encode()) for _, heard in person.heard) <= LINE_BYTES
    assert " ".join(" ".join(heard for _, heard in person.heard).split()) == " ".join(text.split())


async def test_a_taken_nick_gets_a_tail_and_mentions_follow_it(offline: Account) -> None:
    squatter = IrcPerson("pal")
    await squatter.connect(offline.network.server_port)
    async with offline.running():
        assert offline.inbox.identity == "pal_@127.0.0.1"
        await squatter.say("PRIVMSG pal_ :pal_: are you there?")
        await until(lambda: offline.inbox.messages)
        assert offline.inbox.messages[0].peer.mentioned
    await squatter.leave()


async def test_it_ends_at_once_and_leaves_no_task_behind(offline: Account) -> None:
    async with asyncio.timeout(30), offline.running():
        await ada(offline)
    await until(lambda: not [task for task in asyncio.all_tasks() if "palinurus_irc" in repr(task)])


async def test_the_password_is_in_no_error(offline: Account) -> None:
    offline.network.refuse_token()
    with pytest.raises(ConfigError) as caught:
        await offline.channel.run(offline.inbox)
    assert "let-me-in" not in str(caught.value)


def test_lines_are_parsed_as_servers_write_them() -> None:
    assert parse_line(b":a!b@c PRIVMSG #x :hi : there\r\n") == IrcLine("PRIVMSG", ("#x", "hi : there"), "a!b@c")
    assert parse_line(b"@time=1 :s 001 pal :Welcome\r\n").last == "Welcome"
    assert parse_line(b"\r\n").command == ""
    assert shown("\x0304,01red\x03 and \x02bold\x02") == "red and bold"
    assert (shown("\x01ACTION waves\x01"), shown("\x01VERSION\x01")) == ("* waves", None)
    assert names("Pal: hello", "pal")
    assert not names("my palace", "pal")
