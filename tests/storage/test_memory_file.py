"""The file of a memory index: it may be deleted or damaged at any time, and it stays small."""

from __future__ import annotations

import asyncio
import math
import random
import struct
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

import apsw
import pytest

from palinurus.domain.errors import StorageDamaged, StorageReadOnly
from palinurus.memory import look as memory_look
from palinurus.memory import store as memory
from palinurus.memory.chunk import chunk
from palinurus.memory.document import DocumentPieces, DocumentRef, FileRow, WordQuery
from palinurus.memory.embedder import Space
from palinurus.memory.index import MemoryIndex
from palinurus.memory.question import Question
from palinurus.memory.scan import Scanner
from palinurus.memory.search import MemorySearch
from palinurus.memory.settings import MemorySettings
from palinurus.memory.store import MemoryStore
from palinurus.memory.terms import word_query
from palinurus.memory.vectors import pack, query_bytes, unpacked
from palinurus.testing.fakes import FakeClock
from palinurus.testing.loop_time import excuse

SPACE = Space("test", "chance", 384)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MemoryStore]:
    keeper = MemoryStore(tmp_path / "derived" / "main.sqlite")
    yield keeper
    await keeper.close()


@pytest.fixture
def index(store: MemoryStore, workspace: Path) -> MemoryIndex:
    return MemoryIndex(store, Scanner(workspace, sources=("memory",)), FakeClock(), MemorySettings())


def document(text: str, path: str = "memory/a.md") -> tuple[FileRow, DocumentPieces]:
    cut = chunk(text, path, 400)
    return FileRow(DocumentRef("memory", path), (1, 2, 3, 0), sha256(text.encode()).digest(), 0, len(cut.pieces)), cut


def vector(chance: random.Random) -> bytes:
    return struct.pack("<384f", *(chance.gauss(0, 1 / math.sqrt(384)) for _ in range(384)))


def cosine(one: bytes, other: bytes) -> float:
    a, b = struct.unpack("<384f", one), struct.unpack("<384f", other)
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


async def found(store: MemoryStore, question: str) -> list[str]:
    looked = await store.look(word_query(question), None, None, limit=10)
    return [candidate.text for candidate in looked.candidates if candidate.words]


