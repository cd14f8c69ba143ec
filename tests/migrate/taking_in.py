"""A home that takes others in."""

from __future__ import annotations

from pathlib import Path

from foreign_trees import jsonl

from palinurus.extensions.migrate.import_store import Destination, ImportStore
from palinurus.extensions.migrate.migration import Migration
from palinurus.extensions.migrate.openclaw.home import OpenClawHome
from palinurus.extensions.migrate.report import MigrationReport
from palinurus.sessions.store import SessionStore
from palinurus.storage.database import Database
from palinurus.testing.fakes import FakeClock, SeededIds


class Here:
    def __init__(self, root: Path, clock: FakeClock, new_id: SeededIds) -> None:
        root.mkdir()
        self.root = root
        self.clock = clock
        self.database = Database(root / "home.sqlite", "home")
        self.store = SessionStore(self.database, clock, new_id)
        self.importer = ImportStore(self.database, clock)

    async def migrate(self, source: Path, *, apply: bool = True) -> MigrationReport:
        """Whatever agents there are, each gets a workspace of its own."""
        with OpenClawHome(source, source) as home:
            agents = [agent.id for agent in home.agents]
            to = Destination({agent: self.root / f"workspace-{agent}" for agent in agents}, self.root / "skills")
            return await Migration(home, self.importer, to, self.clock, lambda _: None, apply=apply).run()

    async def payloads(self, session_id: str) -> bytes:
        return jsonl([row.payload.encode() for row in await self.store.rows(session_id)])
