"""Cron jobs, pairing, approvals and stored keys of a home, as files and as rows of `state/openclaw.sqlite`.

Jobs, pairing and approvals are stored unchanged; pairings.py reads who was let in, cron_jobs.py what a job says. Stored
keys are read only when a person asks for them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from palinurus.extensions.migrate.files import listing, read_whole
from palinurus.extensions.migrate.foreign import (
    ForeignAgent,
    ForeignDocument,
    ForeignDocuments,
    ForeignJob,
    ForeignSecrets,
    as_object,
    load_json,
)
from palinurus.extensions.migrate.openclaw.cron_documents import (
    FILE,
    STATE_FILE,
    STATE_PART,
    job_id,
    jobs_in,
    listed_jobs,
    run_file,
)
from palinurus.extensions.migrate.openclaw.database import ForeignDatabase, text_of
from palinurus.extensions.migrate.report import FoundApproval, FoundJob, Losses

STATE = "state/openclaw.sqlite"
OWN_DOCUMENTS = "palinurus-documents.json"
APPROVALS = "exec-approvals.json"
MAX_BYTES = 32 * 1024 * 1024
APPROVED_AGAIN = "stored; it needs approval here, and can then be always allowed"
_PAIRING = ("-pairing.json", "-allowFrom.json")
_PAIRING_TABLES = ("channel_pairing_requests", "channel_pairing_allow_entries")
_JOBS = "SELECT CAST(job_json AS BLOB), CAST(state_json AS BLOB) FROM cron_jobs ORDER BY store_key, sort_order, job_id"
_APPROVALS = "SELECT CAST(raw_json AS BLOB) FROM exec_approvals_config ORDER BY config_key"
_RUNS = "SELECT CAST(job_id AS BLOB), CAST(entry_json AS BLOB) FROM cron_run_logs ORDER BY job_id, ts, seq"
_RUN_COLUMNS = ("cron_run_logs", "job_id", "entry_json", "ts", "seq")
_JOB_COLUMNS = ("cron_jobs", "store_key", "job_json", "state_json", "sort_order")
_OWN_KEYS = (("auth_profile_store", "store_key", "store_json"), ("auth_profile_state", "state_key", "state_json"))
_SHARED_KEYS = ("config_machine_state", "state_key", "value_json")


def read_documents(root: Path, state: ForeignDatabase | None, losses: Losses) -> ForeignDocuments:
    reader = _DocumentReader(root, state, losses)
    for read in (reader.read_cron, reader.read_cron_runs, reader.read_pairing, reader.read_approvals, reader.read_own):
        read()
    reader.found.jobs = list(jobs_in(reader.found.kept).values())
    return reader.found


class _DocumentReader:
    def __init__(self, root: Path, state: ForeignDatabase | None, losses: Losses) -> None:
        self.found = ForeignDocuments()
        self._root = root
        self._state = state
        self._losses = losses

    def read_cron(self) -> None:
        for name in (FILE, STATE_FILE):
            document = ForeignDocument("cron", name, self._file(name))
            jobs = listed_jobs(load_json(document.text)) if document.text else None
            if jobs is not None:
                self.found.kept.append(document)
            elif document.text:
                self._losses.add(name, 0, "it holds no list of jobs")
            if name == FILE and jobs and (lost := len(jobs) - len(jobs_in([document]))):
                self._losses.add(name, 0, f"{lost} of its jobs are no JSON objects, or have the id of another one")
        for where, (job, state) in self._rows(_JOBS, "the table of cron jobs", _JOB_COLUMNS):
            value = as_object(load_json(text_of(job)))
            if not value:
                self._losses.add(where, 0, "a job is no JSON object")
                continue
            named = str(value.get("id", ""))[:200]
            for name, text in ((named, job), (f"{named}{STATE_PART}", state)):
                self.found.kept.append(ForeignDocument("cron", f"{where}/{name}", text_of(text)))

    def read_cron_runs(self) -> None:
        """Logs of runs, in the form of the files that they once were."""
        for entry in listing(self._root / "cron" / "runs", "cron/runs", self._losses):
            document = ForeignDocument("cron", f"cron/runs/{entry.name}", "")
            if run_file(document) and (text := self._file(document.name)):
                self.found.kept.append(replace(document, text=text))
        logs: dict[str, list[str]] = {}
        for where, (job, entry) in self._rows(_RUNS, "the table of runs of cron jobs", _RUN_COLUMNS):
            logs.setdefault(f"{where}/{text_of(job)[:200]}", []).append(text_of(entry))
        self.found.kept += [ForeignDocument("cron", name, "\n".join([*lines, ""])) for name, lines in logs.items()]

    def read_pairing(self) -> None:
        for entry in listing(self._root / "credentials", "credentials", self._losses):
            name = f"credentials/{entry.name}"
            if entry.name.endswith(_PAIRING) and (text := self._file(name)):
                self.found.kept.append(ForeignDocument("pairing", name, text))
        for table in _PAIRING_TABLES:
            columns = sorted(self._state.tables.get(table, ()) if self._state else ())
            named = ", ".join('"' + column.replace('"', '""') + '"' for column in columns)
            sql = f"SELECT {named} FROM {table}"  # noqa: S608  # quoted, and from the schema of the file
            if found := list(self._rows(sql, "the table of pairings", (table, "channel_key", "account_id"))):
                values = [dict(zip(columns, row, strict=True)) for _, row in found]
                self.found.kept.append(ForeignDocument("pairing", found[0][0], json.dumps(values, default=str)))

    def read_approvals(self) -> None:
        name, needs = APPROVALS, ("exec_approvals_config", "raw_json", "config_key")
        rows = self._rows(_APPROVALS, "the table of approvals", needs)
        for where, text in [(name, self._file(name)), *((where, text_of(raw)) for where, (raw,) in rows)]:
            value = load_json(text) if text else {}
            if not isinstance(value, dict):
                self._losses.add(where, 0, "it is no JSON object")
            elif value:
                self.found.approvals += _approvals(value, where)
                value.pop("socket", None)  # the address of the other program, with its key
                self.found.kept.append(ForeignDocument("approvals", where, json.dumps(value)))

    def read_own(self) -> None:
        """What a Palinurus had stored of other homes, and exported."""
        text = self._file(OWN_DOCUMENTS)
        try:
            documents = msgspec.json.decode(text, type=list[ForeignDocument]) if text else []
        except (msgspec.DecodeError, RecursionError) as error:
            self._losses.add(OWN_DOCUMENTS, 0, f"it holds no documents of ours: {error}")
            return
        known = {(document.kind, document.name) for document in self.found.kept}
        for document in documents:
            if (document.kind, document.name) in known:
                continue
            if document.kind == "approvals" and "#" in document.name:
                self._drop_copy(document)
                self.found.approvals += _approvals(as_object(load_json(document.text)), document.name)
            self.found.kept.append(document)

    def _drop_copy(self, document: ForeignDocument) -> None:
        """A row of a database was exported as a file too."""
        same = [each for each in self.found.kept if each.name == APPROVALS and each.text == document.text]
        if same:
            self.found.kept.remove(same[0])
            self.found.approvals = [each for each in self.found.approvals if each.where != APPROVALS]

    def _rows(self, sql: str, what: str, needs: tuple[str, ...]) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Rows of the state database, each with where it is; none when it has no such table."""
        if self._state is not None:
            where = f"{self._state.shown}#{needs[0]}"
            yield from ((where, row) for row in self._state.read(sql, what, needs=needs, shown=where))

    def _file(self, name: str) -> str:
        data = read_whole(self._root / name, name, self._losses, MAX_BYTES)
        try:
            return data.decode() if data is not None else ""
        except UnicodeDecodeError:
            self._losses.add(name, 0, "it is not UTF-8 text")
            return ""


