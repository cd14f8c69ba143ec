"""The hands for files: read, ls and grep, inside the workspace and with respect for what is private."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated

from msgspec import Meta, Struct

from palinurus.domain.errors import WorkspaceError
from palinurus.domain.tool import Tool, ToolOutput, ToolRun
from palinurus.tools.registry import tool
from palinurus.tools.search import Document, search
from palinurus.workspace.files import FileText, Missing, WorkspaceFiles, is_private

MAX_LINES = 400
MAX_LINE = 4_000
MAX_READ = 14_000  # below the registry's limit: a page that ends at a line is better than one with a hole
MAX_NAMES = 500
MAX_SEARCHED_FILES = 5_000
MAX_SEARCHED_CHARACTERS = 16 * 1024 * 1024
GATHER_SECONDS = 5.0

_PRIVATE = "belongs to private memory, which only a private session may read"


def file_tools(files: WorkspaceFiles) -> tuple[Tool, ...]:
    @tool("read", "Read a text file of the workspace. Lines come numbered.")
    async def read(
        run: ToolRun,
        path: Annotated[str, "relative to the workspace"],
        offset: Annotated[int, Meta(ge=1), "first line"] = 1,
        limit: Annotated[int, Meta(ge=1), "how many lines"] = MAX_LINES,
    ) -> ToolOutput:
        found = await asyncio.to_thread(_load, files, path, run.private)
        return ToolOutput(_page(found, offset, limit))

    @tool("ls", "List a directory of the workspace. Directories end with a slash.")
    async def ls(run: ToolRun, path: Annotated[str, "relative to the workspace"] = ".") -> ToolOutput:
        return ToolOutput(await asyncio.to_thread(_names, files, path, run.private))

    @tool("grep", "Find lines in the workspace's text files. Case is ignored. Answers path#Lline: text.")
    async def grep(
        run: ToolRun,
        pattern: Annotated[str, "regular expression"],
        path: Annotated[str, "file or directory"] = ".",
        max: Annotated[int, Meta(ge=1, le=500), "most lines to show"] = 50,  # noqa: A002 — the model's word for it
    ) -> ToolOutput:
        gathered = await asyncio.to_thread(_gather, files, path, run.private)
        hits = await search(pattern, gathered.documents, max + 1)
        lines = [f"{where}#L{number}: {text}" for where, number, text in hits[:max]]
        if not hits:
            lines.append(f"no line in {path} matches {pattern!r}")
        if len(hits) > max:
            lines.append(f"[more than {max} lines match: narrow the pattern or the path]")
        return ToolOutput("\n".join([*lines, *gathered.remarks]))

    return read, ls, grep


class Gathered(Struct, frozen=True):
    """The texts to search, and what to say about those that are not among them."""

    documents: tuple[Document, ...]
    remarks: tuple[str, ...] = ()


def text_lines(text: str) -> list[str]:
    """Lines as an editor counts them: a newline at the end begins no new one."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


def _load(files: WorkspaceFiles, path: str, private: bool) -> FileText:
    """The path as asked is checked before the file is touched, and where it really lies before its text is used."""
    _refuse_private(path, path, private)
    found = files.load(path)
    _refuse_private(path, found.path, private)
    return found


def _refuse_private(asked: str, place: str, private: bool) -> None:
    if not private and is_private(place):
        raise WorkspaceError(f"{asked} {_PRIVATE}", hint="answer without it")


def _page(found: FileText, offset: int, limit: int) -> str:
    lines = text_lines(found.text)
    if not lines:
        return f"{found.path} (lines 0-0 of 0)"
    if offset > len(lines):
        raise WorkspaceError(f"{found.path} ends at line {len(lines)}", hint=f"offset {offset} is past its end")
    shown: list[str] = []
    room = MAX_READ
    for number, line in enumerate(lines[offset - 1 : offset - 1 + limit], start=offset):
        numbered = f"{number}| {_short(line)}"
        room -= len(numbered) + 1
        if room < 0 and shown:
            break
        shown.append(numbered)
    last = offset + len(shown) - 1
    more = [f"[continue with offset={last + 1}]"] if last < len(lines) else []
    return "\n".join([f"{found.path} (lines {offset}-{last} of {len(lines)})", *shown, *more])


def _short(line: str) -> str:
    line = line.rstrip("\r")
    if len(line) <= MAX_LINE:
        return line
    return f"{line[:MAX_LINE]}[… {len(line) - MAX_LINE:,} more characters in this line]"


def _names(files: WorkspaceFiles, path: str, private: bool) -> str:
    _refuse_private(path, path, private)
    listing = files.boundary.list_directory(path, max_entries=MAX_NAMES)
    _refuse_private(path, listing.path, private)
    prefix = "" if listing.path == "." else f"{listing.path}/"
    names = [
        f"{entry.name}/" if entry.is_directory else entry.name
        for entry in listing.entries
        if private or not is_private(prefix + entry.name)
    ]
    if not listing.complete:
        names.append(f"[more than {MAX_NAMES} entries: list a directory below]")
    return "\n".join(names) or "[empty]"


def _gather(files: WorkspaceFiles, path: str, private: bool) -> Gathered:
    _refuse_private(path, path, private)
    if not files.boundary.is_directory(path):
        found = _load(files, path, private)
        return Gathered(((found.path, found.text),))
    walked = files.boundary.walk(path, max_files=MAX_SEARCHED_FILES)
    paths = [each for each in walked.files if private or not is_private(each)]
    remarks = [] if len(paths) == len(walked.files) else ["[private memory was left out: this session is not private]"]
    documents, unread, whole = _texts(files, paths)
    if unread:
        remarks.append(f"[not searched: {len(unread)} files that are no text or too large, such as {unread[0]}]")
    if not (whole and walked.complete):
        remarks.append("[only a part of the files was searched: name a smaller directory]")
    return Gathered(tuple(documents), tuple(remarks))


def _texts(files: WorkspaceFiles, paths: list[str]) -> tuple[list[Document], list[str], bool]:
    """What can be read in the time and size allowed: texts, paths of what is no text, and whether that was all."""
    documents: list[Document] = []
    unread: list[str] = []
    room = MAX_SEARCHED_CHARACTERS
    deadline = time.monotonic() + GATHER_SECONDS
    for path in paths:
        found = files.read(path)
        if isinstance(found, FileText):
            room -= len(found.text)
            documents.append((found.path, found.text))
        elif not isinstance(found, Missing):  # a file that went away since the walk is no longer of interest
            unread.append(path)
        if room < 0 or time.monotonic() > deadline:
            return documents, unread, path == paths[-1]
    return documents, unread, True
