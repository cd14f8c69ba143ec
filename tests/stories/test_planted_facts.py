"""What was said at the beginning of a long conversation is found in the notes alone, after three compactions."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
from planted import FACTS, answer, chatter

from palinurus.context.daily_notes import NoteFiles
from palinurus.context.settings import CompactionSettings, FlushSettings
from palinurus.domain.keys import SessionKey
from palinurus.memory.conversations import StoredDocuments
from palinurus.memory.index import MemoryIndex
from palinurus.memory.memory import Memory
from palinurus.memory.question import Question
from palinurus.memory.scan import Scanner
from palinurus.memory.settings import MemorySettings, Sync
from palinurus.memory.store import MemoryStore
from palinurus.sessions.transcript import messages_of
from palinurus.testing.fakes import Reply
from palinurus.testing.harness import Harness
from support.windowed import WindowedProvider

SETTINGS = MemorySettings(embedder="none")
BY_RULE = CompactionSettings(timeout_seconds=0, flush=FlushSettings(enabled=False))
TURNS = 110


async def live(pal: Harness) -> None:
    dice = random.Random(7)
    pal.model._otherwise = lambda _: Reply(answer(dice))
    pal.agents.agent = msgspec.structs.replace(pal.agents.agent, compaction=BY_RULE)
    for turn in range(TURNS):
        fact = FACTS[turn][0] if turn < len(FACTS) else ""
        said = f"{chatter(dice, 3)} {fact} {chatter(dice, 2)}"
        assert (await pal.hears(said)).status == "ok"
        pal.clock.advance(minutes=2)
    await pal.idle()


async def lost(memory: Memory) -> list[str]:
    """The questions to which the notes have no answer."""
    unanswered = []
    for _, question, wanted in FACTS:
        found = await memory.search(Question(question, SETTINGS.budget))
        if not any(wanted in result.snippet for result in found.results):
            unanswered.append(question)
    return unanswered


async def test_fifty_facts_are_found_after_three_compactions_in_notes_that_are_a_fifth_of_the_text(
    workspace: Path, tmp_path: Path
) -> None:
    async with Harness(workspace, model=WindowedProvider(window=16_000)) as pal:
        pal.turns.maintenance.place_notes = NoteFiles(pal.sessions, lambda _: pal.files.boundary, pal.clock)
        await live(pal)
        session = await pal.sessions.find(SessionKey.main())
        assert session is not None
        assert session.compaction_count >= 3
        made = await pal.sessions.extractions(session.id)
        assert {each.made_by for each in made} == {"extractor"}
        entries = await pal.transcript()
        cursor = next(index for index, entry in enumerate(entries) if entry.id == made[-1].up_to)
        covered = messages_of(entries[: cursor + 1])
        assert any(FACTS[-1][0] in message.text for message in covered)  # all of them lie before the last cut
        text = sum(len(message.text) for message in covered)
        noted = sum(len(each.notes) for each in made)
        assert noted <= 0.2 * text, f"{noted:,} of {text:,} characters"

        index = MemoryIndex(
            store := MemoryStore(tmp_path / "memory.sqlite"),
            Scanner(workspace, sources=SETTINGS.sources),
            pal.clock,
            SETTINGS,
        )
        memory = Memory(SETTINGS, store, index, None, pal.clock)
        try:
            assert await lost(memory) == []
        finally:
            await memory.close()


async def locker(memory: Memory) -> set[str]:
    """Where the number of the locker stands."""
    found = (await memory.search(Question("my locker number", SETTINGS.budget))).results
    return {each.path for each in found if "4471" in each.snippet}


async def test_notes_that_wait_for_their_file_are_found_too_and_only_once_they_are_written_in_the_file(
    workspace: Path, tmp_path: Path
) -> None:
    async with Harness(workspace) as pal:
        await pal.hears("Remember that my locker is number 4471.")
        await pal.hears("/new")
        await pal.hears("Remember that the password of this group is 9911.", key="agent:main:telegram:group:7")
        await pal.hears("/new", key="agent:main:telegram:group:7")
        elsewhere = StoredDocuments(pal.sessions, "main", pal.clock, Sync(), conversations=False)
        index = MemoryIndex(
            store := MemoryStore(tmp_path / "memory.sqlite"),
            Scanner(workspace, sources=SETTINGS.sources),
            pal.clock,
            SETTINGS,
            conversations=elsewhere,
        )
        memory = Memory(SETTINGS, store, index, None, pal.clock)
        try:
            (found,) = await locker(memory)
            assert found.startswith("sessions/notes-")
            group = (await memory.search(Question("password of the group", SETTINGS.budget))).results
            assert not any("9911" in each.snippet for each in group)
            await NoteFiles(pal.sessions, lambda _: pal.files.boundary, pal.clock)()
            assert await locker(memory) == {"memory/2026-11-15.md"}
            assert await StoredDocuments(pal.sessions, "other", pal.clock, Sync(), conversations=False).stamps() == {}
        finally:
            await memory.close()
