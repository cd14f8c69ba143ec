"""The sources of a home: the files and sessions that a wiki is made of, and the role of each.

The home is one of ours, an OpenClaw one, or a bare workspace, and is only read. Nothing else is opened: no credentials,
no config, no instructions for the agent. Sessions that other people read are left out (promise 17), and so are those of
subagents and of scheduled jobs.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import tzinfo
from functools import partial
from pathlib import Path

from msgspec import Struct

from palinurus.config.agents import agent_ids, agent_settings
from palinurus.config.home import CONFIG_NAME, Home
from palinurus.config.load import load_config
from palinurus.config.secrets import secret_values, worth_redacting
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.domain.keys import SessionKey
from palinurus.extensions.migrate.files import find_openclaw, open_plain, read_whole, shown_path
from palinurus.extensions.migrate.foreign import ForeignAgent, ForeignEntry, ForeignHome, ForeignSession
from palinurus.extensions.migrate.ingest.facts import Cleaner, Role, SourceFact
from palinurus.extensions.migrate.ingest.notes import read_note, read_session
from palinurus.extensions.migrate.openclaw.database import ForeignDatabase, open_database
from palinurus.extensions.migrate.openclaw.entries import read_entry
from palinurus.extensions.migrate.openclaw.home import OpenClawHome
from palinurus.extensions.migrate.report import FoundFile, Origin
from palinurus.memory.terms import date_in_path

DATABASE = "home.sqlite"
MOST_BYTES = 2 * 1024 * 1024  # of a note
_DAILY = re.compile(r"^memory/(?:.*/)?[^/]*\.md$", re.IGNORECASE)
_NOTE = re.compile(r"^notes/(?:.*/)?[^/]*\.md$", re.IGNORECASE)
_NAMED: dict[str, Role] = {"memory.md": "memory", "user.md": "memory", "dreams.md": "dreams"}

# In the order of the transcript; the number of an entry is its line in an export.
_SESSIONS = """SELECT id, key, agent, archived_at, updated_at,
  (SELECT coalesce(sum(length(payload)), 0) FROM entries WHERE session_id = sessions.id)
