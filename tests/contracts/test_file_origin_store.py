"""One suite for every keeper of the origins of files."""

from __future__ import annotations

import os
from typing import Any

import pytest

from palinurus.storage.database import Database
from palinurus.workspace.file_origins import FileOrigin, FileOriginStore


@pytest.fixture
def store(database: Database) -> FileOriginStore:
    return FileOriginStore(database)


def entry(path: str, at: int = 1, **fields: Any) -> FileOrigin:
    return FileOrigin(path, "/ws", at=at, **{"device": 3, "inode": 7, "size": 9, "digest": "d"} | fields)


async def test_an_entry_is_kept_as_it_was_given_oldest_first(store: FileOriginStore) -> None:
    late = entry("/ws/late.md", 5, sources=("host:example.org",))
    early = entry("/ws/folder", 2, is_folder=True)
    await store.put([late, early])
    assert await store.all() == [early, late]


async def test_one_with_the_same_path_takes_its_place(store: FileOriginStore) -> None:
    await store.put([entry("/ws/a.md", inode=1)])
    await store.put([entry("/ws/a.md", inode=2), entry("/ws/b.md")])
    assert [(each.path, each.inode) for each in await store.all()] == [("/ws/a.md", 2), ("/ws/b.md", 7)]


async def test_what_is_removed_is_gone_and_what_is_not_there_is_no_mistake(store: FileOriginStore) -> None:
    await store.put([entry("/ws/a.md"), entry("/ws/b.md")])
    await store.remove(["/ws/a.md", "/ws/never.md"])
    assert [each.path for each in await store.all()] == ["/ws/b.md"]


async def test_a_path_of_bytes_that_are_no_character_comes_back_as_it_was(store: FileOriginStore) -> None:
    path = os.fsdecode(b"/ws/caf\xe9.md")
    await store.put([entry(path)])
    assert [each.path for each in await store.all()] == [path]
    await store.remove([path])
    assert await store.all() == []
