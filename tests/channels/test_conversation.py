"""A conversation by a channel, from the first message of a person to the reply in the chat."""

from __future__ import annotations

import asyncio
from pathlib import Path

from channels.channel_home import OPEN, channel_home
from palinurus.config.home import Home
from palinurus.dispatch.channels import QuotedMessage, ReceivedFile
from palinurus.domain.errors import JobFailed, JobRefused
from support.wire import Calls, Says

LONG = "\n\n".join(f"Paragraph {n} " + "word " * 40 for n in range(5))


async def test_the_owner_writes_and_is_answered_in_the_chat(home: Home) -> None:
    async with channel_home(home) as channels:
        await channels.network.writes("hello")
        await channels.network.until(lambda: channels.network.texts)
        assert channels.network.texts == ["aye"]
        assert channels.network.shown[0].to == "42"
        [question, answer] = (await channels.messages())[-2:]
        assert "hello" in str(question)
        assert "aye" in str(answer)


async def test_a_repeated_update_is_answered_once(home: Home) -> None:
    async with channel_home(home) as channels:
        for _ in range(3):
            await channels.network.writes("hello", update="same")
        await channels.rests()
        assert channels.network.texts == ["aye"]


async def test_a_repeated_update_is_answered_once_over_a_restart(home: Home) -> None:
    async with channel_home(home) as channels:
        await channels.network.writes("hello", update="same")
        await channels.network.until(lambda: channels.network.texts)
    async with channel_home(home) as channels:
        await channels.network.writes("hello", update="same")
        await channels.network.writes("again")
        await channels.network.until(lambda: channels.network.texts)
        await channels.rests()
        assert len(channels.network.texts) == 1
        assert len(channels.model.requests) == 1


async def test_a_stranger_gets_a_code_and_the_model_nothing(home: Home) -> None:
    async with channel_home(home, {"token": "t"}) as channels:
        await channels.network.writes("let me in", sender="7", name="Ada (owner)")
        await channels.network.until(lambda: channels.network.texts)
        assert "Pairing code" in channels.network.texts[0]
        assert channels.model.requests == []


async def test_a_long_reply_comes_in_several_messages_within_the_limit(home: Home) -> None:
    async with channel_home(home, otherwise=Says(LONG)) as channels:
        await channels.network.writes("tell me")
        await channels.network.until(lambda: len(channels.network.texts) >= 3)
        await channels.rests()
        assert all(len(text) <= 400 for text in channels.network.texts)
        assert " ".join(" ".join(channels.network.texts).split()) == " ".join(LONG.split())


async def test_a_part_that_did_not_arrive_is_sent_again_and_the_others_are_not(home: Home) -> None:
    async with channel_home(home, otherwise=Says(LONG)) as channels:
        sent = channels.network.send

        async def failing(target, part):  # type: ignore[no-untyped-def]
            if len(channels.network.shown) == 1 and not channels.network.reactions:
                channels.network.reactions.append(("once", ""))
                raise JobFailed("busy", retry_after=0)
            return await sent(target, part)

        channels.network.send = failing  # type: ignore[method-assign]
        await channels.network.writes("tell me")
        await channels.network.until(lambda: len(channels.network.texts) >= 5)
        await channels.rests()
        assert " ".join(" ".join(channels.network.texts).split()) == " ".join(LONG.split())


async def test_what_may_have_arrived_is_ambiguous_and_goes_on_when_a_person_says_so(home: Home) -> None:
    async with channel_home(home, otherwise=Says(LONG)) as channels:
        channels.network.after = [ConnectionError("cut")]
        await channels.network.writes("tell me")
        await channels.rests()
        [delivery] = await channels.deliveries()
        assert delivery.state == "ambiguous"
        assert len(channels.network.texts) == 1
        await channels.services.deliveries.retry(delivery.id)
        await channels.rests()
        [delivery] = await channels.deliveries()
        assert delivery.state == "sent"
        assert len(channels.network.texts) == len(delivery.sent) + 1  # the first twice: nobody knew


async def test_a_chat_that_is_gone_is_a_failed_delivery(home: Home) -> None:
    async with channel_home(home) as channels:
        channels.network.troubles = [JobRefused("the bot was blocked")]
        await channels.network.writes("hello")
        await channels.rests()
        [delivery] = await channels.deliveries()
        assert (delivery.state, delivery.trouble) == ("failed", "the bot was blocked")


