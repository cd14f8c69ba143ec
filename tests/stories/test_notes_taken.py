"""What a conversation leaves in memory: what was said and is worth keeping, in time, and nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from palinurus.context.daily_notes import NoteFiles
from palinurus.context.settings import CompactionSettings, FlushSettings, StartupSettings
from palinurus.domain.errors import Failure
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import UserMessage
from palinurus.providers.provider import ModelRequest, ReplyEvent
from palinurus.sessions.reset import ResetPolicy
from palinurus.sessions.transcript import ResetEntry
from palinurus.testing.fakes import Reply, fails
from palinurus.testing.harness import Harness
from support.windowed import WindowedProvider, is_flush

MAIN = SessionKey.main()
ADA = "My sister Ada lives in Oslo."
LIVES = '[{"text": "Ada, the sister of the user, lives in Oslo", "quote": "Ada lives in Oslo", "entities": ["Ada"]}'
CASTLE = ', {"text": "The user owns a castle in Spain", "quote": "Ada lives in Oslo"}'


@pytest.fixture
async def pal(workspace: Path) -> AsyncIterator[Harness]:
    async with Harness(workspace, model=WindowedProvider(otherwise=lambda _: Reply("Done."))) as whole:
        ready(whole)
        yield whole


def ready(pal: Harness, **settings: object) -> None:
    flush = FlushSettings(**settings)  # type: ignore[arg-type]
    pal.turns.maintenance.place_notes = NoteFiles(pal.sessions, lambda _: pal.files.boundary, pal.clock)
    compaction = CompactionSettings(flush=flush)
    pal.agents.agent = msgspec.structs.replace(pal.agents.agent, startup=StartupSettings(), compaction=compaction)


def daily(workspace: Path) -> str:
    return "\n".join(file.read_text() for file in (workspace / "memory").glob("*.md"))


def carried(pal: Harness) -> str:
    """The daily notes in the newest request."""
    newest = pal.model.requests[-1].messages[-1]
    assert isinstance(newest, UserMessage)
    return "\n".join(note.text for note in newest.context if note.kind == "startup")


async def test_a_fresh_start_has_the_model_take_notes_and_refuses_what_nobody_said(
    pal: Harness, workspace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pal.model.notes = lambda _: Reply(f"Sure! Here are the facts:\n{LIVES}{CASTLE}]")
    await pal.hears(f"{ADA} What do you think?")
    with caplog.at_level(logging.INFO):
        await pal.hears("/new")
    await pal.idle()
    assert len(pal.model.flushes) == 1
    text = daily(workspace)
    assert "- W @Ada: Ada, the sister of the user, lives in Oslo\n" in text
    assert "castle" not in text
    assert "Sure" not in text
    assert any("1 of the model's facts were refused" in record.getMessage() for record in caplog.records)


async def test_small_talk_costs_no_call_and_leaves_no_file(pal: Harness, workspace: Path) -> None:
    for words in ("hello", "again", "what can you do?", "list files", "thanks!"):
        await pal.hears(words)
    asked = len(pal.model.requests)
    await pal.hears("/new")
    await pal.idle()
    assert (len(pal.model.requests), pal.model.flushes, pal.model.summaries) == (asked, [], [])
    assert not (workspace / "memory").exists()


@pytest.mark.parametrize("notes", ["NO_REPLY", f"[{CASTLE[2:]}]", ""])
async def test_where_the_model_has_no_good_notes_the_users_own_sentence_is_kept(
    pal: Harness, workspace: Path, notes: str
) -> None:
    pal.model.notes = lambda _: Reply(notes) if notes else fails(Failure.OVERLOAD)
    await pal.hears(f"hello there. {ADA} Please list the files.")
    await pal.hears("/new")
    await pal.idle()
    found = [line for line in daily(workspace).splitlines() if line.startswith("- ")]
    assert found == [f"- W @Ada: {ADA}"]


@pytest.mark.parametrize("by_model", [True, False])
async def test_the_first_message_after_an_idle_reset_carries_the_notes_of_that_reset(
    pal: Harness, by_model: bool
) -> None:
    pal.model.notes = lambda _: Reply(f"{LIVES}]" if by_model else "NO_REPLY")
    pal.resets = ResetPolicy("idle", 4, 10)
    await pal.hears(ADA)
    pal.clock.advance(minutes=11)
    await pal.hears("good morning to you, where were we")
    assert len(pal.model.requests[-1].messages) == 1
    assert "lives in Oslo" in carried(pal)


class SlowNotes(WindowedProvider):
    """Never comes to an end with its notes."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ReplyEvent]:
        if is_flush(request):
            self.flushes.append(request)
            await asyncio.get_running_loop().create_future()
        async for event in super().stream(request):
            yield event


