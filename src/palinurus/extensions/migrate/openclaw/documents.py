"""Cron jobs, pairing, approvals and stored keys of a home, as files and as rows of `state/openclaw.sqlite`.

Jobs, pairing and approvals are stored unchanged for later use. Stored keys are read only when a person asks for them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from palinurus.extensions.migrate.files import listing, read_whole
from palinurus.extensions.migrate.foreign import (
    ForeignAgent,
    ForeignDocument,
    ForeignDocuments,
    ForeignSecrets,
    as_object,
    load_json,
)
from palinurus.extensions.migrate.openclaw.database import ForeignDatabase, report_damage, text_of
from palinurus.extensions.migrate.report import FoundApproval, FoundJob, Losses

STATE = "state/openclaw.sqlite"
OWN_DOCUMENTS = "palinurus-documents.json"
MAX_BYTES = 32 * 1024 * 1024
_PAIRING = ("-pairing.json", "-allowFrom.json")
_PAIRING_TABLES = ("channel_pairing_requests", "channel_pairing_allow_entries")
_JOBS = (
    """SELECT CAST(job_json AS BLOB), CAST(state_json AS BLOB) FROM cron_jobs ORDER BY store_key, sort_order, job_id"""
)
_APPROVALS = "SELECT CAST(raw_json AS BLOB) FROM exec_approvals_config ORDER BY config_key"
_SHARED_KEYS = "SELECT CAST(value_json AS BLOB) FROM config_machine_state WHERE state_key = 'authProfiles.store'"
_OWN_KEYS = "SELECT CAST(store_json AS BLOB) FROM auth_profile_store ORDER BY store_key"
_OWN_ORDER = "SELECT CAST(state_json AS BLOB) FROM auth_profile_state ORDER BY state_key"


def read_documents(root: Path, state: ForeignDatabase | None, losses: Losses) -> ForeignDocuments:
    reader = _DocumentReader(root, state, losses)
    reader.read_cron()
    reader.read_pairing()
    reader.read_approvals()
    reader.read_own()
    return reader.found


class _DocumentReader:
    def __init__(self, root: Path, state: ForeignDatabase | None, losses: Losses) -> None:
        self.found = ForeignDocuments()
        self._root = root
        self._state = state
        self._losses = losses

    def read_cron(self) -> None:
        name = "cron/jobs.json"
        text = self._file(name)
        jobs = as_object(load_json(text)).get("jobs") if text else None
        if isinstance(jobs, list):
            self.found.jobs += [_job(as_object(job), name) for job in jobs]
            self.found.kept.append(ForeignDocument("cron", name, text))
        elif text:
            self._losses.add(name, 0, "it holds no list of jobs")
        columns = ("store_key", "job_json", "state_json", "sort_order")
        for where, (job, state) in self._rows("cron_jobs", columns, _JOBS, "the table of cron jobs"):
            value = as_object(load_json(text_of(job)))
            if not value:
                self._losses.add(where, 0, "a job is no JSON object")
                continue
            found = _job(value, where)
            self.found.jobs.append(found)
            self.found.kept.append(ForeignDocument("cron", f"{where}/{found.id}", text_of(job)))
            self.found.kept.append(ForeignDocument("cron", f"{where}/{found.id}/state", text_of(state)))

    def read_pairing(self) -> None:
        for entry in listing(self._root / "credentials", "credentials", self._losses):
            name = f"credentials/{entry.name}"
            if entry.name.endswith(_PAIRING) and (text := self._file(name)):
                self.found.kept.append(ForeignDocument("pairing", name, text))
        for table in _PAIRING_TABLES if self._state is not None else ():
            columns = sorted(self._state.tables.get(table, ()) if self._state else ())
            named = ", ".join('"' + column.replace('"', '""') + '"' for column in columns)
            sql = f"SELECT {named} FROM {table}"  # noqa: S608  # quoted, and from the schema of the file
            found = list(self._rows(table, ("channel_key", "account_id"), sql, "the table of pairings"))
            if found:
                values = [dict(zip(columns, row, strict=True)) for _, row in found]
                self.found.kept.append(ForeignDocument("pairing", found[0][0], json.dumps(values, default=str)))

    def read_approvals(self) -> None:
        name, columns = "exec-approvals.json", ("raw_json", "config_key")
        rows = self._rows("exec_approvals_config", columns, _APPROVALS, "the table of approvals")
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
            value = as_object(load_json(document.text))
            if document.kind == "cron" and value.get("id"):
                self.found.jobs.append(_job(value, document.name))
            elif document.kind == "approvals" and "#" in document.name:
                self.found.approvals += _approvals(value, document.name)
            if (document.kind, document.name) not in known:
                self.found.kept.append(document)

    def _rows(self, table: str, columns: tuple[str, ...], sql: str, what: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Rows of the state database, each with where it is; none when it has no such table."""
        if self._state is not None and self._state.has(table, *columns):
            where = f"{self._state.shown}#{table}"
            with report_damage(where, self._losses, what):
                for row in self._state.rows(sql):
                    yield where, row

    def _file(self, name: str) -> str:
        data = read_whole(self._root / name, name, self._losses, MAX_BYTES)
        try:
            return data.decode() if data is not None else ""
        except UnicodeDecodeError:
            self._losses.add(name, 0, "it is not UTF-8 text")
            return ""


