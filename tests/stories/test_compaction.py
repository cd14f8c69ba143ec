"""A conversation outgrows its window: it is summed up in time, nothing is lost, and the next message is answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from palinurus.context.assemble import violations
from palinurus.context.settings import CompactionSettings
from palinurus.context.summary import HEADINGS
from palinurus.context.view import View, fold
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import Failure
from palinurus.domain.events import Notice
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import ToolResult, UserMessage
from palinurus.domain.tool import ToolOutput, ToolRun, tool
from palinurus.providers.provider import ModelRequest, ReplyEvent
from palinurus.sessions.extraction import Extraction
from palinurus.sessions.session import Session
from palinurus.sessions.transcript import CompactionEntry
from palinurus.testing.fakes import Reply, call, calls, fails
from palinurus.testing.harness import Harness
from support.windowed import WindowedProvider, good_summary, is_summary

MAIN = SessionKey.main()
WINDOW = 8_000
FILLER = "the tide turns and the harbour lights come on one after the other while nobody is looking "


@pytest.fixture
async def pal(workspace: Path) -> AsyncIterator[Harness]:
    @tool("weather", "What the weather is like.")
    async def weather(run: ToolRun, place: str) -> ToolOutput:
        return ToolOutput(f"{place}: " + FILLER * 12)

    async with Harness(workspace, model=WindowedProvider(window=WINDOW), tools=[weather]) as whole:
        yield whole


def told(turn: int) -> str:
    """About 300 tokens with an identifier of its own."""
    return f"Booking BK-{turn:04d}-x7 is for berth {turn}. {FILLER * 16}"


async def talk(pal: Harness, turns: int, first: int = 0) -> None:
    for turn in range(first, first + turns):
        assert (await pal.hears(told(turn))).status == "ok"
        await pal.idle()


async def session(pal: Harness) -> Session:
    found = await pal.sessions.find(MAIN)
    assert found is not None
    return found


async def compactions(pal: Harness) -> list[CompactionEntry]:
    return [entry for entry in await pal.transcript() if isinstance(entry, CompactionEntry)]


async def view(pal: Harness) -> View:
    return fold(await pal.transcript())


async def notes(pal: Harness) -> list[Extraction]:
    return await pal.sessions.extractions((await session(pal)).id)


async def assert_saved(pal: Harness, turns: int) -> None:
    """Every identifier that was said is still read, or in notes."""
    read = "\n".join(line.message.text for line in (await view(pal)).lines)
    noted = "\n".join(made.notes for made in await notes(pal))
    lost = [turn for turn in range(turns) if f"BK-{turn:04d}-x7" not in read + noted]
    assert lost == []


async def test_a_long_conversation_is_summed_up_and_stays_within_its_window(pal: Harness) -> None:
    await talk(pal, 40)
    done = await compactions(pal)
    assert len(done) >= 3
    assert (await session(pal)).compaction_count == len(done)
    assert max(pal.model.counts) <= WINDOW
    for entry in done:
        assert all(heading in entry.summary for heading in HEADINGS)
        assert entry.details is not None
        assert (entry.details["trigger"], entry.details["madeBy"]) == ("threshold", "model")
        assert entry.tokens_before > entry.details["tokensAfter"]
    await assert_saved(pal, 40)
    assert len(await pal.messages()) == 80  # every word is still there


async def test_what_was_cut_is_found_by_searching_the_transcripts(pal: Harness, home: Any) -> None:
    await talk(pal, 30)
    assert "BK-0001-x7" not in "\n".join(line.message.text for line in (await view(pal)).lines[1:])
    hits = await pal.services(home).index.search("BK-0001-x7")
    assert any("BK-0001-x7" in hit.snippet for hit in hits)


async def test_within_an_epoch_the_prompt_only_grows_and_every_cut_begins_one(pal: Harness) -> None:
    await talk(pal, 40)
    heads = 0
    for earlier, later in zip(pal.model.requests, pal.model.requests[1:], strict=False):
        assert violations(later.messages) == []
        if later.messages[: len(earlier.messages)] != earlier.messages:
            heads += 1
            assert "<summary>" in later.messages[0].text
    assert heads == len(await compactions(pal))


async def test_a_summary_that_lost_something_is_asked_for_again_and_told_what(pal: Harness) -> None:
    answers = [Reply("## Decisions\n- they talked"), None]

    def sums(request: ModelRequest) -> Reply:
        answer = answers.pop(0) if answers else None
        return answer or good_summary(request)

    pal.model.sums = sums
    await talk(pal, 16)
    first, second, *_ = pal.model.summaries
    assert (len(first.messages), len(second.messages)) == (1, 3)
    complaint = second.messages[-1].text
    assert "## Open TODOs" in complaint
    assert "BK-0000-x7" in complaint
    (entry, *_) = await compactions(pal)
    assert entry.details is not None
    assert (entry.details["madeBy"], entry.details["attempts"]) == ("model", 2)


async def test_a_history_that_is_too_long_for_one_request_is_summed_up_in_stages(pal: Harness) -> None:
    await talk(pal, 2)
    await pal.hears(f"Keep GI-4242-zz in mind. {FILLER * 900}")
    await pal.hears("Are you still there?")
    asked = [request.messages[0].text for request in pal.model.summaries]
    assert len(asked) > 3
    assert all(pal.model.tokens(request) <= WINDOW for request in pal.model.summaries)
    assert "characters were summed up" in asked[-1]  # the last one puts the parts together
    (entry,) = await compactions(pal)
    assert "GI-4242-zz" in entry.summary


async def test_identifiers_that_the_model_forgets_twice_are_put_into_its_summary(pal: Harness) -> None:
    pal.model.sums = lambda _: Reply("\n".join(f"{heading}\n- none" for heading in HEADINGS))
    await talk(pal, 16)
    (entry, *_) = await compactions(pal)
    assert entry.details is not None
    assert entry.details["madeBy"] == "model"
    assert "BK-0000-x7" in entry.summary.partition("## Exact identifiers")[2]


@pytest.mark.parametrize(
    "sums",
    [
        lambda _: Reply("I cannot do that."),
        lambda _: Reply(""),
        lambda _: fails(Failure.OVERLOAD),
        lambda _: fails(Failure.CONTEXT_OVERFLOW),
        lambda _: calls(call("weather", place="here")),
        lambda request: Reply(good_summary(request).text + "\n" + FILLER * 2_000),
    ],
    ids=["refusal", "silence", "overload", "overflow", "a call", "far too long"],
)
async def test_when_no_model_sums_up_the_summary_is_made_by_rule(pal: Harness, sums: Any) -> None:
    pal.model.sums = sums
    await talk(pal, 30)
    done = await compactions(pal)
    assert len(done) >= 2
    for entry in done:
        assert entry.details is not None
        assert entry.details["madeBy"] == "extractor"
        assert all(heading in entry.summary for heading in HEADINGS)
        assert "BK-" in entry.summary.partition("## Exact identifiers")[2]
    assert max(pal.model.counts) <= WINDOW
    await assert_saved(pal, 30)


async def test_the_provider_says_it_is_too_long_and_the_turn_goes_on_after_a_cut(pal: Harness) -> None:
    await talk(pal, 4)
    pal.model.says(fails(Failure.CONTEXT_OVERFLOW), "answered after all")
    reply = await pal.hears("and now?")
    assert (reply.status, reply.text) == ("ok", "answered after all")
    (entry,) = await compactions(pal)
    assert entry.details is not None
    assert entry.details["trigger"] == "overflow"
    assert [message.text for message in await pal.messages()][-2:] == ["and now?", "answered after all"]
    await assert_saved(pal, 4)


async def test_a_provider_that_refuses_everything_fails_the_turn_once_and_not_the_session(pal: Harness) -> None:
    await talk(pal, 4)
    pal.model.says(fails(Failure.CONTEXT_OVERFLOW), fails(Failure.CONTEXT_OVERFLOW))
    reply = await pal.hears("and now?")
    assert (reply.status, reply.error_kind) == ("error", "context_overflow")
    assert (await pal.hears("hello?")).status == "ok"


async def test_a_turn_with_many_calls_is_cut_in_the_middle_and_finished(pal: Harness) -> None:
    steps = 25
    for step in range(steps):
        pal.model.says(calls(call("weather", f"c{step}", place=f"P-{step:03d}-q")))
    pal.model.says("all looked at")
    reply = await pal.hears("Look at the weather of 25 places for trip TR-77-aa")
    assert (reply.status, reply.text) == ("ok", "all looked at")
    assert len(await compactions(pal)) >= 1
    assert max(pal.model.counts) <= WINDOW
    assert all(violations(request.messages) == [] for request in pal.model.requests)
    results = [message for message in await pal.messages() if isinstance(message, ToolResult)]
    assert [result.tool_call_id for result in results] == [f"c{step}" for step in range(steps)]
    noted = "\n".join(made.notes for made in await notes(pal))
    assert "TR-77-aa" in noted + "\n".join(line.message.text for line in (await view(pal)).lines)


class Hanging(WindowedProvider):
    """Hangs once, in the first call behind a summary."""

    def __init__(self) -> None:
        super().__init__(window=WINDOW)
        self.reached = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ReplyEvent]:
        if self.summaries and not is_summary(request) and not self.reached.is_set():
            self.reached.set()
            await asyncio.get_running_loop().create_future()
        async for event in super().stream(request):
            yield event


async def test_a_turn_that_was_cut_in_the_middle_goes_on_after_a_crash(pal: Harness) -> None:
    pal.model = Hanging()
    for step in range(25):
        pal.model.says(calls(call("weather", f"c{step}", place=f"P-{step:03d}-q")))
    pal.model.says("all looked at")
    run = await pal.submits("Look at the weather of 25 places for trip TR-77-aa", idempotency_key="trip")
    await asyncio.wait_for(pal.model.reached.wait(), 60)
    (entry,) = await compactions(pal)
    assert entry.details is not None
    assert entry.details["runs"] == [run.id]
    assert not any(line.id == run.id for line in (await view(pal)).lines)
    await pal.crash()
    await pal.idle()
    again = await pal.dispatcher.find(run.id)
    assert (await again.wait(60)).text == "all looked at"
    asked = [message.text for message in await pal.messages() if isinstance(message, UserMessage)]
    assert len(asked) == 1
    assert len([message for message in await pal.messages() if isinstance(message, ToolResult)]) == 25
    await pal.crash()  # asked for once more, the same is answered
    assert (await (await pal.submits("x", idempotency_key="trip")).wait(60)).text == "all looked at"


async def test_a_message_larger_than_the_window_fails_with_one_sentence_and_the_next_is_answered(pal: Harness) -> None:
    await talk(pal, 2)
    asked = len(pal.model.requests)
    giant = f"Keep GI-4242-zz in mind. {FILLER * 600}"
    reply = await pal.hears(giant)
    assert reply.status == "error"
    assert "send it in parts" in reply.error
    assert len(pal.model.requests) == asked
    after = await pal.hears("Are you still there?")
    assert (after.status, after.text) == ("ok", "you said: Are you still there?")
    assert max(pal.model.counts) <= WINDOW
    noted = "\n".join(made.notes for made in await notes(pal))
    assert "GI-4242-zz" in noted


async def test_stop_is_heard_while_the_summary_is_written(pal: Harness) -> None:
    await talk(pal, 14)
    pal.model.sums = lambda request: pytest.fail("asked after a stop")
    run = await pal.submits("one more")
    run.stop.request()
    result = await run.wait(60)
    assert result.status == "aborted"
    await assert_saved(pal, 14)


async def test_who_is_verbose_is_told_of_a_compaction(pal: Harness) -> None:
    await pal.hears("/verbose on")
    heard: list[Notice] = []
    for turn in range(20):
        run = await pal.submits(told(turn))
        heard += [event async for event in run.events() if isinstance(event, Notice)]
    assert any(event.text.startswith("compacted:") for event in heard)


async def test_what_the_summary_costs_is_in_the_ledger(pal: Harness) -> None:
    await talk(pal, 16)
    (entry, *_) = await compactions(pal)
    spent = await pal.database.read(lambda tx: tx.all("usage.of_session", session=str(MAIN), since=0, agent=""))
    ((_, *_, tokens, _, _, _, _),) = (row for row in spent if row[0] == entry.id)
    assert tokens > 0


async def test_compaction_can_be_turned_off_and_still_answers_the_provider(pal: Harness) -> None:
    settings = CompactionSettings(enabled=False)
    pal.agents.agent = msgspec.structs.replace(pal.agents.agent, compaction=settings)
    await talk(pal, 20)
    done = await compactions(pal)
    assert done
    assert {entry.details["trigger"] for entry in done if entry.details} == {"overflow"}


async def test_text_from_outside_in_a_summary_keeps_its_origin(pal: Harness) -> None:
    inbound = Inbound(f"From the web: {FILLER * 10}", "out", session_key=str(MAIN), origin="outside", sender="x")  # type: ignore[arg-type]
    await (await pal.dispatcher.submit(inbound)).wait(60)
    await talk(pal, 16)
    first = (await view(pal)).lines[0].message
    assert isinstance(first, UserMessage)
    assert first.origin == "outside"


async def test_compact_sums_up_when_asked_with_an_eye_on_the_focus(pal: Harness) -> None:
    await talk(pal, 6)
    reply = await pal.hears("/compact the berths")
    assert reply.status == "ok"
    assert reply.text.startswith("Compacted: ")
    assert "the berths" in pal.model.summaries[-1].messages[0].text
    (entry,) = await compactions(pal)
    assert entry.details is not None
    assert entry.details["trigger"] == "manual"
    assert (await pal.hears("go on")).status == "ok"
    assert "<summary>" in pal.model.requests[-1].messages[0].text
    await assert_saved(pal, 6)


async def test_compact_has_nothing_to_do_in_a_conversation_that_has_not_begun(pal: Harness) -> None:
    assert (await pal.hears("/compact")).text == "There is nothing to summarise yet."
    assert await compactions(pal) == []


async def test_a_reset_leaves_notes_of_everything_and_asks_the_model_for_those_alone(pal: Harness) -> None:
    await talk(pal, 6)
    asked = len(pal.model.requests) + len(pal.model.summaries)
    await pal.hears("/new")
    assert len(pal.model.requests) + len(pal.model.summaries) == asked
    assert len(pal.model.flushes) == 1
    await assert_saved(pal, 6)
    assert (await view(pal)).lines == ()


async def test_notes_of_a_group_are_not_private(pal: Harness) -> None:
    key = "agent:main:telegram:group:g1"
    await pal.hears("Booking BK-0001-x7 is ours.", key=key)
    await pal.hears("/new", key=key)
    found = await pal.sessions.find(SessionKey.parse(key))
    assert found is not None
    (made,) = await pal.sessions.extractions(found.id)
    assert (made.private, made.made_by) == (False, "extractor")
    assert "BK-0001-x7" in made.notes
    assert await pal.sessions.unplaced() == []


async def test_notes_are_taken_ahead_of_the_cut_once_in_each_cycle(pal: Harness) -> None:
    await talk(pal, 40)
    made = await notes(pal)
    row = await session(pal)
    assert row.memory_flush_count >= 1
    assert row.memory_flush_count <= row.compaction_count + 1
    assert len({one.up_to for one in made}) == len(made)


async def test_an_answer_with_calls_in_the_middle_is_never_split_from_its_results(pal: Harness) -> None:
    for turn in range(30):
        pal.model.says(calls(call("weather", f"a{turn}", place="x"), call("weather", f"b{turn}", place="y")), "done")
        await pal.hears(told(turn))
    assert len(await compactions(pal)) >= 3
    for request in pal.model.requests:
        assert violations(request.messages) == []
        assert not any("interrupted before this call finished" in message.text for message in request.messages)


async def test_a_summary_with_a_secret_is_stored_without_it(workspace: Path) -> None:
    secret = "kestrel-lighthouse-4417"

    def leaky(request: ModelRequest) -> Reply:
        return Reply(good_summary(request).text.replace("- none", f"- the word is {secret}", 1))

    async with Harness(workspace, model=WindowedProvider(window=WINDOW, sums=leaky), secrets=[secret]) as pal:
        await talk(pal, 16)
        (entry, *_) = await compactions(pal)
        assert secret not in entry.summary
        assert all(secret not in message.text for request in pal.model.requests for message in request.messages)
