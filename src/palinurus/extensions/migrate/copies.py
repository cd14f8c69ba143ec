"""Wikis and exports that were made of a home: their list, and removing words from an export.

The list is the file `copies.json` in the home. A copy that was moved or deleted is reported as missing; a copy that
somebody made by hand is unknown. The wiki of another home is listed in the home of the user who made it.

An export in a folder is changed like the home; one packed file is only named. A transcript without a colophon is
continued by another program, and is only named. A changed transcript gets a new colophon. All of it blocks.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palinurus.config.atomic import write_atomic
from palinurus.config.home import CONFIG_NAME
from palinurus.domain.text_places import TOMBSTONE, Search, Spot, Words, forget_in_json
from palinurus.extensions.migrate.files import new_file
from palinurus.extensions.migrate.foreign import as_object, load_json
from palinurus.extensions.migrate.import_store import SEPARATOR
from palinurus.extensions.migrate.openclaw.colophon import ID, TYPE, Colophon, Odd, read_colophon, short_result
from palinurus.extensions.migrate.openclaw.documents import OWN_DOCUMENTS
from palinurus.extensions.migrate.openclaw.transcripts import STORE_FILE
from palinurus.sessions.session import Session
from palinurus.workspace.text_places import drop_blocks, holds, is_memory, plain_files, stream_holds, text_of

NAME = "copies.json"


class Copy(Struct, frozen=True, rename="camel", omit_defaults=True):
    kind: Literal["wiki", "export"]
    path: str
    source: str  # the home that it was made of
    written_at: int


class Copies:
    """Those of one home. Every method blocks."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._file = root / NAME

    def all(self) -> list[Copy]:
        with suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode(self._file.read_bytes(), type=list[Copy])
        return []

    def add(self, copy: Copy) -> None:
        """Does nothing where there is no home. Raises StorageError."""
        if not is_home(self._root):
            return
        folder = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)  # two processes may add a copy at once; each holds it for one write
            others = [each for each in self.all() if each.path != copy.path]
            write_atomic(self._file, msgspec.json.format(msgspec.json.encode([*others, copy])) + b"\n")
        finally:
            os.close(folder)


def is_home(root: Path) -> bool:
    """Whether there is a home: a command that needs none does not create one."""
    return (root / CONFIG_NAME).is_file() or (root / "home.sqlite").is_file()


PACKED = "a packed file is not changed: delete it, and run `pal export` again"
CONTINUED = "another program continues it: remove the words there"
WORK = "a file of a workspace or a skill that is no memory; --files rewrites it"
OTHER = "a file that was not exported"
_KINDS = {  # of exported files, by their names
    kind: re.compile(pattern)
    for kind, pattern in (
        ("transcript", r"agents/[^/]+/sessions/([^/]+?)\.jsonl(?:\..*)?"),
        ("store", rf"agents/[^/]+/sessions/{re.escape(STORE_FILE)}()"),
        ("workspace", r"workspace(?:-[^/]+)?/(.+)"),
        ("skill", r"skills/(.+)"),
        ("documents", rf"{re.escape(OWN_DOCUMENTS)}()"),
        ("log", r"cron/runs/([^/]+)\.jsonl"),
        ("json", r"(?:openclaw\.json|cron/jobs\.json|exec-approvals\.json|credentials/[^/]+\.json)()"),
    )
}


