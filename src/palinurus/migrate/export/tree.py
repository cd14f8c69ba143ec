"""A whole home as OpenClaw lays it out: config, sessions.json and JSONL of each agent, workspaces, skills.

What stays behind: credentials, models and channels of the config, indexes, logs, and the git history of workspaces.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.domain.clock import Clock
from palinurus.domain.identity import AgentIdentity
from palinurus.migrate.export.exporter import Kept, SessionExporter
from palinurus.migrate.export.sinks import PIECE, Sink
from palinurus.migrate.export.transcripts import write_transcript
from palinurus.migrate.foreign import ForeignDocument
from palinurus.migrate.openclaw.documents import OURS
from palinurus.migrate.openclaw.files import open_plain, walk, why
from palinurus.migrate.openclaw.store import FILE
from palinurus.migrate.report import Losses, Skipped
from palinurus.migrate.rows import RESET
from palinurus.sessions.transcript import timestamp
from palinurus.workspace.links import OUTSIDE_NAME, leads_out

LEFT = (".git",)
_PLAIN = {"cron/jobs.json", "exec-approvals.json"}

Tell = Callable[[int, int], None]
"""How many bytes of transcripts were written, and of how many. Must not raise."""


class ExportedAgent(Struct, frozen=True):
    id: str
    workspace: Path
    name: str = ""
    identity: AgentIdentity = AgentIdentity()  # as the config says
    is_default: bool = False


class Exported(Struct, frozen=True, rename="camel"):
    into: str
    agents: tuple[str, ...]
    sessions: int
    entries: int
    files: int  # of workspaces and skills
    bytes: int
    skipped: tuple[Skipped, ...]


class TreeWriter:
    def __init__(self, exporter: SessionExporter, sink: Sink, clock: Clock, tell: Tell = lambda *_: None) -> None:
        self._exporter = exporter
        self._sink = sink
        self._clock = clock
        self._tell = tell
        self._losses = Losses()
        self._done = self._total = self._entries = self._files = 0

    async def write(self, agents: Sequence[ExportedAgent], skills: Path, into: str) -> Exported:
        """Raises OSError and StorageError; then nothing is left behind."""
        try:
            sessions = await self._exporter.sessions()
            self._total = sum(kept.bytes for kept in sessions)
            known = [*agents, *_gone(sessions, agents)]
            self._put("openclaw.json", _config(known))
            for agent in known:
                await self._agent(agent, [kept for kept in sessions if kept.session.agent == agent.id])
            await asyncio.to_thread(self._folder, skills, "skills")
            self._documents(await self._exporter.documents())
            await asyncio.to_thread(self._sink.finish, self._clock.now_ms())
        except BaseException:
            await asyncio.to_thread(self._sink.abandon)
            raise
        names = tuple(agent.id for agent in known)
        skipped = tuple(self._losses.listed)
        return Exported(into, names, len(sessions), self._entries, self._files, self._done, skipped)

    async def _agent(self, agent: ExportedAgent, sessions: Sequence[Kept]) -> None:
        folder = f"agents/{agent.id}/sessions"
        rows: dict[str, Any] = {}
        for kept in sessions:
            name = file_name(kept)
            with self._sink.open(f"{folder}/{name}") as file:
                colophon = await write_transcript(self._exporter, kept, file, self._wrote, cwd=str(agent.workspace))
                self._entries += colophon.entries
            if kept.session.archived_at is None:
                rows[kept.session.key] = store_row(kept, name)
        self._put(f"{folder}/{FILE}", rows)
        place = "workspace" if agent.is_default else f"workspace-{agent.id}"
        await asyncio.to_thread(self._folder, agent.workspace, place)

    def _wrote(self, size: int) -> None:
        self._done += size
        self._tell(self._done, max(self._total, self._done))

    def _folder(self, source: Path, place: str) -> None:
        for path, found in walk(source, place, self._losses):
            if path.split("/")[0] in LEFT:
                continue
            if leads_out(source, path, found):
                self._losses.add(f"{place}/{path}", 0, f"it {OUTSIDE_NAME}; it was left out")
                continue
            try:
                with open_plain(source / path) as file, self._sink.open(f"{place}/{path}") as copy:
                    shutil.copyfileobj(file, copy, PIECE)
                self._files += 1
            except FileNotFoundError:
                self._losses.add(f"{place}/{path}", 0, "it went away")
            except PermissionError as error:
                self._losses.add(f"{place}/{path}", 0, f"it cannot be read: {why(error)}")

    def _documents(self, documents: Sequence[ForeignDocument]) -> None:
        """As the files that they were, as far as they were files; and all of them in one of ours."""
        if documents:
            self._put(OURS, [msgspec.structs.asdict(document) for document in documents])
        for document in {document.name: document for document in documents}.values():
            if document.name in _PLAIN or _is_pairing(document.name):
                with self._sink.open(document.name) as file:
                    file.write(document.text.encode())

    def _put(self, path: str, value: Any) -> None:
        with self._sink.open(path) as file:
            file.write(json.dumps(value, indent=2, ensure_ascii=False).encode())


def file_name(kept: Kept) -> str:
    """As OpenClaw calls it. What has ended is an archive there, of a reset or of a session that was deleted."""
    session = kept.session
    if session.archived_at is None:
        return f"{session.id}.jsonl"
    what = "reset" if session.archive_mark == RESET else "deleted"
    return f"{session.id}.jsonl.{what}.{timestamp(session.archived_at).replace(':', '-')}"


def store_row(kept: Kept, name: str) -> dict[str, Any]:
    """What stands under its key in sessions.json: all that another home had there, with what has changed since."""
    session = kept.session
    try:
        known = json.loads(kept.extra)["openclaw"] if kept.extra else {}
    except (ValueError, KeyError, TypeError):
        known = {}
    row: dict[str, Any] = dict(known) if isinstance(known, dict) else {}
    row |= {"sessionId": session.id, "updatedAt": session.updated_at, "sessionFile": name}
    row.setdefault("chatType", session.chat_type if session.chat_type in ("group", "channel") else "direct")
    told: dict[str, Any] = {
        "sessionStartedAt": session.started_at,
        "lastInteractionAt": session.last_interaction_at,
        "label": session.label,
        "modelProvider": session.provider,
        "model": session.model,
        "inputTokens": session.input_tokens,
        "outputTokens": session.output_tokens,
        "totalTokens": session.total_tokens,
        "contextTokens": session.context_tokens,
        "compactionCount": session.compaction_count,
        "memoryFlushAt": session.memory_flush_at,
    }
    if session.memory_flush_at:
        row["memoryFlushCompactionCount"] = session.memory_flush_compaction_count
    return row | {name: value for name, value in told.items() if value}


def _gone(sessions: Sequence[Kept], agents: Sequence[ExportedAgent]) -> list[ExportedAgent]:
    """Agents that have only left conversations."""
    known = {agent.id for agent in agents}
    left = dict.fromkeys(kept.session.agent for kept in sessions if kept.session.agent not in known)
    return [ExportedAgent(agent, Path("/nonexistent")) for agent in left]


def _config(agents: Sequence[ExportedAgent]) -> dict[str, Any]:
    listed = []
    for agent in agents:
        entry: dict[str, Any] = {"id": agent.id}
        entry |= {"default": True} if agent.is_default else {}
        entry |= {"name": agent.name} if agent.name and agent.name != agent.id else {}
        entry |= {"identity": said} if (said := _identity(agent.identity)) else {}
        listed.append(entry)
    return {"agents": {"list": listed}}  # OpenClaw refuses a config with a field that it does not know


def _identity(said: AgentIdentity) -> dict[str, str]:
    """What OpenClaw's config has a field for: creature and vibe stand in IDENTITY.md there."""
    known = {"name": said.name, "theme": said.theme, "emoji": said.emoji, "avatar": said.avatar}
    return {field: value for field, value in known.items() if value}


def _is_pairing(name: str) -> bool:
    folder, _, file = name.partition("/")
    return folder == "credentials" and "/" not in file and file.endswith(("-pairing.json", "-allowFrom.json"))