def read_keys(
    root: Path,
    agents: list[ForeignAgent],
    own: dict[str, ForeignDatabase],
    state: ForeignDatabase | None,
    losses: Losses,
) -> Iterator[ForeignSecrets]:
    """The keys of model providers, from all places where OpenClaw has stored them."""
    for agent in agents:
        for name in ("auth-profiles.json", "auth-state.json") if agent.folder is not None else ():
            where = f"agents/{agent.id}/agent/{name}"
            data = read_whole(agent.folder / "agent" / name, where, losses, MAX_BYTES) if agent.folder else None
            yield from _profiles(agent.id, where, data)
        database = own.get(agent.id)
        yield from _stored_profiles(
            agent.id, database, ("auth_profile_store", "store_key", "store_json"), _OWN_KEYS, losses
        )
        yield from _stored_profiles(
            agent.id, database, ("auth_profile_state", "state_key", "state_json"), _OWN_ORDER, losses
        )
    yield from _stored_profiles("", state, ("config_machine_state", "state_key", "value_json"), _SHARED_KEYS, losses)


def _stored_profiles(
    agent: str, database: ForeignDatabase | None, table: tuple[str, str, str], sql: str, losses: Losses
) -> Iterator[ForeignSecrets]:
    """`table` is its name and the columns that it must have."""
    if database is not None and database.has(*table):
        where = f"{database.shown}#{table[0]}"
        with report_damage(where, losses, "the table of keys"):
            for (data,) in database.rows(sql):
                yield from _profiles(agent, where, data)


def _profiles(agent: str, where: str, data: Any) -> Iterator[ForeignSecrets]:
    found = as_object(load_json(text_of(data))) if data else {}
    profiles = {name: value for name, value in as_object(found.get("profiles")).items() if isinstance(value, dict)}
    order = read_order(found)
    if profiles or order:
        yield ForeignSecrets(agent, where, profiles, order)


def read_order(holder: Any) -> dict[str, tuple[str, ...]]:
    """The preferred order of each provider's keys, from stored keys or from the section `auth` of a config."""
    pairs = as_object(as_object(holder).get("order")).items()
    listed = {
        name: tuple(each for each in ids if isinstance(each, str)) for name, ids in pairs if isinstance(ids, list)
    }
    return {name: ids for name, ids in listed.items() if ids}


def _job(job: dict[str, Any], where: str) -> FoundJob:
    return FoundJob(
        id=str(job.get("id", ""))[:200],
        name=str(job.get("name", ""))[:200],
        agent=str(job.get("agentId") or ""),
        enabled=job.get("enabled") is not False,
        schedule=job.get("schedule"),
        where=where,
        managed="declarationKey" in job,
    )


def _approvals(value: dict[str, Any], where: str) -> Iterator[FoundApproval]:
    for agent, rules in as_object(value.get("agents")).items():
        allowed = as_object(rules).get("allowlist")
        for entry in allowed if isinstance(allowed, list) else []:
            pattern = entry if isinstance(entry, str) else as_object(entry).get("pattern")
            if isinstance(pattern, str):
                name = "main" if agent == "default" else agent
                yield FoundApproval(
                    name, pattern, where, "stored; it needs approval here, and can then be always allowed"
                )
