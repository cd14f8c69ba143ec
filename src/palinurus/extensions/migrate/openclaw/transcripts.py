"""The sessions of one agent that are files: `sessions.json`, the JSONL beside it, and archives.

<id>.jsonl                      a session
<id>-topic-<thread>.jsonl       a topic of a forum
<id>.jsonl.reset.<time>         archived by a reset; also .deleted., and either as .zst

`sessions.json` is an object of rows by key, or a list of rows. Each row is stored unchanged beside the few fields that
we read. A single transcript outside a home can be read as well.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePath
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from palinurus.domain.errors import BadRequest
from palinurus.domain.keys import SessionKey
from palinurus.extensions.migrate.files import Line, file_lines, listing, read_whole
from palinurus.extensions.migrate.foreign import (
    FLAT,
    ForeignEntry,
    ForeignSession,
    as_object,
    as_stamp,
    load_json,
    replace_surrogates,
    time_ms,
)
from palinurus.extensions.migrate.import_store import SEPARATOR
from palinurus.extensions.migrate.openclaw.colophon import Colophon, Restorer, find_colophon, is_colophon
from palinurus.extensions.migrate.openclaw.entries import read_entry
from palinurus.extensions.migrate.report import Losses, Origin
from palinurus.sessions.older import ANSWERS, CALLS_IN_A_ROW, call_named

STORE_FILE = "sessions.json"
MAX_STORE_BYTES = 128 * 1024 * 1024
SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+~-]{0,199}")
OWN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+~-]{0,249}")
_NAME = re.compile(
    r"(?P<id>.+?)(?P<topic>-topic-[^.]+)?\.jsonl(?:\.(?P<what>reset|deleted|migrated)\.[^/]+?)?(?:\.zst)?"
)
_NO_TRANSCRIPT = re.compile(r"\.trajectory\.jsonl|\.jsonl\.lock|\.checkpoint\.|\.tmp$")
_COPY = re.compile(r"\.jsonl\.(?:corrupt-|bak)")

T = TypeVar("T")
Reader = Callable[[], Iterator[ForeignEntry]]
Known = frozenset[str]
"""Ids of sessions that are in the agent's database, and names of files whose content is."""

ChooseKey = Callable[[str], SessionKey]
"""The key for a session, given the key it had or a short one. Raises BadRequest."""


def read_store(folder: Path, shown: str, agent: str, losses: Losses) -> list[ForeignSession]:
    """The usable rows, in order."""
    name = f"{shown}/{STORE_FILE}"
    data = read_whole(folder / STORE_FILE, name, losses, MAX_STORE_BYTES)
    if data is None:
        return []
    pairs = _store_rows(data)
    if isinstance(pairs, str):
        losses.add(name, 0, f"{pairs}; its transcripts are taken without it")
        return []
    rows = (read_row(agent, key, details, name, losses) for key, details in pairs)
    return [row for row in rows if row is not None]


