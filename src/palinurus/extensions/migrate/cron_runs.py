"""Past runs of cron jobs of another home become due times that have ended: history and calendar show them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import Raw

from palinurus.extensions.migrate.foreign import ForeignDocument, as_object, as_text, load_json, time_ms
from palinurus.extensions.migrate.import_store import database_of
from palinurus.extensions.migrate.openclaw.cron_documents import run_file
from palinurus.extensions.migrate.openclaw.cron_jobs import STATUSES
from palinurus.extensions.schedule.cron_job import MOST_TEXT, CronJob, DueOutcome, DueTime
from palinurus.extensions.schedule.store import DUE, find_cron_job
from palinurus.operations.services import Services
from palinurus.storage.jobs import Job, add_job
from palinurus.storage.transaction import Transaction

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
