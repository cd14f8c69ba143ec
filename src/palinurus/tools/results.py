"""Large results: what a model is shown of them, and the shelf where the rest can be read.

A result longer than its model can use is cut in the middle. The whole of it, without secrets, goes to a file that only
its own session can ask for, by the id in the line that marks the cut:

    <home>/results/<digest of the session's key>/<id>.txt        mode 0600; the first line says whose words they are

The id is made from the text, so it is the same whenever the text is. Files are thrown away by age, number and size.
The transcript holds the cut text and needs none of them.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from os import utime
from pathlib import Path

import msgspec
from msgspec import Struct

from palinurus.config.atomic import make_directory, storage_error, write_atomic
from palinurus.domain.clock import Clock
from palinurus.domain.errors import NotFound, StorageError
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Image, Origin, Text, text_of
from palinurus.domain.tool import ToolOutput, ToolRun

SCHEME = "result:"
MAX_CHARACTERS_KEPT = 4_000_000  # of one result
LINE = 2_000  # a longer line is read in pieces of that length
MAX_BYTES = 32 * 1024 * 1024  # of one session
MAX_FILES = 100
MAX_AGE_MS = 7 * 24 * 3600 * 1000
SWEEP_MS = 3600 * 1000
_ID = re.compile(r"[0-9a-f]{16}")

log = logging.getLogger(__name__)


def characters_for_window(tokens: int | None) -> int:
    """How long a result may be for a model with such a window; None: it is not known."""
    if tokens is None or tokens < 100_000:
        return 16_000
    return 32_000 if tokens < 250_000 else 64_000


class About(Struct, frozen=True):
    """The first line of a kept result."""

    tool: str
    private: bool
    origin: Origin
    sources: tuple[str, ...] = ()


class Kept(Struct, frozen=True):
    about: About
    text: str


class ResultShelf:
    """Keeps the whole of what was cut. Its methods do file work: call them in a thread."""

    def __init__(self, root: Path, redact: Callable[[str], str], clock: Clock) -> None:
        self.redact = redact
        self._root = root
        self._clock = clock
        self._swept = 0
        self._one_at_a_time = threading.Lock()

    def keep(self, key: SessionKey, about: About, text: str) -> str:
        """Keep a text that holds no secrets, and return its id. Raises StorageError when it cannot be kept."""
        data = msgspec.json.encode(about) + b"\n" + text[:MAX_CHARACTERS_KEPT].encode("utf-8", "replace")
        name = hashlib.sha256(data).hexdigest()[:16]
        directory, now = self._directory(key), self._clock.now_ms()
        file = directory / f"{name}.txt"
        with self._one_at_a_time:
            self._sweep(now)
            make_directory(directory)
            write_atomic(file, data)
            try:
                utime(file, ns=(now * 1_000_000,) * 2)  # ages go by our clock
            except OSError as error:
                raise storage_error(error, file) from error
            _prune(directory, now - MAX_AGE_MS)
        return name

    def load(self, run: ToolRun, path: str) -> Kept:
        """What `result:ID` names, in this session. Raises NotFound."""
        name = path.removeprefix(SCHEME).strip()
        gone = NotFound(
            f"there is no {path[:80]} in this session", hint="results are kept for seven days; run it again"
        )
        if not _ID.fullmatch(name):
            raise gone
        try:
            head, _, body = (self._directory(run.key) / f"{name}.txt").read_bytes().partition(b"\n")
            about = msgspec.json.decode(head, type=About)
        except (OSError, msgspec.MsgspecError) as error:
            raise gone from error
        if about.private and not run.private:
            raise gone
        return Kept(about, body.decode("utf-8", "replace"))

    def forget(self, key: SessionKey) -> None:
        """Throw away what was kept of a session."""
        _prune(self._directory(key), oldest=self._clock.now_ms() + MAX_AGE_MS)

    def _directory(self, key: SessionKey) -> Path:
        return self._root / hashlib.sha256(str(key).encode()).hexdigest()[:32]

    def _sweep(self, now: int) -> None:
        """Once an hour also what other sessions have left."""
        if 0 <= now - self._swept < SWEEP_MS:
            return
        self._swept = now
        with suppress(OSError):
            for directory in self._root.iterdir():
                _prune(directory, now - MAX_AGE_MS)


def _prune(directory: Path, oldest: int) -> None:
    """Throw away what is too old, too much, or no file of ours; what cannot be thrown away stays for the next time."""
    room, files = MAX_BYTES, MAX_FILES
    for modified, size, file in _newest_first(directory):
        room, files = room - size, files - 1
        if modified < oldest or room < 0 or files < 0:
            with suppress(OSError):
                file.unlink()
    with suppress(OSError):
        directory.rmdir()  # refused unless it is empty


def _newest_first(directory: Path) -> list[tuple[int, int, Path]]:
    found = []
    with suppress(OSError):
        for file in directory.iterdir():
            with suppress(OSError):
                stat = file.lstat()
                found.append((stat.st_mtime_ns // 1_000_000, stat.st_size, file))
    return sorted(found, reverse=True)


def pieces(text: str) -> list[str]:
    """The lines of a kept result, long ones in pieces, so that every part of it can be asked for by number."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line[at : at + LINE] for line in lines for at in range(0, len(line) or 1, LINE)]


class Clip(Struct, frozen=True):
    """Cuts the results of one call to what its model can use."""

    run: ToolRun
    tool: str
    outside: bool = False
    shelf: ResultShelf | None = None

    async def __call__(self, output: ToolOutput) -> ToolOutput:
        if len(text_of(output.content)) <= self.run.max_characters:
            return self._clipped(output)
        return await asyncio.to_thread(self._clipped, output)

    def _clipped(self, output: ToolOutput) -> ToolOutput:
        origin = Origin.OUTSIDE if self.outside else output.origin
        about = About(self.tool, self.run.private, origin, output.sources)
        limit = self.run.max_characters
        if isinstance(output.content, str):
            return msgspec.structs.replace(output, content=self._clip(output.content, limit, about))
        blocks: list[Text | Image] = []
        for block in output.content:
            blocks.append(Text(self._clip(block.text, limit, about)) if isinstance(block, Text) else block)
            limit = max(limit - len(block.text), 0) if isinstance(block, Text) else limit
        return msgspec.structs.replace(output, content=tuple(blocks))

    def _clip(self, text: str, limit: int, about: About) -> str:
        """At most `limit` characters and the line that says what was cut; always text that can be encoded."""
        text = text.encode("utf-8", "replace").decode()  # names of files may hold bytes that are no character
        if len(text) > limit and self.shelf:
            text = self.shelf.redact(text)  # first, because half a secret is not known for one
        if len(text) <= limit:
            return text
        tail = limit // 4
        head = limit - tail
        cut = f"[… {len(text) - limit:,} of {len(text):,} characters cut here; {self._rest(text, head, about)} …]"
        return f"{text[:head]}\n{cut}\n{text[len(text) - tail :]}"

    def _rest(self, text: str, head: int, about: About) -> str:
        if self.shelf is None:
            return "ask for a smaller part to read them"
        try:
            name = self.shelf.keep(self.run.key, about, text)
        except StorageError as error:
            log.warning("a long result of %s was not kept: %s", self.tool, error)
            return "they could not be kept: ask for a smaller part to read them"
        how = f'path="{SCHEME}{name}", offset={len(pieces(text[:head])) or 1}'
        return f"read them with {how}" + (", up to a point" if len(text) > MAX_CHARACTERS_KEPT else "")
