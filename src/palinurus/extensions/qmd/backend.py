"""Keeps qmd's index of one agent up to date, and asks it.

A search compares the files with what the last update has seen, as the builtin engine does, and has qmd catch up where
something has changed; the documents' intervals only make that rare. What qmd says is a claim: a result counts if its
file is there now and is one that memory may have, and its lines are read from the file itself.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import perf_counter

import msgspec
from msgspec import Struct

from palinurus.config.atomic import write_atomic
from palinurus.domain.errors import BackendError, PalinurusError
from palinurus.extensions.qmd.command import QmdCommand, QmdRow, parse_rows
from palinurus.extensions.qmd.documents import PathTable, QmdCollection, SessionExports, collections_of
from palinurus.extensions.qmd.settings import QmdSettings
from palinurus.memory.answer import (
    Difference,
    IndexFreshness,
    MemoryStatus,
    OnProgress,
    SearchAnswer,
    SearchResult,
    SyncReport,
)
from palinurus.memory.backend import BackendPlace
from palinurus.memory.chunk import lines_of
from palinurus.memory.document import DocumentRef, MemoryDocument, SearchCandidate, Stamp, is_conversation
from palinurus.memory.memory import Watcher
from palinurus.memory.question import MAX_QUERY, Question
from palinurus.memory.rank import RankedCandidate
from palinurus.memory.search import SWEEP_SHARE, clamped
from palinurus.memory.terms import word_query
from palinurus.text.words import STOP_WORDS

log = logging.getLogger(__name__)
RESULTS = 6
NAMED = 5  # paths that are named as behind
WEIGHTS = {"vsearch": 0.7, "search": 0.3}
_DAMAGED = re.compile("not a database|malformed|disk image")
_TO_EMBED = re.compile(r"(\d+) unique hashes need vectors")
_WORD = re.compile(r"\w")
_TYPED = re.compile(r"\s*(lex|vec|hyde|intent|expand):")
Rows = dict[str, QmdRow]
"""By file: qmd finds each once."""


class IndexState(Struct):
    """What qmd's index is known to hold. Kept beside it, so that a process need not look at everything again."""

    collections: dict[str, tuple[str, str]] = {}  # name: path and mask
    stamps: dict[str, Stamp] = {}  # of the files at the last update, by the home's own path
    to_embed: int = 0
    updated_at: int = 0


def open_qmd(place: BackendPlace) -> QmdBackend:
    return QmdBackend(place, place.config.section(QmdSettings))


