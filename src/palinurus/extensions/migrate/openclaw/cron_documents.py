"""Cron jobs in documents of an OpenClaw home: `cron/jobs.json`, with or without a file for the state, rows of the state
database, and the log of runs.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from palinurus.domain.messages import encodable
from palinurus.extensions.migrate.foreign import ForeignDocument, ForeignJob, as_object, load_json, time_ms

FILE, STATE_FILE = "cron/jobs.json", "cron/jobs-state.json"
TABLE, RUN_TABLE = "#cron_jobs/", "#cron_run_logs/"  # in the name of a document: before the id of a job
STATE_PART = "/state"
OWN = "palinurus"  # a key of a job that OpenClaw carries along and does not read
VOLATILE = ("state", "updatedAtMs", "configRevision")  # what changes although nobody changes the job

_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
_RUN_FILE = re.compile(r"cron/runs/([A-Za-z0-9][A-Za-z0-9._-]{0,99})\.jsonl")


def jobs_in(documents: Iterable[ForeignDocument]) -> dict[str, ForeignJob]:
    """All jobs, by their ids here. A row of the database counts more than a file."""
    files: dict[str, ForeignJob] = {}
    rows: dict[str, ForeignJob] = {}
    states: dict[str, Any] = {}
    for document in documents:
        if document.kind != "cron" or run_file(document):
            continue
        value, (place, _, named) = load_json(document.text), document.name.partition(TABLE)
        if document.name == FILE:
            files |= _read((each, FILE) for each in listed_jobs(value) or ())
        elif document.name == STATE_FILE:
            held = as_object(listed_jobs(value))
            states |= {name: as_object(each).get("state") for name, each in held.items()}
        elif named.endswith(STATE_PART):
            states[named.removesuffix(STATE_PART)] = value
        elif named:
            rows |= _read([(value, f"{place}{TABLE[:-1]}")])
    rows = dict(sorted(rows.items(), key=lambda row: time_ms(row[1].raw.get("createdAtMs")) or 0))
    return {name: _with_state(each, states) for name, each in (files | rows).items()}


def listed_jobs(value: Any) -> list[Any] | dict[str, Any] | None:
    """What a file of jobs lists, or a file of their states by id; None: it is no such file."""
    listed = value if isinstance(value, list) else as_object(value).get("jobs")
    return listed if isinstance(listed, list | dict) else None


def _read(values: Iterable[tuple[Any, str]]) -> dict[str, ForeignJob]:
    """What is an object, and not nested too deep to be handled."""
    found = {}
    for value, where in values:
        try:
            raw = as_object(encodable(value))
            if raw:
                found[job_id(raw)] = ForeignJob(raw, where)
        except RecursionError:
            continue
    return found


def _with_state(job: ForeignJob, states: dict[str, Any]) -> ForeignJob:
    state = as_object(states.get(str(job.raw.get("id"))[:200]))
    return replace(job, raw={**job.raw, "state": {**as_object(job.raw.get("state")), **state}}) if state else job


def job_id(raw: dict[str, Any]) -> str:
    """Its id here: its own in lower case, or one made of its content when it has none that can be used."""
    given = next((str(raw[name]).strip().lower() for name in ("id", "jobId") if raw.get(name)), "")
    return given if _ID.fullmatch(given) else f"openclaw-{definition_digest(raw)[:16]}"


def definition_digest(raw: dict[str, Any], *leave_out: str) -> str:
    """The same while nobody changes the job, whatever becomes of its due times."""
    stable = {name: value for name, value in raw.items() if name not in (*VOLATILE, *leave_out)}
    return hashlib.sha256(json.dumps(stable, sort_keys=True).encode()).hexdigest()


def run_file(document: ForeignDocument) -> str:
    """The file of OpenClaw that holds this log of runs; empty: it is no such log."""
    named = document.name.partition(RUN_TABLE)[2]
    path = f"cron/runs/{named}.jsonl" if named else document.name
    return path if document.kind == "cron" and _RUN_FILE.fullmatch(path) else ""
