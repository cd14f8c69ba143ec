"""The tools that read files: read, ls, grep and find. They stay inside the workspace and protect private memory.

`read` and `grep` also take `result:ID`, which names a long result that was cut: see registry.py. A pattern that cannot
backtrack is searched in a thread, if no text is very long. Any other pattern runs in a child process that is killed
when its time is over: see worker.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import partial

from msgspec import Struct

from palinurus.domain.errors import BadRequest, NotFound, WorkspaceError
from palinurus.domain.messages import OUTSIDE_MARK, Image, Origin, Text
from palinurus.domain.tool import ToolOutput, ToolRun
from palinurus.tools.files.reach import (
    Elsewhere,
    FileAccess,
    FindAccess,
    TextLines,
    check_reading,
    from_files,
    is_marked,
    may_see,
    sources_of_names,
    text_lines,
)
from palinurus.tools.registry import SCHEME, ResultStore, split_pieces
from palinurus.tools.worker import Hit, matching_lines, run_worker
from palinurus.workspace import pictures
from palinurus.workspace.files import MissingFile, TextFile, is_private
from palinurus.workspace.write import whereabouts

MAX_PATTERN = 500
MAX_GLOB = 300
MAX_WALKED = 20_000
MAX_ALTERNATIVES = 64
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
SECONDS = 5.0
# Characters of pattern times characters of text: blocks the event loop for at most a tenth of a second.
_QUICK = 20_000_000
Document = tuple[str, str]
"""A path and its text."""

MAX_LINE = 4_000
MARGIN = 2_000  # below the limit of a result: a page that ends at a line is better than a cut one
MAX_NAMES = 500
MAX_SEARCHED_FILES = 5_000
MAX_SEARCHED_CHARACTERS = 16 * 1024 * 1024
GATHER_SECONDS = 5.0


async def search(pattern: str, documents: Sequence[Document], most: int, *, seconds: float = SECONDS) -> list[Hit]:
    """Returns the first matching lines. Raises BadRequest for an invalid pattern, or one that takes too long."""
    await asyncio.to_thread(_check, pattern)  # compiling large character classes takes time
    longest = max((len(text) for _, text in documents), default=0)
    if _is_tame(pattern) and len(pattern) * longest <= _QUICK:
        return await asyncio.to_thread(matching_lines, pattern, documents, most)
    wanted = {"pattern": pattern, "documents": documents, "most": most}
    request = await asyncio.to_thread(lambda: json.dumps(wanted).encode() + b"\n")
    try:
        answer = await run_worker("search", "", request, seconds)
    except TimeoutError as error:
        raise BadRequest(f"the pattern took longer than {seconds:g} seconds", hint="use a simpler one") from error
    if not answer:
        raise BadRequest("the pattern could not be matched", hint="use a simpler one")
    return [(path, number, text) for path, number, text in json.loads(answer)]


def _check(pattern: str) -> None:
    if not pattern:
        raise BadRequest("the pattern is empty", hint="give a word or a regular expression")
    if len(pattern) > MAX_PATTERN:
        raise BadRequest(f"the pattern has {len(pattern):,} characters; {MAX_PATTERN} are allowed", hint="shorten it")
    try:
        re.compile(pattern, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        hint = "escape special characters with a backslash"
        raise BadRequest(f"not a regular expression: {error}", hint=hint) from error


def _is_tame(pattern: str) -> bool:
    """Returns whether matching is linear: no group, no repetition, and few optional characters.

    Judged by the characters alone, escaped ones too: a wrong "no" costs only a few milliseconds.
    """
    return not set(pattern) & set("(*+{") and pattern.count("?") <= 3


async def read_file(
    run: ToolRun, reach: FindAccess, results: ResultStore | None, path: str, offset: int, limit: int, others: Elsewhere
) -> ToolOutput:
    if path.startswith(SCHEME):
        found = await asyncio.to_thread(_stored_lines, results, run, path)
    else:
        opened = await asyncio.to_thread(lambda: others(run.key, path) or _open(run, reach(run.key), path))
        if isinstance(opened, ToolOutput):
            return opened
        found = opened
    page = _page(found, offset, limit, run.max_characters - MARGIN)
    # Checks the lines, not the page: the page cuts long lines, and the mark is at their end.
    if found.origin != Origin.OUTSIDE and is_marked(found.name, found.lines[offset - 1 : offset - 1 + limit]):
        return from_files(page, (f"written:{found.name}",))
    return ToolOutput(page, origin=found.origin, sources=found.sources)


async def grep_files(
    run: ToolRun, reach: FindAccess, results: ResultStore | None, pattern: str, path: str, most: int
) -> ToolOutput:
    if path.startswith(SCHEME):
        stored = await asyncio.to_thread(_stored_lines, results, run, path)
        texts = SearchableTexts(((path, "\n".join(stored.lines)),), origin=stored.origin, sources=stored.sources)
    else:
        texts = await asyncio.to_thread(lambda: _gather(run, reach(run.key), path))
    hits = await search(pattern, texts.documents, most + 1)
    lines = [f"{where}#L{number}: {text}" for where, number, text in hits[:most]]
    if not hits:
        lines.append(f"no line in {path} matches {pattern!r}")
    if len(hits) > most:
        lines.append(f"[more than {most} lines match: narrow the pattern or the path]")
    text = "\n".join([*lines, *texts.remarks])
    if texts.origin == Origin.OUTSIDE:
        return ToolOutput(text, origin=texts.origin, sources=texts.sources)
    return from_files(text, await asyncio.to_thread(_sources_of_hits, reach, run, texts.documents, hits[:most]))


class SearchableTexts(Struct, frozen=True):
    """The texts to search, and remarks about those left out."""

    documents: tuple[Document, ...]
    remarks: tuple[str, ...] = ()
    origin: Origin = Origin.OWNER
    sources: tuple[str, ...] = ()


def _stored_lines(results: ResultStore | None, run: ToolRun, path: str) -> TextLines:
    if results is None:
        raise NotFound(f"there is no {path[:80]}", hint="long results are not stored here")
    info, text = results.load(run, path)
    return TextLines(path, split_pieces(text), info.origin, info.sources)


def _open(run: ToolRun, reach: FileAccess, path: str) -> TextLines | ToolOutput:
    """Returns a text by its lines, or a whole picture."""
    if picture := _picture(run, reach, path):
        return picture
    found = _load(run, reach, path)
    sources = reach.files.sources_of(found.path)
    return TextLines(found.path, text_lines(found.text), Origin.OUTSIDE if sources else Origin.OWNER, sources)


def _picture(run: ToolRun, reach: FileAccess, path: str) -> ToolOutput | None:
    guard = partial(check_reading, run, reach, path)
    guard(path)
    with reach.files.boundary.open_file(path) as file:
        guard(file.path)
        if not pictures.kind_of(os.pread(file.fd, 16, 0)):
            return None
        place, data = file.path, file.read(pictures.MAX_BYTES)
    image = pictures.fit_image(data)
    blocks: tuple[Text | Image, ...] = (Text(f"{place} ({image.mime_type}, {len(data):,} bytes)"), image)
    return from_files(blocks, reach.files.sources_of(place))


def _load(run: ToolRun, reach: FileAccess, path: str) -> TextFile:
    """Loads a file. The requested path is checked before the file is opened, its real path before the text is used."""
    guard = partial(check_reading, run, reach, path)
    guard(path)
    found = reach.files.load(path)
    guard(found.path)
    return found


def _page(found: TextLines, offset: int, limit: int, left: int) -> str:
    name, lines = found.name, found.lines
    if not lines:
        return f"{name} (lines 0-0 of 0)"
    if offset > len(lines):
        raise WorkspaceError(f"{name} ends at line {len(lines)}", hint=f"offset {offset} is past its end")
    shown: list[str] = []
    for number, line in enumerate(lines[offset - 1 : offset - 1 + limit], start=offset):
        numbered = f"{number}| {_short(line)}"
        left -= len(numbered) + 1
        if left < 0 and shown:
            break
        shown.append(numbered)
    last = offset + len(shown) - 1
    more = [f"[continue with offset={last + 1}]"] if last < len(lines) else []
    return "\n".join([f"{name} (lines {offset}-{last} of {len(lines)})", *shown, *more])


def _short(line: str) -> str:
    line = line.rstrip("\r")
    if len(line) <= MAX_LINE:
        return line
    return f"{line[:MAX_LINE]}[… {len(line) - MAX_LINE:,} more characters in this line]"


def list_names(run: ToolRun, reach: FileAccess, path: str) -> ToolOutput:
    guard = partial(check_reading, run, reach, path)
    guard(path)
    listing = reach.files.boundary.list_directory(path, max_entries=MAX_NAMES)
    guard(listing.path)
    prefix = "" if listing.path == "." else f"{listing.path}/"
    seen = (entry for entry in listing.entries if may_see(run, reach, prefix + entry.name))
    names = [f"{entry.name}/" if entry.is_directory else entry.name for entry in seen]
    if not listing.complete:
        names.append(f"[more than {MAX_NAMES} entries: list a directory below]")
    sources = sources_of_names(reach.files, [prefix + name for name in names])
    return from_files("\n".join(names) or "[empty]", sources)


def _sources_of_hits(
    reach: FindAccess, run: ToolRun, documents: Sequence[Document], hits: Sequence[Hit]
) -> tuple[str, ...]:
    """Returns the sources of the shown files. A note marked as from outside counts, whoever finds it."""
    files = reach(run.key).files
    numbers: dict[str, list[int]] = {}
    for place, number, _ in hits:
        numbers.setdefault(place, []).append(number)
    found: dict[str, None] = {}
    for place, text in documents:
        if place in numbers:
            found |= dict.fromkeys(files.sources_of(place))
            lines = text.split("\n") if OUTSIDE_MARK in text else ()
            if lines and is_marked(place, [lines[number - 1] for number in numbers[place]]):
                found[f"written:{place}"] = None
    return tuple(found)


def _gather(run: ToolRun, reach: FileAccess, path: str) -> SearchableTexts:
    check_reading(run, reach, path, path)
    boundary = reach.files.boundary
    if not boundary.is_directory(path):
        found = _load(run, reach, path)
        return SearchableTexts(((found.path, found.text),))
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
    return SearchableTexts(tuple(documents), tuple(remarks))


def _texts(run: ToolRun, reach: FileAccess, paths: list[str]) -> tuple[list[Document], list[str], bool]:
    """Returns what can be read within time and size limits: texts, paths of other files, and whether that was all."""
    documents: list[Document] = []
    unread: list[str] = []
    left = MAX_SEARCHED_CHARACTERS
    deadline = time.monotonic() + GATHER_SECONDS
    for path in paths:
        found = reach.files.read(path)
        if isinstance(found, TextFile):
            left -= len(found.text)
            if may_see(run, reach, found.path):  # a link may have replaced the file since the walk
                documents.append((found.path, found.text))
        elif not isinstance(found, MissingFile):  # the file was removed since the walk
            unread.append(path)
        if left < 0 or time.monotonic() > deadline:
            return documents, unread, path == paths[-1]
    return documents, unread, True


def find_names(
    run: ToolRun, reach: FileAccess, pattern: str, path: str, kind: str, most: int, *, newest: bool
) -> ToolOutput:
    """Finds files by name. Blocks."""
    patterns = expand_glob(pattern)
    guard = partial(check_reading, run, reach, path)
    guard(path)
    hidden = any(part.startswith(".") for each in patterns for part in each)
    walked = reach.files.boundary.walk(path, hidden=hidden, max_files=MAX_WALKED)
    start = whereabouts(reach.files.boundary, path)
    guard(start)
    below = 0 if start == "." else len(start) + 1
    wanted = [found for found in walked.found if found.is_directory == (kind == "directory")]
    seen = [found for found in wanted if may_see(run, reach, found.path)]
    matching = [found for found in seen if matches_glob(patterns, found.path[below:])]
    if newest:
        matching.sort(key=lambda found: -found.modified_ns)
    lines = [found.path + ("/" if found.is_directory else "") for found in matching[:most]]
    if not matching:
        lines.append(f"no {kind} in {path} matches {pattern!r}")
    if len(matching) > most:
        lines.append(f"[{len(matching) - most:,} more match: narrow the pattern or the path]")
    if not walked.complete:
        lines.append("[only a part of the files was looked at: name a smaller directory]")
    return from_files("\n".join(lines), sources_of_names(reach.files, [found.path for found in matching[:most]]))


def expand_glob(pattern: str) -> list[list[str]]:
    """Returns the pattern as lists of path components with braces expanded. Without a slash it matches at any depth."""
    if not pattern.strip() or len(pattern) > MAX_GLOB:
        raise BadRequest(f"the pattern has {len(pattern)} characters; 1 to {MAX_GLOB} are allowed", hint="try *.md")
    spelled, plain = [pattern.casefold()], []
    while spelled:
        one = spelled.pop()
        found = _BRACES.search(one)
        if found is None:
            plain.append(one)
        else:
            spelled += [one[: found.start()] + part + one[found.end() :] for part in found[1].split(",")]
        if len(spelled) + len(plain) > MAX_ALTERNATIVES:
            raise BadRequest(f"the pattern has over {MAX_ALTERNATIVES} alternatives", hint="search in several steps")
    return [_components(each) for each in plain]


def _components(pattern: str) -> list[str]:
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    parts = [part for at, part in enumerate(parts) if part != "**" or parts[at - 1 : at] != ["**"]]
    return parts if "/" in pattern else ["**", *parts]


def matches_glob(patterns: Sequence[Sequence[str]], path: str) -> bool:
    """Returns whether a path, relative to the search root, matches one of the patterns. `**` matches any
    directories."""
    names = path.casefold().split("/")
    return any(_fits(pattern, names) for pattern in patterns)


def _fits(pattern: Sequence[str], names: Sequence[str]) -> bool:
    """Matches row by row: `reached` holds how many names the components so far may have consumed."""
    reached = {0}
    for part in pattern:
        if part == "**":
            reached = set(range(min(reached), len(names) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(names) and fnmatchcase(names[at], part)}
        if not reached:
            return False
    return len(names) in reached
