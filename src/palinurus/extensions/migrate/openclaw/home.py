"""One OpenClaw home, open for reading: its agents, sessions, documents, skills and files.

Agents are those of its config, in either form, and those that have only a folder. A home may have been copied from
another machine: a workspace that the config places below the old state folder is searched in the given folder first.
Skills are listed with the origin that their lock files name.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from palinurus.config.home import expand_user
from palinurus.config.include import assemble, read_text
from palinurus.config.load import normal_agent_id
from palinurus.domain.errors import ConfigError
from palinurus.domain.keys import DEFAULT_AGENT
from palinurus.extensions.migrate.files import CONFIGS, config_of, folders, listing, moved_path, read_whole, shown_path
from palinurus.extensions.migrate.foreign import (
    ForeignAgent,
    ForeignConfig,
    ForeignHome,
    ForeignSecrets,
    ForeignSession,
    as_object,
    as_text,
    load_json,
)
from palinurus.extensions.migrate.openclaw.agent_database import FILE, AgentDatabase
from palinurus.extensions.migrate.openclaw.database import ForeignDatabase, open_database
from palinurus.extensions.migrate.openclaw.documents import (
    APPROVALS,
    OWN_DOCUMENTS,
    STATE,
    read_documents,
    read_keys,
    read_order,
)
from palinurus.extensions.migrate.openclaw.transcripts import SessionFolder
from palinurus.extensions.migrate.report import FoundSkill, Losses

DEPTH = 6  # as OpenClaw looks
MAX_BYTES = 1024 * 1024
_NAME = re.compile(rb"^name:[ \t]*[\"']?([^\"'\r\n#]{1,100})", re.MULTILINE)
_LOCKS = (".clawhub", ".clawdhub")


def find_skills(root: Path, agents: list[ForeignAgent], losses: Losses) -> list[FoundSkill]:
    found: list[FoundSkill] = []
    for agent in agents:
        if agent.workspace is not None:
            lock = _lock(agent.workspace, losses)
            for place in ("skills", ".agents/skills"):
                found += _skills(root, agent.workspace / place, agent.id, lock, losses)
    found += _skills(root, root / "skills", "", {**_lock(root, losses), **_lock(root / "skills", losses)}, losses)
    unique = {skill.path: skill for skill in reversed(found)}  # two agents may share a workspace
    return sorted(unique.values(), key=lambda skill: skill.path)


def _skills(root: Path, folder: Path, agent: str, lock: dict[str, Any], losses: Losses) -> Iterator[FoundSkill]:
    waiting = [(folder, 0)]
    while waiting:
        place, depth = waiting.pop()
        shown = shown_path(place, root)
        text = read_whole(place / "SKILL.md", f"{shown}/SKILL.md", losses, MAX_BYTES)
        if text is not None:
            yield _skill(place, f"{shown}/SKILL.md", text, agent, lock, losses)
        elif depth < DEPTH:
            waiting += [(place / name, depth + 1) for name in folders(place, shown, losses)]


def _skill(place: Path, shown: str, text: bytes, agent: str, lock: dict[str, Any], losses: Losses) -> FoundSkill:
    match = _NAME.search(text[:16_384])
    name = match[1].decode(errors="replace").strip() if match else place.name
    origin = _first(place, "origin.json", losses)
    slug = str(origin.get("slug") or place.name)
    locked = lock.get(slug)
    version = origin.get("installedVersion") or as_object(locked).get("version") or ""
    registry = str(origin.get("registry") or "")
    return FoundSkill(name, shown, agent, str(version), registry, slug if origin or locked else "")


def _lock(folder: Path, losses: Losses) -> dict[str, Any]:
    return as_object(_first(folder, "lock.json", losses).get("skills"))


def _first(folder: Path, name: str, losses: Losses) -> dict[str, Any]:
    for lock in _LOCKS:
        shown = f"{folder.name}/{lock}/{name}"
        data = read_whole(folder / lock / name, shown, losses, MAX_BYTES)
        value = load_json(data) if data is not None else None
        if isinstance(value, dict):
            return value
        if data is not None and value is None:
            losses.add(shown, 0, "it is not JSON")
    return {}


CALLED_DEFAULT = "default"
_SIGNS = ("AGENTS.md", "SOUL.md", "IDENTITY.md")  # files of a workspace


def read_config(root: Path, losses: Losses) -> ForeignConfig:
    path = config_of(root)
    if path is None:
        return ForeignConfig()
    try:
        text = read_text(path)
        value = assemble(path, text, ()).value if text is not None else {}
    except (ConfigError, RecursionError) as error:
        losses.add(path.name, 0, f"the config cannot be read: {error}")
        value = {}
    if not isinstance(value, dict):
        losses.add(path.name, 0, "the config is no object")
        value = {}
    return ForeignConfig(path.name, value)


def read_agents(root: Path, config: ForeignConfig, user_home: Path, losses: Losses) -> list[ForeignAgent]:
    """In the order of the config, then those on disk. A home without any agent has `main`."""
    section = as_object(config.data.get("agents"))
    settings = _configured(section, config.file, losses)
    on_disk = _on_disk(root, losses)
    ids = list(dict.fromkeys([*settings, *sorted(on_disk)])) or [DEFAULT_AGENT]
    default = _default(ids, settings)
    oldest = as_object(config.data.get("agent"))
    base = as_text(as_object(section.get("defaults")).get("workspace")) or as_text(oldest.get("workspace"))
    agents = []
    for agent_id in ids:
        own, is_default = settings.get(agent_id, {}), agent_id == default
        name = as_text(own.get("name")) or as_text(as_object(own.get("identity")).get("name"))
        marked = is_default and (own.get("default") is True or agent_id == CALLED_DEFAULT)
        written = as_text(own.get("workspace"))
        places = _written_places(written or base, root, user_home) if written or base else []
        if not written and not is_default and len(ids) > 1:
            places = [place / agent_id for place in places]
        places += [root / f"workspace-{agent_id}", *([root / "workspace"] if is_default else [])]
        there = (place for place in places if place.is_dir() and not place.is_symlink())
        workspace = next((place for place in there if _may_be_copied(place, root, config.file, losses)), None)
        folder, configured = on_disk.get(agent_id), agent_id in settings
        agents.append(ForeignAgent(agent_id, folder, workspace, name, configured, is_default, marked))
    return agents


def _may_be_copied(path: Path, root: Path, file: str, losses: Losses) -> bool:
    """A foreign config may name any folder of this machine, and an agent can read all that is copied."""
    if path.resolve().is_relative_to(root.resolve()) or any((path / name).is_file() for name in _SIGNS):
        return True
    signs = ", ".join(_SIGNS)
    losses.add(file, 0, f"the workspace {path} is outside this home and has no {signs}: copy it by hand")
    return False


def _written_places(written: str, root: Path, user_home: Path) -> list[Path]:
    """The folder that a config names, first where the home is now."""
    path = root / expand_user(written, user_home)
    inside = moved_path(path, root) if ".." not in path.parts else None
    return [inside, path] if inside is not None else [path]


def _configured(section: dict[str, Any], file: str, losses: Losses) -> dict[str, dict[str, Any]]:
    listed = section.get("list")
    named = [("list", as_object(each).get("id"), each) for each in (listed if isinstance(listed, list) else [])]
    named += [("entries", name, each) for name, each in as_object(section.get("entries")).items()]
    found: dict[str, dict[str, Any]] = {}
    for form, name, entry in named:
        if agent_id := _agent_id(name, f"{file}: agents.{form}", losses):
            found.setdefault(agent_id, as_object(entry))
    return found


def _on_disk(root: Path, losses: Losses) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for name in folders(root / "agents", "agents", losses):
        if agent_id := _agent_id(name, f"agents/{name}", losses):
            found.setdefault(agent_id, root / "agents" / name)
    if (root / "sessions").is_dir():  # the oldest homes had one agent, and no folder for it
        found.setdefault(DEFAULT_AGENT, root)
    return found


def _default(ids: list[str], settings: dict[str, dict[str, Any]]) -> str:
    marked = [agent_id for agent_id, own in settings.items() if own.get("default") is True]
    named = [agent_id for agent_id in (DEFAULT_AGENT, CALLED_DEFAULT) if agent_id in ids]
    return (*marked, *named, *settings, *ids)[0]


def _agent_id(value: Any, where: str, losses: Losses) -> str:
    try:
        return normal_agent_id(value) if isinstance(value, str) else ""
    except ValueError:
        losses.add(where, 0, f"{value[:40]!r} can be no agent's id")
        return ""


class OpenClawHome(ForeignHome):
    """Close it, for the copies it made."""

    def __init__(self, root: Path, user_home: Path, scratch: Path | None = None) -> None:
        super().__init__(root)
        self._scratch = Path(tempfile.mkdtemp(prefix="pal-migrate-", dir=scratch))
        self._databases: dict[Path, ForeignDatabase | None] = {}
        self.config = read_config(root, self.losses)
        self.agents = read_agents(root, self.config, user_home, self.losses)
        self.documents = read_documents(root, self._database(root / STATE), self.losses)
        self.notes = left_out(root, self.config.data, self._database(root / STATE), self.losses)
        store = as_text(as_object(self.config.data.get("cron")).get("store"))
        if store and not Path(store).match("cron/jobs.json"):
            self.losses.add(self.config.file, 0, f"cron jobs are in another place, {store[:200]}, and were not read")

    def close(self) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)

    def sessions(self) -> Iterator[ForeignSession]:
        """Every transcript, agent by agent. The database wins where files have the same session."""
        for agent in self.agents:
            if agent.folder is not None:
                yield from self._sessions_of(agent, agent.folder)

    def skills(self) -> list[FoundSkill]:
        return find_skills(self.root, self.agents, self.losses)

    def stored_keys(self) -> list[ForeignSecrets]:
        databases = {agent: self._agent_database(agent) for agent in self.agents}
        found = list(read_keys(databases, self._database(self.root / STATE), self.losses))
        if order := read_order(self.config.data.get("auth")):
            found.append(ForeignSecrets("", f"{self.config.file}: auth", {}, order))
        return found

    def _sessions_of(self, agent: ForeignAgent, folder: Path) -> Iterator[ForeignSession]:
        place = folder / "sessions"
        known: frozenset[str] = frozenset()
        if database := self._agent_database(agent):
            rows = AgentDatabase(database, place, agent.id)
            yield from rows.sessions()
            known = frozenset(rows.known)
        yield from SessionFolder(place, shown_path(place, self.root), agent.id, self.losses).sessions(known)

    def _agent_database(self, agent: ForeignAgent) -> ForeignDatabase | None:
        return self._database(agent.folder / FILE) if agent.folder is not None else None

    def _database(self, path: Path) -> ForeignDatabase | None:
        """Examined once."""
        if path not in self._databases:
            self._databases[path] = open_database(path, shown_path(path, self.root), self._scratch, self.losses)
        return self._databases[path]


MOST_NAMED = 30
TOGETHER = 50  # tables
MAX_BYTES = 32 * 1024 * 1024
_FOLDERS = {"agents", "sessions", "skills", "credentials", "cron", "state", "extensions"}
_TAKEN = {*CONFIGS, APPROVALS, OWN_DOCUMENTS, *_FOLDERS}
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
