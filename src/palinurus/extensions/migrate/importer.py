"""Import transcripts: read in a thread, stored in batches, published at the end all at once.

A transcript is identified by its agent, its id and its first line, wherever the home lies. What was imported before is
read again and compared by a running digest. So a second import changes nothing, an interrupted one continues, and a
session that has grown in the other home grows here, unless it was continued in both.

While entries pass they are counted (by type, by role) and searched for secrets, many lines at a time: line by line that
would cost more than reading.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palinurus.config.secrets import Redactor
from palinurus.domain.keys import SessionKey
from palinurus.extensions.migrate.foreign import (
    ForeignEntry,
    ForeignSession,
    are_alike,
    as_object,
    load_json,
    replace_surrogates,
    time_ms,
)
from palinurus.extensions.migrate.import_store import IMPORT_MARK, SEPARATOR, ImportState, ImportStore
from palinurus.extensions.migrate.report import FoundSession, LossCount, Losses, Outcome, SecretFindings
from palinurus.sessions.session import Preferences, Session

BATCH_ENTRIES, BATCH_CHARACTERS = 8_000, 6 * 1024 * 1024  # that are stored together: a fraction of a second

PARALLEL = 3  # transcripts at a time: while one waits for the disk, another is read
RESET_MARK = f"{IMPORT_MARK}:reset"  # of a session that a reset archived in the other home
SPOKEN = ("user", "assistant")
NUMBERS = {  # fields of a row in OpenClaw's sessions.json, and ours
    "sessionStartedAt": "started_at",
    "lastInteractionAt": "last_interaction_at",
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "totalTokens": "context_tokens",  # how full the window is; contextTokens is the window
    "compactionCount": "compaction_count",
    "memoryFlushAt": "memory_flush_at",
    "memoryFlushCompactionCount": "memory_flush_compaction_count",
    "spawnDepth": "spawn_depth",
}
THEIR_ROW, THEIR_ROWS = "openclaw", "openclawKeys"  # what is kept of sessions.json: the row, and those of more keys
_SEPARATOR = SEPARATOR.decode()
_EMPTY = hashlib.sha256().hexdigest()

# What every secret of a known shape has in it (see config/secrets.py). Each pattern begins with its rarest letter,
# which is found far faster than a word; the letters before it are checked then.
_HINTS = tuple(re.compile(hint).search for hint in (
    b"-(?:(?<=sk-)|(?<=xapp-)|----(?<=PRIVATE KEY-----))", b"_(?:(?<=gh[pousr]_)|(?<=github_pat_)|(?<=pal_))",
    b"A(?:KIA|SIA|Iza|A(?<=:AA))", b"J(?<=eyJ)", b"xox", b"earer ",
))  # fmt: skip
_shapes = Redactor()

OnBytes = Callable[[int], None]
"""Called with how many bytes of transcripts were read. Must not raise."""


class SessionImporter(Struct):
    """Reads sessions and, with `apply`, stores them."""

    store: ImportStore
    losses: Losses
    findings: SecretFindings
    apply: bool
    now: int
    on_bytes: OnBytes = lambda _: None
    imported: set[str] = set()  # sources that this importer has stored
    results: dict[tuple[str, str], FoundSession] = {}  # by agent and file

    async def import_all(self, sessions: Sequence[ForeignSession]) -> list[FoundSession]:
        """A few at a time; results in the order of the sessions."""
        slots, same_id = asyncio.Semaphore(PARALLEL), defaultdict[tuple[str, str], asyncio.Lock](asyncio.Lock)

        others = defaultdict[tuple[str, str], dict[str, str]](dict)
        for each in sessions:
            if each.same_as:
                others[each.agent, each.same_as][each.key] = each.details
        sessions = [replace(each, other_keys=others.get((each.agent, each.key), {})) for each in sessions]

        async def import_in_turn(session: ForeignSession) -> FoundSession:
            async with same_id[session.agent, session.session_id], slots:  # an archive may begin like its session
                return await self.import_session(session)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(import_in_turn(each)) for each in sessions if not each.same_as]
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        found = iter([task.result() for task in tasks])
        return [await self.import_session(each) if each.same_as else next(found) for each in sessions]

    async def import_session(self, session: ForeignSession) -> FoundSession:
        earlier = self.results.get((session.agent, session.file))
        if session.same_as and earlier is not None:
            return replace(earlier, key=session.key, label=session.label, same_as=session.same_as)
        with self.losses.counted() as losses:
            found = replace(await _TranscriptImport(self, session, losses).run(), skipped=losses.count)
        self.results[session.agent, session.file] = found
        self.on_bytes(session.size)
        return found


class _TranscriptImport:
    """The import of one transcript."""

    def __init__(self, importer: SessionImporter, session: ForeignSession, losses: LossCount) -> None:
        self._importer = importer
        self._store = importer.store
        self._session = session
        self._tally = Tally(session, importer.findings)
        self._losses = losses
        self._source = ""

    async def run(self) -> FoundSession:
        entries = self._session.read()
        first = await asyncio.to_thread(next, entries, None)
        if first is None:
            return self._result("left", "", "it has no messages")
        begins = hashlib.sha256(first.row.payload.encode()).hexdigest()[:16]
        self._source = f"openclaw:{self._session.agent}:{self._session.session_id}:{begins}"
        entries = chain((first,), entries)
        if (own := self._session.own) is not None:
            # A session that a Palinurus exported; perhaps this one, which still has it.
            if found := await self._import_following(entries, f"palinurus:{own.id}", own.id):
                return found
            entries = self._reread()
        known = await self._store.state(self._source)
        if known is not None:
            await self._count(entries, known.entries)
            if (self._tally.count, self._tally.digest) != (known.entries, known.digest or _EMPTY):
                return await self._import_changed(entries, known)
            if known.continued:
                await self._count(entries)
                return await self._import_continued(known)
        return await self._import_rest(entries, known)

    async def _import_rest(self, entries: Iterator[ForeignEntry], known: ImportState | None) -> FoundSession:
        """Go on behind the entries that are stored already."""
        start = self._tally.count
        if not self._importer.apply:
            await self._count(entries)
            return self._result(_outcome(known, self._tally.count - start), known.session_id if known else "")
        into = known or await self._store.begin(self._source, self._row())
        await self._store_batches(_batches(entries, self._tally))
        more = self._tally.count - start
        if more or not into.finished:
            await self._store.finish(self._source, self._row(), _unknown_fields(self._session))
        self._importer.imported.add(self._source)
        return self._result(_outcome(known, more), into.session_id)

    async def _import_continued(self, known: ImportState) -> FoundSession:
        """The session was continued here, and perhaps there too: behind what was said here, or beside it."""
        if found := await self._import_following(self._reread(), self._source, known.session_id):
            return found
        await self._count(self._reread())
        more = self._tally.count - known.entries
        note = f"it was continued in both homes; {more} entries of the other one were not taken"
        return self._result("left", known.session_id, note)

    async def _import_following(
        self, entries: Iterator[ForeignEntry], source: str, session_id: str
    ) -> FoundSession | None:
        """Import what follows the last entry of our session. None: the transcript does not begin like that session."""
        async for page in self._store.payloads(session_id):
            batch = await asyncio.to_thread(list, islice(entries, len(page)))
            await asyncio.to_thread(self._tally.add, batch)
            if not await asyncio.to_thread(are_alike, batch, page):
                await self._count(entries)
                return None
        here = self._tally.count
        next_entry = await asyncio.to_thread(next, entries, None)
        if next_entry is None or not here:
            return self._result("same", session_id) if here else None
        self._source = source
        known = ImportState(session_id, here, self._tally.digest, finished=True, visible=True)
        if self._importer.apply:
            self._source = await self._store.adopt(source, known)
        return await self._import_rest(chain((next_entry,), entries), known)

    async def _store_batches(self, batches: Iterator[tuple[list[ForeignEntry], str]]) -> None:
        """The next batch is read while one is stored."""
        coming = asyncio.create_task(asyncio.to_thread(next, batches, None))
        try:
            while (batch := await coming) is not None:
                coming = asyncio.create_task(asyncio.to_thread(next, batches, None))
                await self._store.add(self._source, *batch)
        finally:
            await asyncio.wait([coming])

    async def _import_changed(self, entries: Iterator[ForeignEntry], known: ImportState) -> FoundSession:
        """The stored entries are not the beginning of the transcript."""
        if not known.visible and self._source not in self._importer.imported:
            await self._discard()
            return await self._import_rest(self._reread(), None)
        await self._count(entries)
        if self._tally.count < known.entries:
            return self._result("left", known.session_id, "it is shorter than the imported session, which stays")
        # It was rewritten since it was imported, and becomes a second, archived session.
        self._source += f":{self._tally.digest[:16]}"
        entries, second = self._reread(), await self._store.state(self._source)
        if second is not None and second.visible:
            await self._count(entries)
            return self._result("same", second.session_id)
        await self._discard()
        self._session = replace(self._session, origin="earlier")
        found = await self._import_rest(entries, None)
        return replace(found, note="it was rewritten since it was imported; both are stored")

    async def _discard(self) -> None:
        """Remove what is staged of it, if anything is."""
        if self._importer.apply:
            await self._store.discard(self._source)

    def _reread(self) -> Iterator[ForeignEntry]:
        """From the start, without counting losses and secrets a second time."""
        self._tally = Tally(self._session, SecretFindings())
        self._losses.again = True
        return self._session.read()

    async def _count(self, entries: Iterator[ForeignEntry], limit: int | None = None) -> None:
        await asyncio.to_thread(deque, _batches(islice(entries, limit), self._tally), 0)  # which only runs through them

    def _row(self) -> Session:
        return _session_row(self._session, self._tally, self._importer.now)

    def _result(self, outcome: Outcome, into: str, note: str = "") -> FoundSession:
        return replace(self._tally.found(), outcome=outcome, into=into, note=note)


def _outcome(known: ImportState | None, more: int) -> Outcome:
    if known is None or not known.visible:
        return "new"
    return "grown" if more else "same"


def _batches(entries: Iterator[ForeignEntry], tally: Tally) -> Iterator[tuple[list[ForeignEntry], str]]:
    """Entries that are stored together, after they were counted, and the digest of all up to their end."""
    while first := next(entries, None):
        batch, size = [first], len(first.row.payload)
        while size < BATCH_CHARACTERS and len(batch) < BATCH_ENTRIES and (entry := next(entries, None)):
            batch.append(entry)
            size += len(entry.row.payload)
        tally.add(batch)
        yield batch, tally.digest


class Tally:
    """Counts of one transcript, the digest of its entries and of what was said."""

    def __init__(self, session: ForeignSession, findings: SecretFindings) -> None:
        self._session = session
        self._findings = findings
        self._said = hashlib.sha256()
        self._digest = hashlib.sha256()
        self.entries: Counter[str] = Counter()
        self.messages: Counter[str] = Counter()
        self.texts = self.count = 0
        self.first_at = self.last_at = 0  # milliseconds; 0 when the transcript has no times

    def add(self, entries: Sequence[ForeignEntry]) -> None:
        self.count += len(entries)
        self.entries.update([entry.kind for entry in entries])
        self.messages.update([entry.role for entry in entries if entry.role])
        if texts := [entry.text for entry in entries if entry.text and entry.role in SPOKEN]:
            more = ("", *texts) if self.texts else texts
            self._said.update(_SEPARATOR.join(more).encode(errors="surrogatepass"))
            self.texts += len(texts)
        if stamps := [entry.stamp for entry in entries if entry.stamp]:
            self.first_at = self.first_at or time_ms(stamps[0]) or 0
            self.last_at = time_ms(stamps[-1]) or self.first_at
        whole = _SEPARATOR.join([*(entry.row.payload for entry in entries), ""]).encode()
        self._digest.update(whole)
        self._find_secrets(entries, whole)

    @property
    def digest(self) -> str:
        """Of all entries so far."""
        return self._digest.hexdigest()

    def found(self) -> FoundSession:
        session = self._session
        return FoundSession(
            agent=session.agent,
            key=session.key,
            session_id=session.session_id,
            entries=dict(sorted(self.entries.items())),
            messages=dict(sorted(self.messages.items())),
            archived=session.origin != "live",
            origin=session.origin,
            file=session.file,
            label=session.label,
            texts=self.texts,
            texts_sha256=self._said.hexdigest() if self.texts else "",
            same_as=session.same_as,
        )

    def _find_secrets(self, entries: Sequence[ForeignEntry], whole: bytes) -> None:
        hints = [hint for hint in _HINTS if hint(whole)]
        for entry in entries if hints else ():
            data = entry.row.payload.encode()
            if any(hint(data) for hint in hints) and looks_secret(entry.row.payload):
                self._findings.add(self._session.file, entry.number)


def looks_secret(text: str) -> bool:
    """Whether something in it has the shape of a key or token."""
    return _shapes.redact(text) != text


def _session_row(session: ForeignSession, tally: Tally, now: int) -> Session:
    """Where replies go is not imported, because the channels of the other home are not ours. Nor is what was allowed
    there."""
    if session.own is not None:
        preferences = replace(session.own.preferences, elevated_level="")
        return replace(session.own, key=session.key, agent=session.agent, delivery=None, preferences=preferences)
    known = as_object(load_json(session.details))
    key = SessionKey.parse(session.key)
    created = tally.first_at or session.updated_at or now
    updated = max(session.updated_at, tally.last_at) or now
    numbers = {field: number for name, field in NUMBERS.items() if (number := _number(known, name))}
    row = Session(
        id=session.session_id,
        key=str(key),
        agent=key.agent,
        chat_type=key.chat_type,
        created_at=created,
        updated_at=updated,
        started_at=created,
        last_interaction_at=updated,
        label=session.label,
        provider=_text(known, "modelProvider"),
        model=_text(known, "model"),
        compaction_count=tally.entries["compaction"],
        spawned_by=_text(known, "spawnedBy"),
        entry_count=tally.count,
        preferences=Preferences(
            verbose_level=_text(known, "verboseLevel"),
            response_usage=_text(known, "responseUsage"),
            reasoning_level=_text(known, "reasoningLevel"),
            queue_mode=_text(known, "queueMode"),
            model_override=_model_override(known),
            thinking_level=_text(known, "thinkingLevel"),
        ),
        archived_at=None if session.origin == "live" else updated,
        archive_mark={"live": "", "reset": RESET_MARK}.get(session.origin, IMPORT_MARK),
    )
    return replace(row, total_tokens=numbers.get("input_tokens", 0) + numbers.get("output_tokens", 0), **numbers)


def _unknown_fields(session: ForeignSession) -> str:
    """What is stored without being understood: the row as the other home wrote it."""
    if session.own is not None:
        return session.extra
    rows = {THEIR_ROW: session.details} if session.details else {}
    if session.other_keys:
        rows[THEIR_ROWS] = _joined({key: details or "{}" for key, details in session.other_keys.items()})
    return _joined(rows) if rows else ""


def _joined(values: dict[str, str]) -> str:
    """An object of texts that are JSON already."""
    return f"{{{','.join(f'{msgspec.json.encode(name).decode()}:{text}' for name, text in values.items())}}}"


def _model_override(known: dict[str, Any]) -> str:
    """What a user chose. `model` and `modelProvider` only say what was used last; so does an override that the
    program set by itself because a model failed."""
    provider, model = _text(known, "providerOverride").strip(), _text(known, "modelOverride").strip()
    if not model or _text(known, "modelOverrideSource") not in ("", "user"):
        return ""
    return f"{provider or _text(known, 'modelProvider')}/{model}".strip("/")


def _number(known: dict[str, Any], name: str) -> int:
    value = known.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0


def _text(known: dict[str, Any], name: str) -> str:
    value = known.get(name)
    return replace_surrogates(value)[:200] if isinstance(value, str) else ""
