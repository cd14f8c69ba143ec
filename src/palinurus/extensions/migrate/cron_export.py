"""Cron jobs of this home in OpenClaw's form: `cron/jobs.json` and the logs of runs.

Versions before 2026.6 use these files, later ones import them (`openclaw doctor --fix`). What a job had there and was
not changed here stays as it was written; what OpenClaw has no field for stands under one key that it carries along.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.extensions.migrate.cron_import import ImportedJob
from palinurus.extensions.migrate.foreign import ForeignDocument, as_object, load_json, time_ms
from palinurus.extensions.migrate.openclaw.cron_documents import (
    FILE,
    OWN,
    definition_digest,
    jobs_in,
    listed_jobs,
    run_file,
)
from palinurus.extensions.migrate.openclaw.cron_jobs import HINTS, OWN_FIELDS, STATUSES, JobSurroundings, read_job
from palinurus.extensions.schedule.cron_job import AgentTurnPayload, CronJob, ReminderPayload

NOW = "now"
_PAYLOAD_FIELDS = frozenset(
    ("kind", "text", "message", "model", "thinking", "timeoutSeconds", "lightContext", "toolsAllow", "argv", "cwd")
)
_STATUSES = {ours: theirs for theirs, ours in STATUSES.items()}


class CronFiles(Struct, frozen=True):
    files: dict[str, str]  # path -> text
    jobs: int = 0


def cron_files(
    jobs: Sequence[CronJob], documents: Sequence[ForeignDocument], imported: Mapping[str, ImportedJob]
) -> CronFiles:
    """Jobs of here, and those of other homes that never became one here; not those that were removed here."""
    here = {job.id: job for job in jobs if not job.is_heartbeat}
    listed: list[dict[str, Any]] = []
    for name, found in jobs_in(documents).items():
        if (job := here.pop(name, None)) is not None:
            listed.append(write_job(job, found.raw, imported.get(name)))
        elif name not in imported:
            listed.append(found.raw)
    listed += [write_job(job) for job in here.values()]
    files = {path: document.text for document in documents if (path := run_file(document))}
    texts = [document.text for document in documents if document.kind == "cron" and document.name == FILE]
    same = (text for text in texts if listed_jobs(load_json(text)) == listed)
    if listed or texts:
        made = json.dumps({"version": 1, "jobs": listed}, indent=2, ensure_ascii=False)
        files[FILE] = next(same, made)
    return CronFiles(files, len(listed))


def write_job(job: CronJob, original: dict[str, Any] | None = None, was: ImportedJob | None = None) -> dict[str, Any]:
    """`original`: how it was in the home that it came from; `was`: how it was imported."""
    around = JobSurroundings(frozenset({job.agent_id}), job.agent_id, 0, UTC)
    before = read_job(original, around).job if original is not None else None
    made = dict(original or {"id": job.id, "enabled": job.enabled, "createdAtMs": job.created_at_ms, "wakeMode": NOW})
    written, earlier = _written(job), _written(before) if before is not None else {}
    changes = [name for name in written if before is None or written[name] != earlier[name]]
    if "delivery" in changes:
        made = {
            name: _without_hints(each) if name == "payload" else each for name, each in _without_hints(made).items()
        }
    made |= {name: _merged(name, made.get(name), written[name]) for name in changes}
    made = {name: value for name, value in made.items() if value is not None or name not in changes}
    if was is None or was.enabled != job.enabled:
        made["enabled"] = job.enabled
    is_changed = original is None or definition_digest(made) != definition_digest(original)
    made["updatedAtMs"] = job.updated_at_ms if is_changed else made.get("updatedAtMs", made.get("createdAtMs", 0))
    made["state"] = _state(job, as_object(made.get("state")), is_changed=is_changed)
    return _with_own_fields(made, job, around)


def _written(job: CronJob) -> dict[str, Any]:
    """An event goes to the main session there, and has no delivery of its own. None: it is left out."""
    payload, target = msgspec.to_builtins(job.payload), job.session_target
    delivery = {"mode": job.delivery.mode, **msgspec.to_builtins(job.delivery)}
    if isinstance(job.payload, AgentTurnPayload) and target == "main":
        payload = {"kind": "systemEvent", "text": job.payload.message}
    elif isinstance(job.payload, ReminderPayload):
        payload = {"kind": "systemEvent", "text": job.payload.text}
    if payload["kind"] == "systemEvent":
        target = "main"
    return {
        "agentId": job.agent_id,
        "name": job.name,
        "description": job.description or None,
        "schedule": msgspec.to_builtins(job.schedule),
        "sessionTarget": target,
        "payload": payload,
        "delivery": None if target == "main" and job.delivery.mode == "announce" else delivery,
        "deleteAfterRun": job.delete_after_run or None,
    }


def _merged(name: str, before: Any, written: Any) -> Any:
    """What we do not know in a part of a job stays, if it is of the same kind."""
    if name == "payload" and as_object(before).get("kind") == written["kind"]:
        return {key: value for key, value in before.items() if key not in _PAYLOAD_FIELDS} | written
    if name == "delivery" and written is not None:
        more = ("mode", "channel", "to", "accountId", "threadId")
        return {key: value for key, value in as_object(before).items() if key not in more} | written
    return written


def _without_hints(value: Any) -> dict[str, Any]:
    return {name: each for name, each in as_object(value).items() if name not in HINTS}


def _state(job: CronJob, before: dict[str, Any], *, is_changed: bool) -> dict[str, Any]:
    """As it was there, unless it has run here since."""
    ours = job.state
    has_run = ours.last_run_at_ms > (time_ms(before.get("lastRunAtMs")) or 0)
    made = dict(before)
    if has_run:
        status = _STATUSES.get(ours.last_status or "ran", "skipped")
        made |= {"lastRunAtMs": ours.last_run_at_ms, "lastRunStatus": status, "lastStatus": status}
        made |= {"lastDurationMs": ours.last_duration_ms, "consecutiveErrors": ours.consecutive_errors}
        made |= {"lastError": ours.last_error or None}
    if has_run or is_changed:
        made["nextRunAtMs"] = job.next_run_at_ms or None
    return {name: value for name, value in made.items() if value is not None}


def _with_own_fields(made: dict[str, Any], job: CronJob, around: JobSurroundings) -> dict[str, Any]:
    made = {name: value for name, value in made.items() if name != OWN}
    read = read_job(made, around).job
    if read is None:
        return made
    pairs = {name: (getattr(job, field), getattr(read, field)) for name, field in OWN_FIELDS.items()}
    different = {name: msgspec.to_builtins(ours) for name, (ours, theirs) in pairs.items() if ours != theirs}
    return {**made, OWN: {"of": definition_digest(made), **different}} if different else made