def _store_rows(data: bytes) -> list[tuple[str, str]] | str:
    """Key and text of each row, or what is wrong. A row of a list has no key."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        rows = msgspec.json.decode(data, type=dict[str, msgspec.Raw] | list[msgspec.Raw])
        return [(key, bytes(row).decode()) for key, row in _with_keys(rows)]
    try:
        value = json.loads(data)  # which accepts halves of surrogate pairs
    except (ValueError, RecursionError) as error:
        return f"it is not JSON: {str(error)[:120]}"
    if not isinstance(value, dict | list):
        return "it is neither an object nor a list"
    return [(replace_surrogates(key), json.dumps(row)) for key, row in _with_keys(value)]


def _with_keys(rows: dict[str, T] | list[T]) -> Iterable[tuple[str, T]]:
    return rows.items() if isinstance(rows, dict) else (("", row) for row in rows)


def read_row(agent: str, key: str, details: str, where: str, losses: Losses) -> ForeignSession | None:
    """The session of one row under its key, which may be empty. Its `file` is the name of its transcript, if the row
    has one; it cannot be read yet."""
    value = load_json(details)
    if not isinstance(value, dict):
        losses.add(where, 0, f"the row {key[:80]!r} is no object")
        return None
    session_id = value.get("sessionId") or value.get("id")
    if not isinstance(session_id, str) or not SESSION_ID.fullmatch(session_id):
        losses.add(where, 0, f"the row {key[:80]!r} names no session")
        return None
    try:
        full_key = agent_key(agent, key or f"explicit:{session_id}")
    except BadRequest as error:
        losses.add(where, 0, f"{error.message}; its transcript is taken without it")
        return None
    labels = (value.get(name) for name in ("label", "name", "displayName", "subject", "groupChannel"))
    file = value.get("sessionFile")
    return ForeignSession(
        agent,
        full_key,
        session_id,
        "earlier" if time_ms(as_stamp(value.get("archivedAt"))) else "live",
        # Only the name: the folder that the home was in then says nothing about where it is now.
        PurePath(file.replace("\\", "/")).name if isinstance(file, str) and "\0" not in file else "",
        details=details,
        label=next((replace_surrogates(text)[:500] for text in labels if isinstance(text, str) and text.strip()), ""),
        updated_at=time_ms(as_stamp(value.get("updatedAt", value.get("updated_at")))) or 0,
    )


def agent_key(agent: str, key: str) -> str:
    """A key as we write it; one without `agent:` belongs to the agent whose store it is in. Raises BadRequest."""
    return str(SessionKey.parse(key if key.lower().startswith("agent:") else f"agent:{agent}:{key}"))


class SessionFolder:
    """Reads a folder of sessions. What it cannot read is a loss."""

    def __init__(self, folder: Path, shown: str, agent: str, losses: Losses) -> None:
        self._folder = folder
        self._shown = shown
        self._agent = agent
        self._losses = losses
        self._files = self._plain_files()
        self._taken: dict[str, str] = {}  # file -> the first key with this transcript

    def sessions(self, known: Known = frozenset()) -> Iterator[ForeignSession]:
        """Those that a Palinurus exported, then those of the store, then transcripts that the store does not name."""
        for name in sorted(self._files.keys() - known):
            if ".jsonl" not in name or name.endswith(".zst") or _NO_TRANSCRIPT.search(name):
                continue
            if session := own_session(self._folder / name, f"{self._shown}/{name}", self._agent, self._losses):
                known |= {session.session_id, name}
                yield session
        for row in read_store(self._folder, self._shown, self._agent, self._losses):
            if row.session_id not in known:
                yield self._stored(row)
        for name in sorted(self._files.keys() - self._taken.keys() - known):
            if unlisted := self._unlisted(name, known):
                yield unlisted

    def _plain_files(self) -> dict[str, os.DirEntry[str]]:
        found = {}
        for entry in listing(self._folder, self._shown, self._losses):
            if entry.is_symlink():
                self._losses.add(f"{self._shown}/{entry.name}", 0, "it is a link, which is not followed")
            elif entry.is_file(follow_symlinks=False):
                found[entry.name] = entry
        return found

    def _stored(self, row: ForeignSession) -> ForeignSession:
        if name := self._transcript_of(row):
            return self._session(row, name)
        missing = f"{self._shown}/{row.session_id}.jsonl"
        self._losses.add(missing, 0, f"the transcript of {row.key} is not there")
        return replace(row, origin="live", file=missing)

    def _unlisted(self, name: str, known: Known) -> ForeignSession | None:
        match = _NAME.fullmatch(name)
        if match is None or _NO_TRANSCRIPT.search(name):
            return None
        is_known = match["id"] in known
        if is_known and match["what"] == "migrated":
            return None
        why = "this session is in the agent's database" if is_known and not match["what"] else ""
        if _COPY.search(name) or not SESSION_ID.fullmatch(match["id"]):
            why = "it is a copy that OpenClaw made, or no session's name"
        if why:
            self._losses.add(f"{self._shown}/{name}", 0, why)
            return None
        key = agent_key(self._agent, f"explicit:{match['id']}{match['topic'] or ''}")
        archives: dict[str | None, Origin] = {"reset": "reset", "deleted": "deleted"}
        origin = archives.get(match["what"], "unreferenced")
        return self._session(ForeignSession(self._agent, key, match["id"], origin), name)

    def _session(self, row: ForeignSession, name: str) -> ForeignSession:
        first = self._taken.setdefault(name, row.key)
        shown = f"{self._shown}/{name}"
        read = file_reader(self._folder / name, shown, self._losses)
        size = self._files[name].stat(follow_symlinks=False).st_size
        return replace(row, file=shown, read=read, size=size, same_as="" if first == row.key else first)

    def _transcript_of(self, row: ForeignSession) -> str:
        """The name of its file: from the row, or as OpenClaw would have named it."""
        for name in (row.file, f"{row.session_id}.jsonl", f"{row.session_id}.jsonl.zst"):
            if name in self._files:
                return name
        topics = [name for name in sorted(self._files) if name.startswith(f"{row.session_id}-topic-")]
        return next((name for name in topics if name.endswith(".jsonl") and name not in self._taken), "")


def own_session(path: Path, shown: str, agent: str, losses: Losses) -> ForeignSession | None:
    """A transcript that a Palinurus exported, and which another program may have continued; None when it is none."""
    colophon = find_colophon(path)
    made = own_row(colophon, agent) if colophon is not None else None
    if made is None or colophon is None:
        return None
    lines = partial(file_lines, path, shown, losses)
    read = partial(own_entries, lines, shown, losses, colophon)
    return replace(made, file=shown, read=read, size=path.stat().st_size)


def own_row(colophon: Colophon, agent: str) -> ForeignSession | None:
    """What a colophon says of its session, which cannot be read yet; None when it cannot be one of the agent."""
    own, key = colophon.session, ""
    with suppress(BadRequest):
        key = agent_key(agent, colophon.key)
    if not key or SessionKey.parse(key).agent != agent or not OWN_ID.fullmatch(own.id):
        return None
    origin: Origin = "live" if own.archived_at is None else "earlier"
    made = ForeignSession(agent, key, own.id, origin, own=own, extra=colophon.extra)
    return replace(made, label=own.label, updated_at=own.updated_at)


def own_entries(
    lines: Callable[[], Iterator[Line]], shown: str, losses: Losses, colophon: Colophon
) -> Iterator[ForeignEntry]:
    """Its entries as they were stored, then those that were added. A difference to the colophon is a loss."""
    digest, count = hashlib.sha256(), 0
    for entry in entries_of(lines(), shown, losses, Restorer(colophon)):
        if count < colophon.entries:
            digest.update(entry.row.payload.encode() + SEPARATOR)
            count += 1
        yield entry
    if (count, digest.hexdigest()) != (colophon.entries, colophon.digest):
        losses.add(shown, 0, f"it was changed since it was written: {count} of {colophon.entries} entries are there")


def file_reader(path: Path, shown: str, losses: Losses) -> Reader:
    return lambda: entries_of(file_lines(path, shown, losses), shown, losses)


def entries_of(
    lines: Iterable[Line], shown: str, losses: Losses, restorer: Restorer | None = None
) -> Iterator[ForeignEntry]:
    """A bad line is a loss of that line only. A bare message is linked to the line before it."""
    before = behind = None
    colophon = ""  # the id of one, and in `behind` that of the entry before it
    open_calls: list[tuple[str, str]] = []  # id and tool of bare calls that have no result yet
    for line, data in lines:
        number = restorer.number(line) if restorer is not None else line
        read = read_entry(data, number)
        if not isinstance(read, str) and is_colophon(read):
            colophon, behind = read.row.id, before
            continue
        entry = restorer.entry(read, number) if restorer is not None else read
        if isinstance(entry, str):
            losses.add(shown, line, entry)
            continue
        if entry is read and entry.is_flat:
            if before is not None and entry.row.parent_id is None:
                entry = replace(entry, row=replace(entry.row, parent_id=before))
            entry = _match_call(entry, open_calls)
        if colophon and entry.row.parent_id == colophon:
            entry = replace(entry, row=replace(entry.row, parent_id=behind))
        before = entry.row.id
        yield entry


def _match_call(entry: ForeignEntry, open_calls: list[tuple[str, str]]) -> ForeignEntry:
    """A bare result names its tool at most. So it answers the first open call of that tool, or else the first open
    call. Its id says which one, unless that is the line before it."""
    if entry.kind == f"{FLAT}tool":
        open_calls.append((entry.row.id, _tool(entry)))
        del open_calls[:-CALLS_IN_A_ROW]
    elif entry.kind not in (f"{FLAT}tool_result", f"{FLAT}toolResult"):
        open_calls.clear()
    elif open_calls:
        tool = _tool(entry)
        call = next((call for call in open_calls if call[1] == tool), open_calls[0])
        open_calls.remove(call)
        data = as_object(load_json(entry.row.payload))
        if call[0] != entry.row.parent_id and entry.row.id == f"line-{entry.number}" and not call_named(data):
            return replace(entry, row=replace(entry.row, id=f"{entry.row.id}{ANSWERS}{call[0]}"))
    return entry


def _tool(entry: ForeignEntry) -> str:
    return str(as_object(load_json(entry.row.payload)).get("name") or "tool")


def single_session(path: Path, losses: Losses, choose_key: ChooseKey) -> ForeignSession:
    """Raises BadRequest for a file without a session."""
    colophon = find_colophon(path)
    if colophon is not None:
        key = choose_key(colophon.key)
        session = own_session(path, path.name, SessionKey.parse(colophon.key).agent, losses)
        if session is not None:
            return replace(session, key=str(key), agent=key.agent)
    read = file_reader(path, path.name, losses)
    first = next(read(), None)
    losses.clear()  # it will be read again
    if first is None:
        raise BadRequest(f"no line of {path} is an entry of a session", hint="`pal sessions export` writes one")
    named = first.row.id if first.kind == "session" else path.name.partition(".jsonl")[0]
    session_id = named if SESSION_ID.fullmatch(named) else "imported"
    key = choose_key(f"explicit:{session_id}")
    return ForeignSession(key.agent, str(key), session_id, "live", path.name, read, path.stat().st_size)
