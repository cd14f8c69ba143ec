"""What every keeper of sessions keeps: open once, append only, both or neither, on the disk when it returns."""

from __future__ import annotations

import asyncio

import pytest

from palinurus.domain.envelope import Delivery
from palinurus.domain.errors import NotFound, StorageError
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Usage, UserMessage
from palinurus.sessions.extraction import Extraction
from palinurus.sessions.session import Session, SessionChange
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import (
    CompactionEntry,
    CustomEntry,
    Entry,
    MessageEntry,
    ResetEntry,
    SessionHeader,
    decode_row,
    encode_entry,
)
from palinurus.storage.database import Database
from palinurus.testing.fakes import FakeClock, SeededIds

MAIN = SessionKey.main()
T = "2026-11-15T09:00:00.000Z"


@pytest.fixture(params=[0, 64, 1])
def store(request: pytest.FixtureRequest, database: Database, clock: FakeClock, new_id: SeededIds) -> SessionStore:
    return SessionStore(database, clock, new_id, remembers=request.param)


def said(entry_id: str, text: str = "hi", parent: str | None = None) -> MessageEntry:
    return MessageEntry(entry_id, T, parent, message=UserMessage(text))


async def test_opening_makes_a_session_with_its_header_once(store: SessionStore, clock: FakeClock) -> None:
    session = await store.open(MAIN)
    assert (session.key, session.agent, session.chat_type) == ("agent:main:main", "main", "direct")
    assert session.created_at == session.started_at == session.last_interaction_at == clock.now_ms()
    clock.advance(hours=1)
    assert await store.open(MAIN) == session
    (row,) = await store.rows(session.id)
    header = decode_row(row)
    assert isinstance(header, SessionHeader)
    assert (header.id, header.version) == (session.id, 3)


async def test_opening_at_the_same_time_makes_one_session(store: SessionStore) -> None:
    opened = await asyncio.gather(*(store.open(MAIN) for _ in range(10)))
    assert len({session.id for session in opened}) == 1
    assert len(await store.rows(opened[0].id)) == 1


async def test_what_does_not_exist_is_not_found_and_not_made(store: SessionStore) -> None:
    assert await store.find(MAIN) is None
    assert await store.rows("nobody") == []
    assert await store.recent() == []
    with pytest.raises(NotFound):
        await store.append("nobody", [said("a")])


async def test_entries_come_back_in_the_order_of_writing_byte_for_byte(store: SessionStore) -> None:
    session = await store.open(MAIN)
    entries: list[Entry] = [said("b", "ünï 自転車 \u2028"), said("a", parent="b"), CustomEntry("c", T, custom_type="x")]
    await store.append(session.id, entries[:2])
    await store.append(session.id, entries[2:])
    rows = (await store.rows(session.id))[1:]
    assert [(row.id, row.parent_id) for row in rows] == [("b", None), ("a", "b"), ("c", None)]
    assert [row.payload for row in rows] == [encode_entry(entry) for entry in entries]


async def test_an_entry_whose_id_is_there_is_not_added_again(store: SessionStore) -> None:
    session = await store.open(MAIN)
    await store.append(session.id, [said("a", "first")])
    after = await store.append(session.id, [said("a", "second"), said("b")])
    assert [decode_row(row) for row in await store.rows(session.id)][1:] == [said("a", "first"), said("b")]
    assert after.entry_count == 3


async def test_an_id_may_be_used_in_two_sessions(store: SessionStore) -> None:
    one, two = await store.open(MAIN), await store.open(SessionKey.main("work"))
    await store.append(one.id, [said("a", "in one")])
    await store.append(two.id, [said("a", "in two")])
    assert [len(await store.rows(session.id)) for session in (one, two)] == [2, 2]


async def test_an_append_changes_the_row_and_finding_sees_it(store: SessionStore, clock: FakeClock) -> None:
    session = await store.open(MAIN)
    clock.advance(minutes=1)
    change = SessionChange(
        interaction=True,
        usage=Usage(10, 5, 3, 2),
        context_tokens=20,
        provider="p",
        model="m",
        label="boats",
        delivery=Delivery("telegram", "42", "default", "7"),
    )
    after = await store.append(session.id, [said("a")], change)
    assert await store.find(MAIN) == after
    assert (after.input_tokens, after.output_tokens, after.total_tokens, after.context_tokens) == (15, 5, 20, 20)
    assert (after.label, after.provider, after.model) == ("boats", "p", "m")
    assert after.delivery == Delivery("telegram", "42", "default", "7")
    assert after.last_interaction_at == after.updated_at == clock.now_ms()
    again = await store.append(session.id, [], SessionChange(usage=Usage(1, 1)))
    assert (again.total_tokens, again.label, again.delivery) == (22, "boats", after.delivery)


