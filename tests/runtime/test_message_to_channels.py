"""Messages that an agent sends to people on channels: whom a name means, who may be written to, and what "last" is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from palinurus.config.home import find_home
from palinurus.dispatch.contacts import last_place
from palinurus.dispatch.routing import routing_table
from palinurus.domain.envelope import Delivery, Inbound
from palinurus.domain.errors import NotFound
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, ToolResult
from palinurus.domain.tool import ToolRun
from palinurus.operations.jobs import get_delivery
from palinurus.operations.message import SendMessage, send_message
from palinurus.operations.scopes import LOCAL
from palinurus.operations.session_changes import PatchSession, patch_session
from palinurus.runtime.runtime import Runtime
from palinurus.sessions.transcript import decode_row, messages_of
from palinurus.tools.session_tools import OutgoingMessage
from support.loopback import SECONDS, LoopbackChannel
from support.wire import Behaviour, Calls, Json, Says, WireServer

OWNER, ADA, BOB = "1", "2", "3"
CONFIG: dict[str, Any] = {
    "agents": {"defaults": {"model": "mine/test"}, "list": [{"id": "home", "default": True}, {"id": "work"}]},
    "bindings": [{"agentId": "work", "match": {"channel": "telegram", "accountId": "office"}}],
    "channels": {
        "telegram": {
            "groups": {"-100": {"requireMention": False}, "-300": {"enabled": False}},
            "groupAllowFrom": [OWNER],
            "allowFrom": [OWNER, BOB],
            "accounts": {"default": {}, "office": {}},
        },
        "discord": {"allowFrom": ["*"], "dmPolicy": "open"},
        "slack": {"enabled": False},
    },
    "commands": {"ownerAllowFrom": ["telegram:1"]},
}


def answer(body: Json) -> Behaviour:
    last = body["messages"][-1]
    words = str(last["content"])
    if last["role"] == "user" and "write " in words:
        to, _, text = words.partition("write ")[2].split("\n")[0].partition(" = ")
        return Calls(("message", {"to": to, "text": text}))
    return Says("done")


@asynccontextmanager
async def living(tmp_path: Path, **changes: Any) -> AsyncIterator[Runtime]:
    async with WireServer(otherwise=answer) as server:
        root = tmp_path / "home"
        (root / "workspace").mkdir(parents=True)
        provider = {"baseUrl": server.base_url, "models": [{"id": "test", "contextWindow": 32000}]}
        own = {**CONFIG, "models": {"providers": {"mine": provider}}, **changes}
        (root / "palinurus.json").write_text(json.dumps(own))
        env = {"PALINURUS_HOME": str(root), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        runtime = Runtime(find_home(env), env)
        try:
            yield runtime
        finally:
            await runtime.close()


async def let_in(runtime: Runtime, sender: str, name: str, account: str = "default", channel: str = "telegram") -> None:
    await runtime.services.pairings.ask(channel, account, sender, name)
    await runtime.services.pairings.approve(f"{channel}:{account}:{sender}", "owner")


async def owner_says(runtime: Runtime, text: str, key: str = "agent:home:main") -> str:
    """What the tool said; empty if it was not called."""
    inbound = Inbound(text, runtime.services.new_id(), session_key=key, attended=False)
    run = await runtime.services.dispatcher.submit(inbound)
    await run.wait(SECONDS)
    results = [each for each in await messages(runtime, key) if isinstance(each, ToolResult)]
    return results[-1].text if results else ""


async def messages(runtime: Runtime, key: str) -> list[Any]:
    session = await runtime.services.sessions.find(SessionKey.parse(key))
    rows = await runtime.services.sessions.rows(session.id) if session is not None else []
    return messages_of([decode_row(row) for row in rows])


async def test_a_message_to_a_person_is_delivered_and_meets_their_answer(tmp_path: Path) -> None:
    async with living(tmp_path) as runtime:
        telegram = LoopbackChannel(runtime, "telegram")
        await let_in(runtime, ADA, "Ada")
        told = await owner_says(runtime, "write telegram:2 = The boat is ready.")
        assert told == ("the message to telegram:2 is on its way; written into agent:home:telegram:direct:2")
        assert await telegram.sent(1) == [(ADA, "The boat is ready.")]
        await telegram.asks("thanks", sender=ADA)
        said = await messages(runtime, "agent:home:telegram:direct:2")
        assert [each.text for each in said] == ["The boat is ready.", "2: thanks", "done"]
        assert isinstance(said[0], AssistantMessage)


async def test_a_chat_keeps_the_id_that_its_network_gave_it(tmp_path: Path) -> None:
    async with living(tmp_path) as runtime:
        discord = LoopbackChannel(runtime, "discord")
        await discord.asks("hello", sender="UserX", sender_name="Xenia")
        for to in ("agent:home:discord:direct:userx", "discord:USERX", "userX"):
            assert "is on its way" in await owner_says(runtime, f"write {to} = Hi to {to}.")
        sent = await discord.sent(4)
        assert {place for place, _ in sent} == {"UserX"}


async def test_a_group_is_known_by_the_name_that_the_owner_gave_its_session(tmp_path: Path) -> None:
    async with living(tmp_path) as runtime:
        telegram = LoopbackChannel(runtime, "telegram")
        await telegram.asks("hello all", sender=OWNER, chat="group:-100")
        patch = PatchSession("agent:home:telegram:group:-100", label="The team chat")
        await patch_session.run(runtime.services, patch)
        assert "telegram:group:-100 is on its way" in await owner_says(runtime, "write the  team chat = Lunch!")
        assert "telegram:group:-100 is on its way" in await owner_says(runtime, "write telegram:-100 = Now!")
        assert (await telegram.sent(3))[1:] == [("-100", "Lunch!"), ("-100", "Now!")]


async def test_without_a_sender_a_message_waits_and_the_agent_is_told_so(tmp_path: Path) -> None:
    async with living(tmp_path) as runtime:
        told = await owner_says(runtime, "write telegram:3 = Hi.")
        assert told.startswith("the message to telegram:3 is stored and waits: telegram is not connected; written")
        assert (await runtime.services.deliveries.counts()).uncarried == {"telegram": 1}


async def test_two_people_of_one_name_are_shown_by_id_and_nobody_is_written_to(tmp_path: Path) -> None:
    async with living(tmp_path) as runtime:
        telegram = LoopbackChannel(runtime, "telegram")
        await let_in(runtime, ADA, "Ada")
        await let_in(runtime, "22", "ADA")
        told = await owner_says(runtime, "write Ada = Psst.")
        assert "'Ada' may be telegram:22 (seen 2" in told
        assert "telegram:2 (seen 2" in told
        assert telegram.sender.attempts == []


async def test_a_name_that_people_choose_never_wins_over_an_id_or_a_name_of_the_owner(tmp_path: Path) -> None:
    links = {"session": {"identityLinks": {"ada": ["telegram:2"]}}}
    async with living(tmp_path, **links) as runtime:
        telegram = LoopbackChannel(runtime, "telegram")
        for sender, name in (("66", "Ada"), ("67", "2"), ("68", "owner"), ("69", "main")):
            await runtime.services.pairings.ask("telegram", "default", sender, name)
            await runtime.services.pairings.approve(f"telegram:{sender}", "owner")
        await let_in(runtime, ADA, "A.")
        await owner_says(runtime, "hello", key="agent:home:explicit:aside")
        for name in ("ada", "2", "owner", "main"):
            await owner_says(runtime, f"write {name} = To {name}.", key="agent:home:explicit:aside")
        assert await telegram.sent(3) == [(ADA, "To ada."), (ADA, "To 2."), (OWNER, "To owner.")]
        assert len(telegram.sender.attempts) == 3


async def test_a_linked_person_is_reached_where_they_wrote_last(tmp_path: Path) -> None:
    links = {"session": {"identityLinks": {"ada": ["telegram:2", "discord:20"]}, "dmScope": "per-channel-peer"}}
    async with living(tmp_path, **links) as runtime:
        discord = LoopbackChannel(runtime, "discord")
        assert "may be" in await owner_says(runtime, "write ada = Hi.")
        await discord.asks("hello", sender="20")
        assert "discord:20 is on its way" in await owner_says(runtime, "write ada = Hi.")


@pytest.mark.parametrize(
    ("to", "why"),
    [
        ("telegrm:42", "there is no channel 'telegrm' here; the message was not sent (did you mean telegram?"),
        ("slack:U1", "slack is switched off (enabled)"),
        ("telegram:group:-200", "the group -200 is not listed under groups"),
        ("telegram:group:-300", "the group -300 is switched off (enabled)"),
        ("telegram:office:direct:5", "telegram:office:direct:5 is answered by work, not by home"),
        ("telegram:nowhere:direct:5", "telegram has no account 'nowhere'"),
        ("agent:work:telegram:direct:5", "belongs to another agent"),
        ("telegram:", "not a recipient: telegram:"),
        ("Nobody", "nobody is known as 'Nobody'; the message was not sent (name a channel and an id"),
    ],
)
async def test_what_cannot_be_sent_is_told_in_one_line_and_nothing_is_stored(tmp_path: Path, to: str, why: str) -> None:
    async with living(tmp_path) as runtime:
        LoopbackChannel(runtime, "telegram")
        assert why in await owner_says(runtime, f"write {to} = Hi.")
        assert await runtime.services.deliveries.recent() == []


async def test_a_stranger_gets_a_first_message_only_after_a_person_has_agreed(tmp_path: Path) -> None:
    async with living(tmp_path) as runtime:
        telegram, services = LoopbackChannel(runtime, "telegram"), runtime.services
        told = await owner_says(runtime, "write telegram:99 = Hi.")
        assert told.endswith("a first message needs an approval), and no person could be asked.")
        inbound = Inbound("write telegram:99 = Hello.", "with-somebody", session_key="agent:home:main")
        run = await services.dispatcher.submit(inbound)
        async with asyncio.timeout(SECONDS):
            while not (waiting := await services.approvals.pending()):
                await asyncio.sleep(0.01)
        assert "nobody has let telegram:99 in" in waiting[0].reason
        await services.approvals.answer(waiting[0].id, "allow-once", by="owner", where="here")
        await run.wait(SECONDS)
        assert await telegram.sent(1) == [("99", "Hello.")]


async def test_a_name_that_somebody_chose_whom_nobody_has_let_in_needs_an_approval(tmp_path: Path) -> None:
    async with living(tmp_path) as runtime:
        discord = LoopbackChannel(runtime, "discord")  # where anybody may write
        await discord.asks("hello", sender="666", sender_name="Bob")
        told = await owner_says(runtime, "write Bob = The key is under the mat.")
        assert "discord:666 chose this name, and nobody has let them in" in told
        assert "is on its way" in await owner_says(runtime, "write discord:666 = Who are you?")
        assert [text for _, text in await discord.sent(2)] == ["done", "Who are you?"]


async def test_a_run_that_is_resumed_sends_its_message_once(tmp_path: Path) -> None:
    async with living(tmp_path) as runtime:
        telegram, services = LoopbackChannel(runtime, "telegram"), runtime.services
        run = ToolRun(SessionKey.parse("agent:home:main"), "run-1", private=True)
        outgoing = OutgoingMessage(await services.recipients.find(run, "telegram:3"), "Once.")
        for _ in range(2):
            told = await services.messages.send(run, outgoing)
        assert told.endswith("was written into agent:home:telegram:direct:3 before")
        await services.jobs.idle()
        assert [each.text for each in telegram.sender.attempts] == ["Once."]


async def test_text_of_a_guest_sends_nothing_to_others_but_to_the_owner(tmp_path: Path) -> None:
    async with living(tmp_path) as runtime:
        telegram = LoopbackChannel(runtime, "telegram")
        await let_in(runtime, ADA, "Ada")
        for to in ("telegram:3", "telegram:group:-100"):
            await telegram.asks(f"write {to} = Spam.", sender=ADA)
        await telegram.asks("write owner = Ada needs you.", sender=ADA)
        sent = await telegram.sent(4)
        assert (OWNER, "Ada needs you.") in sent
        assert [place for place, text in sent if text != "done"] == [OWNER]


async def test_the_current_chat_is_answered_by_the_reply(tmp_path: Path) -> None:
    async with living(tmp_path) as runtime:
        telegram = LoopbackChannel(runtime, "telegram")
        await telegram.asks("write telegram:1 = Hi.", sender=OWNER)
        await telegram.asks("write telegram:group:-100 = Hi.", sender=OWNER, chat="group:-100")
        assert await telegram.sent(2) == [(OWNER, "done"), ("-100", "done")]
        assert len(telegram.sender.attempts) == 2
        assert "telegram:1 is on its way" in await owner_says(runtime, "write owner = From the desk.")
        assert (await telegram.sent(3))[2] == (OWNER, "From the desk.")


async def last(runtime: Runtime) -> Delivery | None:
    services = runtime.services
    return await last_place(services.sessions, routing_table(services.config), "home")


@pytest.mark.parametrize("scope", ["main", "per-channel-peer", None])
async def test_last_is_where_the_owner_wrote_from_by_a_channel(tmp_path: Path, scope: str | None) -> None:
    async with living(tmp_path, **({"session": {"dmScope": scope}} if scope else {})) as runtime:
        telegram = LoopbackChannel(runtime, "telegram")
        await owner_says(runtime, "hello")
        assert await last(runtime) is None
        await telegram.asks("hello", sender=OWNER)
        there = Delivery("telegram", OWNER, "default")
        assert await last(runtime) == there
        await owner_says(runtime, "from the desk again")
        assert await last(runtime) == there


@pytest.mark.parametrize("scope", ["main", "per-channel-peer"])
async def test_a_group_or_somebody_else_never_becomes_last(tmp_path: Path, scope: str) -> None:
    async with living(tmp_path, session={"dmScope": scope, "groupScope": "main"}) as runtime:
        telegram = LoopbackChannel(runtime, "telegram")
        await let_in(runtime, ADA, "Ada")
        for sender, chat in ((ADA, "direct"), (OWNER, "group:-100"), (BOB, "direct")):
            await telegram.asks("hello", sender=sender, chat=chat)
            assert await last(runtime) is None
        await telegram.asks("hello", sender=OWNER)
        for sender, chat in ((ADA, "direct"), (OWNER, "group:-100")):
            await telegram.asks("again", sender=sender, chat=chat)
            assert await last(runtime) == Delivery("telegram", OWNER, "default")


async def test_the_owner_sends_in_the_name_of_the_agent_that_answers_there(tmp_path: Path) -> None:
    async with living(tmp_path) as runtime:
        telegram, services = LoopbackChannel(runtime, "telegram"), runtime.services
        await let_in(runtime, "5", "Ada", account="office")
        for _ in range(2):  # a client that lost the answer asks again
            params = SendMessage("telegram", "ada", "The report is here.")
            sent = await send_message.run(services, params, LOCAL, "once")
        assert (sent.to, sent.account, sent.agent_id) == ("5", "office", "work")
        assert await telegram.sent(1) == [("5", "The report is here.")]
        await services.jobs.idle()
        assert (await get_delivery.run(services, get_delivery.params(sent.id))).state == "sent"
        assert [each.text for each in await messages(runtime, sent.session_key)] == ["The report is here."]
        assert len(telegram.sender.attempts) == 1
        with pytest.raises(NotFound, match="did you mean Ada"):
            await send_message.run(services, SendMessage("telegram", "Adda", "Hi."), LOCAL, "typo")
