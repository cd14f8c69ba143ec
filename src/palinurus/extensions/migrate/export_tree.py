"""A whole home in OpenClaw's layout: config, sessions.json and JSONL of each agent, workspaces, skills, cron jobs.

It is written to a new folder, or to one zip file (`.pal`) whose manifest has the digest of each file; `unpack` checks
them. Left out: credentials, indexes, logs, and the git history of workspaces.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import re
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct

from palinurus.config.rewrite import merged
from palinurus.dispatch.pairing import Pairing
from palinurus.domain.clock import Clock
from palinurus.domain.errors import BadRequest
from palinurus.domain.identity import AgentIdentity
from palinurus.extensions.migrate.channel_export import pairing_files
from palinurus.extensions.migrate.cron_export import cron_files
from palinurus.extensions.migrate.exporter import HomeSession, SessionExporter, TranscriptWriter
from palinurus.extensions.migrate.files import error_text, new_file, open_plain, temporary_name, walk
from palinurus.extensions.migrate.foreign import ForeignDocument, as_object, load_json
from palinurus.extensions.migrate.importer import NUMBERS, RESET_MARK, THEIR_ROW, THEIR_ROWS
from palinurus.extensions.migrate.openclaw.config_rules import NEVER
from palinurus.extensions.migrate.openclaw.documents import APPROVALS, OWN_DOCUMENTS
from palinurus.extensions.migrate.openclaw.transcripts import STORE_FILE
from palinurus.extensions.migrate.report import Losses, SkippedItem
from palinurus.extensions.schedule.cron_job import CronJob
from palinurus.sessions.transcript import timestamp
from palinurus.workspace.steps import OUTSIDE_NAME, leads_out

MANIFEST = "manifest.json"
MAX_MANIFEST = 256 * 1024 * 1024
FORMAT = "palinurus-export"
ENDING = ".pal"
HINT = "take the file from where it was made once more"
PIECE = 1024 * 1024
PAGE = 1000  # entries that are read at a time
LEVEL = 3  # of compression: more saves little and costs much time
LEFT_OUT = (".git",)
RUN_STATE = ("status", "startedAt", "endedAt", "runtimeMs", "abortedLastRun")  # of the last run there
_PLAIN = re.compile(r"exec-approvals\.json|credentials/[^/]*-(?:pairing|allowFrom)\.json")

OpenFile = Callable[[str], AbstractContextManager[BinaryIO]]
"""Creates a file of the export by its path."""

Tell = Callable[[int, int], None]
"""Called with how many bytes of transcripts were written, and of how many. Must not raise."""


class ExportPart(Struct, frozen=True):
    path: str
    size: int
    sha256: str


class ExportManifest(Struct, frozen=True, rename="camel"):
    format: str
    version: int
    created_at: int
    files: tuple[ExportPart, ...]


class ExportedAgent(Struct, frozen=True):
    id: str
    workspace: Path
    name: str = ""
    identity: AgentIdentity = AgentIdentity()  # as the config says
    is_default: bool = False
    heartbeat: str = NEVER  # how often
    model: Any = None  # its own: a name, or an object as in the config


class ExportedAccess(Struct, frozen=True):
    """Who may write to the agents and which models answer: parts of the config in OpenClaw's form, what had to be left
    out of it, and senders who were let in or wait."""

    config: dict[str, Any] = {}
    left_out: tuple[SkippedItem, ...] = ()
    pairings: tuple[Pairing, ...] | None = None  # None: as they were in the home that they came from


class ExportReport(Struct, frozen=True, rename="camel"):
    into: str
    agents: tuple[str, ...]
    sessions: int
    entries: int
    files: int  # of workspaces and skills
    bytes: int
    skipped: tuple[SkippedItem, ...]
    cron_jobs: int = 0


@contextmanager
def _folder_export(target: Path) -> Iterator[OpenFile]:
    """A folder that appears at `target` when the block has ended without an error. Raises BadRequest and OSError."""
    _check_free(target)
    folder = temporary_name(target)
    folder.mkdir(mode=0o700, parents=True)

    @contextmanager
    def create(path: str) -> Iterator[BinaryIO]:
        place = folder / path
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb", PIECE) as file:
            yield file

    try:
        yield create
        _check_free(target)
        if target.exists():
            target.rmdir()  # an empty folder that somebody made for it
        folder.rename(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _zip_export(target: Path, created_at: int) -> Iterator[OpenFile]:
    """The same as one file, with a manifest at its end."""
    if os.path.lexists(target):
        raise BadRequest(f"{target} already exists", hint="name another file, or move it away")
    target.parent.mkdir(parents=True, exist_ok=True)
    parts: list[ExportPart] = []
    with new_file(target) as raw:
        with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as packed:

            @contextmanager
            def create(path: str) -> Iterator[BinaryIO]:
                with packed.open(path, "w", force_zip64=True) as member:
                    file = _HashingWriter(member)  # type: ignore[arg-type]
                    yield file  # type: ignore[misc]
                parts.append(ExportPart(path, file.size, file.digest.hexdigest()))

            yield create
            made = ExportManifest(FORMAT, 1, created_at, tuple(parts))
            packed.writestr(MANIFEST, msgspec.json.format(msgspec.json.encode(made)))
        raw.flush()
        os.fsync(raw.fileno())


class _HashingWriter(io.RawIOBase):
    """Passes bytes on, and has their count and digest."""

    def __init__(self, file: BinaryIO) -> None:
        self._to = file
        self.size = 0
        self.digest = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.size += len(data)
        self.digest.update(data)
        return self._to.write(data)


def _check_free(target: Path) -> None:
    if target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
        raise BadRequest(f"{target} already exists", hint="name a folder that is not there yet")


class TreeWriter:
    """Writes one export into a folder, or into a file if its name ends in `.pal`."""

    def __init__(self, exporter: SessionExporter, into: Path, clock: Clock, tell: Tell = lambda *_: None) -> None:
        self._exporter = exporter
        self._into = into
        self._clock = clock
        self._tell = tell
        self._losses = Losses()
        self._done = self._total = self._entries = self._files = 0
        self._create: OpenFile

    async def write(
        self,
        agents: Sequence[ExportedAgent],
        skills: Path,
        jobs: Sequence[CronJob] = (),
        access: ExportedAccess = ExportedAccess(),  # noqa: B008  frozen
    ) -> ExportReport:
        """Raises BadRequest, OSError and StorageError; then nothing is left behind."""
        is_packed = self._into.suffix == ENDING
        export = _zip_export(self._into, self._clock.now_ms()) if is_packed else _folder_export(self._into)
        self._create = await asyncio.to_thread(export.__enter__)
        try:
            sessions = await self._exporter.sessions()
            self._total = sum(each.bytes for each in sessions)
            known = [*agents, *_removed_agents(sessions, agents)]
            self._put("openclaw.json", merged(_config(known), access.config))
            for agent in known:
                await self._agent(agent, [each for each in sessions if each.session.agent == agent.id])
            await asyncio.to_thread(self._folder, skills, "skills")
            documents = await self._exporter.documents()
            self._documents([each for each in documents if each.kind != "cron"], access)
            cron = await asyncio.to_thread(cron_files, jobs, documents, await self._exporter.imported_jobs())
            for path, text in cron.files.items():
                self._put_text(path, text)
        except BaseException as error:
            await asyncio.to_thread(export.__exit__, type(error), error, error.__traceback__)
            raise
        await asyncio.to_thread(export.__exit__, None, None, None)
        names = tuple(agent.id for agent in known)
        skipped = (*access.left_out, *self._losses.listed)
        counts = len(sessions), self._entries, self._files, self._done
        return ExportReport(str(self._into), names, *counts, skipped, cron.jobs)

    async def _agent(self, agent: ExportedAgent, sessions: Sequence[HomeSession]) -> None:
        folder = f"agents/{agent.id}/sessions"
        rows: dict[str, Any] = {}
        for each in sessions:
            name = _file_name(each)
            writer = TranscriptWriter(each, str(agent.workspace))
            with self._create(f"{folder}/{name}") as file:
                async for page in self._exporter.pages(each.session.id, PAGE):
                    lines = await asyncio.to_thread(writer.lines, page)
                    self._done += await asyncio.to_thread(file.write, lines)
                    self._tell(self._done, max(self._total, self._done))
                file.write(writer.colophon())
            self._entries += writer.count
            if each.session.archived_at is None:
                rows |= _store_rows(each, name)
        self._put(f"{folder}/{STORE_FILE}", rows)
        place = "workspace" if agent.is_default else f"workspace-{agent.id}"
        await asyncio.to_thread(self._folder, agent.workspace, place)

    def _folder(self, source: Path, place: str) -> None:
        for path, found in walk(source, place, self._losses):
            if path.split("/")[0] in LEFT_OUT:
                continue
            if leads_out(source, path, found):
                self._losses.add(f"{place}/{path}", 0, f"it {OUTSIDE_NAME}; it was left out")
                continue
            try:
                with open_plain(source / path) as file, self._create(f"{place}/{path}") as copy:
                    shutil.copyfileobj(file, copy, PIECE)
                self._files += 1
            except FileNotFoundError:
                self._losses.add(f"{place}/{path}", 0, "it went away")
            except PermissionError as error:
                self._losses.add(f"{place}/{path}", 0, f"it cannot be read: {error_text(error)}")

    def _documents(self, documents: Sequence[ForeignDocument], access: ExportedAccess) -> None:
        """Each as the file that it was, if it was one; and all of them in one file of ours. Senders as they are now."""
        if documents:
            self._put(OWN_DOCUMENTS, [msgspec.structs.asdict(document) for document in documents])
        files = {each.name: each.text for each in documents if _PLAIN.fullmatch(each.name)}
        for each in documents:
            if each.kind == "approvals" and "#" in each.name:  # a row in later versions, which import the file
                files.setdefault(APPROVALS, each.text)
        if access.pairings is not None:
            files |= pairing_files(access.pairings, documents, self._clock.now_ms())
        for name, text in files.items():
            self._put_text(name, text)

    def _put(self, path: str, value: Any) -> None:
        self._put_text(path, json.dumps(value, indent=2, ensure_ascii=False))

    def _put_text(self, path: str, text: str) -> None:
        with self._create(path) as file:
            file.write(text.encode())


def _file_name(home_session: HomeSession) -> str:
    """OpenClaw's name for it. An archived session is an archive there, of a reset or of a deleted session."""
    session = home_session.session
    if session.archived_at is None:
        return f"{session.id}.jsonl"
    what = "reset" if session.archive_mark == RESET_MARK else "deleted"
    return f"{session.id}.jsonl.{what}.{timestamp(session.archived_at).replace(':', '-')}"


