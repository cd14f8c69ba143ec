"""Words out of what `pal export` wrote: a tree is rewritten as the home is, one packed file is only named.

A transcript of ours ends with a colophon. One that has none any more belongs to a program that goes on with it, and is
named. What is rewritten is read back whole: the colophon tells the new words. Everything here blocks.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from palinurus.config.atomic import write_atomic
from palinurus.migrate.forgetting.files import (
    PIECE,
    drop_blocks,
    holds,
    is_memory,
    plain_files,
    text_of,
)
from palinurus.migrate.forgetting.report import Spot
from palinurus.migrate.forgetting.store import Scope
from palinurus.migrate.forgetting.words import Words, forget_in_json
from palinurus.migrate.importer import BETWEEN
from palinurus.migrate.openclaw.colophon import TYPE, Colophon, Odd, read_colophon
from palinurus.migrate.openclaw.documents import OURS
from palinurus.migrate.openclaw.store import FILE
from palinurus.sessions.forgotten import TOMBSTONE
from palinurus.sessions.session import Session

PACKED = "it is one packed file, which is not changed: delete it, and `pal export` anew"
GOES_ON = "another program goes on with it: take the words out there"
WORK = "a file of a workspace or a skill that is no memory; --files rewrites it"
OTHER = "nothing that we wrote there"

_TRANSCRIPT = re.compile(r"agents/[^/]+/sessions/([^/]+?)\.jsonl(\..*)?")
_WORKSPACE = re.compile(r"workspace(?:-[^/]+)?/(.+)")
_JSON = re.compile(rf"openclaw\.json|{re.escape(OURS)}|cron/jobs\.json|exec-approvals\.json|credentials/[^/]+\.json")
_STORE = re.compile(rf"agents/[^/]+/sessions/{re.escape(FILE)}")


class ExportCopy:
    """One export. `said` are the words that are looked for in conversations and beside memory."""

    def __init__(self, root: Path, scope: Scope, said: Words, marks: tuple[str, ...], *, every_file: bool) -> None:
        self.root = root
        self._scope = scope
        self._said = said
        self._marks = marks
        self._every_file = every_file

    def forget(self, *, apply: bool, quoting: bool) -> list[Spot]:
        """What is there, and with `apply` what was done. Raises StorageError and OSError."""
        if self.root.is_file():
            held = _parts_holding(self.root, self._said)
            return [Spot(f"export {self.root}", "stays", held, PACKED)] if held else []
        spots = (self._file(path, apply=apply, quoting=quoting) for path in plain_files(self.root))
        return [spot for spot in spots if spot is not None]

    def remains(self) -> list[Spot]:
        if self.root.is_file():
            return self.forget(apply=False, quoting=False)
        return [
            Spot(str(path), "stays", 1, self._why(path)) for path in plain_files(self.root) if holds(path, self._said)
        ]

    def _file(self, path: Path, *, apply: bool, quoting: bool) -> Spot | None:
        name = str(path.relative_to(self.root))
        whole = bool((found := _TRANSCRIPT.fullmatch(name)) and found[1] in self._scope.sessions)
        words = self._scope.words if _WORKSPACE.fullmatch(name) else self._said
        marked = self._has_marks(path, name)
        if not whole and not marked and not _STORE.fullmatch(name) and not (words and holds(path, words)):
            return None
        where = f"export {self.root}: {name}"
        if why := self._stays(path, name):
            return None if apply else Spot(where, "stays", 1, why)
        quotes = tuple(words.quotes(text_of(path) or "")) if quoting else ()
        count = (
            self._transcript(path, words, whole=whole, apply=apply) if found else self._text(path, name, words, apply)
        )
        return Spot(where, "rewrite", count, quotes=quotes) if count else None

    def _why(self, path: Path) -> str:
        return self._stays(path, str(path.relative_to(self.root))) or "the words stand there still, or as a name"

    def _stays(self, path: Path, name: str) -> str:
        """Why it is left as it is; empty: it is not."""
        if _TRANSCRIPT.fullmatch(name):
            return "" if read_colophon(path) is not None else GOES_ON
        inside = _WORKSPACE.fullmatch(name)
        if inside or name.startswith("skills/"):
            ours = self._every_file or bool(inside and is_memory(inside[1]))
            return "" if ours and text_of(path) is not None else WORK
        return "" if _JSON.fullmatch(name) or _STORE.fullmatch(name) else OTHER

    def _has_marks(self, path: Path, name: str) -> bool:
        if not self._marks or not _WORKSPACE.fullmatch(name):
            return False
        text = text_of(path) or ""
        return any(mark in text for mark in self._marks)

    def _text(self, path: Path, name: str, words: Words, apply: bool) -> int:
        """How many lines or values change."""
        before = text_of(path) or ""
        if _WORKSPACE.fullmatch(name) or name.startswith("skills/"):
            marked = drop_blocks(before, self._marks)
            after, count = words.without(marked, stone=()), len(words.lines(marked)) + (marked != before)
        else:
            after = self._json(name, before)
            count = int(after != before)
        if apply and after != before:
            write_atomic(path, after.encode("utf-8", "surrogateescape"))
        return count

    def _json(self, name: str, text: str) -> str:
        if _STORE.fullmatch(name):
            return self._store(text)
        if name == OURS:
            return self._documents(text)
        return _indented(forget_in_json(text, self._said), text)

    def _store(self, text: str) -> str:
        """`sessions.json`: names of conversations that go as a whole go too."""
        cleaned = forget_in_json(text, self._said)
        rows = _loaded(cleaned)
        for row in rows.values() if isinstance(rows, dict) else ():
            if isinstance(row, dict) and row.get("sessionId") in self._scope.sessions and "label" in row:
                row["label"] = TOMBSTONE
        return text if rows == _loaded(text) else json.dumps(rows, indent=2, ensure_ascii=False)

    def _documents(self, text: str) -> str:
        documents = _loaded(text)
        if not isinstance(documents, list):
            return forget_in_json(text, self._said)
        for each in documents:
            if isinstance(each, dict) and isinstance(each.get("text"), str):
                each["text"] = forget_in_json(each["text"], self._said)
        return text if documents == _loaded(text) else json.dumps(documents, indent=2, ensure_ascii=False)

    def _transcript(self, path: Path, words: Words, *, whole: bool, apply: bool) -> int:
        colophon = read_colophon(path)
        if colophon is None:
            return 0
        writing = _Transcript(colophon, words, whole=whole)
        if not apply:
            for _ in writing.lines(path):
                pass
            return writing.changed
        beside = path.with_name(f".{path.name[:100]}.{os.urandom(6).hex()}.tmp")
        try:
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb", PIECE) as file:
                file.writelines(writing.lines(path))
                file.flush()
                os.fsync(file.fileno())
            if writing.changed:
                beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
        return writing.changed


class _Transcript:
    """The lines of a transcript without the words, and a colophon that agrees with them."""

    def __init__(self, colophon: Colophon, words: Words, *, whole: bool) -> None:
        self._colophon = colophon
        self._words = words
        self._whole = whole
        self._odd = {odd.index: self._cleaned(odd) for odd in colophon.odd}
        self.changed = 0  # lines

    def lines(self, path: Path) -> Iterator[bytes]:
        digest, last = hashlib.sha256(), self._colophon.entries
        with path.open("rb") as file:
            for index, line in enumerate(file):
                if index < last:
                    new = self._line(line)
                    digest.update(self._payload(new, index) + BETWEEN)
                else:
                    new = self._end(line, digest.hexdigest())
                self.changed += new != line
                yield new

    def _line(self, line: bytes) -> bytes:
        text = line.decode("utf-8", "surrogateescape")
        ending = "\n" if text.endswith("\n") else ""
        cleaned = forget_in_json(text.removesuffix("\n"), self._words, whole=self._whole)
        return (cleaned + ending).encode("utf-8", "surrogateescape")

    def _payload(self, line: bytes, index: int) -> bytes:
        """What is stored of the entry: its line, or what the colophon says instead."""
        odd = self._odd.get(index)
        return odd.payload.encode() if odd is not None and odd.payload is not None else line.rstrip(b"\n")

    def _cleaned(self, odd: Odd) -> Odd:
        if odd.payload is None:
            return odd
        return replace(odd, payload=forget_in_json(odd.payload, self._words, whole=self._whole))

    def _end(self, line: bytes, digest: str) -> bytes:
        entry: Any = json.loads(line)
        if entry.get("customType") != TYPE:
            return line
        before = self._colophon
        row = msgspec.json.encode(before.session).decode()
        session = msgspec.json.decode(forget_in_json(row, self._words), type=Session)
        if self._whole and session.label:
            session = replace(session, label=TOMBSTONE)
        extra = forget_in_json(before.extra, self._words) if before.extra else ""
        odd = tuple(self._odd[each.index] for each in before.odd)
        after = replace(before, session=session, digest=digest, extra=extra, odd=odd)
        if after == before:
            return line
        entry["data"] = msgspec.to_builtins(after)
        return msgspec.json.encode({**entry, "id": f"colophon-{digest[:16]}"}) + b"\n"


def _parts_holding(path: Path, words: Words) -> int:
    """How many files in a packed export hold them. One that cannot be read may."""
    try:
        with zipfile.ZipFile(path) as packed:
            return sum(_part_holds(packed, name, words) for name in packed.namelist())
    except (OSError, zipfile.BadZipFile, EOFError):
        return 1


def _part_holds(packed: zipfile.ZipFile, name: str, words: Words) -> bool:
    before = b""
    with packed.open(name) as part:
        while data := part.read(PIECE):
            if words.held_in(before + data):
                return True
            before = data[-64 * 1024 :]
    return False


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _indented(cleaned: str, before: str) -> str:
    return before if cleaned == before else json.dumps(_loaded(cleaned), indent=2, ensure_ascii=False)
