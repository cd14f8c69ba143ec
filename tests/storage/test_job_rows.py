"""Jobs on the disk, in homes that are older or damaged."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw
import pytest
from msgspec import Raw

from palinurus.dispatch.delivery import delivery_of
from palinurus.domain.errors import StorageDamaged
from palinurus.storage.database import Database
from palinurus.storage.jobs import Job, JobQueue
from palinurus.storage.migrations import series_of, steps_in


@pytest.mark.parametrize("form", [3, 13])
async def test_a_home_of_an_older_release_that_may_only_be_read_has_no_jobs(tmp_path: Path, form: int) -> None:
    path = tmp_path / "home.sqlite"
    with closing(apsw.Connection(str(path))) as connection:
        for number, _, sql in steps_in(series_of("home")[0]):
            if number <= form:
                connection.execute(sql)
    database = Database(path, "home", readonly=True)
    assert await JobQueue(database).counts() == {}
    await database.close()


def test_a_payload_that_is_no_message_is_told_as_damage() -> None:
    with pytest.raises(StorageDamaged, match="the row of a delivery cannot be read"):
        delivery_of(Job("a", "delivery:net", "ann", "k", Raw("{}")))


async def test_jobs_are_there_after_the_file_was_closed(tmp_path: Path) -> None:
    job = Job("a", "delivery:net", "ann", "k", Raw('{"text":"words \N{SAILBOAT}"}'), added_at=5)
    database = Database(tmp_path / "home.sqlite", "home")
    await JobQueue(database).add(job)
    await database.close()
    database = Database(tmp_path / "home.sqlite", "home")
    assert await JobQueue(database).recent() == [job]
    await database.close()