FROM sessions ORDER BY agent, updated_at DESC, id"""
_ENTRIES = "SELECT CAST(payload AS BLOB) FROM entries WHERE session_id = ? ORDER BY position"


def open_source(folder: Path, env: Mapping[str, str], user_home: Path) -> ForeignHome:
    """Close it. Raises NotFound when there is no home, and ConfigError for one of ours whose config cannot be read."""
    if not folder.is_dir():
        raise NotFound(f"there is no folder {folder}", hint="name a home, such as ~/.palinurus or ~/.openclaw")
    if (folder / CONFIG_NAME).is_file() or (folder / DATABASE).is_file():
        return OurHome(folder, env, user_home)
    if (folder / "MEMORY.md").is_file() or (folder / "AGENTS.md").is_file():
        return ForeignHome(folder, [ForeignAgent("main", None, folder)])
    home = OpenClawHome(find_openclaw(env, user_home, folder), user_home)
    home.secrets = tuple(_stored_secrets(home))
    return home


class OurHome(ForeignHome):
    """A home of ours, read from a copy of its database when it is in use."""

    def __init__(self, root: Path, env: Mapping[str, str], user_home: Path) -> None:
        home = Home(root, root / CONFIG_NAME, user_home=user_home)
        loaded = load_config(home, env)
        workspaces = {agent: agent_settings(loaded.config, home, agent).workspace for agent in agent_ids(loaded.config)}
        super().__init__(root, [ForeignAgent(agent, None, workspace) for agent, workspace in workspaces.items()])
        self.secrets = loaded.secrets
        self._scratch = Path(tempfile.mkdtemp(prefix="pal-ingest-"))
        self._database = open_database(root / DATABASE, DATABASE, self._scratch, self.losses)

    def close(self) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)

    def sessions(self) -> Iterator[ForeignSession]:
        database = self._database
        if database is None or not database.has("entries", "payload"):
            return
        rows = list(database.read(_SESSIONS, "the table of sessions", needs=("sessions", "id", "key")))
        for id_, key, agent, archived, updated, size in rows:
            origin: Origin = "live" if archived is None else "earlier"
            read = partial(self._entries, database, id_, f"{DATABASE}#{id_}")
            yield ForeignSession(agent, key, id_, origin, f"{DATABASE}#{id_}", read, size, updated_at=updated)

    def _entries(self, database: ForeignDatabase, session_id: str, shown: str) -> Iterator[ForeignEntry]:
        rows = database.read(_ENTRIES, "the session", (session_id,), shown=shown)
        for number, (payload,) in enumerate(rows, start=1):
            entry = read_entry(payload, number)
            if isinstance(entry, str):
                self.losses.add(shown, number, entry)
            else:
                yield entry


def check_apart(folder: Path, wiki: Path) -> None:
    """A wiki may be inside a home, but not the other way round. Raises BadRequest."""
    if wiki.resolve() == folder.resolve() or folder.resolve().is_relative_to(wiki.resolve()):
        raise BadRequest(f"{wiki} holds the home itself", hint="name a folder of its own for the wiki")


def _stored_secrets(home: OpenClawHome) -> Iterator[str]:
    yield from secret_values(home.config.data)
    for keys in home.stored_keys():
        for profile in keys.profiles.values():
            for name, value in profile.items():
                if isinstance(value, str) and name not in ("type", "provider", "email", "profileId"):
                    yield from worth_redacting(value)


class WikiSource(Struct, frozen=True):
    """`read` returns its facts, or None when it cannot be used."""

    path: str  # relative to the home if it is inside
    agent: str
    role: Role
    size: int
    digest: Callable[[], str]
    read: Callable[[Cleaner], list[SourceFact] | None]


class WikiSources:
    """All sources of one home. `left_out` counts, by reason, what is left out on purpose."""

    def __init__(self, home: ForeignHome, wiki: Path, zone: tzinfo, agent: str = "") -> None:
        self._home = home
        self._wiki = wiki.resolve()
        self._zone = zone
        self._agent = agent
        self.left_out: Counter[str] = Counter()

    def all(self) -> Iterator[WikiSource]:
        yield from self._notes()
        for session in self._home.sessions():
            if session.same_as or self._agent not in ("", session.agent):
                continue
            if not _is_private(session.key):
                self.left_out["sessions that other people read, or of jobs and subagents"] += 1
            elif session.origin == "deleted":
                self.left_out["deleted sessions"] += 1
            else:
                yield self._session(session)

    def _notes(self) -> Iterator[WikiSource]:
        for file, place in self._home.workspace_files():
            role = role_of(file.path)
            is_wanted = self._agent in ("", file.agent) and not place.resolve().is_relative_to(self._wiki)
            if role is not None and is_wanted:
                yield self._note(file, place, shown_path(place, self._home.root), role)

    def _note(self, file: FoundFile, place: Path, shown: str, role: Role) -> WikiSource:
        losses = self._home.losses

        def digest() -> str:
            return hashlib.sha256(read_whole(place, shown, losses, MOST_BYTES) or b"").hexdigest()

        def read(cleaner: Cleaner) -> list[SourceFact] | None:
            data = read_whole(place, shown, losses, MOST_BYTES)
            text = cleaner.lines(data.decode("utf-8", "replace")) if data is not None else None
            if data is not None and text is None:
                losses.add(shown, 0, "a secret goes over several of its lines")
            return read_note(text, file.path) if text is not None else None

        return WikiSource(shown, file.agent, role, file.bytes, digest, read)

    def _session(self, session: ForeignSession) -> WikiSource:
        def digest() -> str:
            try:
                with open_plain(self._home.root / session.file) as file:
                    return hashlib.file_digest(file, "sha256").hexdigest()
            except OSError:  # it is not a file but rows of a database
                whole = hashlib.sha256()
                for entry in session.read():
                    whole.update(entry.row.payload.encode("utf-8", "replace") + b"\n")
                return whole.hexdigest()

        def read(cleaner: Cleaner) -> list[SourceFact]:
            messages = (entry for entry in session.read() if entry.role)
            return read_session(messages, self._zone, cleaner.text)

        return WikiSource(session.file, session.agent, "talk", session.size, digest, read)


def role_of(path: str) -> Role | None:
    """The role of a file of a workspace; None for files that are no notes."""
    if named := _NAMED.get(path.lower()):
        return named
    if "/." in f"/{path}":  # files of programs beside the notes
        return None
    if _DAILY.match(path):
        return "daily" if date_in_path(path) else "note"
    return "note" if _NOTE.match(path) else None


def _is_private(key: str) -> bool:
    with suppress(BadRequest):
        return SessionKey.parse(key).is_private
    return False
