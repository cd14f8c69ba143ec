"""The sessions of one agent that are files: `sessions.json`, the JSONL beside it, and what was archived.

<id>.jsonl                      a session
<id>-topic-<thread>.jsonl       one of a forum's topics
<id>.jsonl.reset.<time>         what a reset put away; also .deleted., and either as .zst
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from palinurus.domain.errors import BadRequest
from palinurus.domain.keys import SessionKey
from palinurus.migrate.foreign import ForeignEntry, ForeignSession
from palinurus.migrate.importer import BETWEEN
from palinurus.migrate.openclaw.colophon import Colophon, Restorer, is_colophon, read_colophon
from palinurus.migrate.openclaw.entries import FLAT, read_entry
from palinurus.migrate.openclaw.files import listing
from palinurus.migrate.openclaw.lines import Line, file_lines
from palinurus.migrate.openclaw.store import SESSION_ID, StoredRow, agent_key, read_store
from palinurus.migrate.report import Losses, Origin
from palinurus.sessions.older import ANSWERS, CALLS_IN_A_ROW, call_named

Known = frozenset[str]
"""Ids of sessions that the agent's database tells, and names of files whose content it holds."""

_NAME = re.compile(
    r"(?P<id>.+?)(?P<topic>-topic-[^.]+)?\.jsonl(?:\.(?P<what>reset|deleted|migrated)\.[^/]+?)?(?:\.zst)?"
)
_NO_TRANSCRIPT = re.compile(r"\.trajectory\.jsonl|\.jsonl\.lock|\.checkpoint\.|\.tmp$")
OWN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+~-]{0,249}")
_COPY = re.compile(r"\.jsonl\.(?:corrupt-|bak)")


class SessionFolder:
    """Reads a folder of sessions. What it cannot read it tells the losses."""

    def __init__(self, folder: Path, shown: str, agent: str, losses: Losses) -> None:
        self._folder = folder
        self._shown = shown
        self._agent = agent
        self._losses = losses
        self._files = self._plain_files()
        self._taken: dict[str, str] = {}  # file -> the first key that stands for it

    def sessions(self, known: Known = frozenset()) -> Iterator[ForeignSession]:
        """Our own; then those of the store, in its order; then the transcripts that it does not name."""
        known |= yield from self._own(known)
        for row in read_store(self._folder, self._shown, self._agent, self._losses):
            if row.session_id not in known:
                yield self._stored(row)
        for name in sorted(self._files.keys() - self._taken.keys() - known):
            if session := self._unlisted(name, known):
                yield session

    def _own(self, known: Known) -> Generator[ForeignSession, None, set[str]]:
        found = set()
        for name in sorted(self._files):
            if ".jsonl" in name and name not in known and not name.endswith(".zst"):
                session = own_session(self._folder / name, f"{self._shown}/{name}", self._agent, self._losses)
                if session is not None:
                    found |= {session.session_id, name}
                    yield session
        return found

    def _plain_files(self) -> dict[str, os.DirEntry[str]]:
        found = {}
        for entry in listing(self._folder, self._shown, self._losses):
            if entry.is_symlink():
                self._losses.add(f"{self._shown}/{entry.name}", 0, "it is a link, which is not followed")
            elif entry.is_file(follow_symlinks=False):
                found[entry.name] = entry
        return found

    def _stored(self, row: StoredRow) -> ForeignSession:
        name = self._transcript_of(row)
        if name:
            return self._session(row, name, "live" if row.archived_at is None else "earlier")
        missing = f"{self._shown}/{row.session_id}.jsonl"
        self._losses.add(missing, 0, f"the transcript of {row.key} is not there")
        return ForeignSession(
            self._agent, row.key, row.session_id, "live", missing, _nothing, 0, row.details, row.label, row.updated_at
        )

    def _unlisted(self, name: str, known: Known) -> ForeignSession | None:
        match = _NAME.fullmatch(name)
        if match is None or _NO_TRANSCRIPT.search(name):
            return None
        if _COPY.search(name) or not SESSION_ID.fullmatch(match["id"]):
            self._losses.add(f"{self._shown}/{name}", 0, "it is a copy that OpenClaw made, or no session's name")
            return None
        if not match["what"] and match["id"] in known:
            self._losses.add(f"{self._shown}/{name}", 0, "the database of the agent tells this session")
            return None
        if match["what"] == "migrated" and match["id"] in known:
            return None
        key = agent_key(self._agent, f"explicit:{match['id']}{match['topic'] or ''}")
        archives: dict[str, Origin] = {"reset": "reset", "deleted": "deleted"}
        origin = archives.get(match["what"] or "", "unreferenced")
        return self._session(StoredRow(key, match["id"], ""), name, origin)

    def _session(self, row: StoredRow, name: str, origin: Origin) -> ForeignSession:
        first = self._taken.setdefault(name, row.key)
        shown = f"{self._shown}/{name}"
        return ForeignSession(
            agent=self._agent,
            key=row.key,
            session_id=row.session_id,
            origin=origin,
            file=shown,
            read=entries_of_file(self._folder / name, shown, self._losses),
            size=self._files[name].stat(follow_symlinks=False).st_size,
            details=row.details,
            label=row.label,
            updated_at=row.updated_at,
            same_as="" if first == row.key else first,
        )

    def _transcript_of(self, row: StoredRow) -> str:
        """The name of its file: as the row says, or as the program would have called it."""
        for name in (row.file, f"{row.session_id}.jsonl", f"{row.session_id}.jsonl.zst"):
            if name in self._files:
                return name
        topics = [name for name in sorted(self._files) if name.startswith(f"{row.session_id}-topic-")]
        return next((name for name in topics if name.endswith(".jsonl") and name not in self._taken), "")


