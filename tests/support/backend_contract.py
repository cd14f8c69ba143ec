"""What every memory backend is held to: a suite is `class TestMine(BackendContract)` with a method `open`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from palinurus.config.load import Config
from palinurus.domain.errors import PalinurusError
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, Text, UserMessage
from palinurus.memory.answer import SearchResult, SyncReport
from palinurus.memory.backend import BackendPlace, MemoryBackend
from palinurus.memory.chunk import lines_of
from palinurus.memory.conversations import StoredDocuments
from palinurus.memory.get import text_of
from palinurus.memory.question import Question
from palinurus.memory.scan import Scanner
from palinurus.memory.settings import Collection, MemorySettings, SearchLimits, Sync
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import MessageEntry
from palinurus.storage.database import MemoryDatabase
from palinurus.testing.fakes import FakeClock, SeededIds
from palinurus.workspace.boundary import Boundary

QUIET = Sync(watch=False, sweep_minutes=0)
LIMITS = SearchLimits(seconds=30)  # a busy machine is not a slow backend
SECRET = "hunter2-0123456789"
ODD = [
    '"',
    "-",
    "--help",
    "-c memory",
    "((",
    "NOT AND OR",
    "*",
    "a\0b",
    "\ud800",
    "'; DROP TABLE files; --",
    "   ",
    "日本語",
]


class Kept:
    """A home's files and sessions, and the backend over them."""

    def __init__(self, root: Path, clock: FakeClock, new_id: SeededIds, config: Mapping[str, Any]) -> None:
        self.root = root / "workspace"
        self.clock = clock
        self.sessions = SessionStore(MemoryDatabase(), clock, new_id)
        self.reports: list[SyncReport] = []
        collections = (Collection("handbook", root / "handbook"),)
        settings = MemorySettings(
            embedder="none", sources=("memory", "sessions"), collections=collections, sync=QUIET, budget=LIMITS
        )
        self.place = BackendPlace(
            "main",
            root / "derived",
            self.root,
            settings,
            Config(dict(config)),
            {},
            clock,
            Scanner(self.root, collections, sources=settings.sources),
            StoredDocuments(self.sessions, "main", clock, settings.sync),
            lambda text: text.replace(SECRET, "[redacted]"),
            self.reports.append,
        )
        self.write("workspace/MEMORY.md", "# Memory\n\nThe boat is called Aster.\n\nThe harbour is Bergen.\n")
        self.write("workspace/memory/2026-11-14.md", "# 2026-11-14\n\n- the rudder was mended\n- Anna sang\n")
        self.write("handbook/my tools (1).md", "# Tools\n\nthe anchor winch needs grease\n")

    def write(self, path: str, text: str) -> Path:
        file = self.root.parent / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    async def say(self, *texts: str, key: str = "agent:main:main") -> str:
        session = await self.sessions.open(SessionKey.parse(key))
        entries = []
        for count, text in enumerate(texts):
            message = AssistantMessage((Text(text),)) if count % 2 else UserMessage(text)
            entries.append(MessageEntry(f"{session.entry_count}-{count}", "2026-11-15T09:00:00.000Z", message=message))
        self.clock.advance(seconds=1)
        await self.sessions.append(session.id, entries)
        return session.id


