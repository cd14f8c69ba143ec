"""Words in files of a home: the agent's memory, what was typed, logs, kept results, copies that were made of them.

What is rewritten is ours, or is memory: the markdown at the top of a workspace and in `memory/`, with the copies that
are kept of it. Other files of a workspace are somebody's work; they are named, and rewritten when that is asked for.
The config, keys and backups are only named. Everything here blocks.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from palinurus.config.atomic import write_atomic
from palinurus.migrate.forgetting.folding import unescaped
from palinurus.migrate.forgetting.words import Words, forget_in_json

LARGEST = 64 * 1024 * 1024  # of a file that is rewritten
PIECE = 4 * 1024 * 1024
OVERLAP = 64 * 1024
Treatment = Literal["text", "lines of JSON", "remove", "index", "stays"]

_MEMORY = re.compile(r"[^/]+\.md|(memory|\.pal)/.*", re.IGNORECASE)
_INDEX = re.compile(r"derived/(memory/[^/]+|transcripts)\.sqlite(-wal|-shm)?")
_LOCKS = ("lock", "pal.sock")


class Kind(Struct, frozen=True):
    treatment: Treatment
    why: str = ""


class File(Struct, frozen=True):
    path: Path
    kind: Kind
    agent: str = ""  # whose workspace it lies in


class Places:
    """The files of a home and of the workspaces of its agents."""

    def __init__(self, root: Path, workspaces: Mapping[str, Path], *, every_file: bool = False) -> None:
        self._root = root
        self._workspaces = {path.resolve(): agent for agent, path in reversed(list(workspaces.items()))}
        self._every_file = every_file

    def files(self) -> Iterator[File]:
        """All of them, none twice. Links are not followed."""
        outside = [path for path in self._workspaces if not path.is_relative_to(self._root.resolve())]
        for top in (self._root.resolve(), *outside):
            for path in plain_files(top):
                agent, inside = self._workspace_of(path)
                yield File(path, self._kind(path, inside), agent)

    def _workspace_of(self, path: Path) -> tuple[str, str]:
        """Whose it is, and its path in there; empty when it is in none."""
        for root, agent in self._workspaces.items():
            if path.is_relative_to(root) and root != self._root.resolve():
                return agent, str(path.relative_to(root))
        return "", ""

    def _kind(self, path: Path, inside: str) -> Kind:
        return self._in_workspace(inside) if inside else self._in_home(str(path.relative_to(self._root.resolve())))

    def _in_workspace(self, name: str) -> Kind:
        if name.startswith(".git/"):
            return Kind("stays", "the history of the workspace is not rewritten")
        if is_memory(name) or self._every_file:
            return Kind("text")
        return Kind("stays", "a file of the workspace that is no memory; --files rewrites it")

    def _in_home(self, name: str) -> Kind:
        top = name.split("/", maxsplit=1)[0]
        if _INDEX.fullmatch(name):
            return Kind("index")
        if top == "derived" or name.startswith("home.sqlite.before-"):
            return Kind("remove")  # made again when it is needed, or a copy from before an update
        if top == "logs" or name == "chat-history.jsonl":
            return Kind("lines of JSON")
        if top == "results":
            return Kind("text")
        if name.startswith("home.sqlite"):
            return Kind("index")
        if top == "backups":
            return Kind("stays", "a backup")
        if top.startswith("palinurus.json"):
            return Kind("stays", "the config is yours to change")
        if name in ("copies.json", "backups.json"):
            return Kind("stays", "where copies were written; their names are yours to change")
        if top in ("sandboxes", "skills", "tools"):
            return Kind("text") if self._every_file else Kind("stays", "a file of tools or skills; --files rewrites it")
        return Kind("stays", "another agent's, or nothing that we know")


def is_memory(name: str) -> bool:
    """Whether a file of a workspace, by its path in there, is the agent's memory or a copy of it."""
    return _MEMORY.fullmatch(name) is not None


def count_lines(file: File, words: Words) -> int:
    """How many lines hold the words; 1 for a file that is no text. 0: none."""
    text = text_of(file.path)
    if text is None:
        return int(holds(file.path, words))
    if file.kind.treatment == "lines of JSON":
        return sum(forget_in_json(line, words) != line for line in text.split("\n"))
    return len(words.lines(text))


def quotes_in(file: File, words: Words) -> tuple[str, ...]:
    """The words as they stand there."""
    text = text_of(file.path) or ""
    return tuple(words.quotes(unescaped(text) if file.kind.treatment == "lines of JSON" else text))


def rewrite(file: File, words: Words) -> int:
    """Take the words out; how many lines they stood in. A file that is no text is left as it is."""
    text = text_of(file.path)
    if text is None:
        return 0
    if file.kind.treatment == "lines of JSON":
        return _rewrite_log(file.path, words)
    count = len(words.lines(text))
    if count:  # where a person writes no stone is set: it would be read as a note
        write_atomic(file.path, words.without(text, stone=()).encode("utf-8", "surrogateescape"))
    return count


def drop_blocks(text: str, marks: tuple[str, ...]) -> str:
    """The text without the blocks of notes that end with these marks."""
    for mark in marks:
        end = text.find(mark)
        start = text.rfind("\n## Notes from ", 0, end) if end >= 0 else -1
        if start >= 0:
            text = text[: start + 1].rstrip("\n") + "\n" + text[end + len(mark) :].lstrip("\n")
    return text


def rewrite_blocks(path: Path, marks: tuple[str, ...], *, apply: bool) -> int:
    """How many blocks there are, and with `apply` take them out."""
    text = text_of(path)
    if text is None:
        return 0
    found = sum(mark in text for mark in marks)
    if found and apply:
        write_atomic(path, drop_blocks(text, marks).encode("utf-8", "surrogateescape"))
    return found


def holds(path: Path, words: Words) -> bool:
    """Whether its bytes hold the words, however large it is."""
    try:
        with path.open("rb") as file:
            before = b""
            while data := file.read(PIECE):
                if words.held_in(before + data):
                    return True
                before = data[-OVERLAP:]
    except OSError:
        return False
    return False


def _rewrite_log(path: Path, words: Words) -> int:
    """Lines that others append while we read are carried over: they write to the file that was there before."""
    with path.open("rb") as old:
        lines = old.read().decode("utf-8", "surrogateescape").split("\n")
        new = [forget_in_json(line, words) for line in lines]
        changed = sum(one != other for one, other in zip(lines, new, strict=True))
        if changed:
            write_atomic(path, "\n".join(new).encode("utf-8", "surrogateescape"))
            if late := old.read():
                with path.open("ab") as file:
                    file.write(late)
    return changed


def text_of(path: Path) -> str | None:
    """What a file says; None when it is no text, or too large, or not there any more."""
    try:
        if path.stat().st_size > LARGEST:
            return None
        data = path.read_bytes()
    except OSError:
        return None
    return None if b"\0" in data[:8192] else data.decode("utf-8", "surrogateescape")


def plain_files(top: Path) -> Iterator[Path]:
    """In order. Links are not followed."""
    for folder, folders, names in os.walk(top):
        folders.sort()
        for name in sorted(names):
            path = Path(folder) / name
            if name in _LOCKS and Path(folder) == top:
                continue
            try:
                if stat.S_ISREG(path.lstat().st_mode):
                    yield path
            except OSError:  # it went meanwhile
                continue
