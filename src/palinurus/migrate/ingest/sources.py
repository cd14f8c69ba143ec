"""The sources of a home: which of its files and conversations a wiki is made of, and what each is good for.

Nothing else is opened: no credentials, no config, no instructions for the agent. Conversations to which others listened
are left out (promise 17), and so are those of subagents and of the clock.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import tzinfo
from pathlib import Path

from msgspec import Struct

from palinurus.domain.errors import BadRequest
from palinurus.domain.keys import SessionKey
from palinurus.memory.dates import date_in_path
from palinurus.migrate.foreign import ForeignEntry, ForeignSession
from palinurus.migrate.ingest.cleaning import Cleaner
from palinurus.migrate.ingest.fact import Found, Role
from palinurus.migrate.ingest.homes import Source
from palinurus.migrate.ingest.notes import read_note
from palinurus.migrate.ingest.talks import read_talk
from palinurus.migrate.openclaw.files import BUFFER, open_plain, read_whole

MOST_BYTES = 2 * 1024 * 1024  # of a note
_DAILY = re.compile(r"^memory/(?:.*/)?[^/]*\.md$", re.IGNORECASE)
_NOTE = re.compile(r"^notes/(?:.*/)?[^/]*\.md$", re.IGNORECASE)
_NAMED: dict[str, Role] = {"memory.md": "memory", "user.md": "memory", "dreams.md": "dreams"}


class Readable(Struct, frozen=True):
    """`digest` reads it once; `read` gives what it says, and None when it cannot be used."""

    path: str  # relative to the home where it lies inside
    agent: str
    role: Role
    size: int
    digest: Callable[[], str]
    read: Callable[[Cleaner], list[Found] | None]


class Sources:
    """Those of one home. `left_out` counts, by reason, what is passed over on purpose."""

    def __init__(self, home: Source, wiki: Path, zone: tzinfo, agent: str = "") -> None:
        self._home = home
        self._wiki = wiki.resolve()
        self._zone = zone
        self._agent = agent
        self.left_out: Counter[str] = Counter()

    def all(self) -> Iterator[Readable]:
        yield from self._notes()
        for session in self._home.sessions():
            if self._agent and session.agent != self._agent:
                continue
            if session.same_as:
                continue
            if not _is_private(session.key):
                self.left_out["conversations that others listened to, or nobody"] += 1
            elif session.origin == "deleted":
                self.left_out["conversations that were deleted"] += 1
            else:
                yield self._talk(session)

    def _notes(self) -> Iterator[Readable]:
        root = self._home.root
        for file, place in self._home.workspace_files():
            role = role_of(file.path)
            if role is None or (self._agent and file.agent != self._agent):
                continue
            if place.resolve().is_relative_to(self._wiki):
                continue
            shown = str(place.relative_to(root)) if place.is_relative_to(root) else str(place)
            yield self._note(shown, file.agent, file.path, role, file.bytes, place)

    def _note(self, shown: str, agent: str, path: str, role: Role, size: int, place: Path) -> Readable:
        losses = self._home.losses

        def digest() -> str:
            return hashlib.sha256(read_whole(place, shown, losses, MOST_BYTES) or b"").hexdigest()

        def read(cleaner: Cleaner) -> list[Found] | None:
            data = read_whole(place, shown, losses, MOST_BYTES)
            if data is None:
                return None
            text = cleaner.lines(data.decode("utf-8", "replace"))
            if text is None:
                losses.add(shown, 0, "a secret goes over several of its lines")
                return None
            return read_note(text, path)

        return Readable(shown, agent, role, size, digest, read)

    def _talk(self, session: ForeignSession) -> Readable:
        def digest() -> str:
            if whole_file := _file_digest(self._home.root / session.file):
                return whole_file
            whole = hashlib.sha256()
            for entry in session.read():
                whole.update(entry.row.payload.encode("utf-8", "replace"))
                whole.update(b"\n")
            return whole.hexdigest()

        def read(cleaner: Cleaner) -> list[Found]:
            return read_talk(_spoken(session), self._zone, cleaner.text)

        return Readable(session.file, session.agent, "talk", session.size, digest, read)


def role_of(path: str) -> Role | None:
    """What a file of a workspace is good for; None for those that are no notes."""
    if named := _NAMED.get(path.lower()):
        return named
    if "/." in f"/{path}":  # what programs keep beside the notes
        return None
    if _DAILY.match(path):
        return "daily" if date_in_path(path) else "note"
    return "note" if _NOTE.match(path) else None


def _file_digest(path: Path) -> str:
    """Of a conversation that is a file; empty for one that is rows of a database."""
    try:
        with open_plain(path) as file:
            whole = hashlib.sha256()
            while data := file.read(BUFFER):
                whole.update(data)
            return whole.hexdigest()
    except OSError:
        return ""


def _spoken(session: ForeignSession) -> Iterator[ForeignEntry]:
    return (entry for entry in session.read() if entry.role)


def _is_private(key: str) -> bool:
    try:
        return SessionKey.parse(key).is_private
    except BadRequest:
        return False