class QmdBackend:
    """Implements memory.backend.MemoryBackend."""

    least_seconds = 0.5  # a node process starts for each search

    def __init__(self, place: BackendPlace, settings: QmdSettings) -> None:
        self._place = place
        self._settings = settings
        self._command = QmdCommand(settings.command, place.folder, place.env)
        self._exports = SessionExports(place, place.folder / "sessions")
        self._collections = collections_of(place, self._exports.folder, default_memory=settings.default_memory)
        self._paths = PathTable(self._collections)
        self._watcher = Watcher(place.files, place.settings.sync) if place.settings.sync.watch else None
        self._state: IndexState | None = None
        self._updating = asyncio.Lock()
        self._next: asyncio.Task[SyncReport] | None = None  # has not begun
        self._tasks: set[asyncio.Task[SyncReport]] = set()
        self._keeping_up: asyncio.Task[None] | None = None
        self._trouble = self._embed_trouble = self._unseen = ""

    def own_path(self, path: str) -> str:
        return self._paths.own(path)

    def start(self) -> None:
        if self._keeping_up is None and not self._place.readonly:
            self._keeping_up = asyncio.create_task(self._keep_up())

    async def close(self) -> None:
        keeping = [self._keeping_up] if self._keeping_up else []
        for task in (tasks := [*self._tasks, *keeping]):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._watcher is not None:
            await self._watcher.close()
        await self._command.close()

    # -- searching ---------------------------------------------------------------------------------------------------

    async def search(self, question: Question) -> SearchAnswer:
        began, limit = perf_counter(), question.budget.seconds
        await self._command.check(limit)
        stamps, fresh = await self._caught_up(limit * SWEEP_SHARE)
        names = [each.name for each in self._collections if self._wanted(each, question)]
        text = question.query[:MAX_QUERY].encode("utf-8", "replace").decode().replace("\0", " ")
        query, why, mode = " ".join(text.split()), "", "keyword"
        rows: Rows = {}
        if query and names:
            rows, mode, why = await self._asked(query, names, question, began)
        results, left_out = await asyncio.to_thread(self._judged, rows, stamps, question)
        vectors = "off" if mode == "keyword" else "partial" if (await self._loaded()).to_embed else "complete"
        fresh = msgspec.structs.replace(fresh, vectors="down" if why else vectors, why=fresh.why or why)
        return SearchAnswer(tuple(results), fresh, mode, round((perf_counter() - began) * 1000, 3), left_out)

    async def _asked(self, query: str, names: Sequence[str], question: Question, began: float) -> tuple[Rows, str, str]:
        """The rows; how they were found; why not by vectors."""
        mode = "search" if question.keyword_only else self._settings.search_mode
        left = question.budget.seconds - (perf_counter() - began)
        if mode == "search":
            return await self._words(query, names, question, left), "keyword", ""
        if mode != "hybrid":
            return await self._run(mode, query, names, question, left), "hybrid", ""
        words, vectors = await asyncio.gather(
            self._words(query, names, question, left),
            self._run("vsearch", query, names, question, left),
            return_exceptions=True,
        )
        if isinstance(words, BaseException):
            raise words
        if isinstance(vectors, BackendError):
            return words, "keyword", f"searched by words alone: {vectors.message}"
        if isinstance(vectors, BaseException):
            raise vectors
        return merged(words, vectors), "hybrid", ""

    async def _words(self, query: str, names: Sequence[str], question: Question, seconds: float) -> Rows:
        """qmd wants every word of a query; so a question that finds nothing is asked again by what it is about."""
        plain = " ".join(word.lstrip("-") for word in query.replace('"', " ").split())
        if not _WORD.search(plain):
            return {}
        began = perf_counter()
        found = await self._run("search", plain, names, question, seconds)
        about = " ".join(word for word in plain.split() if word.strip("?!.,;:").lower() not in STOP_WORDS)
        if found or about == plain or not _WORD.search(about):
            return found
        return await self._run("search", about, names, question, seconds - (perf_counter() - began))

    async def _run(self, mode: str, query: str, names: Sequence[str], question: Question, seconds: float) -> Rows:
        flags = [flag for name in names for flag in ("-c", name)]
        if mode == "query" and not self._settings.rerank:
            flags.append("--no-rerank")
        if mode == "query" and _TYPED.match(query):
            query = f"expand: {query}"
        most = str(question.budget.results or RESULTS)
        try:
            said = await self._command.run(mode, "--json", "-n", most, *flags, "--", query, seconds=seconds)
        except BackendError as error:
            if _DAMAGED.search(error.message):
                async with self._updating:
                    await self._drop()
            raise
        return {row.file: row for row in parse_rows(said)}

    def _judged(self, rows: Rows, stamps: dict[str, Stamp], question: Question) -> tuple[list[SearchResult], int]:
        """Results within the limits, and how many more there were. Blocks."""
        least = question.min_score or 0.0  # that of the config is calibrated for the scores of the builtin engine
        ranked = []
        for number, row in enumerate(sorted(rows.values(), key=lambda one: -one.score)):
            placed = self._paths.of_row(*row.place)
            if placed is None or placed[2] not in stamps or row.score < least:
                continue
            collection, path, own = placed
            start, text = self._lines(own, *row.lines)
            if text:
                end = start + text.count("\n")
                ref = DocumentRef(collection.source, path)
                ranked.append(
                    RankedCandidate(SearchCandidate(number, ref, start, end, text, 0.0, 0.0, None), row.score)
                )
        words = word_query(question.query).words
        chosen, left_out = clamped(ranked, question.budget, words, cite=question.cite)
        return [result for _, result in chosen], left_out

    def _lines(self, own: str, start: int, claimed: list[str]) -> tuple[int, str]:
        """The lines that are found, from the file as it is, and without empty ones around them."""
        text = ""
        if is_conversation(own):
            with suppress(OSError):
                text = self._exports.file_of(own).read_text(encoding="utf-8")
        elif isinstance(found := self._place.files.read(own), MemoryDocument):
            text = found.text
        lines = lines_of(text)[start - 1 : start - 1 + len(claimed)]
        while lines and not lines[0].strip():
            start, lines = start + 1, lines[1:]
        while lines and not lines[-1].strip():
            lines.pop()
        return start, "\n".join(lines)

    def _wanted(self, collection: QmdCollection, question: Question) -> bool:
        registered = self._state is not None and collection.name in self._state.collections
        return registered and (not question.sources or collection.source in question.sources)

    # -- keeping up --------------------------------------------------------------------------------------------------

    async def _caught_up(self, seconds: float) -> tuple[dict[str, Stamp], IndexFreshness]:
        """What is there now, and how much of it the index has. Raises BackendError when it has nothing yet."""
        stamps = await self._stamps()
        before = (await self._loaded()).stamps
        if stamps != before and not self._place.readonly:
            task = self._ask_for_update()
            await asyncio.wait([task], timeout=seconds)
            if task.done():
                task.result()
        known = (await self._loaded()).stamps
        if not known and stamps:
            raise BackendError("qmd has not indexed anything yet")
        behind = sorted(path for path in stamps if known.get(path) != stamps[path])
        caught_up = sum(known.get(path) != before.get(path) for path in known)
        state, why = ("stale", "there was no time to index all that has changed") if behind else ("fresh", "")
        why = why or self._unseen
        return stamps, IndexFreshness(
            state, len(stamps), caught_up, tuple(behind[:NAMED]), len(behind), pieces=len(known), why=why
        )

    async def _stamps(self) -> dict[str, Stamp]:
        """All that may be found, by the home's own paths."""
        return {**await asyncio.to_thread(self._scan), **await self._exports.stamps()}

    def _scan(self) -> dict[str, Stamp]:
        scan = self._place.files.scan()
        unseen = next((f"{path} could not be looked at: {reason}" for path, reason in scan.unseen.items()), "")
        self._unseen = unseen or (f"not there: {scan.missing}" if scan.missing else "")
        prefixes = tuple(each.prefix for each in self._collections if each.prefix)
        alone = {each.mask for each in self._collections if not each.prefix}
        return {path: stamp for path, stamp in scan.stamps.items() if path.startswith(prefixes) or path in alone}

    def _ask_for_update(self, *, gentle: bool = False) -> asyncio.Task[SyncReport]:
        """One at a time. Whoever asks while one is running gets the next, which sees what has changed since."""
        if self._next is None:
            self._next = asyncio.create_task(self._update_next(gentle))
            self._tasks.add(self._next)
            self._next.add_done_callback(self._ended)
        return self._next

    def _ended(self, task: asyncio.Task[SyncReport]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited was told, and the status says it

    async def _update_next(self, gentle: bool) -> SyncReport:
        async with self._updating:
            self._next = None
            try:
                report = await self._update(gentle=gentle)
            except BackendError as error:
                if _DAMAGED.search(error.message):
                    await self._drop()
                self._trouble = error.message
                raise
            self._trouble = ""
        if report.added or report.changed or report.removed:
            self._place.on_sync(report)
        return report

    async def _update(self, *, gentle: bool = False) -> SyncReport:
        """Raises BackendError."""
        if self._place.readonly:
            raise BackendError("this home is only read, and its index stays as it is")
        began = perf_counter()
        await self._command.check(self._settings.command_seconds)
        state, stamps = await self._loaded(), await self._stamps()
        sessions = {path: stamp for path, stamp in stamps.items() if is_conversation(path)}
        stamps.update(await self._exports.write(sessions, gentle=gentle))
        await self._register(state)
        if stamps == state.stamps:
            return SyncReport(len(stamps))
        said = await self._command.run("update", seconds=self._settings.update_seconds)
        before, state.stamps = state.stamps, stamps
        state.to_embed = int(found[1]) if (found := _TO_EMBED.search(said)) else 0
        state.updated_at = self._place.clock.now_ms()
        await self._save(state)
        return SyncReport(
            len(stamps),
            len(stamps.keys() - before.keys()),
            sum(stamp != stamps.get(path, stamp) for path, stamp in before.items()),
            len(before.keys() - stamps.keys()),
            took_ms=round((perf_counter() - began) * 1000, 1),
        )

    async def _register(self, state: IndexState) -> None:
        """Tells qmd of collections that it does not know, once something is in them, and of those that have gone."""
        there = await asyncio.to_thread(lambda: [each for each in self._collections if each.has_something])
        wanted = {each.name: (str(each.path), each.mask) for each in there}
        limit = self._settings.command_seconds
        for name in [name for name, place in state.collections.items() if wanted.get(name) != place]:
            await self._command.run("collection", "remove", name, seconds=limit)
            del state.collections[name]
            await self._save(state)
        new = {name: place for name, place in wanted.items() if name not in state.collections}
        listed = await self._command.run("collection", "list", seconds=limit) if new else ""
        for name, (path, mask) in new.items():
            if f"(qmd://{name}/)" in listed:  # by a process that was killed before it could note it down
                await self._command.run("collection", "remove", name, seconds=limit)
            await self._command.run("collection", "add", path, "--name", name, "--mask", mask, seconds=limit)
            state.collections[name] = (path, mask)
            await self._save(state)

    async def _keep_up(self) -> None:
        """`update` and `embed` at first, after changes that have settled and at the documents' intervals."""
        sync, embedded = self._place.settings.sync, 0.0
        boot = self._settings.on_boot
        while True:
            if boot:
                with suppress(PalinurusError, OSError):  # told by status, and tried again
                    await asyncio.shield(self._ask_for_update(gentle=True))
                loop_time, every = asyncio.get_running_loop().time(), self._settings.embed_seconds
                if every and (not embedded or loop_time - embedded >= every):
                    embedded = loop_time
                    await self._embed()
            boot = True
            pause = min(
                (each for each in (sync.sweep_minutes * 60, self._settings.embed_seconds) if each), default=None
            )
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await (self._watcher.changed() if self._watcher is not None else asyncio.Event().wait())

    async def _embed(self) -> None:
        state = await self._loaded()
        try:
            await self._command.check(self._settings.command_seconds)
            await self._command.run("embed", seconds=self._settings.embed_limit)
        except BackendError as error:
            self._embed_trouble = error.message
            log.info("qmd has made no vectors: %s", error.message)
            return
        self._embed_trouble = ""
        if self._state is state:  # else the index was dropped meanwhile, and this says what it held
            state.to_embed = 0
            await self._save(state)

    # -- the index ---------------------------------------------------------------------------------------------------

    async def sync(self, *, force: bool = False, progress: OnProgress | None = None) -> SyncReport:
        if force:
            async with self._updating:
                await self._drop()
        report = await asyncio.shield(self._ask_for_update())
        if self._settings.search_mode == "search":
            return report
        await self._embed()
        return msgspec.structs.replace(report, embedder_trouble=self._embed_trouble)

    async def forget(self) -> SyncReport:
        """qmd keeps texts of files that have gone. So its index is made anew."""
        return await self.sync(force=True)

    async def status(self, *, deep: bool = False) -> MemoryStatus:
        await self._command.check(self._settings.command_seconds)
        state, stamps = await self._loaded(), await self._stamps()
        known = state.stamps
        what = {path: "gone from the disk" for path in known if path not in stamps}
        what |= {
            path: "changed" if path in known else "missing in the index"
            for path in stamps
            if known.get(path) != stamps[path]
        }
        found = [Difference(path, what[path]) for path in sorted(what)]
        vectors = self._settings.search_mode != "search"
        return MemoryStatus(
            self._place.agent,
            self._place.settings.enabled,
            len(known),
            0,
            0,
            sum(stamp[0] for path, stamp in known.items() if not is_conversation(path)),
            await asyncio.to_thread(self._index_bytes),
            dict(Counter(self._source_of(path) for path in known)),
            "qmd" if vectors else "",
            to_embed=state.to_embed if vectors else 0,
            differences=tuple(found[:50]),
            difference_count=len(found),
            watching=self._watcher is not None and self._watcher.watching,
            last_sweep_at=state.updated_at or None,
            trouble=self._trouble or (self._embed_trouble if vectors else ""),
            index_path=str(self._index),
        )

    @property
    def _index(self) -> Path:
        return self._place.folder / "xdg-cache" / "qmd" / "index.sqlite"

    async def _loaded(self) -> IndexState:
        """Without what is no longer there."""
        self._state = await asyncio.to_thread(self._read_state)
        return self._state

    def _read_state(self) -> IndexState:
        state = self._state
        if state is None:
            try:
                state = msgspec.json.decode((self._place.folder / "state.json").read_bytes(), type=IndexState)
            except (OSError, msgspec.DecodeError):  # it is made anew
                state = IndexState()
        if not self._index.exists():
            state.stamps = {}
        if not (self._place.folder / "xdg-config" / "qmd" / "index.yml").exists():
            state.collections = {}
        return state

    async def _save(self, state: IndexState) -> None:
        await asyncio.to_thread(write_atomic, self._place.folder / "state.json", msgspec.json.encode(state))

    async def _drop(self) -> None:
        """All that can be made anew; models stay."""
        self._state = IndexState()
        await asyncio.to_thread(self._remove)

    def _remove(self) -> None:
        folder = self._place.folder
        for each in (self._exports.folder, self._exports.notes, folder / "xdg-config"):
            shutil.rmtree(each, ignore_errors=True)
        for file in (folder / "state.json", *self._index.parent.glob("index.sqlite*")):
            file.unlink(missing_ok=True)
        (folder / "xdg-config").mkdir(mode=0o700, parents=True, exist_ok=True)

    def _index_bytes(self) -> int:
        return sum(file.stat().st_size for file in self._index.parent.glob("index.sqlite*"))

    def _source_of(self, own: str) -> str:
        fits = (each for each in self._collections if own.startswith(each.prefix) and (each.prefix or own == each.mask))
        return next((each.source for each in fits), "")


def merged(words: Rows, vectors: Rows) -> Rows:
    """By the documents' weights, which add up to one."""
    found: Rows = {}
    for file in words.keys() | vectors.keys():
        legs = {"search": words.get(file), "vsearch": vectors.get(file)}
        score = sum(WEIGHTS[leg] * row.score for leg, row in legs.items() if row is not None)
        best = max((row for row in legs.values() if row is not None), key=lambda row: row.score)
        found[file] = msgspec.structs.replace(best, score=score)
    return found
