"""The hands that look at files: read, ls and grep, inside the workspace and with respect for what is private.

`read` and `grep` also take `result:ID`, which names a long result that was cut: see results.py.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from palinurus.domain.errors import NotFound, WorkspaceError
from palinurus.domain.function_tool import tool
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import OUTSIDE_MARK, Image, Origin, Text
from palinurus.domain.tool import Tool, ToolOutput, ToolRun
from palinurus.tools.files.matcher import Hit
from palinurus.tools.files.reach import Reach, Reaching, may_see, reaching, reading
from palinurus.tools.files.search import Document, search
from palinurus.tools.files.sources import from_files, is_marked, sources_of_names
from palinurus.tools.results import SCHEME, ResultShelf, pieces
from palinurus.workspace import pictures
from palinurus.workspace.files import FileText, Missing, WorkspaceFiles, is_private

MAX_LINES = 400
MAX_LINE = 4_000
MARGIN = 2_000  # below the limit of a result: a page that ends at a line is better than one with a hole
MAX_NAMES = 500
MAX_SEARCHED_FILES = 5_000
MAX_SEARCHED_CHARACTERS = 16 * 1024 * 1024
GATHER_SECONDS = 5.0


def file_tools(
    files: WorkspaceFiles | Reaching, shelf: ResultShelf | None = None, elsewhere: Elsewhere = lambda key, path: None
) -> tuple[Tool, ...]:
    reach = reaching(files)

    @tool("read", "Read a text file or a picture of the workspace. Lines come numbered.")
    async def read(
        run: ToolRun,
        path: Annotated[str, "relative to the workspace"],
        offset: Annotated[int, Meta(ge=1), "first line"] = 1,
        limit: Annotated[int, Meta(ge=1), "how many lines"] = MAX_LINES,
    ) -> ToolOutput:
        if path.startswith(SCHEME):
            found = await asyncio.to_thread(_kept, shelf, run, path)
        else:
            opened = await asyncio.to_thread(lambda: elsewhere(run.key, path) or _open(run, reach(run.key), path))
            if isinstance(opened, ToolOutput):
                return opened
            found = opened
        page = _page(found, offset, limit, run.max_characters - MARGIN)
        return _shown(found, page, found.lines[offset - 1 : offset - 1 + limit])

    @tool("ls", "List a directory of the workspace. Directories end with a slash.")
    async def ls(run: ToolRun, path: Annotated[str, "relative to the workspace"] = ".") -> ToolOutput:
        return await asyncio.to_thread(lambda: _names(run, reach(run.key), path))

    @tool("grep", "Find lines in the workspace's text files. Case is ignored. Answers path#Lline: text.")
    async def grep(
        run: ToolRun,
        pattern: Annotated[str, "regular expression"],
        path: Annotated[str, "file or directory"] = ".",
        max: Annotated[int, Meta(ge=1, le=500), "most lines to show"] = 50,  # noqa: A002 — the model's word for it
    ) -> ToolOutput:
        if path.startswith(SCHEME):
            kept = await asyncio.to_thread(_kept, shelf, run, path)
            gathered = Gathered(((path, "\n".join(kept.lines)),), origin=kept.origin, sources=kept.sources)
        else:
            gathered = await asyncio.to_thread(lambda: _gather(run, reach(run.key), path))
        hits = await search(pattern, gathered.documents, max + 1)
        lines = [f"{where}#L{number}: {text}" for where, number, text in hits[:max]]
        if not hits:
            lines.append(f"no line in {path} matches {pattern!r}")
        if len(hits) > max:
            lines.append(f"[more than {max} lines match: narrow the pattern or the path]")
        text = "\n".join([*lines, *gathered.remarks])
        if gathered.origin == Origin.OUTSIDE:
            return ToolOutput(text, origin=gathered.origin, sources=gathered.sources)
        return from_files(text, await asyncio.to_thread(_sources_of_hits, reach, run, gathered.documents, hits[:max]))

    return read, ls, grep


class Lines(Struct, frozen=True):
    """A text as it is paged through, and whose words it holds."""

    name: str
    lines: list[str]
    origin: Origin = Origin.OWNER
    sources: tuple[str, ...] = ()


Elsewhere = Callable[[SessionKey, str], Lines | None]
"""Texts outside the workspace that may be read all the same; None when there is none of that name. Runs in a thread;
may raise a PalinurusError, which the model is told."""


class Gathered(Struct, frozen=True):
    """The texts to search, and what to say about those that are not among them."""

    documents: tuple[Document, ...]
    remarks: tuple[str, ...] = ()
    origin: Origin = Origin.OWNER
    sources: tuple[str, ...] = ()


def text_lines(text: str) -> list[str]:
    """Lines as an editor counts them: a newline at the end begins no new one."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


def _kept(shelf: ResultShelf | None, run: ToolRun, path: str) -> Lines:
    if shelf is None:
        raise NotFound(f"there is no {path[:80]}", hint="long results are not kept here")
    kept = shelf.load(run, path)
    return Lines(path, pieces(kept.text), kept.about.origin, kept.about.sources)


def _open(run: ToolRun, reach: Reach, path: str) -> Lines | ToolOutput:
    """A text by its lines, or a picture whole."""
    picture = _picture(run, reach, path)
    if picture is not None:
        return picture
    found = _load(run, reach, path)
    sources = reach.files.sources_of(found.path)
    return Lines(found.path, text_lines(found.text), Origin.OUTSIDE if sources else Origin.OWNER, sources)