class ExportCopy:
    """One export."""

    kind = "export"

    def __init__(self, root: Path, search: Search) -> None:
        self.root = root
        self._scope = search.scope
        self._said = search.said
        self._marks = search.marks
        self._every_file = search.every_file

    def look(self, *, quoting: bool) -> list[Spot]:
        if self.root.is_file():
            held = _parts_holding(self.root, self._said)
            return [Spot(f"export {self.root}", "stays", held, PACKED)] if held else []
        spots = (self._file(path, apply=False, quoting=quoting) for path in plain_files(self.root))
        return [spot for spot in spots if spot is not None]

    def forget(self) -> None:
        """Raises StorageError and OSError."""
        for path in () if self.root.is_file() else plain_files(self.root):
            self._file(path, apply=True, quoting=False)

    def remains(self) -> list[Spot]:
        if self.root.is_file():
            return self.look(quoting=False)
        held = [path for path in plain_files(self.root) if holds(path, self._said)]
        reasons = [self._stays(path, *self._kind(path)) or "the words are still there, or are a name" for path in held]
        return [Spot(str(path), "stays", 1, why) for path, why in zip(held, reasons, strict=True)]

    def _kind(self, path: Path) -> tuple[str, str]:
        """The kind of a file, and the session or the path inside; empty when it was not exported."""
        name = str(path.relative_to(self.root))
        found = ((kind, match[1]) for kind, pattern in _KINDS.items() if (match := pattern.fullmatch(name)))
        return next(found, ("", ""))

    def _file(self, path: Path, *, apply: bool, quoting: bool) -> Spot | None:
        kind, inside = self._kind(path)
        whole = kind == "transcript" and inside in self._scope.sessions
        words = self._scope.words if kind == "workspace" else self._said
        marked = kind == "workspace" and any(mark in (text_of(path) or "") for mark in self._marks)
        if not whole and not marked and kind != "store" and not (words and holds(path, words)):
            return None
        where = f"export {self.root}: {path.relative_to(self.root)}"
        if why := self._stays(path, kind, inside):
            return None if apply else Spot(where, "stays", 1, why)
        quotes = tuple(words.quotes(text_of(path) or "")) if quoting else ()
        if kind == "transcript":
            count = self._transcript(path, words, whole=whole, apply=apply)
        else:
            count = self._text(path, kind, words, apply)
        return Spot(where, "rewrite", count, quotes=quotes) if count else None

    def _stays(self, path: Path, kind: str, inside: str) -> str:
        """Why it is not changed; empty: it is."""
        if kind == "transcript":
            return "" if read_colophon(path) is not None else CONTINUED
        if kind in ("workspace", "skill"):
            ours = self._every_file or (kind == "workspace" and is_memory(inside))
            return "" if ours and text_of(path) is not None else WORK
        return "" if kind else OTHER

    def _text(self, path: Path, kind: str, words: Words, apply: bool) -> int:
        """How many lines or values change."""
        before = text_of(path) or ""
        if kind in ("workspace", "skill", "log"):
            marked = drop_blocks(before, self._marks)
            after, count = words.without(marked, stone=()), len(words.lines(marked)) + (marked != before)
        else:
            after = self._json(kind, before)
            count = int(after != before)
        if apply and after != before:
            write_atomic(path, after.encode("utf-8", "surrogateescape"))
        return count

    def _json(self, kind: str, text: str) -> str:
        """Of `sessions.json` also without the labels of sessions that are forgotten as a whole."""
        before = load_json(text)
        value = load_json(text if kind == "documents" else forget_in_json(text, self._said))
        for each in value if kind == "documents" and isinstance(value, list) else ():
            if isinstance(each, dict) and isinstance(each.get("text"), str):
                each["text"] = forget_in_json(each["text"], self._said)
        for row in as_object(value).values() if kind == "store" else ():
            if isinstance(row, dict) and row.get("sessionId") in self._scope.sessions and "label" in row:
                row["label"] = TOMBSTONE
        return text if value == before else json.dumps(value, indent=2, ensure_ascii=False)

    def _transcript(self, path: Path, words: Words, *, whole: bool, apply: bool) -> int:
        if (colophon := read_colophon(path)) is None:
            return 0
        rewriter = _TranscriptRewriter(colophon, words, whole=whole)
        changed = sum(new != old for old, new in rewriter.lines(path))
        if apply and changed:
            with new_file(path, replace=True) as file:
                file.writelines(new for _, new in rewriter.lines(path))
                file.flush()
                os.fsync(file.fileno())
        return changed


class _TranscriptRewriter:
    """The lines of a transcript without the words, and the colophon for them."""

    def __init__(self, colophon: Colophon, words: Words, *, whole: bool) -> None:
        self._colophon = colophon
        self._words = words
        self._whole = whole
        self._odd = {odd.index: self._cleaned(odd) for odd in colophon.odd}
        self._results = frozenset(colophon.results)

    def lines(self, path: Path) -> Iterator[tuple[bytes, bytes]]:
        """Each line as it is, and as it will be."""
        digest = hashlib.sha256()
        with path.open("rb") as file:
            for index, line in enumerate(file):
                if index < self._colophon.entries:
                    new = self._line(line)
                    odd = self._odd.get(index)  # it may have another payload for the line
                    payload = new.rstrip(b"\n") if odd is None or odd.payload is None else odd.payload.encode()
                    payload = short_result(payload) if index in self._results else payload
                    digest.update(payload + SEPARATOR)
                else:
                    new = self._end(line, digest.hexdigest())
                yield line, new

    def _line(self, line: bytes) -> bytes:
        text, ending, _ = line.decode("utf-8", "surrogateescape").partition("\n")
        return (forget_in_json(text, self._words, whole=self._whole) + ending).encode("utf-8", "surrogateescape")

    def _cleaned(self, odd: Odd) -> Odd:
        payload = odd.payload
        return replace(odd, payload=payload and forget_in_json(payload, self._words, whole=self._whole))

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
        return msgspec.json.encode({**entry, "id": f"{ID}{digest[:16]}"}) + b"\n"


def _parts_holding(path: Path, words: Words) -> int:
    """How many files in a packed export hold the words. An unreadable one counts as one that does."""
    try:
        with zipfile.ZipFile(path) as packed:
            return sum(stream_holds(packed.open(name), words) for name in packed.namelist())
    except (OSError, zipfile.BadZipFile, EOFError):
        return 1
