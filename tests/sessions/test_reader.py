"""Reading a transcript that may be long: only what is still read is decoded, and beside the event loop."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.context.epoch import EPOCH, Epoch, Route
from palinurus.context.view import Views, fold
from palinurus.domain.messages import AssistantMessage, ContextNote, Origin, Text, UserMessage
from palinurus.sessions import reader as reader_module
from palinurus.sessions.reader import PIECE, Reader
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import (
    FORGOTTEN,
    Broken,
    CompactionEntry,
    CustomEntry,
    Entry,
    MessageEntry,
    ModelChange,
    ResetEntry,
    Row,
    SessionHeader,
    decode_row,
    encode_entry,
)
from palinurus.storage.database import MemoryDatabase
from palinurus.testing.fakes import FakeClock, SeededIds

T = "2026-11-15T09:00:00.000Z"
KINDS = (
    "user",
    "user",
    "assistant",
    "assistant",
    "also",
    "file",
    "epoch",
    "model",
    "broken",
    "bare",
    "cut",
    "reset",
    "outside",
)


class Rows(SessionStore):
    """Whose transcript a test writes by itself."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.written: list[Row] = []

    async def rows(self, session_id: str, after: int = 0) -> list[Row]:
        return self.written[after:]


class Story:
    """A stored session, written row by row."""

    def __init__(self) -> None:
        self.store = Rows(MemoryDatabase(), FakeClock(), SeededIds())
        self.rows: list[Row] = self.store.written
        self.add(SessionHeader("s", T))

    def add(self, entry: Entry) -> str:
        self.rows.append(Row(entry.id, entry.parent_id, encode_entry(entry)))
        return entry.id

    def say(self, text: str, parent: str = "") -> str:
        at = len(self.rows)
        message = UserMessage(text) if at % 2 else AssistantMessage((Text(text),))
        return self.add(MessageEntry(f"e{at}", f"{T[:20]}{at:06}Z", parent or self.rows[-1].id, message=message))

    def cut(self, kept: str = "") -> str:
        entry_id = f"e{len(self.rows)}"
        return self.add(CompactionEntry(entry_id, T, self.rows[-1].id, summary="so far", first_kept_entry_id=kept))

    def step(self, kind: str, back: int) -> None:
        at, last = f"e{len(self.rows)}", self.rows[max(len(self.rows) - 1 - back // 20 * back, 0)].id
        named = self.rows[max(len(self.rows) - 1 - back, 0)].id
        match kind:
            case "user" | "assistant":
                self.say(f"words {at}", last)
            case "also":
                self.add(MessageEntry(at, T, last, message=UserMessage("two at once", also=(f"run-{at}",))))
            case "outside":
                self.add(MessageEntry(at, T, last, message=UserMessage("a page", origin=Origin.OUTSIDE)))
            case "file":
                note = ContextNote("file", "text", "SOUL.md", at)
                self.add(MessageEntry(at, T, last, message=UserMessage("x", context=(note,))))
            case "epoch":
                data = msgspec.to_builtins(Epoch("new", Route("p", "m", "w"), "{}", "system", (), {"USER.md": at}))
                self.add(CustomEntry(at, T, last, custom_type=EPOCH, data=data))
            case "model":
                self.add(ModelChange(at, T, last, provider="p", model_id=at))
            case "broken":
                self.rows.append(Row(at, last, "{"))
            case "bare":
                self.rows.append(Row(at, last, '{"role":"tool","name":"exec","input":"ls"}'))
            case "cut":
                self.add(CompactionEntry(at, T, last, summary=at, first_kept_entry_id=named if back % 3 else ""))
            case _:
                self.add(ResetEntry(at, T, last, first_kept_entry_id=named if back % 3 else None))

    def whole(self) -> list[Entry | Broken]:
        return [decode_row(row) for row in self.rows]


class Decoding:
    """Counts the rows that are decoded, and notes in which threads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.threads: set[threading.Thread] = set()
        monkeypatch.setattr(reader_module, "decode_row", self)

    def __call__(self, row: Row) -> Entry | Broken:
        self.count += 1
        self.threads.add(threading.current_thread())
        return decode_row(row)


@pytest.fixture
def decoding(monkeypatch: pytest.MonkeyPatch) -> Decoding:
    return Decoding(monkeypatch)


STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 22)), max_size=40)


@given(STEPS, STEPS)
def test_what_is_read_without_the_words_put_away_is_what_is_read_with_them(
    first: list[tuple[str, int]], then: list[tuple[str, int]]
) -> None:
    story = Story()
    reader, views = Reader(story.store, whole=False), Views()
    for steps in (first, then):
        for kind, back in steps:
            story.step(kind, back)
        entries = asyncio.run(reader.entries("s"))
        assert fold(entries) == fold(story.whole())
        assert views.view("s", entries) == fold(story.whole())
        assert [entry.id for entry in entries] == [entry.id for entry in story.whole()]


async def test_of_a_long_story_only_what_follows_the_cut_is_decoded(decoding: Decoding) -> None:
    story = Story()
    said = [story.say(f"words {number}") for number in range(5 * PIECE)]
    story.cut(said[-5])
    story.say("after it")
    reader = Reader(story.store, whole=False)
    entries = await reader.entries("s")
    assert decoding.count < 20
    assert fold(entries) == fold(story.whole())
    story.say("and one more")
    count = decoding.count
    assert fold(await reader.entries("s")) == fold(story.whole())
    assert decoding.count == count + 1


async def test_a_reader_of_the_whole_story_gets_every_word(decoding: Decoding) -> None:
    story = Story()
    for number in range(30):
        story.say(f"words {number}")
    story.cut()
    assert await Reader(story.store).entries("s") == story.whole()
    assert decoding.count == len(story.rows)


async def test_a_long_story_without_a_cut_is_decoded_and_read_beside_the_event_loop(
    decoding: Decoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story()
    for number in range(3 * PIECE):
        story.say(f"words {number}")
    folds = list[threading.Thread]()
    view = Views.view
    monkeypatch.setattr(Views, "view", lambda *given: (folds.append(threading.current_thread()), view(*given))[1])
    turns = 0

    async def tick() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    entries = await Reader(story.store, whole=False).entries("s")
    read = await Views().read("s", entries)
    ticking.cancel()
    assert read == fold(story.whole())
    assert decoding.count == len(story.rows)
    assert threading.main_thread() not in {*decoding.threads, *folds}
    assert turns > 3  # the loop had its turn between the pieces


async def test_of_a_long_story_without_a_cut_the_end_is_decoded_and_the_rest_when_it_is_asked_for(
    decoding: Decoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story()
    for number in range(3 * PIECE):
        story.say(f"words {number}")
    monkeypatch.setattr(reader_module, "MUCH", 200 * len(story.rows[-1].payload))
    reader, views = Reader(story.store, whole=False), Views()
    entries = await reader.entries("s")
    view, whole = views.view("s", entries), fold(story.whole())
    assert decoding.count < 250
    assert view.lines == whole.lines[view.unread :]
    assert (view.unread + len(view.lines), view.read_from) == (3 * PIECE, 0)
    assert (view.stored_ids, view.tail, view.answered) == (whole.stored_ids, whole.tail, whole.answered)
    words = await reader.words("s", 1, entries[1 : 1 + view.unread], lambda row: "words 7" in row)
    said = [entry.message.text for entry in words if isinstance(entry, MessageEntry)]
    assert (said[0], said[1]) == ("words 7", "words 70")
    story.say("one more")
    assert views.view("s", await reader.entries("s")).lines == fold(story.whole()).lines[view.unread :]
    reader.read_whole("s")
    views.forget("s")
    assert views.view("s", await reader.entries("s")) == fold(story.whole())
    story.cut(story.rows[-1].id)
    assert views.view("s", await reader.entries("s")) == fold(story.whole())


@given(STEPS)
def test_whatever_was_passed_over_the_rest_is_read_as_it_is(steps: list[tuple[str, int]]) -> None:
    story = Story()
    for kind, back in [("user", 0), *steps, ("outside", 0), ("user", 0)]:
        story.step(kind, back)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader_module, "MUCH", 2)
        view = fold(asyncio.run(Reader(story.store, whole=False).entries("s")))
    whole = fold(story.whole())
    read = {line.id for line in view.lines}
    assert view.lines == tuple(line for line in whole.lines if line.id in read)
    assert view.unread + len(view.lines) == len(whole.lines)
    outside = [line for line in whole.lines if getattr(line.message, "origin", "") == Origin.OUTSIDE]
    assert all(line.id in read for line in outside)
    same = (
        "epoch", "shown_files", "bootstrapped", "model", "thinking", "reason", "stored_ids", "broken", "tail", "pruned",
    )  # fmt: skip
    assert [getattr(view, name) for name in same] == [getattr(whole, name) for name in same]


async def test_two_who_read_at_once_read_the_same() -> None:
    story = Story()
    reader = Reader(story.store, whole=False)
    story.say("first")
    await reader.entries("s")
    for number in range(2 * PIECE):
        story.say(f"words {number}")
    one, other = await asyncio.gather(reader.entries("s"), reader.entries("s"))
    assert one == other == story.whole()


async def test_a_branch_from_before_the_cut_is_read_with_its_words() -> None:
    story = Story()
    said = [story.say(f"words {number}") for number in range(20)]
    story.cut(said[-2])
    reader = Reader(story.store, whole=False)
    assert fold(await reader.entries("s")) == fold(story.whole())
    story.say("back to the beginning", said[3])
    lines = fold(await reader.entries("s")).lines
    assert [line.message.text for line in lines] == [*(f"words {at}" for at in range(4)), "back to the beginning"]


async def test_after_a_forgetting_the_story_is_read_anew() -> None:
    story = Story()
    said = [story.say(f"words {number}") for number in range(20)]
    story.cut(said[-3])
    reader = Reader(story.store, whole=False)
    await reader.entries("s")
    at = next(index for index, row in enumerate(story.rows) if row.id == said[-2])
    story.rows[at] = msgspec.structs.replace(story.rows[at], payload=story.rows[at].payload.replace("words 18", "gone"))
    story.add(CustomEntry("forgot", T, story.rows[-1].id, custom_type=FORGOTTEN))
    lines = fold(await reader.entries("s")).lines
    assert [line.message.text for line in lines[1:]] == ["words 17", "gone", "words 19"]
