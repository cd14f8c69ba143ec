"""Import cron jobs of another home, each once.

What was imported is remembered, with how it was there and which revision it became here. So a second import adds
nothing, a job that was removed here stays away, and one that was changed in both homes is reported and stays as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from palinurus.domain.clock import NewId
from palinurus.extensions.migrate.foreign import ForeignDocument, ForeignJob, as_object, as_text, load_json, time_ms
from palinurus.extensions.migrate.import_store import database_of
from palinurus.extensions.migrate.openclaw.cron_documents import definition_digest, run_file
from palinurus.extensions.migrate.openclaw.cron_jobs import MANAGED, STATUSES, JobSurroundings, ReadJob, read_job
from palinurus.extensions.migrate.openclaw.documents import found_job
from palinurus.extensions.migrate.report import FoundJob
from palinurus.extensions.schedule.cron_job import MOST_TEXT, CronJob, CronState, DueOutcome, DueTime
from palinurus.extensions.schedule.store import DUE, find_cron_job, save_cron_job
from palinurus.extensions.schedule.times import iso_time, next_time
from palinurus.operations.services import Services
from palinurus.storage.jobs import Job, add_job
from palinurus.storage.transaction import Transaction, encoded

MOST_RUNS = 200  # of each job, the newest


async def import_cron_runs(services: Services, documents: Sequence[ForeignDocument]) -> int:
    """Of jobs that are here. Returns how many are shown from now on that were not before."""
    logs = {
        path.rpartition("/")[2].removesuffix(".jsonl").lower(): each for each in documents if (path := run_file(each))
    }
    now = services.clock.now_ms()

    def work(tx: Transaction) -> int:
        added = 0
        for job_id, log in logs.items():
            if (cron := find_cron_job(tx, job_id)) is not None:
                rows = (_row(cron, at, outcome, services.new_id(), now) for at, outcome in _ended_runs(log.text))
                added += sum(add_job(tx, row, 0) is row for row in rows)
        return added

    return await database_of(services).write(work) if logs else 0


def _ended_runs(text: str) -> Iterator[tuple[int, DueOutcome]]:
    """When each was due, and how it ended; lines that cannot be read are left out."""
    lines: Iterable[str] = text.splitlines()[-MOST_RUNS:]
    for said in map(as_object, map(load_json, lines)):
        status, ended = STATUSES.get(as_text(said.get("status"))), time_ms(said.get("ts"))
        at = time_ms(said.get("runAtMs")) or ended
        if status is None or at is None or said.get("action", "finished") != "finished":
            continue
        tokens = as_object(said.get("usage")).get("total_tokens")
        yield (
            at,
            DueOutcome(
                status,
                as_text(said.get("error"))[:MOST_TEXT],
                duration_ms=int(time_ms(said.get("durationMs")) or 0),
                tokens=tokens if isinstance(tokens, int) and 0 < tokens < 2**53 else 0,
                text=as_text(said.get("summary"))[:MOST_TEXT],
            ),
        )


def _row(cron: CronJob, at: int, outcome: DueOutcome, row_id: str, now: int) -> Job:
    due = DueTime(cron.id, cron.name, cron.agent_id, 0, at, kind=cron.kind, imported=True)
    return Job(
        row_id,
        DUE,
        cron.id,
        f"{cron.id}:{at}",
        Raw(msgspec.json.encode(due)),
        added_at=now,
        due_at=at,
        state="failed" if outcome.status == "failed" else "done",
        outcome=Raw(msgspec.json.encode(outcome)),
        trouble=outcome.reason if outcome.status == "failed" else "",
    )


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
