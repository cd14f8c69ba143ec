"""What an OpenClaw home has and an import does not take, in words for the plan: nothing is left out in silence."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from palinurus.extensions.migrate.files import CONFIGS, folders, listing, read_whole
from palinurus.extensions.migrate.foreign import as_object, load_json
from palinurus.extensions.migrate.openclaw.database import ForeignDatabase
from palinurus.extensions.migrate.openclaw.documents import APPROVALS, OWN_DOCUMENTS
from palinurus.extensions.migrate.report import Losses

MOST_NAMED = 30
TOGETHER = 50  # tables
MAX_BYTES = 32 * 1024 * 1024
_TAKEN = {*CONFIGS, APPROVALS, OWN_DOCUMENTS, *"agents sessions skills credentials cron state extensions".split()}
_READ_TABLES = (  # of the state database, besides those that are named below
    *(
        "cron_jobs",
        "cron_run_logs",
        "exec_approvals_config",
        "channel_pairing_requests",
        "channel_pairing_allow_entries",
    ),
    *("config_machine_state", "auth_profile_store", "schema_meta", "sqlite_sequence", "installed_plugin_index"),
)
_KINDS = (  # how one and several are called, their file with the key of its list, their tables, and what holds instead
    (
        "paired device",
        "paired devices",
        ("devices/paired.json", ""),
        ("device_pairing_paired",),
        "pair them here again",
    ),
    (
        "device identity",
        "device identities",
        ("identity/device.json", ""),
        ("device_identities",),
        "this home has its own",
    ),
    ("subagent run", "subagent runs", ("subagents/runs.json", "runs"), ("subagent_runs",), "their sessions are"),
    ("task", "tasks", ("", ""), ("task_runs", "flow_runs", "task_delivery_state"), "their sessions are"),
    ("receipt of a cron run", "receipts of cron runs", ("", ""), ("cron_run_receipts",), "the jobs are"),
)


def left_out(root: Path, config: Mapping[str, Any], state: ForeignDatabase | None, losses: Losses) -> list[str]:
    """One note for each kind, one for other rows, one for other files and folders."""
    rows = _row_counts(state)
    notes, read = [], set[str]()
    for one, several, (file, key), tables, but in _KINDS:
        count = sum(rows.pop(table, 0) for table in tables) + (_count_in(root, file, key, losses) if file else 0)
        read.add(file.partition("/")[0])
        if count:
            notes.append(f"{count} {one if count == 1 else several} not imported: {but}")
    if plugins := _plugins(root, as_object(config.get("plugins")), state, losses):
        how = "`pal plugins install FOLDER` takes skills and MCP servers of one"
        notes.append(f"plugins not imported, with their settings: {_listed(plugins)}: {how}")
    if named := [f"{table} ({count})" for table, count in rows.items() if count and table not in _READ_TABLES]:
        notes.append(f"rows that are not imported: {_listed(named)}")
    names = [entry.name for entry in listing(root, root.name, losses)]
    if others := [name for name in names if name not in _TAKEN | read and not name.startswith("workspace")]:
        notes.append(f"files that are not imported: {_listed(others)}")
    return notes


def _plugins(root: Path, section: Mapping[str, Any], state: ForeignDatabase | None, losses: Losses) -> list[str]:
    """Each by its id, and its folder where it is known."""
    paths = as_object(section.get("load")).get("paths")
    found = {Path(each).name: each for each in paths if isinstance(each, str)} if isinstance(paths, list) else {}
    if (root / "extensions").is_dir():
        found |= {name: f"extensions/{name}" for name in folders(root / "extensions", "extensions", losses)}
    records: dict[str, Any] = {**as_object(section.get("installs"))}
    if state is not None:
        needs = ("installed_plugin_index", "install_records_json")
        for (text,) in state.read(f"SELECT {needs[1]} FROM {needs[0]}", "its list of plugins", needs=needs):  # noqa: S608
            records |= as_object(load_json(str(text)))
    for name, record in records.items():
        found.setdefault(name, str(as_object(record).get("installPath") or as_object(record).get("sourcePath") or ""))
    for name in as_object(section.get("entries")):
        found.setdefault(name, "")
    return [f"{name} ({place})" if place else name for name, place in sorted(found.items())]


def _row_counts(state: ForeignDatabase | None) -> dict[str, int]:
    """By table. Several are counted at a time, because each reading needs a connection of its own."""
    counts: dict[str, int] = {}
    if state is None:
        return counts
    for tables in _parts(sorted(state.tables)):
        named = [table.replace('"', '""') for table in tables]  # names from the schema of the file
        parts = [f'SELECT {at}, count(*) FROM "{table}"' for at, table in enumerate(named)]  # noqa: S608  # quoted
        counts |= {tables[at]: count for at, count in state.read(" UNION ALL ".join(parts), "some of its tables")}
    return counts


def _parts(names: list[str]) -> list[list[str]]:
    return [names[start : start + TOGETHER] for start in range(0, len(names), TOGETHER)]


def _count_in(root: Path, file: str, key: str, losses: Losses) -> int:
    """How many a file lists; one without a list is one."""
    data = read_whole(root / file, file, losses, MAX_BYTES)
    value = as_object(load_json(data)) if data else {}
    listed = as_object(value.get(key)) if key else value
    return 1 if "deviceId" in listed else len(listed)


def _listed(names: list[str]) -> str:
    more = [f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
    return ", ".join([name[:80] for name in names[:MOST_NAMED]] + more)