class BackendContract:
    config: Mapping[str, Any] = {}

    def open(self, place: BackendPlace) -> MemoryBackend:
        raise NotImplementedError

    @pytest.fixture
    def kept(self, tmp_path: Path, clock: FakeClock, new_id: SeededIds) -> Kept:
        return Kept(tmp_path, clock, new_id, self.config)

    @pytest.fixture
    async def backend(self, kept: Kept) -> AsyncIterator[MemoryBackend]:
        made = self.open(kept.place)
        async with asyncio.timeout(60):
            yield made
            await made.close()

    async def find(self, backend: MemoryBackend, query: str, **more: Any) -> list[SearchResult]:
        return list((await backend.search(Question(query, LIMITS, **more))).results)

    async def test_what_is_found_is_cited_by_the_lines_that_hold_it(self, kept: Kept, backend: MemoryBackend) -> None:
        for query, path in [
            ("rudder", "memory/2026-11-14.md"),
            ("Aster", "MEMORY.md"),
            ("winch", "handbook/my tools (1).md"),
        ]:
            found = await self.find(backend, query)
            assert backend.own_path(found[0].path) == path
            text = text_of(Boundary(kept.root), kept.place.settings.collections, path)
            assert text is not None
            lines = lines_of(text)[found[0].start_line - 1 : found[0].end_line]
            assert any(query in line for line in lines)
            assert set(filter(None, found[0].snippet.split("\n"))) <= set(lines)
            assert found[0].citation.startswith(f"{found[0].path}#L{found[0].start_line}")

    async def test_a_note_of_this_moment_is_found(self, kept: Kept, backend: MemoryBackend) -> None:
        assert await self.find(backend, "walrus") == []
        kept.write("workspace/memory/2026-11-15.md", "- a walrus swam by\n")
        assert [each.path for each in await self.find(backend, "walrus")] == ["memory/2026-11-15.md"]

    async def test_what_was_deleted_or_changed_is_not_cited_any_more(self, kept: Kept, backend: MemoryBackend) -> None:
        assert await self.find(backend, "rudder")
        (kept.root / "memory" / "2026-11-14.md").unlink()
        kept.write("workspace/MEMORY.md", "# Memory\n\nThe boat is called Beryl.\n")
        found = [*await self.find(backend, "rudder"), *await self.find(backend, "Aster")]
        assert not any("rudder" in each.snippet or "Aster" in each.snippet for each in found)

    async def test_scores_fall_from_one_to_zero_and_limits_hold(self, kept: Kept, backend: MemoryBackend) -> None:
        for number in range(12):
            kept.write(
                f"workspace/memory/2026-10-{number + 10}.md", "- herring " * 3 + f"number {number} " + "x " * 90 + "\n"
            )
        budget = replace(LIMITS, results=4, snippet=100, characters=250)
        answer = await backend.search(Question("herring", budget))
        scores = [each.score for each in answer.results]
        assert 1 <= len(scores) <= 4
        assert scores == sorted(scores, reverse=True)
        assert all(0 <= score <= 1 for score in scores)
        assert all(len(each.snippet) <= 100 for each in answer.results)
        assert sum(len(each.snippet) for each in answer.results) <= 250
        assert all(each.score >= 0.5 for each in await self.find(backend, "herring", min_score=0.5))

    async def test_only_the_wanted_sources_are_searched(self, kept: Kept, backend: MemoryBackend) -> None:
        kept.write("handbook/b.md", "the rudder pin\n")
        assert {each.source for each in await self.find(backend, "rudder")} == {"memory", "handbook"}
        assert [each.source for each in await self.find(backend, "rudder", sources=("handbook",))] == ["handbook"]

    async def test_past_sessions_are_found_by_their_own_path(self, kept: Kept, backend: MemoryBackend) -> None:
        session = await kept.say("where is the sextant?", "the sextant lies in the drawer")
        await kept.say("the sextant of the group", key="agent:main:telegram:group:1")
        found = await self.find(backend, "sextant")
        assert found
        assert {each.source for each in found} == {"sessions"}
        assert {backend.own_path(each.path) for each in found} == {f"sessions/{session}.md"}
        text = await kept.place.conversations.read(f"sessions/{session}.md")
        assert text is not None
        lines = lines_of(text.text)[found[0].start_line - 1 : found[0].end_line]
        assert any("sextant" in line for line in lines)

    async def test_links_out_of_the_workspace_are_not_followed(self, kept: Kept, backend: MemoryBackend) -> None:
        kept.write("elsewhere/secret.md", "the narwhal is a secret\n")
        (kept.root / "memory" / "link.md").symlink_to(kept.root.parent / "elsewhere" / "secret.md")
        (kept.root / "memory" / "folder").symlink_to(kept.root.parent / "elsewhere")
        assert await self.find(backend, "narwhal") == []

    async def test_any_text_is_a_question(self, backend: MemoryBackend) -> None:
        for query in ODD:
            answer = await backend.search(Question(query, LIMITS))
            assert all(0 <= each.score <= 1 for each in answer.results)

    async def test_the_index_says_what_it_holds_and_forgets_every_byte(
        self, kept: Kept, backend: MemoryBackend
    ) -> None:
        kept.write("workspace/memory/2026-11-15.md", "- the password is xylophone\n")
        report = await backend.sync()
        assert report.trouble == ""
        status = await backend.status()
        assert (status.agent, status.files, status.difference_count) == ("main", 4, 0)
        assert await self.find(backend, "xylophone")
        kept.write("workspace/memory/2026-11-15.md", "- the password is secret\n")
        await backend.forget()
        held = [file for file in kept.place.folder.rglob("*") if file.is_file() and b"xylophone" in file.read_bytes()]
        assert held == []
        assert await self.find(backend, "rudder")

    async def test_the_index_is_rebuilt_when_it_was_deleted_or_damaged(
        self, kept: Kept, backend: MemoryBackend
    ) -> None:
        await backend.sync()
        await backend.close()
        for file in kept.place.folder.rglob("*.sqlite*"):
            file.write_bytes(b"no database" * 1_000)
        files = Scanner(kept.root, kept.place.settings.collections, sources=kept.place.settings.sources)
        again = self.open(replace(kept.place, files=files))
        try:
            try:
                await self.find(again, "rudder")
            except PalinurusError:  # the builtin engine answers this once
                await again.sync(force=True)
            assert (await self.find(again, "rudder"))[0].path == "memory/2026-11-14.md"
        finally:
            await again.close()

    async def test_it_starts_twice_and_ends(self, kept: Kept, backend: MemoryBackend) -> None:
        backend.start()
        backend.start()
        assert await self.find(backend, "rudder")
        before = asyncio.all_tasks()
        await backend.close()
        assert not {task for task in asyncio.all_tasks() if task not in before}
