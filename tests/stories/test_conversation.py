"""Ordinary conversations: said, answered, kept, counted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from palinurus.context.assemble import violations
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import Failure
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, Image, Text, ToolCall, ToolResult, UserMessage
from palinurus.sessions.transcript import MessageEntry, ResetEntry
from palinurus.testing.fakes import Reply, call, calls, fails
from palinurus.testing.harness import Harness

MAIN = "agent:main:main"


async def test_one_sentence_in_one_sentence_out(pal: Harness) -> None:
    pal.model.says("Ahoy.")
    reply = await pal.hears("hello")
    assert (reply.status, reply.text, reply.model) == ("ok", "Ahoy.", "scripted/model-1")
    assert [message.text for message in await pal.messages()] == ["hello", "Ahoy."]


async def test_the_model_reads_what_was_said_before(pal: Harness) -> None:
    await pal.hears("my bicycle is green")
    await pal.hears("what colour is it?")
    assert [message.text for message in pal.model.requests[1].messages] == [
        "my bicycle is green",
        "you said: my bicycle is green",
        "what colour is it?",
    ]


async def test_sessions_do_not_hear_each_other(pal: Harness) -> None:
    await pal.hears("a secret", key="agent:main:direct:alice")
    await pal.hears("hello", key="agent:main:direct:bob")
    assert [message.text for message in pal.model.requests[1].messages] == ["hello"]


async def test_messages_that_come_at_once_are_answered_one_after_the_other(pal: Harness) -> None:
    runs = [await pal.submits(f"m{number}") for number in range(8)]
    await asyncio.gather(*(run.wait(60) for run in runs))
    said = [message.text for message in await pal.messages()]
    assert said == [word for number in range(8) for word in (f"m{number}", f"you said: m{number}")]


async def test_every_entry_of_a_transcript_is_the_child_of_the_one_before(pal: Harness) -> None:
    pal.model.says(calls(call("ls")), "Some files.")
    await pal.hears("what is there?")
    await pal.hears("/new")
    await pal.hears("and now?")
    entries = await pal.transcript()
    assert [entry.parent_id for entry in entries[1:]] == [entry.id for entry in entries[:-1]]


async def test_tokens_are_counted_in_the_session_s_row(pal: Harness) -> None:
    pal.model.says(calls(call("ls")), "Some files.")
    reply = await pal.hears("what is there?")
    session = await pal.sessions.find(SessionKey.main())
    assert session is not None
    assert (session.input_tokens, session.output_tokens, session.total_tokens) == (200, 20, 220)
    assert session.context_tokens == 110  # of the last call alone
    assert (reply.usage.input, reply.usage.output) == (200, 20)
    assert (session.provider, session.model) == ("scripted", "model-1")
    assert session.delivery is not None
    assert session.delivery.channel == "cli"
    assert session.entry_count == len(await pal.transcript())


async def test_a_picture_reaches_the_model(pal: Harness) -> None:
    picture = Image("aGk=", "image/png")
    run = await pal.dispatcher.submit(Inbound("what is this?", "k", images=(picture,)))
    await run.wait(60)
    newest = pal.model.requests[0].messages[-1]
    assert newest.content == (Text("what is this?"), picture)


async def test_a_failing_model_is_an_error_with_its_kind_and_the_next_turn_works(pal: Harness) -> None:
    pal.model.says(fails(Failure.OVERLOAD, "too busy"))
    failed = await pal.hears("one")
    assert (failed.status, failed.error_kind, failed.error) == ("error", "overload", "too busy")
    pal.model.says("Here again.")
    assert (await pal.hears("two")).text == "Here again."
    assert violations(pal.model.requests[-1].messages) == []
    assert [message.text for message in pal.model.requests[-1].messages][::2] == ["one", "two"]


async def test_no_reply_is_silence_for_the_sender_and_stays_in_the_transcript(pal: Harness) -> None:
    pal.model.says(" no_reply\n")
    reply = await pal.hears("thanks")
    assert (reply.status, reply.text) == ("ok", "")
    assert (await pal.messages())[-1].text == " no_reply\n"


async def test_words_about_no_reply_are_a_reply(pal: Harness) -> None:
    pal.model.says("I got NO_REPLY from them.")
    assert (await pal.hears("did they write?")).text == "I got NO_REPLY from them."


async def test_a_heartbeat_reads_its_file_anew_each_time_and_other_turns_do_not(pal: Harness, workspace: Path) -> None:
    async def beat(number: int) -> str:
        run = await pal.dispatcher.submit(Inbound("beat", f"h{number}", channel="heartbeat"))
        await run.wait(60)
        return "".join(note.text for note in pal.model.requests[-1].messages[-1].context)

    assert "tide table" in await beat(1)
    (workspace / "HEARTBEAT.md").write_text("Feed the cat.\n")
    assert "Feed the cat." in await beat(2)
    await pal.hears("hello")
    newest = pal.model.requests[-1].messages[-1]
    assert [note.kind for note in newest.context] == ["time"]
    assert all("tide table" not in request.head.system for request in pal.model.requests)
    assert len({request.head.system for request in pal.model.requests}) == 1


async def test_a_heartbeat_does_not_count_as_somebody_speaking(pal: Harness) -> None:
    await pal.hears("hello")
    before = await pal.sessions.find(SessionKey.main())
    pal.clock.advance(hours=1)
    await (await pal.dispatcher.submit(Inbound("beat", "h", channel="heartbeat"))).wait(60)
    after = await pal.sessions.find(SessionKey.main())
    assert before is not None
    assert after is not None
    assert after.last_interaction_at == before.last_interaction_at
    assert after.updated_at == before.updated_at  # it costs the session no freshness


BROKEN = {
    "a call without its result": AssistantMessage((ToolCall("lost", "read", {}),), stop_reason="toolUse"),
    "a result of nothing": ToolResult("ghost", "read", "boo"),
    "an empty reply": AssistantMessage(()),
    "two replies": AssistantMessage((Text("and another thing"),)),
    "two users": UserMessage("are you there?"),
}


@pytest.mark.parametrize("wound", BROKEN)
async def test_a_wounded_transcript_costs_a_line_and_never_the_session(pal: Harness, wound: str) -> None:
    await pal.hears("one")
    session = await pal.sessions.open(SessionKey.main())
    rows = await pal.sessions.rows(session.id)
    entry = MessageEntry("wound", "2026-11-15T09:00:00.000Z", rows[-1].id, message=BROKEN[wound])
    await pal.sessions.append(session.id, [entry])
    torn = {"session_id": session.id, "id": "torn", "parent_id": "wound", "type": "message"}
    cut_off = '{"type": "message", "id": "to'
    await pal.database.write(lambda tx: tx.run("sessions.add_entry", payload=cut_off, **torn))
    await pal.hears("two")
    await pal.hears("three")
    sent = pal.model.requests[-1].messages
    assert violations(sent) == []
    assert {"one", "two", "three"} <= {message.text for message in sent if isinstance(message, UserMessage)}
    assert sent[: len(pal.model.requests[-2].messages)] == pal.model.requests[-2].messages


async def test_a_message_of_half_characters_is_answered(pal: Harness) -> None:
    pal.model.says(Reply("it broke \ud800 off"))
    reply = await pal.hears("what is \udcff this?")
    assert reply.status == "ok"
    assert msgspec.json.encode(pal.model.requests[0])
    assert (await pal.hears("go on")).status == "ok"


async def test_nothing_is_ever_taken_out_of_a_transcript(pal: Harness) -> None:
    await pal.hears("one")
    await pal.hears("/new two")
    texts = [message.text for message in await pal.messages()]
    assert texts == ["one", "you said: one", "two", "you said: two"]
    assert [entry.reason for entry in await pal.transcript() if isinstance(entry, ResetEntry)] == ["new"]