async def test_a_change_without_interaction_does_not_count_as_somebody_speaking(
    store: SessionStore, clock: FakeClock
) -> None:
    session = await store.open(MAIN)
    clock.advance(minutes=1)
    after = await store.append(session.id, [said("a")])
    assert (after.last_interaction_at, after.started_at) == (session.created_at, session.created_at)
    restarted = await store.append(session.id, [], SessionChange(restarted=True))
    assert restarted.started_at == clock.now_ms()


async def test_recent_sessions_come_newest_first_by_agent_and_up_to_a_limit(
    store: SessionStore, clock: FakeClock
) -> None:
    for name in ("agent:main:direct:a", "agent:work:main", "agent:main:direct:b"):
        await store.open(SessionKey.parse(name))
        clock.advance(minutes=1)
    first = await store.find(SessionKey.parse("agent:main:direct:a"))
    assert first is not None
    await store.append(first.id, [said("x")])
    keys = [session.key for session in await store.recent()]
    assert keys == ["agent:main:direct:a", "agent:main:direct:b", "agent:work:main"]
    assert [session.key for session in await store.recent(agent="work")] == ["agent:work:main"]
    assert [session.key for session in await store.recent(limit=1)] == ["agent:main:direct:a"]


async def test_many_writers_at_once_lose_nothing(store: SessionStore) -> None:
    sessions = [await store.open(SessionKey.parse(f"agent:main:direct:{name}")) for name in "abc"]
    await asyncio.gather(
        *(store.append(session.id, [said(f"m{number}")]) for number in range(30) for session in sessions)
    )
    for session in sessions:
        ids = [row.id for row in await store.rows(session.id)][1:]
        assert ids == [f"m{number}" for number in range(30)]


async def test_an_archived_session_keeps_its_words_and_frees_its_key(store: SessionStore, clock: FakeClock) -> None:
    first = await store.open(MAIN)
    await store.append(first.id, [said("a")])
    clock.advance(minutes=1)
    ended = await store.archive(first.id, "mark")
    assert (ended.id, ended.archived_at, ended.archive_mark) == (first.id, clock.now_ms(), "mark")
    assert await store.find(MAIN) is None
    assert await store.recent() == []
    assert [row.id for row in await store.rows(first.id)][1:] == ["a"]
    second = await store.open(MAIN)
    assert second.id != first.id
    assert len(await store.rows(second.id)) == 1
    assert [session.id for session in await store.recent()] == [second.id]


async def test_archiving_twice_is_archiving_once(store: SessionStore, clock: FakeClock) -> None:
    session = await store.open(MAIN)
    ended = await store.archive(session.id, "first")
    clock.advance(minutes=1)
    assert await store.archive(session.id, "second") == ended
    with pytest.raises(NotFound):
        await store.archive("nobody")


async def test_earlier_conversations_of_a_key_come_newest_first(store: SessionStore, clock: FakeClock) -> None:
    ended = []
    for number in range(3):
        session = await store.open(MAIN)
        ended.append((await store.archive(session.id, f"m{number}")).id)
        clock.advance(minutes=number)  # two of them within one millisecond
    other = await store.open(SessionKey.main("work"))
    await store.archive(other.id)
    assert [session.id for session in await store.archived(MAIN)] == ended[::-1]


async def test_those_that_have_ended_are_listed_when_they_are_asked_for(store: SessionStore) -> None:
    first = await store.open(MAIN)
    await store.archive(first.id)
    second = await store.open(MAIN)
    assert [session.id for session in await store.recent()] == [second.id]
    assert {session.id for session in await store.recent(archived=True)} == {first.id, second.id}
    assert await store.recent(agent="other", archived=True) == []


async def test_what_is_appended_to_an_archived_session_leaves_its_key_alone(store: SessionStore) -> None:
    first = await store.open(MAIN)
    await store.archive(first.id)
    late = await store.append(first.id, [said("late")])
    assert late.archived_at is not None
    assert await store.find(MAIN) is None
    second = await store.open(MAIN)
    await store.append(first.id, [said("later")])
    assert (await store.open(MAIN)).id == second.id


async def test_looking_while_it_is_archived_never_brings_it_back(store: SessionStore) -> None:
    for _ in range(20):
        session = await store.open(MAIN)
        looks = [store.find(MAIN) for _ in range(5)]
        await asyncio.gather(store.archive(session.id), *looks, store.append(session.id, [], SessionChange(label="x")))
        assert await store.find(MAIN) is None


# -- notes, and what may leave the conversation -----------------------------------------------------------------------


def notes(session: Session, up_to: str, name: str = "", *, private: bool = True, text: str = "- a note") -> Extraction:
    made = name or f"notes-{up_to}"
    return Extraction(made, session.id, up_to, text, "extractor", private=private, day="2026-11-15", at=1)


def cut(first_kept: str, name: str = "cut") -> CompactionEntry:
    return CompactionEntry(name, T, summary="sum", first_kept_entry_id=first_kept)


async def ids(store: SessionStore, session: Session) -> list[str]:
    return [row.id for row in await store.rows(session.id)][1:]