async def test_a_group_is_answered_only_when_it_speaks_to_the_agent_and_learns_what_was_said(home: Home) -> None:
    async with channel_home(home) as channels:
        await channels.network.writes("the boat is red", sender="7", name="Bo", chat="700")
        await channels.network.writes("what colour?", sender="8", name="Cy", chat="700", mention=True)
        await channels.network.until(lambda: channels.network.texts)
        assert channels.network.shown[0].to == "700"
        [request] = channels.model.requests
        assert "the boat is red" in str(request)
        assert channels.network.shown[0].part.reply_to == "2"  # quoted, in a group


async def test_a_quoted_message_is_told_to_the_model_as_text_from_outside(home: Home) -> None:
    async with channel_home(home) as channels:
        await channels.network.writes("is this so?", quoted=QuotedMessage("9", "7", "Bo", "the moon is cheese"))
        await channels.network.until(lambda: channels.network.texts)
        [request] = channels.model.requests
        assert "the moon is cheese" in str(request)
        assert "outside text" in str(request)


async def test_a_received_file_is_in_the_workspace_and_named_in_the_message(home: Home, workspace: Path) -> None:
    async with channel_home(home) as channels:
        channels.network.files["f1"] = b"some notes" * 500
        await channels.network.writes("look", files=(ReceivedFile("document", "f1", "../../notes.txt", "text/plain"),))
        await channels.network.until(lambda: channels.network.texts)
        [message] = [each for each in await channels.messages() if "look" in str(each)]
        assert "media/inbox/" in str(message)
        [stored] = (channels.services.workspace("main") / "media" / "inbox").iterdir()
        assert stored.read_bytes() == b"some notes" * 500
        assert stored.suffix == ".txt"


async def test_a_strangers_file_is_never_fetched(home: Home) -> None:
    async with channel_home(home, {"token": "t"}) as channels:
        await channels.network.writes("look", sender="7", files=(ReceivedFile("document", "f1", "a.txt"),))
        await channels.network.until(lambda: channels.network.texts)
        assert channels.network.fetched == []


async def test_a_file_over_the_limit_is_left_out_and_the_message_goes_on(home: Home) -> None:
    async with channel_home(home, OPEN | {"mediaMaxMb": 0.001}) as channels:
        channels.network.files["f1"] = bytes(5000)
        await channels.network.writes("look", files=(ReceivedFile("document", "f1", "big.bin"),))
        await channels.network.until(lambda: channels.network.texts)
        assert "0.001 MB" in str(await channels.messages())


async def test_a_file_for_which_the_inbox_has_no_room_is_left_out_and_said(home: Home, workspace: Path) -> None:
    async with channel_home(home, OPEN | {"mediaInboxMb": 0.008}) as channels:
        for number in (1, 2):
            channels.network.files[f"f{number}"] = bytes([number]) * 5000
            await channels.network.writes("look", files=(ReceivedFile("document", f"f{number}", "a.bin"),))
            await channels.network.until(lambda: len(channels.network.texts) == number)  # noqa: B023  awaited at once
        [stored] = (workspace / "media" / "inbox").iterdir()
        assert stored.read_bytes() == b"\1" * 5000
        assert "mediaInboxMb" in str(await channels.messages())


async def test_a_failed_run_is_said_to_the_person(home: Home) -> None:
    from support.wire import Answers

    async with channel_home(home, otherwise=Answers(400)) as channels:
        await channels.network.writes("hello")
        await channels.network.until(lambda: channels.network.texts)
        assert channels.network.texts[0].startswith("⚠️")


async def test_a_command_is_answered_and_no_model_is_asked(home: Home) -> None:
    async with channel_home(home) as channels:
        await channels.network.writes("/status")
        await channels.network.until(lambda: channels.network.texts)
        assert "mine/test" in channels.network.texts[0]
        assert channels.model.requests == []


async def test_an_approval_is_asked_with_buttons_and_only_the_owners_press_counts(home: Home) -> None:
    def model(request: object) -> object:
        return (
            Says("done")
            if "tool" in str(request["messages"][-1]["role"])
            else Calls(("exec", {"command": "rm -rf build"}))
        )  # type: ignore[index]

    asks = {"tools": {"exec": {"ask": "always"}}, "agents": {"sandbox": {"mode": "off"}}}
    async with channel_home(home, otherwise=model, **asks) as channels:  # type: ignore[arg-type]
        await channels.network.writes("clean up")
        await channels.network.until(lambda: any(each.part.buttons for each in channels.network.shown))
        question = next(each for each in channels.network.shown if each.part.buttons)
        assert "rm -rf build" in question.text
        assert "owner" in await channels.network.presses(question, "Deny", sender="7")
        assert "enied" in await channels.network.presses(question, "Deny")
        await channels.network.until(lambda: "done" in channels.network.texts)
        await channels.network.until(lambda: question.part.buttons == ())


