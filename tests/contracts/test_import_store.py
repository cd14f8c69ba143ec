"""The store of imports: sessions are invisible until they are complete, become visible at once, and none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import Struct

from palinurus.domain.errors import NotFound, StorageError
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import UserMessage
from palinurus.extensions.migrate.exporter import SessionExporter
from palinurus.extensions.migrate.foreign import ForeignDocument, ForeignEntry
from palinurus.extensions.migrate.import_store import ImportState, ImportStore
from palinurus.sessions.index import TranscriptIndex
from palinurus.sessions.session import Session, new_session
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import CompactionEntry, MessageEntry, Row, encode_entry
from palinurus.storage.database import Database
from palinurus.testing.fakes import FakeClock, SeededIds

MAIN = SessionKey.main()
T = "2026-11-15T09:00:00.000Z"


class Place(Struct):
    database: Database
    imports: ImportStore
    store: SessionStore
    index: TranscriptIndex


@pytest.fixture
async def place(
    lasting_database: Database, tmp_path: Path, clock: FakeClock, new_id: SeededIds
) -> AsyncIterator[Place]:
    database = lasting_database
    store = SessionStore(database, clock, new_id, remembers=64)
    index = TranscriptIndex(database, tmp_path / "derived" / "transcripts.sqlite")
    yield Place(database, ImportStore(database, clock, store.forget, index.discard), store, index)
    await index.close()


def said(entry_id: str, text: str, parent: str | None = None) -> ForeignEntry:
    payload = encode_entry(MessageEntry(entry_id, T, parent, message=UserMessage(text)))
    return ForeignEntry(Row(entry_id, parent, payload), "message", "user", text, 1)


def summed_up(entry_id: str, kept: str) -> ForeignEntry:
    payload = encode_entry(CompactionEntry(entry_id, T, None, summary="what was", first_kept_entry_id=kept))
    return ForeignEntry(Row(entry_id, None, payload), "compaction", "", "", 1)


def row(session_id: str = "theirs", key: SessionKey = MAIN) -> Session:
    return new_session(session_id, key, 1_000)


async def taken_in(place: Place, source: str, *entries: ForeignEntry, session: Session | None = None) -> str:
    stored = await place.imports.begin(source, session or row())
    await place.imports.add(source, entries, "digest")
    await place.imports.finish(source, session or row(), '{"openclaw": {"unheardOf": 1}}')
    return stored.session_id


async def test_nobody_sees_what_is_not_shown_yet(place: Place) -> None:
    await taken_in(place, "one", said("a", "under the keel"))
    assert await place.store.find(MAIN) is None
    assert await place.store.recent(archived=True) == []
    assert await place.store.archived(MAIN) == []
    assert await place.index.search("keel") == []
    (shown,) = await place.imports.publish()
    assert (shown.session_id, shown.key, shown.archived) == ("theirs", str(MAIN), False)
    found = await place.store.find(MAIN)
    assert found is not None
    assert (found.id, found.entry_count) == ("theirs", 1)
    assert [hit.entry_id for hit in await place.index.search("keel")] == ["a"]
    assert await place.imports.publish() == []


async def test_only_what_is_whole_is_shown(place: Place) -> None:
    await place.imports.begin("half", row("half", SessionKey.parse("agent:main:half")))
    await place.imports.add("half", [said("a", "half of it")], "d")
    await taken_in(place, "one", said("a", "all of it"))
    assert [shown.session_id for shown in await place.imports.publish()] == ["theirs"]
    assert await place.imports.state("half") == ImportState("half", 1, "d")


async def test_a_key_that_is_in_use_stays_with_whom_it_has(place: Place) -> None:
    mine = await place.store.open(MAIN)
    await taken_in(place, "one", said("a", "hello"))
    (shown,) = await place.imports.publish()
    assert shown.archived
    assert "archived" in shown.note
    assert (await place.store.open(MAIN)).id == mine.id
    assert [session.id for session in await place.store.archived(MAIN)] == ["theirs"]


async def test_an_id_that_is_taken_gets_something_behind_it(place: Place) -> None:
    first = await taken_in(place, "one", said("a", "hello"))
    second = await taken_in(place, "two", said("a", "hello"))
    assert first == "theirs"
    assert second.startswith("theirs~")


async def test_two_lines_of_one_id_are_both_kept(place: Place) -> None:
    session_id = await taken_in(place, "one", said("a", "first"), said("a", "second"), said("b", "third"))
    assert [row.id for row in await place.store.rows(session_id)] == ["a", "a~2", "b"]


@pytest.mark.parametrize("entry_id", ["plain", "nul\0inside", "\u2028 三 🌊", '"quoted\\', "7", "null"])
async def test_every_byte_is_stored_as_it_was(place: Place, entry_id: str) -> None:
    payload = '{ "type":"message",\t"id" : "x", "text":"\\u0000 \\ud83c \\/ \\\\ \u2028 🌊 \x7f",  "n":1.50e+3 }'
    entry = ForeignEntry(Row(entry_id, None, payload), "message", "user", "", 1)
    session_id = await taken_in(place, "one", entry, said("after", "more", entry_id))
    first, second = await place.store.rows(session_id)
    assert (first.id, first.parent_id, first.payload) == (entry_id, None, payload)
    assert second.parent_id == entry_id


async def test_an_old_compaction_goes_in_behind_a_record_of_what_it_put_away(place: Place) -> None:
    lines = (said("a", "one"), said("b", "two"), said("c", "three"))
    session_id = await taken_in(place, "one", *lines, summed_up("sum", kept="c"), said("d", "four"))
    assert [row.id for row in await place.store.rows(session_id)] == ["a", "b", "c", "sum", "d"]
    assert await place.store.cursor(session_id) == "b"  # what is still read is yet to be saved
    (record,) = await place.store.extractions(session_id)
    assert (record.notes, record.private) == ("what was", False)
    assert await place.store.unplaced() == []


@pytest.mark.parametrize("kept", ["gone", "a", ""])
async def test_so_does_one_whose_first_kept_entry_is_odd(place: Place, kept: str) -> None:
    session_id = await taken_in(place, "one", said("a", "one"), summed_up("sum", kept), said("b", "two"))
    assert [row.id for row in await place.store.rows(session_id)] == ["a", "sum", "b"]


async def test_what_was_not_shown_can_be_taken_back(place: Place) -> None:
    await taken_in(place, "one", said("a", "under the keel"), summed_up("sum", "gone"))
    assert await place.index.search("keel") == []
    await place.imports.discard("one")
    assert await place.imports.state("one") is None
    assert await place.imports.publish() == []
    await taken_in(place, "one", said("b", "over the keel"))
    await place.imports.publish()
    assert [hit.entry_id for hit in await place.index.search("keel")] == ["b"]


async def test_what_was_shown_is_part_of_the_home(place: Place) -> None:
    await taken_in(place, "one", said("a", "hello"))
    await place.imports.publish()
    with pytest.raises(StorageError, match="cannot be taken back"):
        await place.imports.discard("one")


async def test_what_was_said_here_since_is_noticed(place: Place) -> None:
    session_id = await taken_in(place, "one", said("a", "hello"))
    await place.imports.publish()
    before = await place.imports.state("one")
    await place.store.append(session_id, [MessageEntry("mine", T, "a", message=UserMessage("hi"))])
    after = await place.imports.state("one")
    assert before == ImportState(session_id, 1, "digest", finished=True, visible=True)
    assert after == ImportState(session_id, 1, "digest", finished=True, visible=True, continued=True)


async def test_a_shown_conversation_can_grow_and_whoever_knows_it_reads_it_anew(place: Place) -> None:
    session_id = await taken_in(place, "one", said("a", "hello"))
    await place.imports.publish()
    await place.store.open(MAIN)
    assert len(await place.store.rows(session_id)) == 1
    await place.imports.add("one", [said("b", "more", "a")], "longer")
    await place.imports.finish("one", row(), "")
    assert [row.id for row in await place.store.rows(session_id)] == ["a", "b"]
    assert (await place.store.open(MAIN)).entry_count == 2


async def test_others_write_while_much_comes_in(place: Place) -> None:
    await place.imports.begin("one", row())
    mine = await place.store.open(SessionKey.parse("agent:main:mine"))

    async def bring() -> None:
        for number in range(20):
            await place.imports.add("one", [said(f"{number}-{at}", "x" * 200) for at in range(500)], "d")

    bringing = asyncio.create_task(bring())
    for number in range(5):
        await place.store.append(mine.id, [MessageEntry(f"m{number}", T, None, message=UserMessage("hi"))])
    assert not bringing.done()
    await asyncio.wait_for(bringing, 60)


async def test_documents_are_kept_word_for_word_and_once(place: Place) -> None:
    document = ForeignDocument("cron", "jobs.json", '{"jobs":  []}')
    assert await place.imports.keep_documents("home", [document]) == 1
    assert await place.imports.keep_documents("home", [document]) == 0
    assert await SessionExporter(place.database).documents() == [document]


async def test_adding_to_what_was_never_begun_is_refused(place: Place) -> None:
    with pytest.raises(NotFound):
        await place.imports.add("nothing", [said("a", "hello")], "d")