@pytest.fixture
async def session(store: SessionStore) -> Session:
    opened = await store.open(MAIN)
    return await store.append(opened.id, [said("a"), said("b"), CustomEntry("c", T, custom_type="x"), said("d")])


@pytest.mark.parametrize("entry", [cut("b"), cut(""), cut("nobody"), ResetEntry("reset", T), cut("d")])
async def test_nothing_leaves_the_conversation_before_it_is_in_notes(
    store: SessionStore, session: Session, entry: Entry
) -> None:
    with pytest.raises(StorageError, match="before they were saved"):
        await store.append(session.id, [said("e"), entry], SessionChange(usage=Usage(1, 1)))
    assert await ids(store, session) == ["a", "b", "c", "d"]
    assert await store.find(MAIN) == session


async def test_a_cut_may_go_as_far_as_the_notes_do(store: SessionStore, session: Session) -> None:
    after = await store.append(session.id, [cut("d")], SessionChange(extraction=notes(session, "b"), compacted=True))
    assert after.compaction_count == 1
    assert await store.cursor(session.id) == "b"
    with pytest.raises(StorageError):
        await store.append(session.id, [cut("cut", "second")])
    with pytest.raises(StorageError):
        await store.append(session.id, [ResetEntry("reset", T)])
    await store.append(session.id, [ResetEntry("reset", T)], SessionChange(extraction=notes(session, "d")))
    assert await ids(store, session) == ["a", "b", "c", "d", "cut", "reset"]


async def test_a_cut_that_lets_nothing_go_needs_no_notes(store: SessionStore, session: Session) -> None:
    await store.append(session.id, [cut("a")])
    other = await store.open(SessionKey.main("work"))
    await store.append(other.id, [ResetEntry("reset", T)])
    assert await store.cursor(session.id) == await store.cursor(other.id) == ""


async def test_the_notes_of_one_session_free_no_other(store: SessionStore, session: Session) -> None:
    other = await store.open(SessionKey.main("work"))
    await store.append(other.id, [said("a")], SessionChange())
    await store.append(session.id, [], SessionChange(extraction=notes(session, "d")))
    with pytest.raises(StorageError):
        await store.append(other.id, [ResetEntry("reset", T)])


async def test_a_reset_that_is_there_already_may_be_repeated(store: SessionStore, session: Session) -> None:
    change = SessionChange(extraction=notes(session, "d", "once"))
    await store.append(session.id, [ResetEntry("reset", T)], change)
    await store.append(session.id, [said("e")])
    await store.append(session.id, [ResetEntry("reset", T)])
    assert await ids(store, session) == ["a", "b", "c", "d", "reset", "e"]
    assert len(await store.extractions(session.id)) == 1


async def test_notes_come_back_as_they_were_and_are_kept_once(store: SessionStore, session: Session) -> None:
    first, second = notes(session, "b", text="ünï 自転車"), notes(session, "d")
    await store.append(session.id, [], SessionChange(extraction=second, flushed=True))
    await store.append(session.id, [], SessionChange(extraction=first))
    again = await store.append(session.id, [], SessionChange(extraction=notes(session, "b", text="other words")))
    assert await store.extractions(session.id) == [second, first]
    assert await store.cursor(session.id) == "d"  # it never goes back
    assert (again.memory_flush_count, again.memory_flush_compaction_count, again.entry_count) == (1, 0, 5)


async def test_when_notes_were_taken_is_told_with_how_often_the_session_was_compacted_by_then(
    store: SessionStore, session: Session
) -> None:
    await store.append(session.id, [], SessionChange(compacted=True))
    await store.append(session.id, [], SessionChange(flushed=True))
    again = await store.append(session.id, [], SessionChange(compacted=True))
    assert (again.compaction_count, again.memory_flush_compaction_count) == (2, 1)
    assert again.memory_flush_at


async def test_notes_up_to_an_entry_that_is_not_there_are_refused(store: SessionStore, session: Session) -> None:
    with pytest.raises(NotFound):
        await store.append(session.id, [said("e")], SessionChange(extraction=notes(session, "nobody")))
    assert await ids(store, session) == ["a", "b", "c", "d"]
    assert await store.extractions(session.id) == []


async def test_private_notes_wait_for_their_file(store: SessionStore, session: Session) -> None:
    for number, made in enumerate(
        (
            notes(session, "a"),
            notes(session, "b"),
            notes(session, "d", "shared", private=False),
            notes(session, "d", "empty", text=""),
            notes(session, "d"),
        )
    ):
        await store.append(session.id, [said(f"n{number}")], SessionChange(extraction=made))
    assert [made.id for made in await store.unplaced()] == ["notes-a", "notes-b", "notes-d"]
    assert [made.id for made in await store.unplaced(1)] == ["notes-a"]
    await store.set_place("notes-a", "memory/2026-11-15.md")
    await store.set_place("nobody", "memory/2026-11-15.md")
    assert [made.id for made in await store.unplaced()] == ["notes-b", "notes-d"]
    assert (await store.extractions(session.id))[0].place == "memory/2026-11-15.md"
