"""An index as a database of the form that OpenClaw's documents describe."""

from __future__ import annotations

import asyncio
import struct
from hashlib import sha256
from pathlib import Path

import apsw
import pytest
import sqlite_vec
from notes import asked, search_over, write

from palinurus.domain.errors import StorageError
from palinurus.memory.export import export_index
from palinurus.memory.fill import VectorFiller
from palinurus.memory.store import MemoryStore
from palinurus.testing.fakes import HashingEmbedder, vector_of


@pytest.fixture
async def index(tmp_path: Path) -> Path:
    write(tmp_path)
    path = tmp_path / "derived" / "memory.sqlite"
    store, embedder = MemoryStore(path), HashingEmbedder()
    async with asyncio.timeout(60):
        await asked(search_over(tmp_path, store), "anything")
        await VectorFiller(store, embedder, share=1.0).run()
        await store.close()
    return path


def opened(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    connection.enable_load_extension(True)
    connection.load_extension(sqlite_vec.loadable_path())
    return connection


def test_every_file_and_line_is_in_it_and_can_be_searched(index: Path, tmp_path: Path) -> None:
    done = export_index(index, tmp_path / "out.sqlite")
    db = opened(tmp_path / "out.sqlite")
    files = dict(db.execute("SELECT path, hash FROM files"))
    assert len(files) == done.files > 3
    assert all(sha256((tmp_path / path).read_bytes()).hexdigest() == digest for path, digest in files.items())
    assert db.execute("SELECT sum(chunk_count) FROM files").get == db.execute("SELECT count(*) FROM chunks").get
    found = db.execute("SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH 'postgres'").get
    path, first, last, content = db.execute(
        "SELECT path, start_line, end_line, content FROM chunks c JOIN files f ON f.id = file_id WHERE c.id = ?",
        [found],
    ).get
    assert (tmp_path / path).read_text(encoding="utf-8").splitlines()[first - 1 : last] == content.splitlines()


def test_vectors_are_near_to_what_the_embedder_gave(index: Path, tmp_path: Path) -> None:
    done = export_index(index, tmp_path / "out.sqlite")
    db = opened(tmp_path / "out.sqlite")
    query = vector_of("Postgres instead of Mongo", 64)
    nearest = db.execute(
        "SELECT content FROM chunks_vec v JOIN chunks c ON c.id = chunk_id WHERE v.embedding MATCH ? AND k = 1", [query]
    ).get
    assert "Postgres" in nearest
    cached = list(db.execute("SELECT provider, model, embedding FROM embedding_cache"))
    assert len(cached) == done.vectors
    assert {row[:2] for row in cached} == {("testing", "hashing")}
    assert all(abs(sum(x * x for x in struct.unpack("<64f", row[2])) - 1) < 1e-5 for row in cached)


def test_nothing_is_written_over(index: Path, tmp_path: Path) -> None:
    (tmp_path / "out.sqlite").write_text("mine")
    with pytest.raises(StorageError, match="cannot be made"):
        export_index(index, tmp_path / "out.sqlite")
    assert (tmp_path / "out.sqlite").read_text() == "mine"


def test_what_is_no_index_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("not a database, and long enough to be read as one")
    with pytest.raises(StorageError):
        export_index(tmp_path / "other", tmp_path / "out.sqlite")
    assert not (tmp_path / "out.sqlite").exists()
