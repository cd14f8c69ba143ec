"""What agents know: facts read from their markdown, kept in step with it, and asked.

Every question compares the files with the derived store first, by their stamps: a hand edit counts at once.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from stat import S_ISREG

from msgspec import Struct
from msgspec.structs import replace

from palinurus.domain.clock import local_time
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.domain.messages import Origin
from palinurus.extensions.knowledge.bank import entity_path, is_prose
from palinurus.extensions.knowledge.entities import Declaration, declaration_line, normal_name, read_declarations
from palinurus.extensions.knowledge.facts import ALIASES, FactReading, FactTrouble, line_digest, read_facts
from palinurus.extensions.knowledge.recall import (
    RecallAnswer,
    RecallQuestion,
    RecallResult,
    RecallScope,
    recall_facts,
    within,
)
from palinurus.extensions.knowledge.store import KnowledgeStore
from palinurus.memory.answer import SkippedFile
from palinurus.memory.document import Stamp
from palinurus.memory.question import MAX_QUERY, Question
from palinurus.memory.scan import Scanner, stamp_of
from palinurus.memory.settings import Collection
from palinurus.operations.services import Services
from palinurus.text.words import roots_of
from palinurus.workspace.files import WorkspaceFiles
from palinurus.workspace.write import append_line

_LENGTH = re.compile(r"(\d{1,5}) ?([dwmy])(?:ays?|eeks?|onths?|ears?)?")
ALIASES_HEADING = (
    "# Which names are one: `- @Bob is @Robert-Klein`, `- @Maria is not @Maria-Lopez`; the last line counts"
)
DREAMS = ("DREAMS.md", "dreams.md")
AT_ONCE = 2_000  # files that are read in one go
ABOUT = re.compile(
    r"\b(?:tell me|know|remember|say|was weißt du|erzähl\w* mir) (?:\w+ ){0,3}(?:about|of|über|von)\b"
    r"|^who(?: is|'s) |^wer ist ",
    re.IGNORECASE,
)
MOST_OF_PAGE = 4_000  # characters
MARGIN = 2  # lines of memory search for each result that is wanted


class KnowledgeSync(Struct, frozen=True, rename="camel"):
    """What was compared and read."""

    files: int
    changed: int
    removed: int
    skipped: tuple[SkippedFile, ...] = ()


class AgentKnowledge:
    """One agent's."""

    def __init__(self, files: WorkspaceFiles, store: KnowledgeStore) -> None:
        boundary, self.store = files.boundary, store
        workspace, self._origins = boundary.root, files.origins
        self._scanner = Scanner(workspace, [Collection("bank", workspace / "bank")], sources=["memory"])
        self.boundary = boundary
        self.reflecting = asyncio.Lock()
        self._syncing = asyncio.Lock()

    async def sync(self) -> KnowledgeSync:
        """Reads what has changed. Whoever asks meanwhile waits for it."""
        async with self._syncing:
            scan = await asyncio.to_thread(self._scanner.scan)
            known = await self.store.stamps()
            found = {**scan.stamps, **await asyncio.to_thread(self._dreams)}
            stamps = await asyncio.to_thread(lambda: {path: self._key(path, stamp) for path, stamp in found.items()})
            changed = [path for path, stamp in stamps.items() if known.get(path) != stamp]
            gone = [path for path in known if path not in stamps and not any(map(path.startswith, scan.unseen))]
            skipped = list(scan.skipped)
            for first in range(0, max(len(changed), 1 if gone else 0), AT_ONCE):
                read, troubles = await asyncio.to_thread(self._read, changed[first : first + AT_ONCE])
                skipped += troubles
                declared = await asyncio.to_thread(self._declared)
                await self.store.replace(read, gone if not first else (), declared)
            return KnowledgeSync(len(stamps), len(changed), len(gone), tuple(skipped))

    def _dreams(self) -> dict[str, Stamp]:
        """OpenClaw's diary, which memory search leaves out: its `## Retain` bullets are facts. Blocks."""
        found = zip(DREAMS, self.boundary.stat_names(DREAMS), strict=True)
        there = [(name, stamp_of(stat)) for name, stat in found if stat is not None and S_ISREG(stat.st_mode)]
        return dict(there[:1])

    def _read(self, paths: list[str]) -> tuple[dict[str, tuple[str, FactReading]], list[SkippedFile]]:
        read, skipped = dict[str, tuple[str, FactReading]](), list[SkippedFile]()
        for path in paths:
            document = self._scanner.read(path)
            if isinstance(document, SkippedFile):
                skipped.append(document)
            elif document is not None:
                reading = read_facts(path, document.text)
                if self.is_outside(path):
                    facts = (replace(each, origin=Origin.OUTSIDE) for each in reading.facts)
                    reading = replace(reading, facts=tuple(facts))
                read[path] = self._key(path, document.stamp), reading
        return read, skipped

    def _key(self, path: str, stamp: Stamp) -> str:
        """What a file is known by: also that it counts as outside text by its kind, which the config can change."""
        return "-".join((*map(str, stamp), *(["outside"] if self._origins.kinds.has(path) else [])))

    def is_outside(self, path: str) -> bool:
        """Whether the whole file is what others have sent, or a turn that had read such. Blocks."""
        return self._origins.kinds.has(path) or self._origins.is_held(self.boundary, path)

    def _declared(self) -> tuple[Declaration, ...]:
        document = self._scanner.read(ALIASES)
        return () if document is None or isinstance(document, SkippedFile) else read_declarations(document.text)

    async def declare(self, declared: Sequence[Declaration]) -> None:
        """Writes down what the owner says of names. The next `sync` heeds it."""
        for each in declared:
            await asyncio.to_thread(
                append_line, self.boundary, ALIASES, declaration_line(each), heading=ALIASES_HEADING
            )

    async def troubles(self) -> list[FactTrouble]:
        return await self.store.troubles()

    async def close(self) -> None:
        self._scanner.stop()
        await self.store.close()