async def damage(store: MemoryStore, how: str) -> None:
    await store.close()
    data = bytearray(store.path.read_bytes())
    if how == "no database":
        data[:] = b"nothing of the kind" * 1000
    elif how == "cut short":
        del data[len(data) // 2 :]
    elif how == "of the future":
        connection = apsw.Connection(str(store.path))
        connection.pragma("user_version", 9_999)
        connection.close()
        return
    else:
        data[4096:] = bytes(len(data) - 4096)
    store.path.write_bytes(data)


@pytest.mark.parametrize("how", ["no database", "cut short", "emptied", "of the future"])
async def test_a_damaged_index_is_thrown_away_and_made_anew_and_that_is_told(
    store: MemoryStore, index: MemoryIndex, how: str
) -> None:
    await index.sync()
    await damage(store, how)
    index.reload()
    report = await index.sync()
    assert report.added == 2
    assert "is rebuilt" in report.trouble
    assert await found(store, "harbour") == ["Lives by the harbour."]
    assert (await index.status(deep=True)).difference_count == 0
    assert (await index.sync()).trouble == ""


async def test_damage_that_a_look_meets_is_an_error_once(store: MemoryStore, index: MemoryIndex) -> None:
    await index.sync()
    await damage(store, "emptied")
    with pytest.raises(StorageDamaged):
        await found(store, "harbour")
    index.reload()
    assert (await index.catch_up(5)).caught_up == 2
    assert await found(store, "harbour") == ["Lives by the harbour."]


async def test_an_index_that_lacks_a_table_is_made_anew_too(store: MemoryStore, index: MemoryIndex) -> None:
    await index.sync()
    await store.close()
    connection = apsw.Connection(str(store.path))
    connection.execute("DROP TABLE pieces")
    connection.close()
    with pytest.raises(StorageDamaged):
        await found(store, "harbour")
    index.reload()
    await index.sync()
    assert await found(store, "harbour") == ["Lives by the harbour."]


async def test_a_search_that_meets_damage_answers_from_an_index_made_anew(
    store: MemoryStore, index: MemoryIndex
) -> None:
    await index.sync()
    await damage(store, "emptied")
    search = MemorySearch(index, store, None, MemorySettings(), FakeClock())
    answer = await search.ask(Question("who lives by the harbour?"))
    assert [result.path for result in answer.results][:1] == ["USER.md"]
    assert (answer.freshness.state, answer.freshness.caught_up) == ("fresh", 2)


async def test_several_who_meet_the_damage_throw_one_file_away(store: MemoryStore, index: MemoryIndex) -> None:
    await index.sync()
    assert store._database is not None
    await store._database.scrub()  # all of it is in the file
    with store.path.open("r+b") as file:  # under the eyes of those who have it open
        file.seek(4096)
        file.write(b"\xff" * (store.path.stat().st_size - 4096))
    met = await asyncio.gather(*(found(store, f"harbour {n}") for n in range(5)), return_exceptions=True)
    assert isinstance(met[0], StorageDamaged)
    index.reload()
    assert (await index.catch_up(5)).state == "fresh"
    assert await found(store, "harbour") == ["Lives by the harbour."]
    assert (await index.status(deep=True)).difference_count == 0


async def test_an_index_that_was_deleted_is_made_anew(store: MemoryStore, index: MemoryIndex) -> None:
    await index.sync()
    await store.close()
    store.path.unlink()
    index.reload()
    assert (await index.sync()).added == 2


async def test_an_index_that_is_only_read_is_not_written(store: MemoryStore) -> None:
    await store.put([document("- the anchor\n")])
    await store.close()
    reader = MemoryStore(store.path, readonly=True)
    assert await found(reader, "anchor") == ["- the anchor"]
    with pytest.raises(StorageReadOnly):
        await reader.put([document("- more\n")])
    await reader.close()


async def test_nobody_else_may_read_the_file(store: MemoryStore) -> None:
    await store.put([document("- secret\n")])
    assert store.path.stat().st_mode & 0o077 == 0


async def test_a_word_that_is_everywhere_is_left_out_beside_a_rare_one(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_look, "RANKED", (20, 20))
    lines = [f"- common thing{number}" for number in range(100)]
    lines[40] = "- common rarity"
    await store.put([document("\n".join(lines))])
    looked = await store.look(WordQuery(("common", "rarity")), None, None, limit=100)
    assert looked.frequencies == (100, 1)
    assert [candidate.text for candidate in looked.candidates if candidate.words] == ["- common rarity"]
    looked = await store.look(WordQuery(("common",)), None, None, limit=100)
    matched = [candidate.start_line for candidate in looked.candidates if candidate.words]
    assert matched == list(range(81, 101))  # the newest, and no more than may be ranked


async def test_thousands_of_vectors_are_sifted_by_their_signs_and_the_nearest_come_out(store: MemoryStore) -> None:
    chance = random.Random(11)
    count = memory_look.FEW + 500
    await store.put([document("".join(f"- thing{number}\n" for number in range(count)))])
    await store.use_space(SPACE)
    made: dict[str, bytes] = {}
    while missing := await store.unembedded(SPACE, 1_000):
        with excuse("the test makes up vectors"):
            new = [(each, vector(chance)) for each in missing]
        made |= {each.meaning: numbers for each, numbers in new}
        await store.put_vectors(SPACE, [(each.digest, numbers) for each, numbers in new])
    wanted = made["thing777"]
    asked = struct.pack("<384f", *(x + chance.gauss(0, 0.04) for x in struct.unpack("<384f", wanted)))
    looked = await store.look(WordQuery(()), asked, SPACE, limit=20)
    best = max(looked.candidates, key=lambda candidate: candidate.cosine or -1)
    assert best.text == "- thing777"
    assert looked.embedded == count
    with excuse("the test computes what is right"):
        exact = {text: cosine(asked, numbers) for text, numbers in made.items()}
    assert all(abs((each.cosine or 9) - exact[each.text[2:]]) < 0.03 for each in looked.candidates)


async def test_a_line_that_is_everywhere_does_not_crowd_out_what_is_nearly_as_near(store: MemoryStore) -> None:
    await store.put([document("- done\n" * 500 + "- almost\n")])
    await store.use_space(SPACE)
    chance = random.Random(3)
    done = vector(chance)
    almost = struct.pack("<384f", *(x + chance.gauss(0, 0.01) for x in struct.unpack("<384f", done)))
    by_meaning = {"done": done, "almost": almost}
    missing = await store.unembedded(SPACE, 600)
    await store.put_vectors(SPACE, [(each.digest, by_meaning[each.meaning]) for each in missing])
    looked = await store.look(WordQuery(()), done, SPACE, limit=10)
    assert len(looked.candidates) < 20
    assert "- almost" in {candidate.text for candidate in looked.candidates}


async def test_vectors_that_belong_to_nobody_are_forgotten_when_they_are_many(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "MANY_GONE", 10)
    monkeypatch.setattr(memory, "KEPT_ORPHANS", 20)
    chance = random.Random(5)
    await store.use_space(SPACE)
    for turn in range(6):
        await store.put([document("".join(f"- turn{turn} line{number}\n" for number in range(20)))])
        missing = await store.unembedded(SPACE, 50)
        await store.put_vectors(SPACE, [(each.digest, vector(chance)) for each in missing])
    totals = await store.totals()
    assert totals.cached_vectors <= 2 * 20 + 20
    assert totals.embedded == {SPACE.id: 20}
    assert len((await store.look(WordQuery(()), vector(chance), SPACE, limit=5)).candidates) > 0


def test_four_bits_a_number_keep_the_cosine_to_a_hundredth() -> None:
    chance = random.Random(2)
    errors = []
    for _ in range(200):
        one = vector(chance)
        other = struct.pack("<384f", *(x * 0.7 + chance.gauss(0, 0.04) for x in struct.unpack("<384f", one)))
        levels = struct.unpack("384b", unpacked(pack(one, 384)))
        asked = struct.unpack("384b", query_bytes(other, 384))
        dot = sum(x * y for x, y in zip(levels, asked, strict=True)) / math.hypot(*levels) / math.hypot(*asked)
        errors.append(abs(dot - cosine(one, other)))
    assert len(pack(vector(chance), 384)) == 192
    assert sum(errors) / len(errors) < 0.006
    assert max(errors) < 0.03


def test_any_number_of_dimensions_fits() -> None:
    for dimensions in (1, 3, 16, 100, 257):
        numbers = struct.pack(f"<{dimensions}f", *([0.5] * dimensions))
        assert len(unpacked(pack(numbers, dimensions))) == len(query_bytes(numbers, dimensions))
        assert len(unpacked(pack(numbers, dimensions))) % 8 == 0


async def test_the_folders_of_an_index_are_for_this_user_alone(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path / "home" / "derived" / "memory" / "main.sqlite")
    await store.files()
    await store.close()
    made = [tmp_path / "home" / name for name in ("", "derived", "derived/memory")]
    assert [folder.stat().st_mode & 0o777 for folder in made] == [0o700] * 3