async def test_a_preview_grows_and_becomes_the_reply(home: Home) -> None:
    async with channel_home(home, OPEN | {"streaming": "partial"}, otherwise=Says("word " * 60)) as channels:
        await channels.network.writes("tell me")
        await channels.network.until(lambda: channels.network.texts)
        await channels.rests()
        assert [" ".join(text.split()) for text in channels.network.texts] == [("word " * 60).strip()]


async def test_a_network_that_is_lost_is_connected_again(home: Home) -> None:
    async with channel_home(home) as channels:
        channels.services.sleep = lambda _: asyncio.sleep(0)
        channels.network.disconnect()
        await channels.network.until(lambda: channels.network.runs == 2)
        await channels.network.writes("hello")
        await channels.network.until(lambda: channels.network.texts)


async def test_a_wrong_token_is_said_and_the_other_account_works(home: Home) -> None:
    account = OPEN | {"accounts": {"good": {"token": "t"}, "bad": {"token": "wrong"}}}
    async with channel_home(home, account) as channels:
        await channels.network.writes("hello")
        await channels.network.until(lambda: channels.network.texts)
        states = {each.account: each.state for each in channels.host.statuses()}
        assert states == {"bad": "failed", "good": "connected"}


async def test_a_reply_sends_a_file_of_the_workspace(home: Home, workspace: Path) -> None:
    (workspace / "plan.txt").write_text("the plan")
    async with channel_home(home, otherwise=Says("Here it is.\nMEDIA:plan.txt\nMEDIA:../../etc/passwd")) as channels:
        await channels.network.writes("the plan, please")
        await channels.network.until(lambda: len(channels.network.shown) == 2)
        text, file = (message.part for message in channels.network.shown)
        assert text.text.startswith("Here it is.")
        assert "passwd was not sent" in text.text
        assert file.file is not None
        assert (file.file.name, file.file.data) == ("plan.txt", b"the plan")


async def test_a_group_gets_no_private_file(home: Home) -> None:
    async with channel_home(home, otherwise=Says("MEDIA:MEMORY.md")) as channels:
        await channels.network.writes("send it", sender="7", chat="700", mention=True)
        await channels.network.until(lambda: channels.network.texts)
        await channels.rests()
        assert [message.part.file for message in channels.network.shown] == [None]


async def test_an_update_that_comes_again_before_it_is_stored_is_acknowledged_with_the_first(home: Home) -> None:
    async with channel_home(home) as channels:
        submit, gate = channels.services.reception.receive, asyncio.Event()

        async def slow(inbound, complete=None):  # type: ignore[no-untyped-def]
            await gate.wait()
            return await submit(inbound, complete)

        channels.services.reception.receive = slow  # type: ignore[method-assign]
        both = [asyncio.create_task(channels.network.writes("hello", update="same")) for _ in range(2)]
        await asyncio.wait(both, timeout=0.05)
        assert not any(task.done() for task in both)
        gate.set()
        await asyncio.gather(*both)
        await channels.network.until(lambda: channels.network.texts)
        assert len(channels.model.requests) == 1


async def test_what_is_shown_of_a_reply_is_not_held_while_the_reply_waits(home: Home) -> None:
    async with channel_home(home) as channels:
        channels.network.troubles = [JobFailed("down", retry_after=3600) for _ in range(5)]
        for number in range(5):
            await channels.network.writes(f"hello {number}", sender=f"9{number}")
        async with asyncio.timeout(60):
            await channels.services.dispatcher.idle()
            while channels.host.streams.count:
                await asyncio.sleep(0.01)
        assert channels.network.texts == []


async def test_an_accepted_message_is_acknowledged_and_that_is_taken_back_with_the_reply(home: Home) -> None:
    messages = {"ackReaction": "👀", "ackReactionScope": "all", "removeAckAfterReply": True}
    async with channel_home(home, messages=messages) as channels:
        written = await channels.network.writes("hello")
        await channels.network.until(lambda: len(channels.network.reactions) == 2)
        assert channels.network.reactions == [(written, "👀"), (written, "")]
