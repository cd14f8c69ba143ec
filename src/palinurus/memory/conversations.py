"""Documents that are not files: past sessions, and notes that are not in their file yet.

Only private sessions are included (promise 17), and of those only messages: no tool results, no context notes, no
scheduled prompts. A search includes everything up to the last message. Background indexing waits until a session has
grown by 50 messages or 100 kB, so that a long session is not indexed again after each message.

Notes are stored in the database first and written into `memory/<day>.md` afterwards. Until then they are found here.
Only notes of private sessions are written to a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, tzinfo
from hashlib import sha256

from palinurus.domain.clock import Clock
from palinurus.domain.errors import BadRequest
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import OUTSIDE_MARK, AssistantMessage, Message, Origin, UserMessage, texts_in
from palinurus.memory.document import MEMORY, SESSIONS, DocumentRef, MemoryDocument, Stamp
from palinurus.memory.settings import Sync
from palinurus.sessions.extraction import Extraction
from palinurus.sessions.reader import Reader
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import (
    BranchSummaryEntry,
    Broken,
    CompactionEntry,
    CustomMessageEntry,
    Entry,
    MessageEntry,
    ResetEntry,
)

MANY = 100_000  # sessions that are indexed
MANY_NOTES = 1_000
DAY_MS = 86_400_000
_NOTES = f"{SESSIONS}/notes-"  # prefix of their paths
_SILENT = frozenset({"NO_REPLY", "HEARTBEAT_OK"})


class StoredDocuments:
    """The documents of one agent. Their paths begin with `sessions/`."""

    def __init__(
        self, sessions: SessionStore, agent: str, clock: Clock, sync: Sync, *, conversations: bool = True
    ) -> None:
        """`conversations`: False if only pending notes are searched, not sessions."""
        self._sessions = sessions
        self._reader = Reader(sessions)
        self._agent = agent
        self._clock = clock
        self._sync = sync
        self._with_conversations = conversations
        self._lengths: dict[str, int] = {}  # path: length of the text when it was last indexed
        self._stamps: dict[str, Stamp] = {}  # from the last scan

    async def stamps(self) -> dict[str, Stamp]:
        """Stamps as of a folder scan: the stamp of a growing session changes."""
        found = {f"{_NOTES}{each.id}.md": (len(each.notes), each.at * 1_000_000, 1, 0) for each in await self._notes()}
        if self._with_conversations:
            days = self._sync.session_days
            oldest = 0 if days is None else self._clock.now_ms() - days * DAY_MS
            for session in await self._sessions.recent(agent=self._agent, limit=MANY, archived=True):
                if session.updated_at >= oldest and (key := _key_of(session.key)) and key.is_private:
                    found[f"{SESSIONS}/{session.id}.md"] = (session.entry_count, session.updated_at, 1, 0)
        self._stamps = found
        return found

    async def due(self, stamps: dict[str, Stamp], known: Mapping[str, Stamp]) -> dict[str, Stamp]:
        """These stamps, but unchanged for sessions that have grown by little."""
        return {
            path: stamp if await self._is_due(path, stamp, known.get(path)) else known[path]
            for path, stamp in stamps.items()
        }

    async def read(self, path: str, *, indexing: bool = False) -> MemoryDocument | None:
        """The current text; None if it no longer exists.

        With the last seen stamp: newer messages are in the text, and are detected later.
        """
        stamp = self._stamps.get(path) or (await self.stamps()).get(path)
        text = await self._text(path) if stamp is not None else None
        if stamp is None or text is None:
            return None
        if indexing:
            self._lengths[path] = len(text)
        ref = DocumentRef(MEMORY if path.startswith(_NOTES) else SESSIONS, path)
        return MemoryDocument(ref, stamp, sha256(text.encode("utf-8", "replace")).digest(), text)

    async def _is_due(self, path: str, stamp: Stamp, known: Stamp | None) -> bool:
        if known is None or path.startswith(_NOTES) or path not in self._lengths:
            return True
        if stamp == known or stamp[0] - known[0] >= self._sync.session_messages:
            return stamp != known
        return len(await self._text(path) or "") - self._lengths[path] >= self._sync.session_bytes

    async def _notes(self) -> list[Extraction]:
        waiting = await self._sessions.unplaced(MANY_NOTES)
        return [each for each in waiting if (key := _key_of(each.key)) and key.agent == self._agent]

    async def _text(self, path: str) -> str | None:
        if path.startswith(_NOTES):
            notes = next((each for each in await self._notes() if path == f"{_NOTES}{each.id}.md"), None)
            return f"# Notes from {notes.key}, {notes.day}\n\n{notes.notes}\n" if notes else None
        entries = await self._reader.entries(session_of(path))
        return "\n".join(line for line, _ in said_lines(entries, self._clock.zone))


def said_lines(entries: Iterable[Entry | Broken], zone: tzinfo) -> Iterator[tuple[str, str]]:
    """The lines of a session's document, each with the id of its entry."""
    day, tainted = "", False  # tainted: outside text is in the context, until a reset
    for entry in entries:
        tainted = _is_tainted(entry, tainted)
        if not isinstance(entry, MessageEntry):
            continue
        line = said_line(entry.message, tainted)
        if not line:
            continue
        today = _day(entry, zone)
        if today != day:
            day = today
            yield f"# {day}", entry.id
        yield line, entry.id


def _day(entry: MessageEntry, zone: tzinfo) -> str:
    try:
        return f"{datetime.fromisoformat(entry.timestamp).astimezone(zone):%Y-%m-%d}"
    except ValueError:
        return "An unknown day"


def session_of(path: str) -> str:
    return path.removeprefix(f"{SESSIONS}/").removesuffix(".md")


def _key_of(text: str) -> SessionKey | None:
    try:
        return SessionKey.parse(text)
    except BadRequest:  # the owner of an unreadable key is unknown
        return None


def _is_tainted(entry: Entry | Broken, before: bool) -> bool:
    """Whether later messages may depend on outside text: while it, or a summary of it, is in the context."""
    match entry:
        case MessageEntry():
            return before or bool(texts_in(entry.message))
        case ResetEntry(first_kept_entry_id=None):
            return False
        case BranchSummaryEntry():
            return True
        case CompactionEntry() | CustomMessageEntry():
            return before or (entry.details or {}).get("origin") == Origin.OUTSIDE
        case _:
            return before


def said_line(message: Message, tainted: bool) -> str:
    """A message as one line, or "". Outside text, and replies after reading it, are marked (promise 18)."""
    match message:
        case UserMessage(origin=Origin.OWNER):
            who, mark = "User", ""
        case UserMessage() if message.origin != Origin.SYSTEM:
            who, mark = "Outside", f" ({OUTSIDE_MARK}"
        case AssistantMessage():
            who, mark = "Assistant", f" (having read text {OUTSIDE_MARK}" if tainted else ""
        case _:
            return ""
    folded = " ".join(message.text.replace("\0", " ").split())
    return f"{who}: {folded}{mark}" if folded and folded not in _SILENT else ""