def _store_rows(home_session: HomeSession, name: str) -> dict[str, Any]:
    """Its rows in sessions.json by their keys: all that another home had there, with what has changed since.

    The state of the last run there is left out: OpenClaw takes a transcript that is newer than the end of the last run
    for one that was left behind, and begins a new one.
    """
    session, extra = home_session.session, as_object(load_json(home_session.extra))
    known = {"sessionId": session.id, "updatedAt": session.updated_at, "sessionFile": name}
    fields: dict[str, Any] = {name: getattr(session, field) for name, field in NUMBERS.items()}
    fields |= {"label": session.label, "modelProvider": session.provider, "model": session.model}
    fields |= {"spawnedBy": session.spawned_by, "totalTokensFresh": session.context_tokens > 0}
    flushed = fields.pop("memoryFlushCompactionCount")
    known |= {name: value for name, value in fields.items() if value}
    known |= {"memoryFlushCompactionCount": flushed} if session.memory_flush_at else {}
    rows = {session.key: extra.get(THEIR_ROW), **as_object(extra.get(THEIR_ROWS))}
    chat = {"chatType": session.chat_type if session.chat_type in ("group", "channel") else "direct"}
    return {
        key: {name: value for name, value in (chat | as_object(row) | known).items() if name not in RUN_STATE}
        for key, row in rows.items()
    }


