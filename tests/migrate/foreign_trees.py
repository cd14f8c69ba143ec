"""Small OpenClaw homes, made on the spot."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import zstandard

from palinurus.extensions.migrate.foreign import ForeignSession
from palinurus.extensions.migrate.importer import Tally
from palinurus.extensions.migrate.openclaw.home import OpenClawHome
from palinurus.extensions.migrate.openclaw.transcripts import file_reader
from palinurus.extensions.migrate.report import FoundSession, Losses, SecretFindings, SkippedItem

T = "2026-11-15T09:00:00.000Z"

AGENT_SCHEMA = """
CREATE TABLE session_nodes (session_key TEXT PRIMARY KEY, current_session_id TEXT, entry_json TEXT);
CREATE TABLE session_windows (session_id TEXT PRIMARY KEY, session_key TEXT);
CREATE TABLE transcript_events (session_id TEXT, seq INTEGER, event_json TEXT, event_zstd BLOB,
  event_utf8_bytes INTEGER, PRIMARY KEY (session_id, seq));
CREATE TABLE transcript_event_identities (session_id TEXT, event_id TEXT, seq INTEGER);
CREATE TABLE session_transcript_archives (session_id TEXT, session_key TEXT, reason TEXT, encoding TEXT,
  archive_blob BLOB, archive_name TEXT);
CREATE TABLE session_transcript_cold_archives (session_id TEXT, archive_name TEXT, archive_blob BLOB);
"""


def header(session_id: str, version: int = 3) -> dict[str, Any]:
    return {"type": "session", "version": version, "id": session_id, "timestamp": T, "cwd": "/home/sam"}


def said(entry_id: str, text: str, parent: str | None = None, role: str = "user") -> dict[str, Any]:
    content: Any = text if role == "user" else [{"type": "text", "text": text}]
    message = {"role": role, "content": content}
    return {"type": "message", "id": entry_id, "parentId": parent, "timestamp": T, "message": message}


def talk(session_id: str, *texts: str) -> list[dict[str, Any]]:
    """A header and messages, by turns of user and assistant."""
    lines, parent = [header(session_id)], None
    for number, text in enumerate(texts):
        role = ("user", "assistant")[number % 2]
        lines.append(said(f"e{number}", text, parent, role))
        parent = f"e{number}"
    return lines


def jsonl(lines: Sequence[Any]) -> bytes:
    return b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)


class Tree:
    """A home under a folder, written part by part."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True)
        self.write("openclaw.json", '{"agents": {"list": [{"id": "main", "default": true}]}}')

    def write(self, name: str, content: bytes | str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def session(self, session_id: str, lines: Sequence[Any], *, key: str = "", agent: str = "main") -> Path:
        """A transcript; with a key also its row in the store."""
        folder = f"agents/{agent}/sessions"
        if key:
            store = self.root / folder / "sessions.json"
            rows = json.loads(store.read_text()) if store.exists() else {}
            rows[key] = {"sessionId": session_id, "updatedAt": 1_794_772_000_000, "unheardOf": {"x": [1]}}
            self.write(f"{folder}/sessions.json", json.dumps(rows))
        return self.write(f"{folder}/{session_id}.jsonl", jsonl(lines))

    def state_database(self) -> apsw.Connection:
        (self.root / "state").mkdir()
        return apsw.Connection(str(self.root / "state" / "openclaw.sqlite"))

    def database(self, agent: str = "main") -> apsw.Connection:
        path = self.root / "agents" / agent / "agent" / "openclaw-agent.sqlite"
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = apsw.Connection(str(path))
        connection.execute(AGENT_SCHEMA)
        return connection


def add_rows(connection: apsw.Connection, key: str, session_id: str, lines: Sequence[Any], packed: int = -1) -> None:
    """A session as rows; the one at `packed` is compressed."""
    connection.execute(
        "INSERT OR REPLACE INTO session_nodes VALUES (?, ?, ?)",
        (key, session_id, json.dumps({"sessionId": session_id})),
    )
    connection.execute("INSERT OR REPLACE INTO session_windows VALUES (?, ?)", (session_id, key))
    for seq, line in enumerate(lines):
        text = line if isinstance(line, str) else json.dumps(line)
        blob = zstandard.compress(text.encode(), 1) if seq == packed else None
        row = (session_id, seq, None if blob else text, blob, len(text.encode()))
        connection.execute("INSERT INTO transcript_events VALUES (?, ?, ?, ?, ?)", row)
        named = (session_id, text.partition('"id":')[2].strip().partition(",")[0].strip('"'), seq)
        connection.execute("INSERT INTO transcript_event_identities VALUES (?, ?, ?)", named)


def look(root: Path) -> tuple[list[FoundSession], list[SkippedItem]]:
    """Everything that is read of a home, and what was skipped."""
    with OpenClawHome(root, root.parent) as home:
        found = [count(session) for session in home.sessions()]
        return found, home.losses.listed


def count(session: ForeignSession) -> FoundSession:
    tally = Tally(session, SecretFindings())
    for entry in session.read():
        tally.add([entry])
    return tally.found()


def count_secrets(folder: Path, texts: list[str]) -> list[int]:
    """The lines of a transcript with these messages, behind its header, that look like they hold a secret."""
    lines: list[dict[str, Any]] = [{"type": "session", "version": 3, "id": "s"}]
    for number, text in enumerate(texts):
        lines.append({"type": "message", "id": f"e{number}", "message": {"role": "user", "content": text}})
    path = folder / "s.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    findings = SecretFindings()
    read = file_reader(path, "s.jsonl", Losses())
    session = ForeignSession("main", "agent:main:main", "s", "live", "s.jsonl", read)
    Tally(session, findings).add(list(session.read()))
    return [each.line for each in findings.listed]


def only(root: Path) -> FoundSession:
    (found,), _ = look(root)
    return found