def _picture(run: ToolRun, reach: Reach, path: str) -> ToolOutput | None:
    guard = reading(run, reach, path)
    guard(path)
    with reach.files.boundary.open_file(path) as file:
        guard(file.path)
        if not pictures.kind_of(os.pread(file.fd, 16, 0)):
            return None
        place, data = file.path, file.read(pictures.MAX_BYTES)
    image = pictures.fit_image(data)
    blocks: tuple[Text | Image, ...] = (Text(f"{place} ({image.mime_type}, {len(data):,} bytes)"), image)
    return from_files(blocks, reach.files.sources_of(place))


def _load(run: ToolRun, reach: Reach, path: str) -> FileText:
    """The path as asked is checked before the file is touched, and where it really lies before its text is used."""
    guard = reading(run, reach, path)
    guard(path)
    found = reach.files.load(path)
    guard(found.path)
    return found


def _page(found: Lines, offset: int, limit: int, room: int) -> str:
    name, lines = found.name, found.lines
    if not lines:
        return f"{name} (lines 0-0 of 0)"
    if offset > len(lines):
        raise WorkspaceError(f"{name} ends at line {len(lines)}", hint=f"offset {offset} is past its end")
    shown: list[str] = []
    for number, line in enumerate(lines[offset - 1 : offset - 1 + limit], start=offset):
        numbered = f"{number}| {_short(line)}"
        room -= len(numbered) + 1
        if room < 0 and shown:
            break
        shown.append(numbered)
    last = offset + len(shown) - 1
    more = [f"[continue with offset={last + 1}]"] if last < len(lines) else []
    return "\n".join([f"{name} (lines {offset}-{last} of {len(lines)})", *shown, *more])


def _shown(found: Lines, page: str, lines: Sequence[str]) -> ToolOutput:
    """The lines are asked and not the page: of a long one the page shows the beginning, and the mark is at its end."""
    if found.origin != Origin.OUTSIDE and is_marked(found.name, lines):
        return from_files(page, (f"written:{found.name}",))
    return ToolOutput(page, origin=found.origin, sources=found.sources)


def _short(line: str) -> str:
    line = line.rstrip("\r")
    if len(line) <= MAX_LINE:
        return line
    return f"{line[:MAX_LINE]}[… {len(line) - MAX_LINE:,} more characters in this line]"


def _names(run: ToolRun, reach: Reach, path: str) -> ToolOutput:
    guard = reading(run, reach, path)
    guard(path)
    listing = reach.files.boundary.list_directory(path, max_entries=MAX_NAMES)
    guard(listing.path)
    prefix = "" if listing.path == "." else f"{listing.path}/"
    names = [
        f"{entry.name}/" if entry.is_directory else entry.name
        for entry in listing.entries
        if may_see(run, reach, prefix + entry.name)
    ]
    if not listing.complete:
        names.append(f"[more than {MAX_NAMES} entries: list a directory below]")
    sources = sources_of_names(reach.files, [prefix + name for name in names])
    return from_files("\n".join(names) or "[empty]", sources)


def _sources_of_hits(
    reach: Reaching, run: ToolRun, documents: Sequence[Document], hits: Sequence[Hit]
) -> tuple[str, ...]:
    """Of the files that are shown. A note that says it is from outside is, whoever finds it."""
    files = reach(run.key).files
    numbers: dict[str, list[int]] = {}
    for place, number, _ in hits:
        numbers.setdefault(place, []).append(number)
    found: dict[str, None] = {}
    for place, text in documents:
        if place in numbers:
            found |= dict.fromkeys(files.sources_of(place))
            if OUTSIDE_MARK in text and is_marked(place, _lines_at(text, numbers[place])):
                found[f"written:{place}"] = None
    return tuple(found)


def _lines_at(text: str, numbers: Sequence[int]) -> list[str]:
    lines = text.split("\n")
    return [lines[number - 1] for number in numbers]


def _gather(run: ToolRun, reach: Reach, path: str) -> Gathered:
    reading(run, reach, path)(path)
    boundary = reach.files.boundary
    if not boundary.is_directory(path):
        found = _load(run, reach, path)
        return Gathered(((found.path, found.text),))
    walked = boundary.walk(path, max_files=MAX_SEARCHED_FILES)
    paths = [each for each in walked.files if may_see(run, reach, each)]
    remarks = []
    if not run.private and any(map(is_private, walked.files)):
        remarks.append("[private memory was left out: this session is not private]")
    documents, unread, whole = _texts(run, reach, paths)
    if unread:
        remarks.append(f"[not searched: {len(unread)} files that are no text or too large, such as {unread[0]}]")
    if not (whole and walked.complete):
        remarks.append("[only a part of the files was searched: name a smaller directory]")
    return Gathered(tuple(documents), tuple(remarks))


def _texts(run: ToolRun, reach: Reach, paths: list[str]) -> tuple[list[Document], list[str], bool]:
    """What can be read in the time and size allowed: texts, paths of what is no text, and whether that was all."""
    documents: list[Document] = []
    unread: list[str] = []
    room = MAX_SEARCHED_CHARACTERS
    deadline = time.monotonic() + GATHER_SECONDS
    for path in paths:
        found = reach.files.read(path)
        if isinstance(found, FileText):
            room -= len(found.text)
            if may_see(run, reach, found.path):  # a link may have taken the file's place since the walk
                documents.append((found.path, found.text))
        elif not isinstance(found, Missing):  # a file that went away since the walk is no longer of interest
            unread.append(path)
        if room < 0 or time.monotonic() > deadline:
            return documents, unread, path == paths[-1]
    return documents, unread, True
