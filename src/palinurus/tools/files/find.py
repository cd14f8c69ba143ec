"""The hand that finds files by name: `*.md` anywhere below, `notes/**/*.md` by its path."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from msgspec import Meta

from palinurus.domain.errors import BadRequest
from palinurus.domain.function_tool import tool
from palinurus.domain.tool import Tool, ToolOutput, ToolRun
from palinurus.tools.files.reach import Reach, Reaching, may_see, reaching, reading
from palinurus.tools.files.sources import from_files, sources_of_names
from palinurus.workspace.boundary import Found
from palinurus.workspace.files import WorkspaceFiles
from palinurus.workspace.write import whereabouts

MAX_WALKED = 20_000
MAX_PATTERN = 300
MAX_ALTERNATIVES = 64
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")


def find_tool(files: WorkspaceFiles | Reaching) -> Tool:
    reach = reaching(files)

    @tool("find", "Find files by name. Case is ignored. Names that begin with a dot only if the pattern has one.")
    async def find(
        run: ToolRun,
        pattern: Annotated[str, "glob, as *.md or notes/**/*.{md,txt}"],
        path: Annotated[str, "directory"] = ".",
        kind: Literal["file", "directory"] = "file",
        sort: Literal["name", "newest"] = "name",
        max: Annotated[int, Meta(ge=1, le=1000), "most to show"] = 200,  # noqa: A002 — the model's word for it
    ) -> ToolOutput:
        matching, whole = await asyncio.to_thread(lambda: _search(run, reach(run.key), pattern, path, kind))
        if sort == "newest":
            matching.sort(key=lambda found: -found.modified_ns)
        lines = [found.path + ("/" if found.is_directory else "") for found in matching[:max]]
        if not matching:
            lines.append(f"no {kind} in {path} matches {pattern!r}")
        if len(matching) > max:
            lines.append(f"[{len(matching) - max:,} more match: narrow the pattern or the path]")
        if not whole:
            lines.append("[only a part of the files was looked at: name a smaller directory]")
        shown = [found.path for found in matching[:max]]
        sources = await asyncio.to_thread(lambda: sources_of_names(reach(run.key).files, shown))
        return from_files("\n".join(lines), sources)

    return find


def _search(run: ToolRun, reach: Reach, pattern: str, path: str, kind: str) -> tuple[list[Found], bool]:
    patterns = alternatives(pattern)
    guard = reading(run, reach, path)
    guard(path)
    hidden = any(part.startswith(".") for each in patterns for part in each)
    walked = reach.files.boundary.walk(path, hidden=hidden, max_files=MAX_WALKED)
    start = whereabouts(reach.files.boundary, path)
    guard(start)
    below = 0 if start == "." else len(start) + 1
    wanted = [found for found in walked.found if found.is_directory == (kind == "directory")]
    seen = [found for found in wanted if may_see(run, reach, found.path)]
    return [found for found in seen if matches(patterns, found.path[below:])], walked.complete


def alternatives(pattern: str) -> list[list[str]]:
    """The pattern as lists of path components, braces spelled out. One without a slash is sought at any depth."""
    if not pattern.strip() or len(pattern) > MAX_PATTERN:
        raise BadRequest(f"the pattern has {len(pattern)} characters; 1 to {MAX_PATTERN} are allowed", hint="try *.md")
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


def matches(patterns: Sequence[Sequence[str]], path: str) -> bool:
    """Whether a path, relative to where the search began, fits one of the patterns. `**` stands for any directories."""
    names = path.casefold().split("/")
    return any(_fits(tuple(pattern), tuple(names)) for pattern in patterns)


def _fits(pattern: tuple[str, ...], names: tuple[str, ...]) -> bool:
    """Row by row: `reached` holds how many names the components so far may have used up."""
    reached = {0}
    for part in pattern:
        if part == "**":
            reached = set(range(min(reached), len(names) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(names) and fnmatchcase(names[at], part)}
        if not reached:
            return False
    return len(names) in reached