def read_keys(
    agents: Mapping[ForeignAgent, ForeignDatabase | None], state: ForeignDatabase | None, losses: Losses
) -> Iterator[ForeignSecrets]:
    """The keys of model providers, from all places where OpenClaw has stored them: of agents, and of all of them."""
    for agent, database in agents.items():
        for name in ("auth-profiles.json", "auth-state.json"):
            where = f"agents/{agent.id}/agent/{name}"
            data = read_whole(agent.folder / "agent" / name, where, losses, MAX_BYTES) if agent.folder else None
            yield from _profiles(agent.id, where, data)
        for table in _OWN_KEYS:
            yield from _stored_profiles(agent.id, database, table)
    yield from _stored_profiles("", state, _SHARED_KEYS, "WHERE state_key = 'authProfiles.store'")


def _stored_profiles(
    agent: str, database: ForeignDatabase | None, table: tuple[str, str, str], which: str = ""
) -> Iterator[ForeignSecrets]:
    """`table` is its name and its columns for the key and the value."""
    if database is not None:
        name, key, value = table
        sql = f"SELECT CAST({value} AS BLOB) FROM {name} {which} ORDER BY {key}"  # noqa: S608  # names of ours
        for (data,) in database.read(sql, "the table of keys", needs=table, shown=f"{database.shown}#{name}"):
            yield from _profiles(agent, f"{database.shown}#{name}", data)


def _profiles(agent: str, where: str, data: Any) -> Iterator[ForeignSecrets]:
    found = as_object(load_json(text_of(data))) if data else {}
    profiles = {name: value for name, value in as_object(found.get("profiles")).items() if isinstance(value, dict)}
    order = read_order(found)
    if profiles or order:
        yield ForeignSecrets(agent, where, profiles, order)


def read_order(holder: Any) -> dict[str, tuple[str, ...]]:
    """The preferred order of each provider's keys, from stored keys or from the section `auth` of a config."""
    order = {}
    for name, listed in as_object(as_object(holder).get("order")).items():
        if ids := tuple(each for each in (listed if isinstance(listed, list) else ()) if isinstance(each, str)):
            order[name] = ids
    return order


def found_job(job: ForeignJob) -> FoundJob:
    raw = job.raw
    name, agent = str(raw.get("name", ""))[:200], str(raw.get("agentId") or "")
    is_enabled, is_managed = raw.get("enabled") is not False, "declarationKey" in raw
    return FoundJob(job_id(raw), name, agent, is_enabled, raw.get("schedule"), job.where, is_managed)


def _approvals(value: dict[str, Any], where: str) -> Iterator[FoundApproval]:
    for agent, rules in as_object(value.get("agents")).items():
        allowed = as_object(rules).get("allowlist")
        for entry in allowed if isinstance(allowed, list) else []:
            pattern = entry if isinstance(entry, str) else as_object(entry).get("pattern")
            if isinstance(pattern, str):
                yield FoundApproval("main" if agent == "default" else agent, pattern, where, APPROVED_AGAIN)