def _removed_agents(sessions: Sequence[HomeSession], agents: Sequence[ExportedAgent]) -> list[ExportedAgent]:
    """Agents that the config no longer has, but sessions do."""
    known = {agent.id for agent in agents}
    left = dict.fromkeys(each.session.agent for each in sessions if each.session.agent not in known)
    return [ExportedAgent(agent, Path("/nonexistent")) for agent in left]


def _config(agents: Sequence[ExportedAgent]) -> dict[str, Any]:
    """OpenClaw refuses a config with a field that it does not know: creature and vibe are in IDENTITY.md there. Its
    agents have a heartbeat unless the config says otherwise."""
    listed = []
    for agent in agents:
        fields = {name: getattr(agent.identity, name) for name in ("name", "theme", "emoji", "avatar")}
        identity = {name: value for name, value in fields.items() if value}
        name = agent.name if agent.name != agent.id else ""
        entry: dict[str, Any] = {"id": agent.id, "default": agent.is_default, "name": name, "identity": identity}
        entry["model"] = agent.model
        entry["heartbeat"] = {"every": agent.heartbeat} if agent.heartbeat != NEVER else {}
        listed.append({name: value for name, value in entry.items() if value})
    return {"agents": {"defaults": {"heartbeat": {"every": NEVER}}, "list": listed}}