def own_session(path: Path, shown: str, agent: str, losses: Losses) -> ForeignSession | None:
    """A transcript that we wrote out ourselves; None when it is none, or when another program has written on."""
    colophon = read_colophon(path)
    if colophon is None:
        return None
    try:
        key = agent_key(agent, colophon.key)
    except BadRequest:
        return None
    if SessionKey.parse(key).agent != agent or not OWN_ID.fullmatch(colophon.session.id):
        return None
    return ForeignSession(
        agent=agent,
        key=key,
        session_id=colophon.session.id,
        origin="live" if colophon.session.archived_at is None else "earlier",
        file=shown,
        read=lambda: _own_entries(path, shown, losses, colophon),
        size=path.stat().st_size,
        label=colophon.session.label,
        updated_at=colophon.session.updated_at,
        own=colophon.session,
        extra=colophon.extra,
    )


def _own_entries(path: Path, shown: str, losses: Losses, colophon: Colophon) -> Iterator[ForeignEntry]:
    """Its entries as they were stored; what does not agree with the colophon is told."""
    digest, count = hashlib.sha256(), 0
    for entry in entries_of(file_lines(path, shown, losses), shown, losses, Restorer(colophon)):
        digest.update(entry.row.payload.encode() + BETWEEN)
        count += 1
        yield entry
    if (count, digest.hexdigest()) != (colophon.entries, colophon.digest):
        losses.add(shown, 0, f"it was changed since it was written: {count} of {colophon.entries} entries are there")


def entries_of_file(path: Path, shown: str, losses: Losses) -> Callable[[], Iterator[ForeignEntry]]:
    return lambda: entries_of(file_lines(path, shown, losses), shown, losses)


def entries_of(
    lines: Iterable[Line], shown: str, losses: Losses, restorer: Restorer | None = None
) -> Iterator[ForeignEntry]:
    """A bad line costs that line and is told. A bare message follows the one before it."""
    before = None
    open_calls: list[tuple[str, str]] = []  # id and tool of bare calls that have no result yet
    for line, data in lines:
        number = restorer.number(line) if restorer is not None else line
        entry = read_entry(data, number)
        if not isinstance(entry, str) and entry.kind == "custom" and is_colophon(entry):
            continue
        odd = restorer.entry(entry, number) if restorer is not None else entry
        if odd is not entry and not isinstance(odd, str):
            before = odd.row.id
            yield odd
            continue
        if isinstance(entry, str):
            losses.add(shown, line, entry)
            continue
        if before is not None and entry.row.parent_id is None and entry.kind.startswith(FLAT):
            entry = replace(entry, row=replace(entry.row, parent_id=before))
        if entry.kind.startswith(FLAT):
            entry = _paired(entry, open_calls)
        before = entry.row.id
        yield entry


def _paired(entry: ForeignEntry, open_calls: list[tuple[str, str]]) -> ForeignEntry:
    """A bare result says which tool it is of, at most. So it answers the first call of that tool, or the first at all,
    that has no result yet; its id tells where that is not the line before it."""
    if entry.kind == f"{FLAT}tool":
        open_calls.append((entry.row.id, _tool(entry)))
        del open_calls[:-CALLS_IN_A_ROW]
    elif entry.kind not in (f"{FLAT}tool_result", f"{FLAT}toolResult"):
        open_calls.clear()
    elif open_calls:
        tool = _tool(entry)
        call = next((call for call in open_calls if call[1] == tool), open_calls[0])
        open_calls.remove(call)
        if call[0] != entry.row.parent_id and entry.row.id == f"line-{entry.number}" and not call_named(_data(entry)):
            return replace(entry, row=replace(entry.row, id=f"{entry.row.id}{ANSWERS}{call[0]}"))
    return entry


def _tool(entry: ForeignEntry) -> str:
    return str(_data(entry).get("name") or "tool")


def _data(entry: ForeignEntry) -> dict[str, Any]:
    try:
        value = json.loads(entry.row.payload)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {}


def _nothing() -> Iterator[ForeignEntry]:
    return iter(())