async def test_a_model_that_takes_too_long_delays_nobody_and_the_notes_are_there(workspace: Path) -> None:
    async with Harness(workspace, model=SlowNotes(otherwise=lambda _: Reply("Done."))) as pal:
        ready(pal, timeout_seconds=0.05)
        pal.resets = ResetPolicy("idle", 4, 10)
        await pal.hears(ADA)
        pal.clock.advance(minutes=11)
        reply = await asyncio.wait_for(pal.hears("good morning"), 60)
        assert reply.status == "ok"
        assert len(pal.model.flushes) == 1
        assert f"W @Ada: {ADA}" in carried(pal)


async def test_stop_is_heard_while_the_model_takes_notes(workspace: Path) -> None:
    async with Harness(workspace, model=SlowNotes(otherwise=lambda _: Reply("Done."))) as pal:
        ready(pal)
        await pal.hears(ADA)
        run = await pal.submits("/new")
        async with asyncio.timeout(60):
            while not pal.model.flushes:
                await asyncio.sleep(0)
        run.stop.request()
        await run.wait(60)
        assert any(isinstance(entry, ResetEntry) for entry in await pal.transcript())
        assert ADA in daily(workspace)


async def test_compact_has_the_model_take_notes_of_what_it_cuts(pal: Harness) -> None:
    pal.model.notes = lambda _: Reply(f"{LIVES}]")
    await pal.hears(ADA)
    for number in range(6):
        await pal.hears(f"And what do you say to number {number}?")
    await pal.hears("/compact")
    session = await pal.sessions.find(MAIN)
    assert session is not None
    (made, *_) = await pal.sessions.extractions(session.id)
    assert (made.made_by, made.notes) == ("model", "- W @Ada: Ada, the sister of the user, lives in Oslo")


async def test_a_conversation_that_outgrows_its_window_at_once_has_notes_of_the_model(pal: Harness) -> None:
    pal.model.notes = lambda _: Reply(f"{LIVES}]")
    ready(pal, ahead=0)  # so that none are taken ahead of time
    await pal.hears(ADA)
    session = await pal.sessions.find(MAIN)
    assert session is not None
    for number in range(20):
        await pal.hears(f"What do you say to this, number {number}? {'The tide turns. ' * 100}")
        await pal.idle()
    (made, *_) = await pal.sessions.extractions(session.id)
    assert made.made_by == "model"


async def test_what_the_config_asks_besides_is_asked_and_its_threshold_is_used_as_it_is(pal: Harness) -> None:
    ready(pal, prompt="Mind the boats above all.", ahead=7_000)
    await pal.hears(ADA)
    await pal.idle()
    (flush,) = pal.model.flushes
    assert flush.messages[-1].text.endswith("Mind the boats above all.")


async def test_somebody_who_waits_puts_the_notes_off_and_they_are_taken_by_the_model_later(workspace: Path) -> None:
    async with Harness(workspace, model=SlowNotes(otherwise=lambda _: Reply("Done."))) as pal:
        ready(pal, ahead=7_000)
        await pal.hears(ADA)
        async with asyncio.timeout(60):
            while not pal.model.flushes:
                await asyncio.sleep(0)
        await asyncio.wait_for(pal.hears("and then?"), 60)
        session = await pal.sessions.find(MAIN)
        assert session is not None
        assert await pal.sessions.extractions(session.id) == []
        async with asyncio.timeout(60):
            while len(pal.model.flushes) < 2:
                await asyncio.sleep(0)
