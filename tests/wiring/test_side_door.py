"""One quick question, while nobody holds the home: the same answers as by the ordinary door, and never a stale one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from palinurus.config.home import Home, find_home
from palinurus.config.load import load_config
from palinurus.memory.answer import Answer
from palinurus.memory.asking import IndexMemory, SearchMemory
from palinurus.wiring.lock import HomeLock
from palinurus.wiring.runtime import Runtime
from palinurus.wiring.shortcut import leave_shortcut
from palinurus.wiring.side_door import quick_index, quick_search

CONFIG = '{agents: {defaults: {memorySearch: {provider: "none"}}}}'
BOAT = SearchMemory("where is the boat", keyword=True)


@pytest.fixture
async def home(tmp_path: Path) -> Home:
    """A home with a note and an index, which nobody holds."""
    return await _made(tmp_path, CONFIG)


async def _made(tmp_path: Path, config: str) -> Home:
    env = {"HOME": str(tmp_path)}
    home = find_home(env)
    memory = home.root / "workspace" / "memory"
    memory.mkdir(parents=True)
    home.config_path.write_text(config, encoding="utf-8")
    (memory / "2026-11-15.md").write_text("- the boat lies in Lagos\n", encoding="utf-8")
    runtime = Runtime(home, env)
    await runtime.house.memory("main").sync()
    await runtime.close()
    return home


def _note(home: Home, name: str, text: str) -> None:
    (home.root / "workspace" / "memory" / name).write_text(text, encoding="utf-8")


def _found(answer: Answer | None) -> list[str]:
    assert answer is not None
    return [result.snippet for result in answer.results]


async def test_a_question_by_words_is_answered(home: Home) -> None:
    answer = await quick_search(home, BOAT, "pal memory")
    assert _found(answer) == ["- the boat lies in Lagos"]
    assert answer is not None
    assert (answer.mode, answer.freshness.state) == ("keyword", "fresh")


async def test_what_was_written_a_moment_ago_is_found(home: Home) -> None:
    _note(home, "2026-11-16.md", "- the boat was sold\n")
    assert "- the boat was sold" in _found(await quick_search(home, BOAT, "pal memory"))


async def test_the_index_is_brought_up_to_date(home: Home) -> None:
    _note(home, "2026-11-16.md", "- the boat was sold\n")
    report = await quick_index(home, IndexMemory(), "pal memory")
    assert report is not None
    assert report.added == 1


async def test_the_home_is_free_afterwards(home: Home) -> None:
    await quick_search(home, BOAT, "pal memory")
    lock = HomeLock(home.root / "lock")
    assert lock.acquire("test")
    lock.release()


async def test_while_somebody_holds_the_home_it_is_closed(home: Home) -> None:
    lock = HomeLock(home.root / "lock")
    assert lock.acquire("test")
    try:
        assert await quick_search(home, BOAT, "pal memory") is None
        assert await quick_index(home, IndexMemory(), "pal memory") is None
    finally:
        lock.release()


async def test_it_is_closed_without_an_index_and_for_agents_that_it_does_not_know(home: Home) -> None:
    assert await quick_search(home, SearchMemory("boat", agent="nobody", keyword=True), "pal memory") is None
    (home.root / "derived" / "memory" / "main.sqlite").unlink()
    assert await quick_search(home, BOAT, "pal memory") is None


async def test_a_changed_config_closes_it(home: Home) -> None:
    home.config_path.write_text(CONFIG.replace("none", "embedded"), encoding="utf-8")
    assert await quick_search(home, BOAT, "pal memory") is None


async def test_a_damaged_index_is_left_to_the_ordinary_door_or_made_anew(home: Home) -> None:
    (home.root / "derived" / "memory" / "main.sqlite").write_bytes(b"no index" * 1000)
    answer = await quick_search(home, BOAT, "pal memory")
    assert answer is None or _found(answer) == ["- the boat lies in Lagos"]


async def test_notes_that_are_in_no_file_yet_are_not_its_business(home: Home) -> None:
    database = apsw.Connection(str(home.root / "home.sqlite"))
    database.pragma("foreign_keys", 0)
    database.execute(
        "INSERT INTO extractions (id, session_id, position, private, notes, row) VALUES ('e', 's', 1, 1, 1, '{}')"
    )
    database.close()
    assert await quick_search(home, BOAT, "pal memory") is None


async def test_a_question_by_meaning_and_missing_vectors_go_by_the_ordinary_door(home: Home) -> None:
    home.config_path.write_text("{}", encoding="utf-8")
    leave_shortcut(home, load_config(home, {"HOME": str(home.user_home)}))
    assert await quick_search(home, SearchMemory("boat"), "pal memory") is None
    assert await quick_index(home, IndexMemory(), "pal memory") is None, "the embedded model has work to do"
    assert _found(await quick_search(home, BOAT, "pal memory")) == ["- the boat lies in Lagos"]


def test_the_command_imports_neither_the_house_nor_a_parser_of_configs() -> None:
    heavy = ("pydantic", "palinurus.wiring.runtime", "palinurus.operations.house", "palinurus.sessions", "httpx2")
    check = f"import sys, palinurus.cli.memory; sys.exit(', '.join(set({heavy!r}) & set(sys.modules)) or None)"
    done = subprocess.run([sys.executable, "-c", check], check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
