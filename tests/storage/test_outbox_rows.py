"""The outbox on the disk, beyond what every outbox keeps."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw
import pytest

from palinurus.dispatch.parcel import Parcel
from palinurus.domain.errors import StorageDamaged
from palinurus.storage.database import Database
from palinurus.storage.outbox import SqliteOutbox
from palinurus.storage.queries import migration_files


async def test_a_home_of_an_older_release_that_may_only_be_read_has_nothing_on_its_way(tmp_path: Path) -> None:
    path = tmp_path / "home.sqlite"
    with closing(apsw.Connection(str(path))) as connection:
        for number, _, sql in migration_files("home"):
            if number < 4:
                connection.execute(sql)
    database = Database(path, "home", readonly=True)
    assert await SqliteOutbox(database).counts() == {}
    await database.close()


async def test_a_row_that_is_none_is_told_as_damage(tmp_path: Path) -> None:
    database = Database(tmp_path / "home.sqlite", "home")
    outbox = SqliteOutbox(database)
    await outbox.add(Parcel("a", "k", "net", "ann", "words"))
    await database.write(lambda connection: connection.execute("UPDATE outbox SET row = '{}'"))
    with pytest.raises(StorageDamaged, match="the row of a parcel cannot be read"):
        await outbox.recent()
    await database.close()


async def test_parcels_are_there_after_the_file_was_closed(tmp_path: Path) -> None:
    parcel = Parcel("a", "k", "net", "ann", "words \N{SAILBOAT}", thread="9", queued_at=5)
    database = Database(tmp_path / "home.sqlite", "home")
    await SqliteOutbox(database).add(parcel)
    await database.close()
    database = Database(tmp_path / "home.sqlite", "home")
    assert await SqliteOutbox(database).recent() == [parcel]
    await database.close()
