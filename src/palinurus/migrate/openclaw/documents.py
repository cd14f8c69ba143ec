"""Cron jobs, pairing, approvals and stored keys of a home, as files and as rows of `state/openclaw.sqlite`.

Jobs and pairing are kept word for word until their rooms open. Stored keys are read only when somebody asks for them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from palinurus.migrate.foreign import ForeignAgent, ForeignDocument, ForeignSecrets
from palinurus.migrate.openclaw.database import ForeignDatabase, told
from palinurus.migrate.openclaw.files import listing, read_whole
from palinurus.migrate.report import FoundApproval, FoundJob, Losses

STATE = "state/openclaw.sqlite"
OURS = "palinurus-documents.json"
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


class Documents:
    """Reads them. The lists of jobs and approvals are what the report shows of the documents."""

    def __init__(self, root: Path, state: ForeignDatabase | None, losses: Losses) -> None:
        self._root = root
        self._state = state
        self._losses = losses
        self.jobs: list[FoundJob] = []
        self.approvals: list[FoundApproval] = []
        found = [*self._cron(), *self._pairing(), *self._allowed()]
        found += [document for document in self._ours() if (document.kind, document.name) not in _names(found)]
        self.kept: list[ForeignDocument] = found

    def _cron(self) -> Iterator[ForeignDocument]:
        name = "cron/jobs.json"
        text = self._file(name)
        jobs = _object(_loaded(text)).get("jobs") if text else None
        if isinstance(jobs, list):
            self.jobs += [_job(_object(job), name) for job in jobs]
            yield ForeignDocument("cron", name, text)
        elif text:
            self._losses.add(name, 0, "it holds no list of jobs")
        if self._state is None or not self._state.has("cron_jobs", "store_key", "job_json", "state_json", "sort_order"):
            return
        where = f"{self._state.shown}#cron_jobs"
        with told(where, self._losses, "the table of cron jobs"):
            for job, state in self._state.rows(_JOBS):
                value = _object(_loaded(_text(job)))
                if not value:
                    self._losses.add(where, 0, "a job is no JSON object")
                    continue
                found = _job(value, where)
                self.jobs.append(found)
                yield ForeignDocument("cron", f"{where}/{found.id}", _text(job))
                yield ForeignDocument("cron", f"{where}/{found.id}/state", _text(state))

    def _pairing(self) -> Iterator[ForeignDocument]:
        for entry in listing(self._root / "credentials", "credentials", self._losses):
            name = f"credentials/{entry.name}"
            if entry.name.endswith(_PAIRING) and (text := self._file(name)):
                yield ForeignDocument("pairing", name, text)
        for table in _PAIRING_TABLES:
            if self._state is None or not self._state.has(table, "channel_key", "account_id"):
                continue
            columns = sorted(self._state.tables[table])
            where = f"{self._state.shown}#{table}"
            with told(where, self._losses, "the table of pairings"):
                rows = self._state.rows(f"SELECT {', '.join(map(_quoted, columns))} FROM {table}")  # noqa: S608
                found = [dict(zip(columns, row, strict=True)) for row in rows]
                if found:
                    yield ForeignDocument("pairing", where, json.dumps(found, default=str))

    def _allowed(self) -> Iterator[ForeignDocument]:
        name = "exec-approvals.json"
        found = [(name, self._file(name))]
        if self._state is not None and self._state.has("exec_approvals_config", "raw_json", "config_key"):
            where = f"{self._state.shown}#exec_approvals_config"
            with told(where, self._losses, "the table of approvals"):
                found += [(where, _text(raw)) for (raw,) in self._state.rows(_APPROVALS)]
        for where, text in found:
            value = _loaded(text) if text else {}
            if text and not isinstance(value, dict):
                self._losses.add(where, 0, "it is no JSON object")
            if isinstance(value, dict) and value:
                self.approvals += _approvals(value, where)
                value.pop("socket", None)  # a door of the other program, with its key
                yield ForeignDocument("approvals", where, json.dumps(value))

    def _ours(self) -> Iterator[ForeignDocument]:
        """What a Palinurus had kept of other homes, and wrote out with the rest."""
        text = self._file(OURS)
        try:
            documents = msgspec.json.decode(text, type=list[ForeignDocument]) if text else []
        except (msgspec.DecodeError, RecursionError) as error:
            self._losses.add(OURS, 0, f"it holds no documents of ours: {error}")
            return
        for document in documents:
            value = _object(_loaded(document.text))
            if document.kind == "cron" and value.get("id"):
                self.jobs.append(_job(value, document.name))
            elif document.kind == "approvals" and "#" in document.name:
                self.approvals += _approvals(value, document.name)
            yield document

    def _file(self, name: str) -> str:
        data = read_whole(self._root / name, name, self._losses, MAX_BYTES)
        if data is None:
            return ""
        try:
            return data.decode()
        except UnicodeDecodeError:
            self._losses.add(name, 0, "it is not UTF-8 text")
            return ""


def _names(documents: list[ForeignDocument]) -> set[tuple[str, str]]:
    return {(document.kind, document.name) for document in documents}


def read_keys(
    root: Path,
    agents: list[ForeignAgent],
    own: dict[str, ForeignDatabase],
    state: ForeignDatabase | None,
    losses: Losses,
) -> Iterator[ForeignSecrets]:
    """The keys of model providers, from all the places where they have been."""
    for agent in agents:
        for name in ("auth-profiles.json", "auth-state.json") if agent.folder is not None else ():
            where = f"agents/{agent.id}/agent/{name}"
            data = read_whole(agent.folder / "agent" / name, where, losses, MAX_BYTES) if agent.folder else None
            yield from _profiles(agent.id, where, data)
        if (database := own.get(agent.id)) and database.has("auth_profile_store", "store_key", "store_json"):
            yield from _stored(agent.id, database, "auth_profile_store", _OWN_KEYS, losses)
        if database and database.has("auth_profile_state", "state_key", "state_json"):
            yield from _stored(agent.id, database, "auth_profile_state", _OWN_ORDER, losses)
    if state is not None and state.has("config_machine_state", "state_key", "value_json"):
        yield from _stored("", state, "config_machine_state", _SHARED_KEYS, losses)


def _stored(agent: str, database: ForeignDatabase, table: str, sql: str, losses: Losses) -> Iterator[ForeignSecrets]:
    where = f"{database.shown}#{table}"
    with told(where, losses, "the table of keys"):
        for (data,) in database.rows(sql):
            yield from _profiles(agent, where, data)


def _profiles(agent: str, where: str, data: Any) -> Iterator[ForeignSecrets]:
    found = _object(_loaded(_text(data))) if data else {}
    profiles = {name: value for name, value in _object(found.get("profiles")).items() if isinstance(value, dict)}
    order = read_order(found)
    if profiles or order:
        yield ForeignSecrets(agent, where, profiles, order)


def read_order(holder: Any) -> dict[str, tuple[str, ...]]:
    """Which keys of a provider are asked first, where stored keys or the section `auth` of a config say it."""
    pairs = _object(_object(holder).get("order")).items()
    listed = {name: tuple(filter(_is_text, ids)) for name, ids in pairs if isinstance(ids, list)}
    return {name: ids for name, ids in listed.items() if ids}


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


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
    for agent, rules in _object(value.get("agents")).items():
        allowed = _object(rules).get("allowlist")
        for entry in allowed if isinstance(allowed, list) else []:
            pattern = entry if isinstance(entry, str) else _object(entry).get("pattern")
            if isinstance(pattern, str):
                name = "main" if agent == "default" else agent
                yield FoundApproval(name, pattern, where, "kept; here it asks again, and can then be allowed for good")


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else ""


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