def unpack(path: Path, into: Path) -> None:
    """Raises BadRequest for a file that `pal export` did not write, or that was changed."""
    try:
        with zipfile.ZipFile(path) as packed:
            manifest = _manifest(packed, path)
            named = {part.path for part in manifest.files} | {MANIFEST}
            if set(packed.namelist()) != named or len(packed.namelist()) != len(manifest.files) + 1:
                raise BadRequest(f"{path} holds other files than it says", hint=HINT)
            for part in manifest.files:
                _unpack_part(packed, part, path, into)
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError, zlib.error) as error:
        raise BadRequest(f"{path} is damaged: {error}", hint=HINT) from None


def _manifest(packed: zipfile.ZipFile, path: Path) -> ExportManifest:
    with suppress(KeyError, msgspec.DecodeError), packed.open(MANIFEST) as file:
        manifest = msgspec.json.decode(file.read(MAX_MANIFEST), type=ExportManifest)
        if manifest.format == FORMAT and manifest.version == 1:
            return manifest
    raise BadRequest(f"{path} was not written by pal export", hint="`pal export FILE.pal` writes such a file")


def _unpack_part(packed: zipfile.ZipFile, part: ExportPart, path: Path, into: Path) -> None:
    where = PurePosixPath(part.path)
    if where.is_absolute() or ".." in where.parts or "\\" in part.path or "\0" in part.path or not where.parts:
        raise BadRequest(f"{path} names a path outside of it: {part.path[:80]!r}")
    target = into.joinpath(*where.parts)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest, left = hashlib.sha256(), part.size
    with packed.open(part.path) as file, target.open("xb") as copy:
        while piece := file.read(PIECE):
            left -= len(piece)
            if left < 0:  # it is larger than its manifest says
                break
            digest.update(piece)
            copy.write(piece)
    if left or digest.hexdigest() != part.sha256:
        raise BadRequest(f"{path} is damaged: {part.path} is not what it was", hint=HINT)
