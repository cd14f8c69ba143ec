"""Reads lines that a search has cited, and tells which of them are outside text.

Only what search could have found: MEMORY.md, memory.md, USER.md, files under memory/, collections, and past sessions,
which are not files. A path is taken as written in a citation. It is resolved inside its root by descriptors; a file
behind a link is refused, because its content is elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from palinurus.domain.errors import BadRequest, NotFound, OutsideWorkspace, PalinurusError, WorkspaceError
from palinurus.domain.messages import OUTSIDE_MARK, Origin
from palinurus.domain.tool import ToolOutput, ToolRun
from palinurus.memory.answer import EmbedderFallback, IndexFreshness, SearchResult
from palinurus.memory.chunk import lines_of
from palinurus.memory.document import MEMORY, SESSIONS, is_conversation
from palinurus.memory.question import Question, cites, why_not
from palinurus.memory.scan import NAMES, PASSED_BY, decoded, mask_of
from palinurus.memory.settings import NOBODY, Collection
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.file_origins import FileOrigins

if TYPE_CHECKING:
    from palinurus.memory.backend import AgentMemory

MAX_LINES = 120
MAX_CHARACTERS = 12_000
MAX_PATH = 1_000
_CITED = re.compile(r"#L(\d{1,9})(?:-L?(\d{1,9}))?$")


class MemoryText(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Lines of a file. The text is empty if there is no such file, as in OpenClaw."""

    path: str
    text: str
    from_: int = 1
    lines: int = 0
    truncated: bool = False
    next_from: int = 0  # the next line; 0: that was all


class LineRange(Struct, frozen=True):
    path: str
    start: int | None = None  # the first line, from 1
    lines: int | None = None


async def get_lines(
    memory: AgentMemory,
    workspace: Boundary,
    asked: LineRange,
    *,
    max_lines: int = MAX_LINES,
    max_characters: int = MAX_CHARACTERS,
) -> MemoryText:
    """Reads lines of memory. Raises WorkspaceError or OutsideWorkspace if it is not memory or cannot be read."""
    path, start, lines = _path_and_lines(asked)
    own = memory.own_path(path)
    if _parts(own)[0] == SESSIONS:
        text = await memory.read_conversation(own)
    else:
        text = await asyncio.to_thread(text_of, workspace, memory.settings.collections, own)
    if text is None:
        return MemoryText(path, "")
    return _cut(path, lines_of(text), start, lines, min(lines or max_lines, max_lines), max_characters)


def text_of(workspace: Boundary, collections: Sequence[Collection], path: str) -> str | None:
    """The text of a file, or None if it is missing. Blocks."""
    root, inside = root_of(workspace, collections, path)
    try:
        with root.open_file(inside) as file:
            if file.path != inside:
                raise WorkspaceError(f"{path} is reached by a link", hint=f"ask for what it leads to: {file.path}")
            return decoded(file.read())
    except NotFound:
        return None


def _path_and_lines(asked: LineRange) -> tuple[str, int, int | None]:
    """Path and lines. A whole citation is accepted: `memory/2026-11-15.md#L3-L9`."""
    path, start, lines = asked.path.strip(), asked.start, asked.lines
    if found := _CITED.search(path):
        path = path[: found.start()]
        if start is None:
            start = max(int(found[1]), 1)
            lines = lines or (int(found[2]) - start + 1 if found[2] else 1)
    return path, max(start or 1, 1), max(lines, 1) if lines is not None else None


def root_of(workspace: Boundary, collections: Sequence[Collection], path: str) -> tuple[Boundary, str]:
    """The root of a path, and the path inside it."""
    parts = _parts(path)
    if not parts[-1].lower().endswith(".md"):
        raise WorkspaceError(f"{path!r} is not markdown", hint="memory is made of .md files; `read` reads others")
    whole = "/".join(parts)
    if whole in NAMES or whole.startswith(f"{MEMORY}/"):
        return workspace, whole
    collection = next((each for each in collections if whole.startswith(f"{each.name}/")), None)
    if collection is not None:
        return _folder(collection, whole), "/".join(parts[1:])
    names = "".join(f", {each.name}/" for each in collections[:20])
    raise OutsideWorkspace(f"{path!r} is not in memory", hint=f"memory is MEMORY.md, USER.md, memory/{names}")


def _parts(path: str) -> list[str]:
    if not path or "\0" in path or len(path) > MAX_PATH:
        raise WorkspaceError(f"not a path: {path[:80]!r}", hint="for example memory/2026-11-15.md")
    if path.startswith(("/", "~")):
        raise OutsideWorkspace(f"{path[:200]!r} is not a path in memory", hint="use a path as memory_search shows it")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or not parts:
        raise OutsideWorkspace(f"{path[:200]!r} leads out of memory", hint="use a path as memory_search shows it")
    if any(part[0] == "." or part in PASSED_BY for part in parts):
        raise OutsideWorkspace(f"{path[:200]!r} is hidden, and not in memory", hint="`read` reads other files")
    return parts


def _folder(collection: Collection, path: str) -> Boundary:
    """Refuses a file that its collection's mask excludes: the rest of that folder is not in memory."""
    mask = mask_of(collection)
    if mask is not None and not mask.fullmatch(path):
        hint = f"the collection includes only {collection.mask} of that folder"
        raise OutsideWorkspace(f"{path!r} is not in memory", hint=hint)
    if not os.path.isdir(collection.path):  # noqa: PTH112  # the Path form raises where it may not look
        said = f"the folder of the collection {collection.name} is not there: {collection.path}"
        raise WorkspaceError(said, hint="`pal memory collections list` shows where it should be")
    return Boundary(collection.path)


