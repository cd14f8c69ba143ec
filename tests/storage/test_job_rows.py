"""Jobs on the disk, in homes that are older or damaged."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw
import pytest
from msgspec import Raw

from palinurus.dispatch.delivery import delivery_of
from palinurus.domain.errors import StorageDamaged
from palinurus.storage.database import Database, MemoryDatabase
from palinurus.storage.jobs import Job, JobQueue
from palinurus.storage.migrations import series_of, steps_in
from palinurus.storage.transaction import load_queries


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


PLANS = {
    "open_kinds": ["SEARCH jobs USING INDEX jobs_due", "SEARCH jobs USING INDEX jobs_due (kind>?)"],
    "due_lanes": ["SEARCH jobs USING INDEX jobs_due (kind=? AND <expr><?)"],
    "stuck_lanes": ["SEARCH jobs USING INDEX jobs_retry (kind=? AND due_at>?)"],
    "next_due": ["SEARCH jobs USING INDEX jobs_due (kind=? AND <expr>>?)"],
    "next_job": ["SEARCH jobs USING INDEX jobs_lanes (kind=? AND lane=?)"],
    "add_job": ["SEARCH jobs USING INDEX jobs_lanes (kind=? AND lane=?)"],
    "job_by_key": ["SEARCH jobs USING INDEX sqlite_autoindex_jobs_2 (kind=? AND idempotency_key=?)"],
    "cancel_job": ["SEARCH jobs USING INDEX sqlite_autoindex_jobs_2 (kind=? AND idempotency_key=?)"],
    "jobs_of_lane": ["SEARCH jobs USING INDEX jobs_of_lane (kind=? AND lane=?)"],
    "jobs_between": ["SEARCH jobs USING INDEX jobs_by_due (kind=? AND due_at>? AND due_at<?)"],
    "forget_jobs": ["SEARCH jobs USING INDEX jobs_by_due (kind=? AND due_at<?)"],
}


@pytest.mark.parametrize("name", PLANS)
def test_among_a_hundred_thousand_jobs_those_in_question_are_found_by_an_index(name: str) -> None:
    class Anything(dict[str, int]):
        def __missing__(self, _: str) -> int:
            return 1

    sql = load_queries("jobs")[name]
    found = MemoryDatabase().look(lambda tx: tx.execute(f"EXPLAIN QUERY PLAN {sql}", Anything()).fetchall())
    plan = [detail for *_, detail in found]
    for step in PLANS[name]:
        assert step in plan
    assert not [step for step in plan if step.startswith("SCAN jobs")]
    assert name == "next_job" or not [step for step in plan if step.endswith("ORDER BY")]  # it sorts one lane
