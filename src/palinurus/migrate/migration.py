"""One migration from beginning to end: files, documents, transcripts, and then all of it is visible."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from palinurus.domain.clock import Clock
from palinurus.migrate.carry import Carrier
from palinurus.migrate.copying import copy_file, repository_of, retire_first_run
from palinurus.migrate.foreign import ForeignHome, ForeignSession
from palinurus.migrate.importer import Destination, SessionImporter, Shown
from palinurus.migrate.openclaw.files import read_whole, walk
from palinurus.migrate.report import (
    Findings,
    FoundAgent,
    FoundFile,
    FoundProfile,
    FoundSession,
    MigrationProgress,
    MigrationReport,
)
from palinurus.migrate.tally import looks_secret

Tell = Callable[[MigrationProgress], None]
"""Told how far it is, from any thread, often. Must not raise."""

MOST_REPOSITORIES = 20  # that are told
LOOKED_INTO = 2 * 1024 * 1024  # bytes of a note in which secrets are looked for


class Migration:
    def __init__(
        self,
        home: ForeignHome,
        importer: SessionImporter,
        to: Destination,
        clock: Clock,
        tell: Tell,
        *,
        apply: bool,
        source: str = "",
    ) -> None:
        """`source` is where the home came from, when it lies in another place for reading only."""
        self._home = home
        self._source = source or str(home.root)
        self._importer = importer
        self._to = to
        self._clock = clock
        self._tell = tell
        self._apply = apply
        self._done = self._total = 0
        self._secrets = Findings()
        self._repositories: set[tuple[str, str]] = set()  # that were left there: (agent, path)

    async def run(self) -> MigrationReport:
        """Raises StorageError when this home cannot take something in; what was stored so far is not shown then."""
        began = time.perf_counter()
        files = await asyncio.to_thread(self._files)
        skills = await asyncio.to_thread(self._home.skills)
        sessions = await self._sessions()
        documents = self._home.documents
        if self._apply:
            await self._importer.keep(f"openclaw:{self._source}", documents.kept)
            sessions = _as_shown(sessions, await self._importer.show())
        profiles = await asyncio.to_thread(self._profiles)
        losses = self._home.losses
        return MigrationReport(
            source=self._source,
            version=self._home.config.version,
            applied=self._apply,
            agents=tuple(self._agents()),
            sessions=tuple(sessions),
            cron_jobs=tuple(documents.jobs),
            approvals=tuple(documents.approvals),
            skills=tuple(skills),
            workspace_files=tuple(files),
            auth_profiles=profiles,
            documents=tuple(f"{document.kind}: {document.name}" for document in documents.kept),
            skipped=tuple(losses.listed),
            skipped_total=losses.total,
            secrets=tuple(self._secrets.listed),
            secrets_total=self._secrets.total,
            notes=tuple(self._notes()),
            bytes=self._done,
            seconds=round(time.perf_counter() - began, 3),
        )

    async def _sessions(self) -> list[FoundSession]:
        sessions: list[ForeignSession] = await asyncio.to_thread(lambda: list(self._home.sessions()))
        self._total = sum(session.size for session in sessions if not session.same_as)
        now = self._clock.now_ms()
        carrier = Carrier(self._importer, self._home.losses, self._secrets, self._read, apply=self._apply, now=now)
        return await carrier.carry_all(sessions)

    def _read(self, size: int) -> None:
        self._done += size
        self._tell(MigrationProgress("sessions", self._done, max(self._total, self._done)))

    def _files(self) -> list[FoundFile]:
        found = []
        for file, path in self._home.workspace_files():
            if repository := repository_of(path, file.path):
                self._repositories.add((file.agent, repository))
                continue
            target = self._to.workspaces.get(file.agent)
            outcome = file.outcome
            shown = self._shown(path)
            if target is not None:
                outcome = copy_file(path, target / file.path, file.path, shown, self._home.losses, apply=self._apply)
            found.append(replace(file, outcome=outcome))
            self._look_into(path, shown)
            if len(found) % 50 == 0:
                self._tell(MigrationProgress("files", len(found), 0))
        self._skill_files()
        if self._apply:
            self._settle(found)
        return found

    def _shown(self, path: Path) -> str:
        root = self._home.root
        return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)

    def _skill_files(self) -> None:
        folder = self._home.root / "skills"
        for path, _ in walk(folder, "skills", self._home.losses):
            if repository := repository_of(folder / path, path):
                self._repositories.add(("skills", repository))
                continue
            target = self._to.skills / path
            copy_file(folder / path, target, path, f"skills/{path}", self._home.losses, apply=self._apply)

    def _settle(self, files: list[FoundFile]) -> None:
        came = {file.agent for file in files}
        for agent in came - {file.agent for file in files if file.path == "BOOTSTRAP.md"}:
            if agent in self._to.workspaces:
                retire_first_run(self._to.workspaces[agent])

    def _look_into(self, path: Path, shown: str) -> None:
        if path.suffix.lower() != ".md":
            return
        data = read_whole(path, shown, self._home.losses, LOOKED_INTO) or b""
        for number, line in enumerate(data.decode(errors="replace").splitlines(), 1):
            if looks_secret(line):
                self._secrets.add(shown, number)

    def _agents(self) -> list[FoundAgent]:
        return [
            FoundAgent(
                id=agent.id,
                name=agent.name,
                configured=agent.configured,
                is_default=agent.is_default,
                workspace=str(agent.workspace or ""),
                into=str(self._to.workspaces.get(agent.id, "")),
            )
            for agent in self._home.agents
        ]

    def _profiles(self) -> tuple[FoundProfile, ...]:
        """Which keys there are. Their values are not looked at."""
        return tuple(
            FoundProfile(keys.agent, name, str(profile.get("type", "")), keys.where)
            for keys in self._home.stored_keys()
            for name, profile in keys.profiles.items()
        )

    def _notes(self) -> list[str]:
        notes = []
        if self._home.documents.jobs:
            notes.append("cron jobs are kept word for word, and do not run here yet")
        allowed = Counter(approval.agent for approval in self._home.documents.approvals)
        for agent, count in allowed.items():
            what = (
                "1 command that was allowed for good is kept, and asks"
                if count == 1
                else (f"{count} commands that were allowed for good are kept, and ask")
            )
            notes.append(f"{agent}: {what} again here")
        for agent, repository in sorted(self._repositories)[:MOST_REPOSITORIES]:
            notes.append(f"{agent}: the git history in {repository} stays there: its hooks and config can run programs")
        return notes


def _as_shown(sessions: list[FoundSession], shown: list[Shown]) -> list[FoundSession]:
    """With what turned out when they became visible."""
    by_id = {each.session_id: each for each in shown}
    return [
        replace(found, note=each.note, outcome="new") if (each := by_id.get(found.into)) and each.note else found
        for found in sessions
    ]
