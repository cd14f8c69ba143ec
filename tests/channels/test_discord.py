"""What only Discord has: its gateway's sessions, intents, roles, threads, nonces and interactions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from channels.conftest import Account, until
from channels.networks.discord import FakeDiscord
from palinurus.config.load import Config
from palinurus.dispatch.channels import ChannelContext, ChatTarget, OutgoingPart
from palinurus.dispatch.routing import find_route, routing_table
from palinurus.domain.clock import SystemClock
from palinurus.domain.errors import ConfigError, JobFailed, JobRefused, PalinurusError, QueueFull
from palinurus.extensions.channels.discord.channel import DiscordChannel
from palinurus.extensions.channels.discord.gateway import AccountSocket


@pytest.fixture
async def network() -> AsyncIterator[FakeDiscord]:
    fake = FakeDiscord()
    await fake.start()
    try:
        yield fake
    finally:
        await fake.stop()


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def offline(network: FakeDiscord, pauses: list[float]) -> Account:
    """An account whose pauses are written down instead of slept through."""

    async def note(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    account = Account(network)
    config = Config({"channels": {"discord": network.config()}})
    account.channel = DiscordChannel(
        ChannelContext("discord", "default", config, lambda value: str(value) if value else None, {}, SystemClock(),
                       sleep=note)
    )  # fmt: skip
    return account


@pytest.fixture
async def account(offline: Account) -> AsyncIterator[Account]:
    async with offline.running():
        yield offline


def line(text: str, **more: Any) -> OutgoingPart:
    return OutgoingPart(text, text, **more)


def beating() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("keep-alive-handler")]


def texts(account: Account) -> list[str]:
    return [message.text for message in account.inbox.messages]


async def test_after_a_cut_the_session_is_resumed_and_what_was_missed_is_replayed(
    account: Account, network: FakeDiscord
) -> None:
    await network.write("before")
    await until(lambda: texts(account) == ["before"])
    await network.disconnect()
    for number in range(3):
        await network.write(f"missed {number}")
    await until(lambda: len(texts(account)) == 4)
    assert texts(account) == ["before", "missed 0", "missed 1", "missed 2"]
    assert (network.identified, network.resumed) == (1, 1)
    assert account.inbox.troubles


async def test_a_session_that_cannot_be_resumed_is_begun_anew_after_the_pause_that_discord_asks_for(
    account: Account, network: FakeDiscord, pauses: list[float]
) -> None:
    await network.disconnect()
    network.forget_session()
    await until(lambda: network.identified == 2)
    await network.write("after")
    await until(lambda: texts(account) == ["after"])
    assert len(pauses) == 1
    assert 1 <= pauses[0] <= 5
    assert network.paths.count("GET /users/@me") == 1  # all in one run


async def test_what_was_missed_is_not_lost_when_discord_is_in_trouble_as_the_session_begins(
    offline: Account, network: FakeDiscord
) -> None:
    async with offline.running():
        await network.write("before")
        await until(lambda: offline.inbox.cursor.count("id") == 1)
    await network.write("missed")
    offline.inbox.messages.clear()
    network.history_fails = 1
    async with offline.running():
        await network.write("after")
        await until(lambda: "after" in texts(offline))
    assert texts(offline) == ["missed", "after"]


async def test_what_was_written_while_nobody_was_connected_comes_first_once_and_in_order(
    offline: Account, network: FakeDiscord
) -> None:
    async with offline.running():
        await network.write("before")
        await network.write("to the crew", chat="700", mention=True)
        await until(lambda: len(texts(offline)) == 2)
        await until(lambda: offline.inbox.cursor.count("id") == 2)
    for number in range(250):
        await network.write(f"missed {number}")
    await network.write("missed by the crew", chat="700", sender="43", mention=True)
    offline.inbox.messages.clear()
    async with offline.running():
        await network.write("after")
        await until(lambda: len(texts(offline)) == 252)
    assert [each for each in texts(offline) if "crew" not in each] == [*(f"missed {n}" for n in range(250)), "after"]
    [crew] = [each for each in offline.inbox.messages if "crew" in each.text]
    assert (crew.peer.kind, crew.peer.id, crew.peer.mentioned, crew.sender) == ("channel", "700", True, "43")
    offline.inbox.messages.clear()
    async with offline.running():
        await network.write("now")
        await until(lambda: texts(offline) == ["now"])


async def test_what_was_written_longer_ago_than_a_day_is_not_answered(offline: Account, network: FakeDiscord) -> None:
    async with offline.running():
        await network.write("before")
        await until(lambda: '"id"' in offline.inbox.cursor)
    offline.inbox.messages.clear()
    await network.write("long ago")
    network.age(days=2)
    await network.write("today")
    async with offline.running():
        await until(lambda: texts(offline))
    assert texts(offline) == ["today"]


async def test_pauses_grow_while_the_gateway_closes_every_connection(
    account: Account, network: FakeDiscord, pauses: list[float]
) -> None:
    network.fatal_code = 4000  # not fatal: may be resumed
    await network.disconnect()
    await until(lambda: len(pauses) >= 8)
    assert pauses[:3] == [1, 2, 4]
    assert max(pauses) <= 45
    network.fatal_code = 0
    await network.write("again")
    await until(lambda: texts(account) == ["again"])
    assert network.paths.count("GET /users/@me") == 1  # all in one run


async def test_a_missing_intent_ends_it_and_says_what_to_switch_on(offline: Account, network: FakeDiscord) -> None:
    network.message_content = False
    with pytest.raises(ConfigError) as caught:
        await offline.channel.run(offline.inbox)
    assert "Message Content Intent" in caught.value.hint
    failed = [each for each in await offline.channel.check() if not each.ok]
    assert [each.name for each in failed] == ["message content intent"]
    assert "Message Content Intent" in failed[0].hint


async def test_a_token_that_is_changed_while_it_runs_ends_it(offline: Account, network: FakeDiscord) -> None:
    run = asyncio.create_task(offline.channel.run(offline.inbox))
    await offline.inbox.ready.wait()
    network.refuse_token()
    await network.disconnect()
    with pytest.raises(ConfigError) as caught:
        await asyncio.wait_for(run, 60)
    assert "Reset Token" in caught.value.hint


def test_an_account_without_a_token_is_refused_and_the_environment_may_hold_it() -> None:
    def made(env: dict[str, str]) -> DiscordChannel:
        return DiscordChannel(ChannelContext("discord", "default", Config({}), lambda _: None, env, SystemClock()))

    assert made({"DISCORD_BOT_TOKEN": "x"})
    with pytest.raises(ConfigError) as caught:
        made({})
    assert "Reset Token" in caught.value.hint


async def test_a_mention_of_the_bots_role_counts_as_one_of_the_bot(account: Account, network: FakeDiscord) -> None:
    await network.write(f"<@&{network.own_role}> are you there?", chat="700", mention_roles=[network.own_role])
    await network.write("<@&920> all hands", chat="700", mention_roles=["920"])
    await until(lambda: len(texts(account)) == 2)
    assert texts(account) == ["are you there?", "@crew all hands"]
    assert [message.peer.mentioned for message in account.inbox.messages] == [True, False]


async def test_marks_of_people_channels_and_emojis_are_shown_by_name(account: Account, network: FakeDiscord) -> None:
    await network.write("open it", chat="700")
    mentions = [network.user("43", "Bob"), network.user(network.self_id)]
    await network.write("<@900> ask <@!43> in <#700> <:ok:12> <@44>", chat="700", mentions=mentions)
    await until(lambda: len(texts(account)) == 2)
    assert texts(account)[1] == "ask @Bob in #room-700 :ok: <@44>"


async def test_the_roles_of_the_sender_and_the_server_are_known(account: Account, network: FakeDiscord) -> None:
    network.roles["42"] = ["920"]
    await network.write("hello", chat="700")
    await until(lambda: texts(account))
    peer = account.inbox.messages[0].peer
    assert (peer.kind, peer.id, peer.guild, peer.roles) == ("channel", "700", "500", ("920",))
    assert find_route(routing_table(Config({})), "discord", "", peer).session_key == "agent:main:discord:channel:700"


async def test_a_thread_has_a_session_of_its_own_and_is_found_by_bindings_of_its_channel(
    account: Account, network: FakeDiscord
) -> None:
    await network.write("in the thread", chat="700", thread="31")
    await until(lambda: texts(account))
    peer = account.inbox.messages[0].peer
    assert (peer.id, peer.parent, peer.thread) == ("31", "700", "31")
    binding = {"agentId": "crew", "match": {"channel": "discord", "peer": {"kind": "channel", "id": "700"}}}
    config = Config({"agents": {"list": [{"id": "main", "default": True}, {"id": "crew"}]}, "bindings": [binding]})
    route = find_route(routing_table(config), "discord", "", peer)
    assert route.session_key == "agent:crew:discord:channel:31:thread:31"
    await account.channel.send(ChatTarget(peer.id, peer.thread), line("answer"))
    assert (network.sent[-1].chat, network.sent[-1].thread) == ("31", "31")


async def test_a_message_of_a_server_that_is_not_loaded_is_never_taken_for_a_direct_one(
    account: Account, network: FakeDiscord
) -> None:
    await network.write("hello", guild_id="555", member=network.member("42"))
    await until(lambda: texts(account))
    assert account.inbox.messages[0].peer.kind == "channel"


async def test_messages_of_bots_and_notices_are_ignored(account: Account, network: FakeDiscord) -> None:
    await network.write("beep", chat="700", author=network.user("77") | {"bot": True})
    await network.write("", chat="700", type=7)  # somebody joined
    await network.write("hello", chat="700")
    await until(lambda: texts(account))
    assert texts(account) == ["hello"]


async def test_a_forwarded_message_and_a_sticker_are_read(account: Account, network: FakeDiscord) -> None:
    snapshot = {"message": {"content": "what they said", "type": 0, "embeds": [], "attachments": [], "mentions": [],
                            "timestamp": "2026-11-18T11:00:00+00:00", "edited_timestamp": None, "flags": 0,
                            "components": []}}  # fmt: skip
    await network.write("", message_snapshots=[snapshot])
    await network.write("", sticker_items=[{"id": "5", "name": "wave", "format_type": 1}])
    await until(lambda: len(texts(account)) == 2)
    assert [text.strip() for text in texts(account)] == ["what they said", "[sticker: wave]"]


async def test_the_preview_of_a_link_is_no_edit(account: Account, network: FakeDiscord) -> None:
    written = await network.write("https://example.com")
    await network.unfurl(written)
    await network.rewrite(written, "see https://example.com")
    await network.unfurl(written)
    await network.write("done")
    await until(lambda: "done" in texts(account))
    assert texts(account) == ["https://example.com", "see https://example.com", "done"]


async def test_what_the_model_writes_calls_nobody(account: Account, network: FakeDiscord) -> None:
    await network.write("hello")
    await until(lambda: texts(account))
    await account.channel.send(ChatTarget("42"), line("@everyone @here <@42> <@&920>"))
    assert network.sent[-1].text == "@everyone @here <@42> <@&920>"
    assert network.pinged == []


async def test_a_message_repeated_under_its_key_is_there_once(account: Account, network: FakeDiscord) -> None:
    await network.write("hello")
    await until(lambda: texts(account))
    network.fail("cut-after")
    with pytest.raises(PalinurusError) as caught:
        await account.channel.send(ChatTarget("42"), line("once", idempotency_key="key"))
    assert not isinstance(caught.value, JobFailed | JobRefused)
    again = await account.channel.send(ChatTarget("42"), line("once", idempotency_key="key"))
    other = await account.channel.send(ChatTarget("42"), line("once", idempotency_key="another key"))
    assert [message.id for message in network.sent] == [again, other]
    assert len(network.sent[0].raw["nonce"]) <= 25
    assert not account.channel.capabilities.repeatable


async def test_nothing_but_a_429_is_tried_again(account: Account, network: FakeDiscord) -> None:
    await network.write("hello")
    await until(lambda: texts(account))
    for fault in ("server-error", "cut-before", "malformed", "gone"):
        before = network.requests
        network.fail(fault)  # type: ignore[arg-type]
        with pytest.raises(PalinurusError):
            await account.channel.send(ChatTarget("42"), line("a line"))
        assert network.requests == before + 1, fault


async def test_a_global_429_holds_every_request(account: Account, network: FakeDiscord) -> None:
    await network.write("hello")
    await until(lambda: texts(account) and network.commands)
    network.pause = 40
    network.fail("global-rate-limit")
    with pytest.raises(JobFailed) as caught:
        await account.channel.send(ChatTarget("42"), line("a line"))
    assert caught.value.retry_after == 40
    before = network.requests
    with pytest.raises(JobFailed) as held:
        await account.channel.typing(ChatTarget("42"))
    assert 30 < (held.value.retry_after or 0) <= 40
    assert network.requests == before
    assert network.sent == []


async def test_a_slash_command_is_a_message_with_its_text_and_its_answer_is_not_doubled(
    account: Account, network: FakeDiscord
) -> None:
    answer = await network.command("status", "all", chat="700")
    [message] = account.inbox.messages
    assert message.text == "/status all"
    assert (message.sender, message.peer.kind, message.peer.id) == ("42", "channel", "700")
    assert message.peer.mentioned
    assert answer == {"type": 5, "ephemeral": True, "content": "", "deleted": True}
    await account.channel.send(ChatTarget("700"), line("all is well", reply_to=message.id))
    assert [each.text for each in network.sent] == ["all is well"]
    await network.command("new")
    assert (texts(account)[1], account.inbox.messages[1].peer.kind) == ("/new", "direct")


async def test_a_person_sees_that_a_message_was_not_taken(account: Account, network: FakeDiscord) -> None:
    account.inbox.refusals = [QueueFull("the disk is full")]
    written = await network.write("important")
    await until(lambda: network.reactions(written) == ["⚠️"])
    account.inbox.refusals = [QueueFull("the disk is full")]
    answer = await network.command("status")
    assert "not taken" in answer["content"]
    assert texts(account) == []


async def test_a_slow_chat_does_not_hold_up_another(
    account: Account, network: FakeDiscord, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, go_on = account.inbox.receive, asyncio.Event()

    async def receive(message: Any) -> None:
        if message.peer.id == "700":
            await go_on.wait()
        await taken(message)

    monkeypatch.setattr(account.inbox, "receive", receive)
    await network.write("slow 1", chat="700")
    await network.write("slow 2", chat="700")
    await network.write("quick", chat="701")
    await until(lambda: texts(account) == ["quick"])
    go_on.set()
    await until(lambda: texts(account) == ["quick", "slow 1", "slow 2"])


async def test_a_flood_is_taken_in_order_with_a_bounded_number_in_flight(
    account: Account, network: FakeDiscord, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, go_on, flying = account.inbox.receive, asyncio.Event(), 0

    async def receive(message: Any) -> None:
        nonlocal flying
        flying += 1
        await go_on.wait()
        await taken(message)

    monkeypatch.setattr(account.inbox, "receive", receive)
    for number in range(900):
        await network.write(str(number), chat=f"70{number % 300}")
    await until(lambda: flying >= 200)
    for _ in range(500):  # what could be read meanwhile
        await asyncio.sleep(0)
    assert flying == 200
    go_on.set()
    await until(lambda: len(texts(account)) == 900)
    for chat in range(300):
        own = [int(each.text) for each in account.inbox.messages if each.peer.id == f"70{chat}"]
        assert own == sorted(own)


async def test_what_has_arrived_is_passed_on_before_it_ends(
    offline: Account, network: FakeDiscord, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, arrived, go_on = offline.inbox.receive, asyncio.Event(), asyncio.Event()

    async def receive(message: Any) -> None:
        arrived.set()
        await go_on.wait()
        await taken(message)

    monkeypatch.setattr(offline.inbox, "receive", receive)
    run = asyncio.create_task(offline.channel.run(offline.inbox))
    await network.write("just in time")
    await asyncio.wait_for(arrived.wait(), 60)
    run.cancel()
    asyncio.get_running_loop().call_soon(go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await run
    assert texts(offline) == ["just in time"]


async def test_how_often_a_request_is_tried_is_a_setting(account: Account, network: FakeDiscord) -> None:
    await network.write("open it", chat="700")
    await until(lambda: texts(account))
    hasty = account.make(retry={"attempts": 1})
    async with hasty._api.opened():  # type: ignore[attr-defined]
        network.fail("rate-limit")
        with pytest.raises(JobFailed) as caught:
            await hasty.send(ChatTarget("channel:700"), line("hello"))
    assert caught.value.retry_after == network.pause


async def test_an_id_alone_may_be_a_persons_or_a_channels(account: Account, network: FakeDiscord) -> None:
    await network.write("open it", chat="700")
    await until(lambda: texts(account))
    fresh = account.make()  # it has seen nothing
    async with fresh._api.opened():  # type: ignore[attr-defined]
        for to in ("700", "42", "channel:700", "user:42", "user:42", "700"):
            await fresh.send(ChatTarget(to), line(to))
        with pytest.raises(JobRefused):
            await fresh.send(ChatTarget("channel:799"), line("nobody there"))
    assert [message.chat for message in network.sent] == ["700", "42", "700", "42", "42", "700"]


@pytest.mark.parametrize("to", ["channel:../../users/@me", "", "user:", "guild:5", "7 00", "channel:" + "1" * 21])
async def test_what_is_no_id_is_never_asked_for(account: Account, network: FakeDiscord, to: str) -> None:
    await until(lambda: network.commands)
    before = network.requests
    with pytest.raises(JobRefused):
        await account.channel.send(ChatTarget(to), line("hello"))
    with pytest.raises(JobRefused):
        await account.channel.edit(ChatTarget("700"), "../1", line("hello"))
    assert network.requests == before


async def test_without_a_connection_nothing_is_sent_and_a_retry_may_work(offline: Account) -> None:
    with pytest.raises(JobFailed):
        await offline.channel.send(ChatTarget("channel:700"), line("hello"))


async def test_a_network_that_cannot_be_reached_has_certainly_got_nothing(
    offline: Account, network: FakeDiscord
) -> None:
    await network.stop()
    async with offline.channel._api.opened():  # type: ignore[attr-defined]
        with pytest.raises(JobFailed):
            await offline.channel.send(ChatTarget("channel:700"), line("hello"))


async def test_reactions_are_taken_back(account: Account, network: FakeDiscord) -> None:
    written = await network.write("hello")
    await until(lambda: texts(account))
    await account.channel.react(ChatTarget("42"), written, "👀")
    assert network.reactions(written) == ["👀"]
    await account.channel.react(ChatTarget("42"), written, "")
    assert network.reactions(written) == []


async def test_no_thread_of_the_heartbeat_is_left(offline: Account, network: FakeDiscord) -> None:
    async with offline.running():
        assert len(beating()) == 1
        await network.disconnect()
        await until(lambda: network.resumed == 1 and len(beating()) == 1)  # the first one ends by itself
        assert network.heartbeats >= 2
    assert beating() == []


async def test_a_connection_that_breaks_while_it_is_made_leaves_no_thread(
    offline: Account, network: FakeDiscord, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks = [ConnectionResetError(), ConnectionResetError()]
    identify = AccountSocket.identify

    async def identify_at_last(socket: AccountSocket) -> None:
        if breaks:
            raise breaks.pop()
        await identify(socket)

    monkeypatch.setattr(AccountSocket, "identify", identify_at_last)
    network.heartbeat = 600_000  # so long a forgotten thread would live
    async with offline.running():
        await until(lambda: len(beating()) == 1)
        assert len(offline.inbox.troubles) == 2
    assert beating() == []


async def test_two_accounts_of_two_servers_live_side_by_side(account: Account, network: FakeDiscord) -> None:
    other = FakeDiscord()
    await other.start()
    try:
        async with Account(other).running() as second:
            await network.write("to the first")
            await other.write("to the second")
            await until(lambda: texts(account) and texts(second))
            await second.channel.send(ChatTarget("42"), line("from the second"))
        assert (texts(account), texts(second)) == (["to the first"], ["to the second"])
        assert (len(network.sent), len(other.sent)) == (0, 1)
    finally:
        await other.stop()


async def test_a_check_names_the_permissions_that_are_missing(offline: Account, network: FakeDiscord) -> None:
    network.permissions = str(int(network.permissions) & ~(1 << 11))
    [failed] = [each for each in await offline.channel.check() if not each.ok]
    assert (failed.name, failed.about) == ("server Harbour", "lacks send_messages")
    assert "Roles" in failed.hint


async def test_the_longest_message_is_2000_code_points(account: Account, network: FakeDiscord) -> None:
    limits = account.channel.capabilities.limits
    assert (limits.size, limits.unit, limits.lines) == (2000, "characters", 17)
    await network.write("hello")
    await until(lambda: texts(account))
    await account.channel.send(ChatTarget("42"), line("🙂" * 2000))
    with pytest.raises(JobRefused):
        await account.channel.send(ChatTarget("42"), line("🙂" * 2001))
