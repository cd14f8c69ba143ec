"""Files and history of a workspace as places that `forget` searches, with helpers to search files. All of it blocks.

Only memory is rewritten: the markdown at the top of a workspace and in `memory/`, with the backups of it. Other
files are reported, and rewritten only on request.
"""

from __future__ import annotations

import asyncio
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from palinurus.domain.errors import WorkspaceError
from palinurus.domain.text_places import Spot, TextFiles, TextPlace, Words
from palinurus.workspace.git import Git, find_git, unfit
from palinurus.workspace.walk import walk_tree

LARGEST = 64 * 1024 * 1024  # of a file that is rewritten
PIECE = 4 * 1024 * 1024
OVERLAP = 64 * 1024
MEMORY = r"(?i:[^/]+\.md|(memory|\.pal)/.*)"
MOST_COMMITS = 200
MOST_TEXTS = 20
_MEMORY = re.compile(MEMORY, re.DOTALL)
_NOTES = ("## Notes from ", "## Retain\n\n### From ")  # how a block of notes begins; formerly, and now
_LOCKS = ("lock", "pal.sock")


def is_memory(name: str) -> bool:
    """Whether a workspace path is the agent's memory or a backup of it."""
    return _MEMORY.fullmatch(name) is not None


def drop_blocks(text: str, marks: tuple[str, ...]) -> str:
    """The text without the blocks of notes that end with these marks."""
    for mark in marks:
        end = text.find(mark)
        start = max(text.rfind(f"\n{each}", 0, max(end, 0)) for each in _NOTES)
        if start >= 0:
            text = text[: start + 1].rstrip("\n") + "\n" + text[end + len(mark) :].lstrip("\n")
    return text


def text_of(path: Path) -> str | None:
    """The text of a file; None if it is not text, too large, or missing."""
    try:
        if path.stat().st_size > LARGEST:
            return None
        data = path.read_bytes()
    except OSError:
        return None
    return None if b"\0" in data[:8192] else data.decode("utf-8", "surrogateescape")


def holds(path: Path, words: Words) -> bool:
    """Whether its bytes hold the words, at any size."""
    try:
        with path.open("rb") as file:
            return stream_holds(file, words)
    except OSError:
        return False


def stream_holds(file: IO[bytes], words: Words) -> bool:
    before = b""
    while data := file.read(PIECE):
        if words.held_in(before + data):
            return True
        before = data[-OVERLAP:]
    return False


def plain_files(top: Path) -> Iterator[Path]:
    """In order. Links are not followed."""
    for path, entry in walk_tree(top, max_entries=sys.maxsize):
        if path not in _LOCKS and entry.is_file(follow_symlinks=False):
            yield Path(entry.path)


class GitHistories(TextPlace):
    """Workspaces whose git history holds the words: it is reported and never rewritten."""

    async def look(self) -> list[Spot]:
        return await asyncio.to_thread(self._spots)

    async def forget(self, tell: Callable[[str, int, int], None]) -> list[Spot]:
        return await self.look()

    def _spots(self) -> list[Spot]:
        words = self.search.scope.words
        found = (_in_history(agent, root, words) for agent, root in self.search.workspaces.items())
        return [spot for spot in found if spot is not None]


def _in_history(agent: str, root: Path, words: Words) -> Spot | None:
    program = find_git()
    if not words or not (root / ".git").is_dir() or unfit(root, program):
        return None
    where = f"git history of the workspace of {agent}, {root}"
    forms = dict.fromkeys(form for text in words.texts[:MOST_TEXTS] for form in _forms(text))
    pattern = "|".join("[[:space:]]+".join(map(_escaped, form.split())) for form in forms)
    search = ("-i", "--extended-regexp", "--pickaxe-regex", "-S", pattern)
    try:
        found = Git(root, program).run("log", "--all", f"--max-count={MOST_COMMITS}", "--format=%h", *search)
    except WorkspaceError as error:
        return Spot(where, "stays", 0, f"it could not be searched: {error.message}")
    commits = found.text.split()
    if not commits:
        return None
    return Spot(where, "stays", len(commits), f"history is not rewritten; commits {', '.join(commits[:5])}")


def _forms(text: str) -> list[str]:
    """Spellings to search for: git ignores case for ASCII only."""
    return [text, *(unicodedata.normalize(form, text) for form in ("NFC", "NFD", "NFKC"))]


def _escaped(word: str) -> str:
    return re.sub(r"([][.^$*+?(){}|\\])", r"\\\1", word)


PLACES = (
    TextFiles(
        r".*",
        "stays",
        "a file of the workspace that is not memory; --files rewrites it",
        inside="workspace",
        is_work=True,
    ),
    TextFiles(MEMORY, "text", inside="workspace"),
    TextFiles(r"\.git/.*", "stays", "the history of the workspace is not rewritten", inside="workspace"),
    GitHistories,
)
