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
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palinurus.dispatch.pairing import Pairing
from palinurus.domain.clock import Clock
from palinurus.extensions.migrate.files import error_text, new_file, open_plain, read_whole, shown_path, walk
from palinurus.extensions.migrate.foreign import ForeignAgent, ForeignHome, ForeignSession
from palinurus.extensions.migrate.import_store import Destination, ImportStore, VisibleSession
from palinurus.extensions.migrate.importer import SessionImporter, looks_secret
from palinurus.extensions.migrate.openclaw.documents import found_job
from palinurus.extensions.migrate.openclaw.pairings import pairings_in
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
from palinurus.workspace.seed import FIRST_RUN, TEMPLATES, template_texts
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
        exists = os.path.lexists(target)
        if leads_out(source.parents[path.count("/")], path, source.lstat()):
            why = f"it {OUTSIDE_NAME}; it was left there"
        elif exists and (target.is_symlink() or not target.is_file()):
            why = f"{target} is not a file"
        elif exists and _equal(source, target):
            return "same"
        elif exists and not _is_template(target, path):
            why = f"another file exists at {target} and was not replaced"
        else:
            if apply:
                _copy(source, target, replace=exists)
            return "new"
    except OSError as error:
        why = f"it cannot be copied: {error_text(error)}"
    losses.add(shown, 0, why)
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
        return all(piece == other.read(PIECE) for piece in iter(partial(one.read, PIECE), b""))


def _is_template(target: Path, path: str) -> bool:
    if path not in (*TEMPLATES, FIRST_RUN):
        return False
    with open_plain(target) as file:
        return file.read(PIECE).decode(errors="replace") in template_texts(path)


class Migration(Struct):
    home: ForeignHome
    store: ImportStore
    to: Destination
    clock: Clock
    tell: Tell
    apply: bool
    source: str = ""  # where the home came from, if it was unpacked to another folder for reading
    done: int = 0  # bytes of transcripts
    total: int = 0
    secrets: SecretFindings = msgspec.field(default_factory=SecretFindings)
    pairings: tuple[Pairing, ...] = ()
    repositories: set[tuple[str, str]] = set()  # that were left out: (agent, path)

    def __post_init__(self) -> None:
        self.source = self.source or str(self.home.root)
        self.pairings = pairings_in(self.home.documents.kept, self.clock.now_ms())

    async def run(self) -> MigrationReport:
        """Raises StorageError when this home cannot be written; what was stored so far stays invisible then."""
        began = time.perf_counter()
        files = await asyncio.to_thread(self._files)
        skills = await asyncio.to_thread(self.home.skills)
        sessions = await self._sessions()
        documents = self.home.documents
        if self.apply:
            await self.store.keep_documents(f"openclaw:{self.source}", documents.kept)
            await self.store.keep_pairings(self.pairings)
            sessions = _with_notes(sessions, await self.store.publish())
        profiles = await asyncio.to_thread(self._profiles)
        losses = self.home.losses
        return MigrationReport(
            source=self.source,
            version=self.home.config.version,
            applied=self.apply,
            agents=tuple(map(self._agent, self.home.agents)),
            sessions=tuple(sessions),
            cron_jobs=tuple(map(found_job, documents.jobs)),
            approvals=tuple(documents.approvals),
            skills=tuple(skills),
            workspace_files=tuple(files),
            auth_profiles=profiles,
            documents=tuple(f"{document.kind}: {document.name}" for document in documents.kept),
            skipped=tuple(losses.listed),
            skipped_total=losses.total,
            secrets=tuple(self.secrets.listed),
            secrets_total=self.secrets.total,
            notes=tuple(self._notes()),
            bytes=self.done,
            seconds=round(time.perf_counter() - began, 3),
        )

    async def _sessions(self) -> list[FoundSession]:
        sessions: list[ForeignSession] = await asyncio.to_thread(lambda: list(self.home.sessions()))
        self.total = sum(session.size for session in sessions if not session.same_as)
        now, losses = self.clock.now_ms(), self.home.losses
        importer = SessionImporter(self.store, losses, self.secrets, self.apply, now, self._add_bytes)
        return await importer.import_all(sessions)

    def _add_bytes(self, size: int) -> None:
        self.done += size
        self.tell(MigrationProgress("sessions", self.done, max(self.total, self.done)))

    def _files(self) -> list[FoundFile]:
        found = []
        for file, path in self.home.workspace_files():
            if repository := repository_of(path, file.path):
                self.repositories.add((file.agent, repository))
                continue
            shown = shown_path(path, self.home.root)
            outcome = file.outcome
            if target := self.to.workspaces.get(file.agent):
                outcome = copy_file(path, target / file.path, file.path, shown, self.home.losses, apply=self.apply)
            found.append(replace(file, outcome=outcome))
            self._find_secrets(path, shown)
            if len(found) % 50 == 0:
                self.tell(MigrationProgress("files", len(found), 0))
        self._skill_files()
        own_first_run = {file.agent for file in found if file.path == FIRST_RUN}
        for agent in {file.agent for file in found} - own_first_run if self.apply else ():
            if agent in self.to.workspaces:
                _remove_first_run(self.to.workspaces[agent])
        return found

    def _skill_files(self) -> None:
        folder = self.home.root / "skills"
        for path, _ in walk(folder, "skills", self.home.losses):
            if repository := repository_of(folder / path, path):
                self.repositories.add(("skills", repository))
                continue
            shown = f"skills/{path}"
            copy_file(folder / path, self.to.skills / path, path, shown, self.home.losses, apply=self.apply)

    def _find_secrets(self, path: Path, shown: str) -> None:
        if path.suffix.lower() != ".md":
            return
        data = read_whole(path, shown, self.home.losses, SEARCHED_BYTES) or b""
        for number, line in enumerate(data.decode(errors="replace").splitlines(), 1):
            if looks_secret(line):
                self.secrets.add(shown, number)

    def _agent(self, agent: ForeignAgent) -> FoundAgent:
        places = str(agent.workspace or ""), str(self.to.workspaces.get(agent.id, ""))
        return FoundAgent(agent.id, agent.name, agent.configured, agent.is_default, *places)

    def _profiles(self) -> tuple[FoundProfile, ...]:
        """Which keys there are, without their values."""
        found = [(keys, name, each) for keys in self.home.stored_keys() for name, each in keys.profiles.items()]
        return tuple(
            FoundProfile(keys.agent, name, str(each.get("type", "")), keys.where) for keys, name, each in found
        )

    def _notes(self) -> list[str]:
        notes = list(self.home.notes)
        let_in = Counter(each.channel for each in self.pairings if each.status == "approved")
        for channel, count in let_in.items():
            senders = "1 sender who was" if count == 1 else f"{count} senders who were"
            notes.append(f"{channel}: {senders} let in there may write here too; `pal pairing list` shows them")
        for agent, count in Counter(approval.agent for approval in self.home.documents.approvals).items():
            stored = "command is stored, and needs" if count == 1 else "commands are stored, and need"
            notes.append(f"{agent}: {count} always-allowed {stored} approval again here")
        why = "is not copied: its hooks and config can run programs"
        left = sorted(self.repositories)[:MOST_REPOSITORIES]
        return notes + [f"{agent}: the git history in {repository} {why}" for agent, repository in left]


def _with_notes(sessions: list[FoundSession], visible: list[VisibleSession]) -> list[FoundSession]:
    notes = {each.session_id: each.note for each in visible if each.note}
    return [replace(each, note=notes[each.into], outcome="new") if each.into in notes else each for each in sessions]
