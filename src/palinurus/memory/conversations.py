"""Past conversations as documents: one line for each thing that was said, under the day on which it was said.

Only conversations to which nobody but the owner listened are among them (promise 17), and only words that somebody
said: neither what tools gave, nor notes that rode along with a message, nor what the clock asked. A search takes
whatever is new, down to the last message. Indexing in the background waits until a conversation has grown by 50
messages or 100 kB, so that a long talk is not indexed again after each of its sentences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, tzinfo
from hashlib import sha256

from palinurus.config.remembering import Sync
from palinurus.domain.clock import Clock
from palinurus.domain.errors import BadRequest
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import OUTSIDE_MARK, AssistantMessage, Message, Origin, UserMessage
from palinurus.domain.provenance import texts_in
from palinurus.memory.document import SESSIONS, Document, Place, Stamp
from palinurus.memory.walk import Raw
from palinurus.sessions.reading import Reader
from palinurus.sessions.session import Session
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

MANY = 100_000  # conversations that are looked at
DAY_MS = 86_400_000
_SILENT = frozenset({"NO_REPLY", "HEARTBEAT_OK"})


class Conversations:
    """One agent's."""

    def __init__(self, sessions: SessionStore, agent: str, clock: Clock, sync: Sync) -> None:
        self._sessions = sessions
        self._reader = Reader(sessions)
        self._agent = agent
        self._clock = clock
        self._sync = sync
        self._read: dict[str, int] = {}  # path: how long the text was when it was last indexed
        self._stamps: dict[str, Raw] = {}  # as they were last looked at

    async def stamps(self) -> dict[str, Raw]:
        """Like the scan of a folder: a conversation that goes on has another stamp."""
        found: dict[str, Raw] = {}
        for session in await self._private():
            if self._is_kept(session):
                found[path_of(session.id)] = (session.entry_count, session.updated_at, 1, 0)
        self._stamps = found
        return found

    async def due(self, stamps: dict[str, Raw], known: Mapping[str, Raw]) -> dict[str, Raw]:
        """These stamps, but as they were known for conversations that have not grown by much."""
        return {
            path: stamp if await self._is_due(path, stamp, known.get(path)) else known[path]
            for path, stamp in stamps.items()
        }

    async def read(self, path: str) -> Document | None:
        """The text as it is now, to be indexed; None when there is no such conversation."""
        document = await self.look(path)
        if document is not None:
            self._read[path] = len(document.text)
        return document

    async def look(self, path: str) -> Document | None:
        """With the stamp that was last seen: what was said since is in the text, and is found to be there later."""
        stamp = self._stamps.get(path) or (await self.stamps()).get(path)
        if stamp is None:
            return None
        text = await self._text(path)
        return Document(Place(SESSIONS, path), Stamp(*stamp), sha256(text.encode("utf-8", "replace")).digest(), text)

    async def _is_due(self, path: str, stamp: Raw, known: Raw | None) -> bool:
        if known is None or stamp[0] - known[0] >= self._sync.session_messages or path not in self._read:
            return True
        return stamp != known and len(await self._text(path)) - self._read[path] >= self._sync.session_bytes

    async def _private(self) -> list[Session]:
        known = await self._sessions.recent(agent=self._agent, limit=MANY, archived=True)
        return [each for each in known if _is_private(each)]

    def _is_kept(self, session: Session) -> bool:
        days = self._sync.session_days
        return days is None or self._clock.now_ms() - session.updated_at <= days * DAY_MS

    async def _text(self, path: str) -> str:
        entries = await self._reader.entries(session_of(path))
        return "\n".join(line for line, _ in said_lines(entries, self._clock.zone))


def said_lines(entries: Iterable[Entry | Broken], zone: tzinfo) -> Iterator[tuple[str, str]]:
    """The lines of a conversation's document, each with the id of the entry that it tells."""
    day, tainted = "", False  # tainted: words from outside are read, until a fresh start puts them away
    for entry in entries:
        tainted = _is_tainted(entry, tainted)
        if not isinstance(entry, MessageEntry):
            continue
        line = _said(entry.message, tainted)
        if not line:
            continue
        today = _day(entry, zone)
        if today != day:
            day = today
            yield f"# {day}", entry.id
        yield line, entry.id


def _day(entry: MessageEntry, zone: tzinfo) -> str:
    try:
        moment = datetime.fromisoformat(entry.timestamp)
    except ValueError:
        return "An unknown day"
    return f"{moment.astimezone(zone):%Y-%m-%d}"


def path_of(session_id: str) -> str:
    return f"{SESSIONS}/{session_id}.md"


def session_of(path: str) -> str:
    return path.removeprefix(f"{SESSIONS}/").removesuffix(".md")


def _is_private(session: Session) -> bool:
    try:
        return SessionKey.parse(session.key).is_private
    except BadRequest:  # a key that nobody understands may be anybody's
        return False


def _is_tainted(entry: Entry | Broken, before: bool) -> bool:
    """Whether what is said from here on may come from outside: as long as such words are read, or a summary."""
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


def _said(message: Message, tainted: bool) -> str:
    """One line, or nothing. Words from outside, and what was said after reading them, are marked (promise 18)."""
    match message:
        case UserMessage(origin=Origin.SYSTEM):
            return ""
        case UserMessage():
            owner = message.origin == Origin.OWNER
            return _line("User" if owner else "Outside", message.text, "" if owner else f" ({OUTSIDE_MARK}")
        case AssistantMessage():
            return _line("Assistant", message.text, f" (having read text {OUTSIDE_MARK}" if tainted else "")
        case _:
            return ""


def _line(who: str, text: str, mark: str) -> str:
    folded = " ".join(text.replace("\0", " ").split())
    return f"{who}: {folded}{mark}" if folded and folded not in _SILENT else ""
