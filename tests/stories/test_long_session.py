"""A session that is far longer than any window: it is answered, and the work on it is bounded and beside the loop."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from palinurus.context import budget, flush, summary
from palinurus.context.budget import MANY
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, Origin, Text, UserMessage
from palinurus.sessions import reader
from palinurus.sessions.transcript import CompactionEntry, Entry, MessageEntry, ResetEntry
from palinurus.testing.fakes import Reply
from palinurus.testing.harness import Harness
from support.windowed import WindowedProvider

MAIN = SessionKey.main()
T = "2026-11-15T09:00:00.000Z"
LINES = 2 * MANY + 500
WORDS = "{}: " + "The harbour lights come on one after the other, and nobody is looking. " * 2


class Watch:
    """Counts the calls of a function, and those of them on the event loop's thread; keeps what it was given last."""

    def __init__(self, work: Callable[..., Any]) -> None:
        self._work = work
        self.calls = self.on_loop = 0
        self.given: tuple[Any, ...] = ()

    def __call__(self, *given: Any, **named: Any) -> Any:
        self.calls += 1
        self.on_loop += threading.current_thread() is threading.main_thread()
        self.given = given
        return self._work(*given, **named)


@pytest.fixture
async def pal(workspace: Path) -> AsyncIterator[Harness]:
    model = WindowedProvider(window=8_000, sums=lambda _: Reply("no summary"))
    async with Harness(workspace, model=model) as whole:
        yield whole


async def lived(pal: Harness, words: str = WORDS, origin: Origin = Origin.OWNER) -> None:
    """A session that another program has kept and never summed up. `origin`: of its first message."""
    session = await pal.sessions.open(MAIN)
    parent, entries = session.id, list[Entry]()
    for number in range(LINES):
        said = f"Remember that berth {number} belongs to Ole." if number == 4 else words.format(number)
        said = "My sister Ada lives in Oslo." if number == 6 else said
        message = AssistantMessage((Text(said),)) if number % 2 else UserMessage(said, origin=origin)
        origin = Origin.OWNER
        entries.append(MessageEntry(f"e{number}", T, parent, message=message))
        parent = f"e{number}"
    await pal.sessions.append(session.id, entries)


async def test_a_long_session_is_cut_with_bounded_work_beside_the_loop_and_all_of_it_is_in_notes(
    pal: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lived(pal)
    decoded = Watch(reader.decode_row)
    weighed, noted, extracted = Watch(budget.message_tokens), Watch(flush.extract_notes), Watch(summary.extract)
    monkeypatch.setattr(reader, "decode_row", decoded)
    monkeypatch.setattr(budget, "message_tokens", weighed)
    monkeypatch.setattr(flush, "extract_notes", noted)
    monkeypatch.setattr(summary, "extract", extracted)

    result = await pal.hears("and who has berth 4?")

    assert result.status == "ok"
    assert decoded.calls < LINES + 50  # each row once
    assert decoded.on_loop < 50  # what the turn has added since
    assert weighed.calls < 2 * MANY
    assert weighed.on_loop < 100
    assert (noted.on_loop, extracted.on_loop) == (0, 0)
    read = sum(len(line.message.text) for line in extracted.given[0])
    assert 0 < read <= 200_000 < LINES * len(WORDS)
    session = await pal.sessions.open(MAIN)
    assert "berth 4 belongs to Ole" in "".join(each.notes for each in await pal.sessions.extractions(session.id))
    assert any(isinstance(entry, CompactionEntry) for entry in await pal.transcript())


async def test_who_comes_back_to_a_long_session_reads_what_follows_the_cut_alone(
    pal: Harness, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lived(pal)
    assert (await pal.hears("sum it up by answering")).status == "ok"
    await pal.idle()
    decoded = Watch(reader.decode_row)
    monkeypatch.setattr(reader, "decode_row", decoded)
    async with Harness(workspace, model=WindowedProvider(window=8_000), sessions=pal.sessions) as again:
        assert (await again.hears("once more")).status == "ok"
        assert decoded.calls < 200
        told = [message.text for message in again.model.requests[0].messages]
        assert any(text.startswith("Summary of the conversation so far") for text in told)
        assert WORDS.format(LINES - 1) in told
        assert "" not in told


OWN = "I own boat number {0}, and my brother Karl has painted boat number {0} at home. " * 2


async def noted(pal: Harness) -> str:
    return "".join(each.notes for each in await pal.sessions.extractions((await pal.sessions.open(MAIN)).id))


@pytest.mark.parametrize("words", [OWN, WORDS])
async def test_what_no_window_could_hold_is_not_decoded_and_what_was_asked_for_in_it_is_noted(
    pal: Harness, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    await lived(pal, words)
    before = await pal.transcript()
    decoded = Watch(reader.decode_row)
    monkeypatch.setattr(reader, "decode_row", decoded)
    monkeypatch.setattr(reader, "MUCH", 800_000)

    assert (await pal.hears("and who has berth 4?")).status == "ok"

    told = [message.text for message in pal.model.requests[-1].messages]
    assert told[0].startswith("Summary of the conversation so far")
    assert words.format(LINES - 1) in told
    assert "" not in told
    assert "Remember that berth 4 belongs to Ole." in await noted(pal)
    # Where newer words have left room in the notes, the older ones are read for them all the same.
    assert ("Ada lives in Oslo" in await noted(pal)) is (words == WORDS)
    assert (decoded.calls < LINES) is (words == OWN)
    [cut] = [entry for entry in await pal.transcript() if isinstance(entry, CompactionEntry)]
    kept = [entry.id for entry in before].index(cut.first_kept_entry_id)
    assert cut.details is not None
    assert (cut.details["messages"], "origin" in cut.details) == (kept - 1, False)
    assert (await pal.transcript())[: len(before)] == before  # not a word of it is gone


async def test_words_from_outside_that_were_not_decoded_still_mark_the_summary(
    pal: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lived(pal, OWN, Origin.OUTSIDE)
    monkeypatch.setattr(reader, "MUCH", 800_000)
    assert (await pal.hears("hello")).status == "ok"
    [cut] = [entry for entry in await pal.transcript() if isinstance(entry, CompactionEntry)]
    assert cut.details is not None
    assert cut.details["origin"] == Origin.OUTSIDE


async def test_a_window_that_holds_a_long_session_is_given_all_of_it(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "MUCH", 100_000)
    async with Harness(workspace, model=WindowedProvider(window=4_000_000)) as pal:
        await lived(pal)
        assert (await pal.hears("and who has berth 4?")).status == "ok"
        assert len(pal.model.requests[-1].messages) == LINES + 1
        assert (await pal.hears("and who else?")).status == "ok"
        assert "Remember that berth 4 belongs to Ole." in {each.text for each in pal.model.requests[-1].messages}
        assert not any(isinstance(entry, CompactionEntry) for entry in await pal.transcript())


async def test_a_fresh_start_notes_also_what_was_not_decoded(pal: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MUCH", 100_000)
    await lived(pal)
    assert (await pal.hears("/new")).status == "ok"
    assert any(isinstance(entry, ResetEntry) for entry in await pal.transcript())
    assert "Remember that berth 4 belongs to Ole." in await noted(pal)
    assert "Ada lives in Oslo" in await noted(pal)