def _cut(path: str, lines: list[str], start: int, asked: int | None, most: int, room: int) -> MemoryText:
    """At most so many lines within the limit; the first always, cut if necessary."""
    if lines and not lines[-1]:
        lines = lines[:-1]  # the text after the last line break is not a line
    left = lines[start - 1 :]
    taken: list[str] = []
    for line in left[:most]:
        if taken and len(line) > room:
            break
        taken.append(line[:room])
        room -= len(line) + 1
    wanted = len(left) if asked is None else min(asked, len(left))
    clipped = len(taken) == 1 and taken[0] != left[0]
    more = bool(taken) and len(taken) < len(left)
    next_from = start + len(taken) if more else 0
    return MemoryText(path, "\n".join(taken), start, len(taken), clipped or len(taken) < wanted, next_from)


class MemorySources(Struct, frozen=True):
    """Tells which results of one agent's memory are outside text (promise 18)."""

    origins: FileOrigins
    workspace: Boundary
    collections: Sequence[Collection] = ()

    def of(self, results: Iterable[SearchResult], conversations: Mapping[str, str] = {}) -> tuple[str, ...]:
        """The outside sources. A snippet may be cut, and the mark is at a line's end, so files are read. Blocks.

        `conversations`: texts of cited sessions, by path.
        """
        return tuple(dict.fromkeys(source for each in results if (source := self._source(each, conversations))))

    def _source(self, result: SearchResult, conversations: Mapping[str, str]) -> str:
        """Empty: it is the owner's."""
        if self._is_held(result, conversations):
            return f"written:{result.path}"
        return f"file:{result.path}" if self.origins.kinds.has(result.path) else ""

    def _is_held(self, result: SearchResult, conversations: Mapping[str, str]) -> bool:
        """Whether an untrusted run has written it."""
        if OUTSIDE_MARK in result.snippet:
            return True
        try:
            if is_conversation(result.path):
                return _is_marked(conversations.get(result.path, ""), result)
            root, inside = root_of(self.workspace, self.collections, result.path)
            if self.origins.is_held(root, inside):
                return True
            return _is_marked(text_of(self.workspace, self.collections, result.path) or "", result)
        except PalinurusError:  # it was found, and can no longer be read
            return False


def _is_marked(text: str, result: SearchResult) -> bool:
    if OUTSIDE_MARK not in text:
        return False
    return any(OUTSIDE_MARK in line for line in lines_of(text)[max(result.start_line - 1, 0) : result.end_line])


# -- results for the model's tools ------------------------------------------------------------------------------------


class SearchOutput(Struct, frozen=True, rename="camel", omit_defaults=True):
    """`results`, `provider`, `model`, `fallback` and `citations` are always there, as OpenClaw has them."""

    results: tuple[SearchResult, ...]
    provider: str  # who embedded the question; none: it was searched by words alone
    model: str
    fallback: EmbedderFallback | None
    citations: str  # as the config says
    left_out: int = 0  # results that exceeded the budget
    freshness: IndexFreshness | None = None  # only when something is missing
    refused: str = ""


WorkspaceOrigins = tuple[Boundary, FileOrigins]
"""The workspace, and the origins of its files."""


async def answer_search(
    memory: AgentMemory, run: ToolRun, workspace: WorkspaceOrigins, query: str, *, most: int = 0, least: float = 0.0
) -> ToolOutput:
    if not query.strip():
        raise BadRequest("the query is empty", hint="say what to search for")
    if why := why_not(memory.settings, run.key, private=run.private):
        return _json(SearchOutput((), NOBODY, "", None, memory.settings.citations, refused=why))
    budget = memory.settings.budget
    if most:
        budget = msgspec.structs.replace(budget, results=most)
    answer = await memory.search(Question(query, budget, least or None, cite=cites(memory.settings, run.key)))
    results = (msgspec.structs.replace(each, score=round(each.score, 3), factors=()) for each in answer.results)
    freshness = None if answer.freshness.is_good else answer.freshness
    by = answer.provider or NOBODY, answer.model, answer.fallback, memory.settings.citations
    output = SearchOutput(tuple(results), *by, answer.left_out, freshness, answer.refused)
    return _json(output, await outside_sources(memory, workspace, answer.results))


async def answer_get(memory: AgentMemory, run: ToolRun, workspace: WorkspaceOrigins, wanted: LineRange) -> ToolOutput:
    if why := why_not(memory.settings, run.key, private=run.private):
        raise WorkspaceError(why)
    found = await get_lines(memory, workspace[0], wanted)
    shown = SearchResult(found.path, found.from_, found.from_ + max(found.lines, 1) - 1, 0, found.text)
    return _json(found, await outside_sources(memory, workspace, [shown]))


async def outside_sources(
    memory: AgentMemory, workspace: WorkspaceOrigins, results: Sequence[SearchResult]
) -> tuple[str, ...]:
    """Those among the sources of these results that are outside text."""
    boundary, origins = workspace
    results = [msgspec.structs.replace(each, path=memory.own_path(each.path)) for each in results]
    cited = {each.path for each in results if is_conversation(each.path)}
    conversations = {path: await memory.read_conversation(path) or "" for path in cited}
    sources = MemorySources(origins, boundary, memory.settings.collections)
    return await asyncio.to_thread(sources.of, results, conversations)


def _json(record: Struct, sources: tuple[str, ...] = ()) -> ToolOutput:
    origin = Origin.OUTSIDE if sources else Origin.OWNER
    return ToolOutput(msgspec.json.encode(record).decode(), origin=origin, sources=sources)
