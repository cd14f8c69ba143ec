"""A folder that cannot be opened is not an empty one, and an answer without it says so."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from indexed import Indexed

from palinurus.domain.errors import WorkspaceError
from palinurus.memory.settings import Collection


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names that cannot be opened, as when there are too many open files."""
    names: set[str] = set()
    really = os.open

    def opened(path: Any, *arguments: Any, **more: Any) -> int:
        if os.path.basename(os.fspath(path)) in names:  # noqa: PTH119
            raise OSError(errno.EMFILE, "Too many open files")
        return really(path, *arguments, **more)

    monkeypatch.setattr(os, "open", opened)
    return names


@pytest.mark.parametrize("folder", ["ws", "memory", "harbour"])
async def test_what_cannot_be_looked_at_stays_found_and_the_answer_is_called_stale(
    tmp_path: Path, broken: set[str], folder: str
) -> None:
    (tmp_path / "harbour").mkdir()
    (tmp_path / "harbour" / "a.md").write_text("the anchor of the harbour\n")
    notes = Indexed(tmp_path / "ws", collections=(Collection("harbour", tmp_path / "harbour"),))
    notes.write("memory/a.md", "the anchor of the boat\n")
    assert len(await notes.asks("anchor")) == 2
    broken.add(folder)
    freshness = await notes.index.catch_up(5)
    assert (freshness.state, freshness.caught_up) == ("stale", 0)
    assert "too many open files" in freshness.why
    broken.clear()
    assert (await notes.index.catch_up(5)).state == "fresh"
    assert len(await notes.asks("anchor")) == 2
    await notes.close()


async def test_an_answer_without_a_collection_that_is_not_there_says_so(tmp_path: Path) -> None:
    notes = Indexed(tmp_path / "ws", collections=(Collection("harbour", tmp_path / "harbour"),))
    notes.write("memory/a.md", "the anchor of the boat\n")
    freshness = await notes.index.catch_up(5)
    assert (freshness.state, freshness.why) == ("fresh", f"not there: {tmp_path / 'harbour'}")
    await notes.close()


async def test_an_index_that_was_closed_takes_nothing_for_gone_when_somebody_still_asks_it(tmp_path: Path) -> None:
    notes = Indexed(tmp_path / "ws")
    notes.write("memory/deep/a.md", "the anchor of the boat\n")
    assert len(await notes.asks("anchor")) == 1
    await notes.index.close()
    freshness = await notes.index.catch_up(5)
    assert freshness.state in ("fresh", "stale", "unswept")
    assert len(await notes.store.files()) == 1
    await notes.close()


async def test_a_scan_without_end_does_not_keep_a_command_from_ending(tmp_path: Path) -> None:
    folders = ["/".join(["f"] * depth) for depth in range(1, 20)]
    for folder in folders:
        (tmp_path / "ws" / "memory" / folder).mkdir(parents=True)
    notes = Indexed(tmp_path / "ws")
    notes.scanner.stop()
    opened: list[Any] = []
    really = os.open

    def counted(path: Any, *arguments: Any, **more: Any) -> int:
        opened.append(path)
        return really(path, *arguments, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", counted)
        with pytest.raises(WorkspaceError, match="was closed"):
            notes.scanner.scan()
    assert len(opened) == 1
    await notes.close()
