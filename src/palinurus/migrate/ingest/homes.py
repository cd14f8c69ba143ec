"""Homes that can be distilled: one of ours, an OpenClaw one, or a bare workspace. They are only read."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from palinurus.config.home import CONFIG_NAME, Home
from palinurus.config.load import load_config
from palinurus.config.secrets import secret_values, worth_redacting
from palinurus.config.settings import agent_ids, agent_settings
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.migrate.foreign import ForeignAgent, ForeignEntry, ForeignSession
from palinurus.migrate.openclaw.database import ForeignDatabase, open_database, told
from palinurus.migrate.openclaw.entries import read_entry
from palinurus.migrate.openclaw.files import walk
from palinurus.migrate.openclaw.home import OpenClawHome
from palinurus.migrate.openclaw.places import find_openclaw
from palinurus.migrate.report import FoundFile, Losses

DATABASE = "home.sqlite"
# In the order in which they were said; an entry's number is its line in an export.
_SESSIONS = "SELECT id, key, agent, archived_at, updated_at FROM sessions ORDER BY agent, updated_at DESC, id"
_ENTRIES = "SELECT CAST(payload AS BLOB) FROM entries WHERE session_id = ? ORDER BY position"
_SIZE = "SELECT coalesce(sum(length(payload)), 0) FROM entries WHERE session_id = ?"


class Source(Protocol):
    """A home that is open. What cannot be read is in `losses`."""

    root: Path
    losses: Losses

    @property
    def agents(self) -> list[ForeignAgent]: ...

    def workspace_files(self) -> Iterator[tuple[FoundFile, Path]]: ...

    def sessions(self) -> Iterator[ForeignSession]: ...


class Opened(Struct, frozen=True):
    home: Source
    secrets: tuple[str, ...]
    """Values that must not get into a wiki: those of its config and its stored keys. Never shown, never kept."""


@contextmanager
def open_source(folder: Path, env: Mapping[str, str], user_home: Path) -> Iterator[Opened]:
    """Raises NotFound when there is no home, and ConfigError for one of ours whose config cannot be read."""
    if not folder.is_dir():
        raise NotFound(f"there is no folder {folder}", hint="name a home, such as ~/.palinurus or ~/.openclaw")
    if (folder / CONFIG_NAME).is_file() or (folder / DATABASE).is_file():
        with _scratch() as scratch:
            own = OurHome(folder, env, user_home, scratch)
            try:
                yield Opened(own, own.secrets)
            finally:
                own.close()
    elif (folder / "MEMORY.md").is_file() or (folder / "AGENTS.md").is_file():
        yield Opened(BareWorkspace(folder), ())
    else:
        with OpenClawHome(find_openclaw(env, user_home, folder), user_home) as home:
            yield Opened(home, tuple(_stored_secrets(home)))


class OurHome:
    """A home of ours, read from a copy of its database when somebody lives in it."""

    def __init__(self, root: Path, env: Mapping[str, str], user_home: Path, scratch: Path) -> None:
        self.root = root
        self.losses = Losses()
        home = Home(root, root / CONFIG_NAME, user_home=user_home)
        loaded = load_config(home, env)
        self.secrets = loaded.secrets
        self.agents = [
            ForeignAgent(agent, None, agent_settings(loaded.config, home, agent).workspace)
            for agent in agent_ids(loaded.config)
        ]
        self._database: ForeignDatabase | None = open_database(root / DATABASE, DATABASE, scratch, self.losses)

    def close(self) -> None:
        if self._database is not None:
            self._database.close()

    def workspace_files(self) -> Iterator[tuple[FoundFile, Path]]:
        yield from _files(self.agents, self.losses)

    def sessions(self) -> Iterator[ForeignSession]:
        database = self._database
        if database is None or not database.has("sessions", "id", "key") or not database.has("entries", "payload"):
            return
        with told(DATABASE, self.losses, "the table of sessions"):
            for id_, key, agent, archived, updated in list(database.rows(_SESSIONS)):
                ((size,),) = database.rows(_SIZE, (id_,))
                origin: Any = "live" if archived is None else "earlier"
                shown = f"{DATABASE}#{id_}"
                yield ForeignSession(agent, key, id_, origin, shown, self._reader(database, id_), size, "", "", updated)

    def _reader(self, database: ForeignDatabase, session_id: str) -> Any:
        def read() -> Iterator[ForeignEntry]:
            shown = f"{DATABASE}#{session_id}"
            with told(shown, self.losses, "the conversation"):
                for number, (payload,) in enumerate(database.rows(_ENTRIES, (session_id,)), start=1):
                    entry = read_entry(payload, number)
                    if isinstance(entry, str):
                        self.losses.add(shown, number, entry)
                    else:
                        yield entry

        return read


class BareWorkspace:
    """A folder of notes without a home around it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.losses = Losses()
        self.agents = [ForeignAgent("main", None, root)]

    def workspace_files(self) -> Iterator[tuple[FoundFile, Path]]:
        yield from _files(self.agents, self.losses)

    def sessions(self) -> Iterator[ForeignSession]:
        return iter(())


def check_apart(folder: Path, wiki: Path) -> None:
    """A wiki may lie inside a home, but is none. Raises BadRequest."""
    if wiki.resolve() == folder.resolve() or folder.resolve().is_relative_to(wiki.resolve()):
        raise BadRequest(f"{wiki} holds the home itself", hint="name a folder of its own for the wiki")


def _files(agents: Iterable[ForeignAgent], losses: Losses) -> Iterator[tuple[FoundFile, Path]]:
    seen: set[Path] = set()
    for agent in agents:
        if agent.workspace is None or agent.workspace in seen:
            continue
        seen.add(agent.workspace)
        for path, stat in walk(agent.workspace, agent.workspace.name, losses):
            yield FoundFile(agent.id, path, stat.st_size), agent.workspace / path


def _stored_secrets(home: OpenClawHome) -> Iterator[str]:
    yield from secret_values(home.config.data)
    for keys in home.stored_keys():
        for profile in keys.profiles.values():
            for name, value in profile.items():
                if isinstance(value, str) and name not in ("type", "provider", "email", "profileId"):
                    yield from worth_redacting(value)


@contextmanager
def _scratch() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="pal-ingest-"))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
