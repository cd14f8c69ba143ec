"""The derived index of transcripts: deleted, damaged or behind, it makes itself anew."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import UserMessage
from palinurus.sessions import index as transcripts
from palinurus.sessions.index import TranscriptIndex
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import MessageEntry
from palinurus.storage.database import Database
from palinurus.testing.fakes import FakeClock, SeededIds

T = "2026-11-15T09:00:00.000Z"


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Database]:
    opened = Database(tmp_path / "home.sqlite", "home")
    yield opened
    await opened.close()


async def says(home: Database, *texts: str) -> None:
    store = SessionStore(home, FakeClock(), SeededIds())
    session = await store.open(SessionKey.main())
    count = session.entry_count
    await store.append(
        session.id, [MessageEntry(f"m{count + n}", T, message=UserMessage(text)) for n, text in enumerate(texts)]
    )


async def finds(home: Database, path: Path, query: str) -> list[str]:
    index = TranscriptIndex(home, path)
    try:
        return [hit.snippet for hit in await index.search(query, limit=1000)]
    finally:
        await index.close()


async def test_an_index_that_was_deleted_is_made_anew_by_the_next_search(home: Database, tmp_path: Path) -> None:
    path = tmp_path / "derived" / "transcripts.sqlite"
    await says(home, "the anchor is rusty")
    assert await finds(home, path, "anchor") == ["the anchor is rusty"]
    for file in path.parent.iterdir():
        file.unlink()
    await says(home, "a new anchor")
    assert len(await finds(home, path, "anchor")) == 2


async def test_an_index_that_is_behind_reads_on_in_steps(
    home: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcripts, "STEP", 3)
    path = tmp_path / "t.sqlite"
    await says(home, *(f"anchor {number}" for number in range(10)))
    assert len(await finds(home, path, "anchor")) == 10
    await says(home, "anchor again")
    assert len(await finds(home, path, "anchor")) == 11


async def test_a_damaged_index_is_made_anew(home: Database, tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    path.write_bytes(b"this is no database" * 300)
    await says(home, "the anchor is rusty")
    assert await finds(home, path, "anchor") == ["the anchor is rusty"]


async def test_a_snippet_shows_the_place_that_matches(home: Database, tmp_path: Path) -> None:
    await says(home, "x " * 400 + "the anchor lies here " + "y " * 400)
    (snippet,) = await finds(home, tmp_path / "t.sqlite", "anchor")
    assert "the anchor lies here" in snippet
    assert snippet.startswith("…")
    assert snippet.endswith("…")
    assert len(snippet) < 260


async def test_word_forms_and_accents_do_not_matter(home: Database, tmp_path: Path) -> None:
    await says(home, "we sailed to the café")
    assert await finds(home, tmp_path / "t.sqlite", "sailing")
    assert await finds(home, tmp_path / "t.sqlite", "cafe")


async def test_an_index_of_a_home_that_was_restored_from_a_backup_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    for name, text in (("later", "anchor"), ("restored", "bicycle")):  # the backup knows less than the index has read
        home = Database(tmp_path / f"{name}.sqlite", "home")
        await says(home, *[text] * (3 if name == "later" else 1))
        found = await finds(home, path, text)
        await home.close()
    assert found == ["bicycle"]
