"""What every keeper of a memory index keeps: what was put is found, what was dropped is not, spaces never mix."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

import pytest

from palinurus.domain.errors import StorageError
from palinurus.memory.chunk import chunk
from palinurus.memory.document import (
    CandidateSet,
    DocumentPieces,
    DocumentRef,
    FileRow,
    SearchCandidate,
    WordQuery,
)
from palinurus.memory.embedder import Space
from palinurus.memory.store import MemoryStore
from palinurus.memory.terms import word_query
from palinurus.testing.fakes import HashingEmbedder, vector_of

NOTES = "memory/notes.md"
SPACE = HashingEmbedder().space
OTHER = HashingEmbedder(model="another").space


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MemoryStore]:
    keeper: MemoryStore = MemoryStore(None if request.param == "memory" else tmp_path / "d" / "m.sqlite")
    yield keeper
    await keeper.close()


def document(text: str, path: str = NOTES, source: str = "memory") -> tuple[FileRow, DocumentPieces]:
    cut = chunk(text, path, 400)
    digest = sha256(text.encode()).digest()
    return FileRow(DocumentRef(source, path), (len(text), 5, 6, 7), digest, 1_000, len(cut.pieces), "way"), cut


async def finds(store: MemoryStore, question: str, **more: object) -> list[str]:
    """The pieces that have one of the words."""
    looked = await store.look(word_query(question), None, None, limit=20, **more)  # type: ignore[arg-type]
    return [candidate.text for candidate in looked.candidates if candidate.words > 0]


async def embeds(store: MemoryStore, space: Space = SPACE, limit: int = 100) -> int:
    missing = await store.unembedded(space, limit)
    vectors = [(each.digest, vector_of(each.meaning, space.dimensions)) for each in missing]
    await store.put_vectors(space, vectors)
    return len(missing)


async def looks(store: MemoryStore, question: str, space: Space = SPACE, **more: object) -> CandidateSet:
    vector = vector_of(question, space.dimensions)
    return await store.look(WordQuery(()), vector, space, limit=3, **more)  # type: ignore[arg-type]


def nearest(looked: CandidateSet) -> SearchCandidate:
    return max(looked.candidates, key=lambda candidate: candidate.cosine if candidate.cosine is not None else -1)


async def test_what_was_put_is_found_with_its_place_and_lines(store: MemoryStore) -> None:
    await store.put([document("# Boats\n\n- the anchor is in the shed\n- nothing else\n")])
    looked = await store.look(word_query("where is the anchor?"), None, None, limit=10)
    [found] = [candidate for candidate in looked.candidates if candidate.words > 0]
    assert (found.ref, found.start_line, found.end_line) == (DocumentRef("memory", NOTES), 3, 3)
    assert (found.text, found.context) == ("- the anchor is in the shed", "Boats")
    assert found.passage_words > 0
    assert found.cosine is None
    assert looked.frequencies == (1,)


async def test_a_look_that_was_prepared_sees_what_changed_since(store: MemoryStore) -> None:
    asked = word_query("where is the anchor?")
    await store.put([document("- the anchor is in the shed\n"), document("- an anchor of lead\n", "memory/b.md")])
    await store.prepare(asked, limit=20)
    before = await store.look(asked, None, None, limit=20)
    await store.put([document("- the anchor is in the boat\n")])
    await store.drop([DocumentRef("memory", "memory/b.md")])
    assert len(before.candidates) == 2
    assert await finds(store, "where is the anchor?") == ["- the anchor is in the boat"]


async def test_a_look_that_was_prepared_for_another_question_is_no_answer(store: MemoryStore) -> None:
    await store.put([document("- the anchor is in the shed\n"), document("- a buoy\n", "memory/b.md")])
    await store.prepare(word_query("anchor"), limit=20)
    assert await finds(store, "buoy") == ["- a buoy"]


async def test_any_word_matches_in_whatever_form_it_is_asked_for(store: MemoryStore) -> None:
    await store.put([document("- we were painting the boat\n- a café by the harbour\n- other things\n")])
    assert await finds(store, "who painted it?") == ["- we were painting the boat"]
    assert await finds(store, "which CAFE") == ["- a café by the harbour"]
    assert await finds(store, "painters painted cafes") == ["- we were painting the boat", "- a café by the harbour"]


async def test_chinese_and_japanese_words_are_found(store: MemoryStore) -> None:
    await store.put([document("- 我的钥匙在抽屉里\n- 私の自転車は緑です\n- a boat\n")])
    assert await finds(store, "钥匙") == ["- 我的钥匙在抽屉里"]
    assert await finds(store, "自転車") == ["- 私の自転車は緑です"]


async def test_a_document_that_is_put_again_replaces_the_one_before(store: MemoryStore) -> None:
    await store.put([document("- the anchor is in the shed\n")])
    await store.put([document("- the anchor was sold\n- the sail is new\n")])
    assert await finds(store, "anchor shed") == ["- the anchor was sold"]
    assert (await store.totals()).pieces == 2
    assert len(await store.files()) == 1


async def test_what_was_dropped_is_not_found(store: MemoryStore) -> None:
    await store.put([document("- an anchor\n"), document("- another anchor\n", "memory/b.md")])
    await store.drop([DocumentRef("memory", NOTES), DocumentRef("memory", "memory/never-there.md")])
    assert await finds(store, "anchor") == ["- another anchor"]
    assert [row.ref.path for row in (await store.files()).values()] == ["memory/b.md"]


async def test_a_file_row_comes_back_as_it_was_given(store: MemoryStore) -> None:
    row, cut = document("- one\n- two\n")
    await store.put([(row, cut)])
    assert await store.files() == {row.ref: row}


async def test_a_touched_document_has_another_stamp_and_the_same_pieces(store: MemoryStore) -> None:
    row, cut = document("- one\n")
    await store.put([(row, cut)])
    touched = FileRow(row.ref, (1, 2, 3, 4), row.digest, 1_000, 1, "way")
    await store.touch([touched, FileRow(DocumentRef("memory", "gone.md"), (1, 1, 0, 0), b"", 0)])
    assert await store.files() == {row.ref: touched}
    assert await finds(store, "one") == ["- one"]


async def test_a_document_without_words_is_a_document_all_the_same(store: MemoryStore) -> None:
    await store.put([document("")])
    assert len(await store.files()) == 1
    assert (await store.totals()).pieces == 0
    assert await store.pieces_of(DocumentRef("memory", NOTES)) == []


async def test_the_two_pieces_on_either_side_come_along_but_never_those_of_another_document(store: MemoryStore) -> None:
    lines = [f"- line number{number}" for number in range(300)]
    lines[0], lines[100] = "- the anchor first", "- the anchor again"
    await store.put(
        [document("- before\n", "memory/a.md"), document("\n".join(lines)), document("- z\n", "memory/z.md")]
    )
    looked = await store.look(WordQuery(("anchor",)), None, None, limit=10)
    places = {candidate.ref.path for candidate in looked.candidates}
    assert places == {NOTES}
    numbers = {candidate.start_line for candidate in looked.candidates}
    assert {1, 2, 3, 99, 100, 101, 102, 103} <= numbers
    by_line = {candidate.start_line: candidate.id for candidate in looked.candidates}
    assert by_line[2] == by_line[1] + 1
    assert by_line[103] == by_line[99] + 4


async def test_the_pieces_of_a_document_come_in_the_order_of_their_lines(store: MemoryStore) -> None:
    await store.put([document("- one\n- two\n- three\n"), document("- other\n", "memory/b.md")])
    pieces = await store.pieces_of(DocumentRef("memory", NOTES))
    assert [(piece.text, piece.start_line) for piece in pieces] == [("- one", 1), ("- two", 2), ("- three", 3)]


async def test_only_the_sources_that_were_asked_for_are_looked_at(store: MemoryStore) -> None:
    await store.put([document("- my anchor\n"), document("- their anchor\n", "books/a.md", "books")])
    assert await finds(store, "anchor", sources=("books",)) == ["- their anchor"]
    assert await finds(store, "anchor", sources=("nobody",)) == []
    many = [document("- the anchor, once more\n", f"memory/{number}.md") for number in range(9)]
    await store.put([*many, document("- nothing of it\n", "books/anchor.md", "books")])
    looked = await store.look(word_query("anchor"), None, None, limit=20, sources=("books",))
    assert {candidate.ref.path for candidate in looked.candidates} == {"books/a.md", "books/anchor.md"}
    await store.use_space(SPACE)
    await embeds(store)
    looked = await looks(store, "anchor", sources=("books",))
    assert {candidate.ref.source for candidate in looked.candidates} == {"books"}


async def test_a_date_that_only_the_passage_holds_brings_its_pieces(store: MemoryStore) -> None:
    await store.put([document("- mended the sail\n", "memory/2026-11-15.md"), document("- other\n", "memory/x.md")])
    looked = await store.look(word_query("what did I do on 15 November?"), None, None, limit=10)
    assert [candidate.text for candidate in looked.candidates] == ["- mended the sail"]
    assert looked.candidates[0].passage_words > 0


@pytest.mark.parametrize("word", ['"', "AND", "NEAR(", "a*", "x:y", "-z", "^", "", "\0", "🦭", "(", "{a b}"])
async def test_no_word_is_an_operator(store: MemoryStore, word: str) -> None:
    await store.put([document("- and near the pier\n")])
    looked = await store.look(WordQuery((word, "pier")), None, None, limit=5)
    assert [candidate.text for candidate in looked.candidates] == ["- and near the pier"]
    await store.look(WordQuery((word,)), None, None, limit=5)


async def test_no_words_and_no_vector_find_nothing(store: MemoryStore) -> None:
    await store.put([document("- one\n")])
    assert (await store.look(WordQuery(()), None, None, limit=5)).candidates == ()


async def test_vectors_are_asked_for_once_for_each_meaning_and_the_newest_documents_first(store: MemoryStore) -> None:
    await store.put([document("- old\n- twice\n"), document("- twice\n- new\n", "memory/b.md")])
    missing = [each.meaning for each in await store.unembedded(SPACE, 10)]
    assert sorted(missing) == ["new", "old", "twice"]
    assert missing[-1] == "old"
    assert len(await store.unembedded(SPACE, 2)) == 2


async def test_vectors_fill_in_step_by_step_until_none_is_missing(store: MemoryStore) -> None:
    await store.put([document("".join(f"- number{n}\n" for n in range(25)))])
    await store.use_space(SPACE)
    assert [await embeds(store, limit=10) for _ in range(4)] == [10, 10, 5, 0]
    await store.put([document("- one more\n", "memory/b.md")])
    assert await embeds(store, limit=10) == 1
    assert (await store.totals()).embedded[SPACE.id] == 26


async def test_a_meaning_that_was_handed_out_and_not_embedded_is_handed_out_again(store: MemoryStore) -> None:
    await store.put([document("- one\n- two\n- three\n")])
    await store.use_space(SPACE)
    first = await store.unembedded(SPACE, 2)
    await store.put_vectors(SPACE, [(first[1].digest, vector_of("x", SPACE.dimensions))])
    assert {each.meaning for each in await store.unembedded(SPACE, 5)} == {"one", "two", "three"} - {first[1].meaning}


async def test_what_means_nearly_the_same_is_found_by_its_vector(store: MemoryStore) -> None:
    await store.put([document("- the anchor is heavy\n- a letter from home\n- blue paint\n")])
    await store.use_space(SPACE)
    await embeds(store)
    looked = await looks(store, "a letter from home")
    assert nearest(looked).text == "- a letter from home"
    assert nearest(looked).cosine == pytest.approx(1.0, abs=0.03)
    assert looked.embedded == looked.pieces == 3
    assert all(candidate.cosine is not None for candidate in looked.candidates)


async def test_vectors_of_words_that_come_back_are_known_at_once(store: MemoryStore) -> None:
    await store.put([document("- the anchor\n- the sail\n")])
    await store.use_space(SPACE)
    await embeds(store)
    await store.drop([DocumentRef("memory", NOTES)])
    assert (await store.totals()).embedded.get(SPACE.id, 0) == 0
    await store.put([document("- the sail\n- the anchor\n- the mast\n", "memory/renamed.md")])
    assert [each.meaning for each in await store.unembedded(SPACE, 10)] == ["the mast"]
    assert (await store.totals()).embedded == {SPACE.id: 2}
    assert (await looks(store, "the sail")).embedded == 2


async def test_clearing_forgets_the_texts_and_keeps_the_vectors(store: MemoryStore) -> None:
    await store.put([document("- the anchor\n")])
    await store.use_space(SPACE)
    await embeds(store)
    await store.clear()
    assert await store.files() == {}
    assert await finds(store, "anchor") == []
    assert (await looks(store, "anchor")).candidates == ()
    await store.put([document("- the anchor\n")])
    assert await store.unembedded(SPACE, 10) == []


async def test_a_space_that_is_being_filled_is_not_searched_until_it_is_used(store: MemoryStore) -> None:
    await store.put([document("- the anchor\n- the sail\n")])
    await store.use_space(SPACE)
    await embeds(store)
    await embeds(store, OTHER)
    assert await store.space_in_use() == SPACE.id
    assert (await looks(store, "the sail", OTHER)).candidates == ()
    assert nearest(await looks(store, "the sail")).text == "- the sail"
    await store.use_space(OTHER)
    assert await store.space_in_use() == OTHER.id
    assert nearest(await looks(store, "the sail", OTHER)).text == "- the sail"
    assert (await looks(store, "the sail")).candidates == ()


async def test_without_a_space_nothing_is_near_and_words_are_found(store: MemoryStore) -> None:
    await store.put([document("- the anchor\n")])
    assert await store.space_in_use() == ""
    await store.use_space(SPACE)
    await embeds(store)
    await store.use_space(None)
    assert await store.space_in_use() == ""
    assert (await looks(store, "anchor")).candidates == ()
    assert await finds(store, "anchor") == ["- the anchor"]
    await store.use_space(SPACE)
    assert nearest(await looks(store, "anchor")).text == "- the anchor"


@pytest.mark.parametrize("vector", [b"", b"\0" * 4, b"\0\0\xc0\x7f" * 64], ids=["none", "short", "not a number"])
async def test_a_vector_that_is_none_of_this_space_is_refused_with_all_that_came_along(
    store: MemoryStore, vector: bytes
) -> None:
    await store.put([document("- one\n- two\n")])
    await store.use_space(SPACE)
    good, bad = await store.unembedded(SPACE, 2)
    with pytest.raises(StorageError):
        await store.put_vectors(SPACE, [(good.digest, vector_of("x", 64)), (bad.digest, vector)])
    assert len(await store.unembedded(SPACE, 5)) == 2


async def test_a_question_whose_vector_has_another_size_is_refused(store: MemoryStore) -> None:
    await store.put([document("- one\n")])
    await store.use_space(SPACE)
    await embeds(store)
    with pytest.raises(StorageError):
        await store.look(WordQuery(()), b"\0" * 4, SPACE, limit=3)


async def test_totals_are_right_whatever_came_and_went(store: MemoryStore) -> None:
    chance = random.Random(7)
    await store.use_space(SPACE)
    here: dict[str, DocumentPieces] = {}
    for _ in range(40):
        path = f"memory/{chance.randrange(6)}.md"
        if chance.random() < 0.3:
            await store.drop([DocumentRef("memory", path)])
            here.pop(path, None)
        else:
            row, cut = document("".join(f"- word{chance.randrange(12)}\n" for _ in range(chance.randrange(5))), path)
            await store.put([(row, cut)])
            here[path] = cut
        if chance.random() < 0.4:
            await embeds(store, limit=3)
    pieces = [piece for cut in here.values() for piece in cut.pieces]
    missing = {each.meaning for each in await store.unembedded(SPACE, 100)}
    totals = await store.totals()
    assert (totals.files, totals.pieces) == (len(here), len(pieces))
    assert totals.embedded.get(SPACE.id, 0) == sum(piece.meaning not in missing for piece in pieces)


async def test_a_vector_whose_words_went_while_it_was_made_is_not_kept(store: MemoryStore) -> None:
    await store.use_space(SPACE)
    await store.put([document("- the canary is zanzibar\n"), document("- the boat is called aster\n", "MEMORY.md")])
    missing = await store.unembedded(SPACE, 10)
    await store.drop([DocumentRef("memory", NOTES)])
    await store.scrub()
    await store.put_vectors(SPACE, [(each.digest, vector_of(each.meaning, SPACE.dimensions)) for each in missing])
    totals = await store.totals()
    assert (totals.pieces, totals.cached_vectors, totals.embedded[SPACE.id]) == (1, 1, 1)


async def test_after_a_scrub_nothing_of_what_was_dropped_is_left(store: MemoryStore, tmp_path: Path) -> None:
    await store.use_space(SPACE)
    await store.put([document("- the canary is zanzibar\n"), document("- the boat is called aster\n", "MEMORY.md")])
    await embeds(store)
    await store.drop([DocumentRef("memory", NOTES)])
    await store.scrub()
    totals = await store.totals()
    assert (totals.pieces, totals.cached_vectors) == (1, 1)
    assert await finds(store, "zanzibar canary") == []
    assert "aster" in nearest(await looks(store, "the boat is called aster")).text
    left = [path.name for path in tmp_path.rglob("*") if path.is_file() and b"nzibar" in path.read_bytes()]
    assert left == []
