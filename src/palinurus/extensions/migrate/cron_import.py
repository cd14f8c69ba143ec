"""Import cron jobs of another home, each once.

What was imported is remembered, with how it was there and which revision it became here. So a second import adds
nothing, a job that was removed here stays away, and one that was changed in both homes is reported and stays as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palinurus.domain.clock import NewId
from palinurus.extensions.migrate.foreign import ForeignJob
from palinurus.extensions.migrate.import_store import database_of
from palinurus.extensions.migrate.openclaw.cron_documents import definition_digest
from palinurus.extensions.migrate.openclaw.cron_jobs import MANAGED, JobSurroundings, ReadJob, read_job
from palinurus.extensions.migrate.openclaw.documents import found_job
from palinurus.extensions.migrate.report import FoundJob
from palinurus.extensions.schedule.cron_job import CronJob, CronState
from palinurus.extensions.schedule.store import find_cron_job, save_cron_job
from palinurus.extensions.schedule.times import iso_time, next_time
from palinurus.operations.services import Services
from palinurus.storage.jobs import Job
from palinurus.storage.transaction import Transaction, encoded

GONE = "it was imported before, and is no longer here"
ID_IN_USE = "another cron job here has its id"
CHANGED_IN_BOTH = "it was changed in both homes; yours stays as it is"


class ImportedJob(Struct, frozen=True):
    """What is remembered of a job that was imported."""

    digest: str  # of how it was there
    revision: int  # that it became here
    enabled: bool  # whether it was, here


async def import_jobs(
    services: Services, jobs: Sequence[ForeignJob], around: JobSurroundings, *, apply: bool
) -> tuple[FoundJob, ...]:
    """All or none, and each due time is on the disk when this returns. Without `apply` nothing is written."""
    read = await asyncio.to_thread(lambda: [read_job(each.raw, around) for each in jobs])
    database, rows = database_of(services), list[Job]()

    def work(tx: Transaction) -> tuple[FoundJob, ...]:
        rows.clear()
        found = []
        for foreign, each in zip(jobs, read, strict=True):
            planned = _plan(tx, foreign, each, around)
            if apply and each.job is not None and planned.outcome != "left":
                rows.extend(_store(tx, foreign, planned, each.job, around, services.new_id))
            found.append(planned)
        return tuple(found)

    found = await (database.write(work) if apply else database.read(work))
    for row in rows:
        services.jobs.expect(row)
    return found


def _plan(tx: Transaction, foreign: ForeignJob, read: ReadJob, around: JobSurroundings) -> FoundJob:
    found, job = found_job(foreign), read.job
    if job is None:
        return replace(found, outcome="left", note="" if MANAGED in read.reasons else "; ".join(read.reasons))
    digest, known, here = definition_digest(foreign.raw), find_imported_job(tx, job.id), find_cron_job(tx, job.id)
    if here is None and known is not None:
        return replace(found, outcome="left", note=GONE)
    if here is not None and (_definition(here) == _definition(job) or (known and known.digest == digest)):
        return replace(found, outcome="same")
    if here is not None and known is None:
        return replace(found, outcome="left", note=ID_IN_USE)
    if here is not None and known is not None and here.revision != known.revision:
        return replace(found, outcome="left", note=CHANGED_IN_BOTH)
    at = next_time(job.schedule, around.now, around.zone, job.id) if job.enabled else None
    disabled = f"it is disabled here: {'; '.join(read.reasons)}" if read.reasons else ""
    return replace(
        found,
        outcome="new" if here is None else "changed",
        next_run_at=iso_time(at, around.zone) if at else "",
        note="; ".join(filter(None, (disabled, *read.notes))),
    )


def _store(
    tx: Transaction, foreign: ForeignJob, planned: FoundJob, job: CronJob, around: JobSurroundings, new_id: NewId
) -> list[Job]:
    here, row = find_cron_job(tx, job.id), None
    if here is None or planned.outcome == "changed":
        state = replace(here.state, disabled_why=job.state.disabled_why) if here is not None else job.state
        here, row = save_cron_job(tx, replace(job, state=state), around.now, around.zone, new_id)
    elif find_imported_job(tx, job.id) is not None:
        return []
    kept = ImportedJob(definition_digest(foreign.raw), here.revision, here.enabled)
    tx.run("imports.keep_imported_job", id=job.id, text=encoded(kept), at=around.now)
    return [row] if row is not None else []


def find_imported_job(tx: Transaction, cron_job: str) -> ImportedJob | None:
    text = tx.value("imports.imported_job", id=cron_job)
    return None if text is None else msgspec.json.decode(text, type=ImportedJob)


def _definition(job: CronJob) -> CronJob:
    """Without what changes although nobody changes the job."""
    return replace(job, state=CronState(), revision=0, next_run_at_ms=0, created_at_ms=0, updated_at_ms=0)
