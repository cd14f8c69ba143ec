"""One OpenClaw home, open for reading: its agents, sessions, documents, skills and files."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from palinurus.migrate.foreign import ForeignAgent, ForeignSecrets, ForeignSession
from palinurus.migrate.openclaw.agent_database import FILE, AgentDatabase
from palinurus.migrate.openclaw.agents import read_agents, read_config
from palinurus.migrate.openclaw.database import ForeignDatabase, open_database
from palinurus.migrate.openclaw.documents import STATE, Documents, read_keys, read_order
from palinurus.migrate.openclaw.files import walk
from palinurus.migrate.openclaw.skills import find_skills
from palinurus.migrate.openclaw.transcripts import SessionFolder
from palinurus.migrate.report import FoundFile, FoundSkill, Losses


class OpenClawHome:
    """Reads a home and leaves it as it is. What cannot be read is in `losses`. Close it, for the copies it made."""

    def __init__(self, root: Path, user_home: Path, scratch: Path | None = None) -> None:
        self.root = root
        self.losses = Losses()
        self._scratch = Path(tempfile.mkdtemp(prefix="pal-migrate-", dir=scratch))
        self._databases: dict[str, ForeignDatabase | None] = {}
        self.config = read_config(root, self.losses)
        self.agents = read_agents(root, self.config, user_home, self.losses)
        self.documents = Documents(root, self._database(root / STATE, STATE), self.losses)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for database in self._databases.values():
            if database is not None:
                database.close()
        self._databases.clear()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def sessions(self) -> Iterator[ForeignSession]:
        """Every transcript, agent by agent. Where database and files tell the same session, the database is right."""
        for agent in self.agents:
            if agent.folder is not None:
                yield from self._sessions_of(agent, agent.folder)

    def skills(self) -> list[FoundSkill]:
        return find_skills(self.root, self.agents, self.losses)

    def workspace_files(self) -> Iterator[tuple[FoundFile, Path]]:
        """Each file of each workspace with where it is; of agents that share one, the first has it."""
        seen: set[Path] = set()
        for agent in self.agents:
            if agent.workspace is None or agent.workspace in seen:
                continue
            seen.add(agent.workspace)
            for path, stat in walk(agent.workspace, agent.workspace.name, self.losses):
                yield FoundFile(agent.id, path, stat.st_size), agent.workspace / path

    def stored_keys(self) -> list[ForeignSecrets]:
        """The stored keys of model providers. Ask only when a person has asked."""
        own = {agent.id: database for agent in self.agents if (database := self._agent_database(agent)) is not None}
        state = self._database(self.root / STATE, STATE)
        found = list(read_keys(self.root, self.agents, own, state, self.losses))
        if order := read_order(self.config.data.get("auth")):
            found.append(ForeignSecrets("", f"{self.config.file}: auth", {}, order))
        return found

    def _sessions_of(self, agent: ForeignAgent, folder: Path) -> Iterator[ForeignSession]:
        shown = str(folder.relative_to(self.root))
        shown = "sessions" if shown == "." else f"{shown}/sessions"
        known: frozenset[str] = frozenset()
        database = self._agent_database(agent)
        if database is not None:
            rows = AgentDatabase(database, folder / "sessions", agent.id, self.losses)
            if rows.holds_sessions:
                yield from rows.sessions()
                known = frozenset(rows.known)
        yield from SessionFolder(folder / "sessions", shown, agent.id, self.losses).sessions(known)

    def _agent_database(self, agent: ForeignAgent) -> ForeignDatabase | None:
        if agent.folder is None:
            return None
        return self._database(agent.folder / FILE, str((agent.folder / FILE).relative_to(self.root)))

    def _database(self, path: Path, shown: str) -> ForeignDatabase | None:
        """Opened once; kept open until the home is closed, because transcripts are read from it at any time."""
        if shown not in self._databases:
            self._databases[shown] = open_database(path, shown, self._scratch, self.losses)
        return self._databases[shown]
