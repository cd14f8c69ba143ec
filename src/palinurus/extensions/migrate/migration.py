"""One migration from beginning to end: files, documents, transcripts; then the sessions become visible.

Files of a workspace are copied unchanged, and never over a file that somebody wrote here; a file that still equals our
template is replaced. Git repositories are left out: their hooks and config name programs, which `git status` would run.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
import unicodedata
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from palinurus.domain.clock import Clock
from palinurus.extensions.migrate.files import error_text, new_file, open_plain, read_whole, shown_path, walk
from palinurus.extensions.migrate.foreign import ForeignHome, ForeignSession
from palinurus.extensions.migrate.import_store import Destination, ImportStore, VisibleSession
from palinurus.extensions.migrate.importer import SessionImporter, looks_secret
from palinurus.extensions.migrate.report import (
    FoundAgent,
    FoundFile,
    FoundProfile,
    FoundSession,
    Losses,
    MigrationProgress,
    MigrationReport,
    Outcome,
    SecretFindings,
)
from palinurus.workspace.seed import FIRST_RUN, TEMPLATES, template
from palinurus.workspace.steps import OUTSIDE_NAME, leads_out

PIECE = 1024 * 1024
MOST_REPOSITORIES = 20  # that the notes name
SEARCHED_BYTES = 2 * 1024 * 1024  # of a note, for secrets
BARE = ("HEAD", "config", "config.worktree", "hooks", "info", "objects", "packed-refs", "refs", "worktrees")

Tell = Callable[[MigrationProgress], None]
"""Called with the progress, from any thread, often. Must not raise."""


def copy_file(source: Path, target: Path, path: str, shown: str, losses: Losses, *, apply: bool) -> Outcome:
    """Returns the outcome for the file at `path` of a workspace, done or planned. What cannot be copied is a loss."""
    try:
        if leads_out(source.parents[path.count("/")], path, source.lstat()):
            losses.add(shown, 0, f"it {OUTSIDE_NAME}; it was left there")
            return "left"
        if not os.path.lexists(target):
            if apply:
                _copy(source, target, replace=False)
            return "new"
        if target.is_symlink() or not target.is_file():
            losses.add(shown, 0, f"{target} is not a file")
            return "left"
        if _equal(source, target):
            return "same"
        if _is_template(target, path):
            if apply:
                _copy(source, target, replace=True)
            return "new"
    except OSError as error:
        losses.add(shown, 0, f"it cannot be copied: {error_text(error)}")
        return "left"
    losses.add(shown, 0, f"another file exists at {target} and was not replaced")
    return "left"


def repository_of(source: Path, path: str) -> str:
    """The path in the workspace of the git repository that the file is a part of; empty: of none.

    `source` is the file itself, `path` its path in the workspace.
    """
    steps = path.split("/")
    for at, step in enumerate(steps):
        if _is_git_name(step):
            return "/".join(steps[: at + 1])
    for size in range(len(steps)):  # a bare repository
        folder = source.parents[len(steps) - size - 1]
        if steps[size] in BARE and (folder / "HEAD").is_file() and (folder / "objects").is_dir():
            return "/".join(steps[:size]) or "."
    return ""


def _is_git_name(step: str) -> bool:
    """`.git`, in every spelling that some file system takes for it."""
    plain = "".join(letter for letter in step if unicodedata.category(letter) != "Cf")
    return plain.casefold().rstrip(". ") in (".git", "git~1")


def _remove_first_run(workspace: Path) -> None:
    """Remove our template that starts the first-run dialogue: an imported agent knows who it is."""
    target = workspace / FIRST_RUN
    if target.is_file() and not target.is_symlink() and _is_template(target, FIRST_RUN):
        with suppress(OSError):
            target.unlink()


def _copy(source: Path, target: Path, *, replace: bool) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open_plain(source) as file, new_file(target, replace=replace) as copy:
        stat = os.fstat(file.fileno())
        shutil.copyfileobj(file, copy, PIECE)
        copy.flush()
        os.fchmod(copy.fileno(), 0o600 | (stat.st_mode & 0o100))
        os.utime(copy.fileno(), ns=(stat.st_atime_ns, stat.st_mtime_ns))


def _equal(source: Path, target: Path) -> bool:
    with open_plain(source) as one, open_plain(target) as other:
        if os.fstat(one.fileno()).st_size != os.fstat(other.fileno()).st_size:
            return False
        while piece := one.read(PIECE):
            if piece != other.read(PIECE):
                return False
        return True


def _is_template(target: Path, path: str) -> bool:
    if path not in (*TEMPLATES, FIRST_RUN):
        return False
    with open_plain(target) as file:
        return file.read(PIECE) == template(path).encode()


class Migration:
    def __init__(
        self,
        home: ForeignHome,
        store: ImportStore,
        to: Destination,
        clock: Clock,
        tell: Tell,
        *,
        apply: bool,
        source: str = "",
    ) -> None:
        """`source` is where the home came from, if it was unpacked to another folder for reading."""
        self._home = home
        self._source = source or str(home.root)
        self._store = store
        self._to = to
        self._clock = clock
        self._tell = tell
        self._apply = apply
        self._done = self._total = 0
        self._secrets = SecretFindings()
        self._repositories: set[tuple[str, str]] = set()  # that were left out: (agent, path)

    async def run(self) -> MigrationReport:
        """Raises StorageError when this home cannot be written; what was stored so far stays invisible then."""
        began = time.perf_counter()
        files = await asyncio.to_thread(self._files)
        skills = await asyncio.to_thread(self._home.skills)
        sessions = await self._sessions()
        documents = self._home.documents
        if self._apply:
            await self._store.keep_documents(f"openclaw:{self._source}", documents.kept)
            sessions = _with_notes(sessions, await self._store.publish())
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
        importer = SessionImporter(
            self._store, self._home.losses, self._secrets, self._add_bytes, apply=self._apply, now=now
        )
        return await importer.import_all(sessions)

    def _add_bytes(self, size: int) -> None:
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
            shown = shown_path(path, self._home.root)
            if target is not None:
                outcome = copy_file(path, target / file.path, file.path, shown, self._home.losses, apply=self._apply)
            found.append(replace(file, outcome=outcome))
            self._find_secrets(path, shown)
            if len(found) % 50 == 0:
                self._tell(MigrationProgress("files", len(found), 0))
        self._skill_files()
        own_first_run = {file.agent for file in found if file.path == FIRST_RUN}
        for agent in {file.agent for file in found} - own_first_run if self._apply else ():
            if agent in self._to.workspaces:
                _remove_first_run(self._to.workspaces[agent])
        return found

    def _skill_files(self) -> None:
        folder = self._home.root / "skills"
        for path, _ in walk(folder, "skills", self._home.losses):
            if repository := repository_of(folder / path, path):
                self._repositories.add(("skills", repository))
                continue
            target = self._to.skills / path
            copy_file(folder / path, target, path, f"skills/{path}", self._home.losses, apply=self._apply)

    def _find_secrets(self, path: Path, shown: str) -> None:
        if path.suffix.lower() != ".md":
            return
        data = read_whole(path, shown, self._home.losses, SEARCHED_BYTES) or b""
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
        """Which keys there are, without their values."""
        return tuple(
            FoundProfile(keys.agent, name, str(profile.get("type", "")), keys.where)
            for keys in self._home.stored_keys()
            for name, profile in keys.profiles.items()
        )

    def _notes(self) -> list[str]:
        notes = []
        if self._home.documents.jobs:
            notes.append("cron jobs are stored unchanged and do not run here yet")
        for agent, count in Counter(approval.agent for approval in self._home.documents.approvals).items():
            one = "1 always-allowed command is stored, and needs approval again here"
            many = f"{count} always-allowed commands are stored, and need approval again here"
            notes.append(f"{agent}: {one if count == 1 else many}")
        for agent, repository in sorted(self._repositories)[:MOST_REPOSITORIES]:
            notes.append(
                f"{agent}: the git history in {repository} is not copied: its hooks and config can run programs"
            )
        return notes


def _with_notes(sessions: list[FoundSession], visible: list[VisibleSession]) -> list[FoundSession]:
    notes = {each.session_id: each.note for each in visible if each.note}
    return [replace(each, note=notes[each.into], outcome="new") if each.into in notes else each for each in sessions]