class Knowledge:
    """`services.keep(Knowledge)`: that of all agents."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._agents: dict[str, tuple[Path, AgentKnowledge]] = {}

    async def of(self, agent: str) -> AgentKnowledge:
        """In step with the files. Raises NotFound for an unknown agent."""
        id_ = agent.strip().lower() or self._services.agents.default
        files = self._services.agents.get(id_).files
        await files.origins.load()
        known = self._agents.get(id_)
        if known is None or known[0] != files.boundary.root:
            if known is not None:
                await known[1].close()
            path = self._services.home.root / "derived" / "knowledge" / f"{id_}.sqlite"
            known = self._agents[id_] = files.boundary.root, AgentKnowledge(files, KnowledgeStore(path))
        await known[1].sync()
        return known[1]

    async def recall(self, asked: RecallQuestion, *, counts: bool = False) -> RecallAnswer:
        """`counts`: a person wants to know it, so that what is often recalled is worth more.

        Raises BadRequest for a day or a length of time that is none, NotFound for an unknown entity or agent."""
        began = time.perf_counter()
        today = local_time(self._services.clock).date()
        own = await self.of(asked.agent)
        scope = RecallScope(
            since=since_day(asked.since, today) if asked.since else None,
            as_of=day_of(asked.as_of) if asked.as_of else None,
            kind=asked.kind or "",
            entity=await find_entity(own.store, asked.entity) if asked.entity else "",
        )
        memory = self._services.memory(asked.agent.strip().lower() or self._services.agents.default)
        budget = replace(memory.settings.budget, results=min(asked.most * MARGIN, 1_000))
        if asked.budget_tokens is not None:
            budget = replace(budget, tokens=asked.budget_tokens)
        searching = asyncio.create_task(memory.search(Question(asked.query[:MAX_QUERY], budget)))
        try:
            answer = await recall_facts(own.store, asked, scope, searching, today)
        finally:
            searching.cancel()
        answer = await asyncio.to_thread(_with_page, own, asked, answer)
        best = [each.id for each in answer.results if each.id and not each.origin][:1]
        if counts and best and (words := roots_of(asked.query)):
            await own.store.note_recalled(best, line_digest(" ".join(sorted(words))), today)
        return replace(answer, took_ms=round((time.perf_counter() - began) * 1000, 1))

    async def remove_stores(self) -> int:
        """Deletes what is derived, with every byte of it. Returns how many files were there."""
        await self.close()
        files = list((self._services.home.root / "derived" / "knowledge").glob("*.sqlite*"))
        for file in files:
            file.unlink(missing_ok=True)
        return len(files)

    async def close(self) -> None:
        for _, each in self._agents.values():
            await each.close()
        self._agents.clear()


def _with_page(own: AgentKnowledge, asked: RecallQuestion, answer: RecallAnswer) -> RecallAnswer:
    """To "tell me about Anna" belongs Anna's page, before the facts; within a budget only what the owner has written on
    it, since the rest repeats the facts. Blocks."""
    if not ABOUT.search(asked.query) or len(answer.entities) != 1 or asked.kind or asked.since or asked.as_of:
        return answer
    path = entity_path(answer.entities[0])
    try:
        text = own.boundary.read_bytes(path).decode("utf-8", "replace")
    except NotFound:
        return answer
    lines, room = list(enumerate(text.splitlines(), 1)), MOST_OF_PAGE
    if asked.budget_tokens is not None:
        lines, room = [(at, line) for at, line in lines if is_prose(line)], asked.budget_tokens * 2  # half of it
    while sum(len(line) + 1 for _, line in lines) > room:
        lines.pop()
    if not lines:
        return answer
    first, last, said = lines[0][0], lines[-1][0], "\n".join(line for _, line in lines)
    page = RecallResult(
        path, first, last, said, 1.0, f"{path}#L{first}-L{last}", "page", entities=answer.entities,
        origin=str(Origin.OUTSIDE) if own.is_outside(path) else "",
    )  # fmt: skip
    results, left = within((page, *answer.results), asked.most, asked.budget_tokens)
    return replace(answer, results=tuple(results), left_out=answer.left_out + left)


def since_day(text: str, today: date) -> date:
    """A length of time before today, or a day."""
    found = _LENGTH.fullmatch(text.strip().lower())
    if found is None:
        try:
            return date.fromisoformat(text.strip())
        except ValueError:
            raise BadRequest(
                f"{text[:40]!r} is not a length of time", hint="write 30d, 6w, 3m or 1y, or a day"
            ) from None
    days = int(found[1]) * {"d": 1, "w": 7, "m": 30, "y": 365}[found[2]]
    return date.fromordinal(max(today.toordinal() - days, 1))


def day_of(text: str) -> date:
    try:
        return date.fromisoformat(text.strip())
    except ValueError:
        raise BadRequest(f"{text[:40]!r} is no day", hint="write it as 2026-03-01") from None


async def find_entity(store: KnowledgeStore, name: str) -> str:
    """As it is listed. Raises NotFound."""
    wanted = normal_name(name.removeprefix("@").replace("-", " "))
    known = {normal_name(each): entity for each, entity in (await store.names()).items()}
    if wanted not in known:
        raise NotFound(f"no fact names {name[:60]!r}", hint="`pal memory entities list` shows who is named")
    return known[wanted]
