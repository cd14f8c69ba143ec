"""The index follows the disk: whatever was written, edited, moved or deleted, the next question knows."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from indexed import Indexed

from palinurus.domain.errors import StorageError, StorageFull
from palinurus.memory.answer import Progress, SkippedFile
from palinurus.memory.chunk import chunk
from palinurus.memory.document import DocumentRef, MemoryDocument
from palinurus.memory.scan import Scan
from palinurus.memory.settings import Collection
from palinurus.memory.store import MemoryStore
from palinurus.testing.fakes import HashingEmbedder, vector_of


@pytest.fixture(params=["memory", "sqlite"])
async def notes(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Indexed]:
    store = MemoryStore(None if request.param == "memory" else tmp_path / "m.sqlite")
    whole = Indexed(tmp_path / "ws", store)
    yield whole
    await whole.close()


async def test_what_was_written_before_the_question_is_found_by_it(notes: Indexed) -> None:
    assert await notes.asks("anchor") == []
    file = notes.write("memory/a.md", "- the anchor is in the shed\n")
    assert await notes.asks("anchor") == ["memory/a.md: - the anchor is in the shed"]
    file.write_text("- the anchor is in the boat\n")  # as long as before
    assert await notes.asks("anchor") == ["memory/a.md: - the anchor is in the boat"]
    file.rename(notes.root / "memory" / "b.md")
    assert await notes.asks("anchor") == ["memory/b.md: - the anchor is in the boat"]
    (notes.root / "memory" / "b.md").unlink()
    assert await notes.asks("anchor") == []


async def test_an_edit_that_leaves_size_and_time_as_they_were_is_found(notes: Indexed) -> None:
    file = notes.write("MEMORY.md", "- red sail\n")
    seen = file.stat()
    assert await notes.asks("red blue") == ["MEMORY.md: - red sail"]
    with file.open("r+") as same:
        same.write("- blu")
    os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert await notes.asks("sail") == ["MEMORY.md: - blu sail"]


async def test_a_file_that_is_only_touched_is_not_indexed_again(notes: Indexed) -> None:
    file = notes.write("memory/a.md", "- one\n")
    await notes.index.sync()
    os.utime(file, ns=(1, 1))
    report = await notes.index.sync()
    assert (report.added, report.changed, report.removed, report.pieces) == (0, 0, 0, 0)
    assert report.compared == 1


async def test_a_report_counts_what_was_done(notes: Indexed) -> None:
    notes.write("memory/a.md", "- one\n- two\n")
    notes.write("memory/b.md", "- three\n")
    report = await notes.index.sync()
    assert (report.compared, report.added, report.pieces) == (2, 2, 3)
    notes.write("memory/a.md", "- one more\n")
    (notes.root / "memory" / "b.md").unlink()
    report = await notes.index.sync()
    assert (report.compared, report.added, report.changed, report.removed, report.pieces) == (1, 0, 1, 1, 1)


async def test_a_forced_sync_makes_everything_anew_and_keeps_the_vectors(notes: Indexed) -> None:
    space = HashingEmbedder().space
    notes.write("memory/a.md", "- one\n")
    await notes.index.sync()
    await notes.store.use_space(space)
    await notes.store.put_vectors(
        space, [(each.digest, vector_of(each.meaning, 64)) for each in await notes.store.unembedded(space, 9)]
    )
    report = await notes.index.sync(force=True)
    assert (report.added, report.pieces) == (1, 1)
    assert await notes.store.unembedded(space, 9) == []
    await notes.equals_the_disk()


async def test_another_way_of_cutting_makes_the_index_anew(tmp_path: Path) -> None:
    store = MemoryStore(None)
    first = Indexed(tmp_path, store)
    first.write("memory/a.md", "- one\n")
    await first.index.sync()
    second = Indexed(tmp_path, store)
    assert (await second.index.sync()).changed == 0
    third = Indexed(tmp_path, store)
    third.index._recipe = "tomorrow's"
    assert (await third.index.sync()).changed == 1
    assert (await third.index.sync()).changed == 0


async def test_progress_is_told_up_to_the_end(notes: Indexed) -> None:
    for number in range(5):
        notes.write(f"memory/{number}.md", "- x\n")
    told: list[Progress] = []
    await notes.index.sync(progress=told.append)
    assert told[-1] == Progress("text", 5, 5)


async def test_collections_are_searched_under_their_names(tmp_path: Path) -> None:
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "dune.md").write_text("- sand\n")
    notes = Indexed(tmp_path / "ws", collections=(Collection("books", tmp_path / "books"),))
    assert await notes.asks("sand") == ["books/dune.md: - sand"]
    assert set(await notes.store.files()) == {DocumentRef("books", "books/dune.md")}
    without = Indexed(tmp_path / "ws", notes.store)
    assert await without.asks("sand") == []


async def test_bad_files_are_left_out_and_told_and_the_rest_is_indexed(notes: Indexed) -> None:
    notes.write("memory/good.md", "- anchor\n")
    (notes.root / "memory" / "odd.md").write_bytes(b"- anchor \xff\xfe\0\n")
    (notes.root / "memory" / "link.md").symlink_to("good.md")
    os.mkfifo(notes.root / "memory" / "pipe.md")
    with (notes.root / "memory" / "big.md").open("wb") as file:
        file.truncate(3 * 1024**3)
    report = await notes.index.sync(seconds=10)
    assert {each.path for each in report.skipped} == {"memory/link.md", "memory/pipe.md", "memory/big.md"}
    assert await notes.asks("anchor") == [
        "memory/good.md: - anchor",
        "memory/odd.md: - anchor \ufffd\ufffd\ufffd",
    ]


async def test_a_file_that_became_too_large_is_no_longer_answered_from(notes: Indexed) -> None:
    file = notes.write("memory/a.md", "- anchor\n")
    assert await notes.asks("anchor")
    with file.open("ab") as same:
        same.truncate(3 * 1024**3)
    assert await notes.asks("anchor") == []


async def test_callers_at_the_same_time_share_a_sweep_that_began_after_they_came(notes: Indexed) -> None:
    sweeps, gate = 0, threading.Event()
    scan = notes.scanner.scan

    def slow() -> Scan:
        nonlocal sweeps
        found = scan()
        sweeps += 1
        assert gate.wait(60)
        return found

    notes.scanner.scan = slow  # type: ignore[method-assign]
    first = asyncio.create_task(notes.index.catch_up(5))
    while not sweeps:
        await asyncio.sleep(0)
    notes.write("memory/late.md", "- anchor\n")  # the first sweep has passed by
    others = [asyncio.create_task(notes.index.catch_up(5)) for _ in range(10)]
    await asyncio.sleep(0)
    gate.set()
    assert (await first).compared == 0
    answers = await asyncio.gather(*others)
    assert {(answer.state, answer.compared, answer.caught_up) for answer in answers} == {("fresh", 1, 1)}
    assert sweeps == 2


async def test_without_time_to_look_the_answer_says_so_and_the_sweep_goes_on(notes: Indexed) -> None:
    gate = threading.Event()
    scan = notes.scanner.scan

    def slow() -> Scan:
        assert gate.wait(60)
        return scan()

    notes.scanner.scan = slow  # type: ignore[method-assign]
    notes.write("memory/a.md", "- anchor\n")
    fresh = await notes.index.catch_up(0.01)
    assert (fresh.state, fresh.compared) == ("unswept", 0)
    assert fresh.why
    gate.set()
    assert (await notes.asks("anchor")) == ["memory/a.md: - anchor"]


async def test_without_time_to_read_the_answer_names_what_it_lacks(notes: Indexed) -> None:
    gate = threading.Event()
    read = notes.scanner.read

    def slow(path: str) -> MemoryDocument | SkippedFile | None:
        assert gate.wait(60)
        return read(path)

    notes.scanner.read = slow  # type: ignore[method-assign]
    seconds, state = 0.05, "unswept"
    while state == "unswept":  # a busy machine has not even compared: again, with more time
        gate.set()
        await notes.index.catch_up(60)
        gate.clear()
        for number in range(8):
            notes.write(f"memory/{number}.md", f"- anchor of {seconds}\n")
        fresh = await notes.index.catch_up(seconds)
        seconds, state = seconds * 2, fresh.state
    assert (fresh.state, fresh.compared, fresh.behind_count, len(fresh.behind)) == ("stale", 8, 8, 5)
    report = await notes.index.sync(seconds=0)
    gate.set()
    assert (await notes.index.catch_up(5)).state == "fresh"
    assert report.added == 0
    assert len(await notes.asks("anchor")) == 8


class FullDisk(MemoryStore):
    full = False

    async def put(self, documents: object) -> None:
        if self.full:
            raise StorageFull("the disk is full")
        await super().put(documents)  # type: ignore[arg-type]


async def test_a_store_that_fails_is_told_and_tried_again_next_time(tmp_path: Path) -> None:
    store = FullDisk(None)
    notes = Indexed(tmp_path, store)
    notes.write("memory/a.md", "- anchor\n")
    store.full = True
    fresh = await notes.index.catch_up(5)
    assert (fresh.state, fresh.behind, fresh.why) == ("stale", ("memory/a.md",), "the disk is full")
    with pytest.raises(StorageError):
        await notes.index.sync()
    store.full = False
    assert await notes.asks("anchor") == ["memory/a.md: - anchor"]


async def test_an_index_that_is_closed_in_mid_sweep_stops(tmp_path: Path) -> None:
    notes = Indexed(tmp_path)
    notes.write("memory/a.md", "- anchor\n")
    waiting = [asyncio.create_task(notes.index.catch_up(60)), asyncio.create_task(notes.index.catch_up(60))]
    syncing = asyncio.create_task(notes.index.sync())
    await asyncio.sleep(0)
    waiting.append(asyncio.create_task(notes.index.catch_up(60)))
    await asyncio.sleep(0)
    await notes.index.close()
    async with asyncio.timeout(60):
        assert {(await each).state for each in waiting} == {"unswept"}
        with pytest.raises(StorageError):
            await syncing


async def test_status_compares_with_the_disk_each_time(notes: Indexed) -> None:
    notes.write("memory/a.md", "- one\n")
    notes.write("memory/b.md", "- two\n")
    assert {each.what for each in (await notes.index.status()).differences} == {"missing in the index"}
    await notes.index.sync()
    status = await notes.index.status(deep=True)
    assert (status.files, status.pieces, status.difference_count, status.agent) == (2, 2, 0, "main")
    assert status.sources == {"memory": 2}
    assert status.text_bytes == 12
    notes.write("memory/a.md", "- changed\n")
    (notes.root / "memory" / "b.md").unlink()
    notes.write("memory/c.md", "- new\n")
    for deep in (False, True):
        status = await notes.index.status(deep=deep)
        assert {(each.path, each.what) for each in status.differences} == {
            ("memory/a.md", "changed"),
            ("memory/b.md", "gone from the disk"),
            ("memory/c.md", "missing in the index"),
        }


async def test_a_deep_status_sees_pieces_that_are_not_those_of_the_text(notes: Indexed) -> None:
    notes.write("memory/a.md", "- one\n")
    await notes.index.sync()
    place = DocumentRef("memory", "memory/a.md")
    row = (await notes.store.files())[place]
    await notes.store.put([(row, chunk("- something else\n", place.path, 400))])
    assert (await notes.index.status()).difference_count == 0
    assert [each.what for each in (await notes.index.status(deep=True)).differences] == [
        "other pieces than the text has"
    ]


PATHS = st.sampled_from(["MEMORY.md", "USER.md", "memory/a.md", "memory/b.md", "memory/deep/c.md", "memory/日記.md"])
TEXTS = st.lists(st.sampled_from(["- red", "- blue", "# day", "", "text of more words", "- 漢字"]), max_size=5).map(
    "\n".join
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), PATHS, TEXTS),
        st.tuples(st.just("sneak"), PATHS, TEXTS),  # sets the time back
        st.tuples(st.just("move"), PATHS, PATHS),
        st.tuples(st.just("delete"), PATHS, st.none()),
        st.tuples(st.just("link"), PATHS, PATHS),
        st.tuples(st.just("sync"), st.none(), st.none()),
        st.tuples(st.just("restart"), st.none(), st.none()),
    ),
    max_size=14,
)


@given(STEPS)
@settings(max_examples=40)
def test_whatever_happens_to_the_files_the_index_equals_the_disk_after_a_sync(
    steps: list[tuple[str, str, str]],
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="pal-index-"))
    try:
        asyncio.run(_live(folder, steps))
    finally:
        shutil.rmtree(folder)


async def _live(folder: Path, steps: list[tuple[str, str, str]]) -> None:
    notes = Indexed(folder / "ws", MemoryStore(folder / "m.sqlite"))
    for what, path, more in steps:
        if what == "sync":
            await notes.index.sync()
        elif what == "restart":
            await notes.close()
            notes = Indexed(folder / "ws", MemoryStore(folder / "m.sqlite"))
        else:
            _do(notes.root, what, path, more)
    assert (await notes.index.catch_up(10)).state == "fresh"
    await notes.equals_the_disk()
    assert (await notes.index.status(deep=True)).difference_count == 0
    await notes.close()


def _do(root: Path, what: str, path: str, more: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    seen = file.lstat() if file.is_symlink() or file.exists() else None
    if what in ("write", "sneak"):
        if file.is_symlink():
            file.unlink()
        file.write_text(more)
        if what == "sneak" and seen is not None:
            os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    elif what == "delete":
        file.unlink(missing_ok=True)
    elif what == "move" and seen is not None and path != more:
        (root / more).parent.mkdir(parents=True, exist_ok=True)
        file.replace(root / more)
    elif what == "link" and path != more:
        file.unlink(missing_ok=True)
        file.symlink_to(root / more)
