"""The tools of an agent by name, which run each call; and the cutting of large results.

A result longer than its model can use is cut in the middle. The whole result, without secrets, goes to a file that only
its own session can read, by the id in the line that marks the cut:

    <home>/results/<digest of the session's key>/<id>.txt        mode 0600; the first line says where the text is from

The id is derived from the text, so equal texts have equal ids. Files are removed by age, number and size. The
transcript contains the cut text and does not need them.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import threading
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from os import utime
from pathlib import Path

from msgspec import MsgspecError, Struct, json, structs

from palinurus.config.atomic import make_directory, storage_error, write_atomic
from palinurus.domain.clock import Clock
from palinurus.domain.errors import ConfigError, NotFound, PalinurusError, StorageError
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Image, Origin, Text, ToolCall, text_of
from palinurus.domain.tool import Tool, ToolOutput, ToolRun, ToolSpec, failed

SCHEME = "result:"
MAX_CHARACTERS_KEPT = 4_000_000  # of one result
LINE = 2_000  # a longer line is split into pieces of that length
MAX_BYTES = 32 * 1024 * 1024  # of one session
MAX_FILES = 100
MAX_AGE_MS = 7 * 24 * 3600 * 1000
SWEEP_MS = 3600 * 1000

log = logging.getLogger(__name__)


def characters_for_window(tokens: int | None) -> int:
    """Returns how long a result may be for a model with this context window; None: unknown window."""
    if tokens is None or tokens < 100_000:
        return 16_000
    return 32_000 if tokens < 250_000 else 64_000


class ResultInfo(Struct, frozen=True):
    """The first line of a stored result."""

    tool: str
    private: bool
    origin: Origin
    sources: tuple[str, ...] = ()


class ResultStore:
    """Stores the whole of cut results. Its methods block: call them in a thread."""

    def __init__(self, root: Path, redact: Callable[[str], str], clock: Clock) -> None:
        self.redact = redact
        self._root = root
        self._clock = clock
        self._swept = 0
        self._one_at_a_time = threading.Lock()

    def keep(self, key: SessionKey, info: ResultInfo, text: str) -> str:
        """Stores a text without secrets and returns its id. Raises StorageError."""
        data = json.encode(info) + b"\n" + text[:MAX_CHARACTERS_KEPT].encode("utf-8", "replace")
        name = hashlib.sha256(data).hexdigest()[:16]
        directory, now = self._directory(key), self._clock.now_ms()
        file = directory / f"{name}.txt"
        with self._one_at_a_time:
            self._sweep(now)
            make_directory(directory)
            write_atomic(file, data)
            try:
                utime(file, ns=(now * 1_000_000,) * 2)  # ages use our clock
            except OSError as error:
                raise storage_error(error, file) from error
            _prune(directory, now - MAX_AGE_MS)
        return name

    def load(self, run: ToolRun, path: str) -> tuple[ResultInfo, str]:
        """Returns what `result:ID` names in this session. Raises NotFound."""
        name = path.removeprefix(SCHEME).strip()
        hint = "results are stored for seven days; call the tool again"
        gone = NotFound(f"there is no {path[:80]} in this session", hint=hint)
        if not re.fullmatch(r"[0-9a-f]{16}", name):
            raise gone
        try:
            head, _, body = (self._directory(run.key) / f"{name}.txt").read_bytes().partition(b"\n")
            info = json.decode(head, type=ResultInfo)
        except (OSError, MsgspecError) as error:
            raise gone from error
        if info.private and not run.private:
            raise gone
        return info, body.decode("utf-8", "replace")

    def forget(self, key: SessionKey) -> None:
        """Removes the stored results of a session."""
        _prune(self._directory(key), oldest=self._clock.now_ms() + MAX_AGE_MS)

    def _directory(self, key: SessionKey) -> Path:
        return self._root / results_folder(str(key))

    def _sweep(self, now: int) -> None:
        """Removes old results; once an hour also those of other sessions."""
        if 0 <= now - self._swept < SWEEP_MS:
            return
        self._swept = now
        with suppress(OSError):
            for directory in self._root.iterdir():
                _prune(directory, now - MAX_AGE_MS)


def results_folder(key: str) -> str:
    """Returns the folder with the results of a session."""
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def _prune(directory: Path, oldest: int) -> None:
    """Removes results that are too old, too many, or not ours. What cannot be removed is tried again later."""
    found = []
    with suppress(OSError):
        for file in directory.iterdir():
            with suppress(OSError):
                stat = file.lstat()
                found.append((stat.st_mtime_ns // 1_000_000, stat.st_size, file))
    left = MAX_BYTES
    for number, (modified, size, file) in enumerate(sorted(found, reverse=True), start=1):
        left -= size
        if modified < oldest or left < 0 or number > MAX_FILES:
            with suppress(OSError):
                file.unlink()
    with suppress(OSError):
        directory.rmdir()  # fails unless it is empty


def split_pieces(text: str) -> list[str]:
    """Returns the lines of a stored result, long ones in pieces, so that every part has a line number."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line[at : at + LINE] for line in lines for at in range(0, len(line) or 1, LINE)]


async def clip_output(
    run: ToolRun, tool: str, output: ToolOutput, *, outside: bool = False, results: ResultStore | None = None
) -> ToolOutput:
    """Returns the output of one call, cut to what its model can use. The whole goes to `results`."""
    info = ResultInfo(tool, run.private, Origin.OUTSIDE if outside else output.origin, output.sources)
    clipper = _Clipper(run, info, results)
    if len(text_of(output.content)) <= run.max_characters:
        return clipper.clip_output(output)
    return await asyncio.to_thread(clipper.clip_output, output)


class _Clipper(Struct, frozen=True):
    run: ToolRun
    info: ResultInfo
    results: ResultStore | None

    def clip_output(self, output: ToolOutput) -> ToolOutput:
        limit = self.run.max_characters
        if isinstance(output.content, str):
            return structs.replace(output, content=self._clip(output.content, limit))
        blocks: list[Text | Image] = []
        for block in output.content:
            if isinstance(block, Text):
                blocks.append(Text(self._clip(block.text, limit)))
                limit = max(limit - len(block.text), 0)
            else:
                blocks.append(block)
        return structs.replace(output, content=tuple(blocks))

    def _clip(self, text: str, limit: int) -> str:
        """Cuts to `limit` characters plus the line that says what was cut. The result can always be encoded."""
        text = text.encode("utf-8", "replace").decode()  # file names may contain bytes that are no character
        if len(text) > limit and self.results:
            text = self.results.redact(text)  # first, because half a secret is not recognised
        if len(text) <= limit:
            return text
        tail = limit // 4
        head = limit - tail
        cut = f"[… {len(text) - limit:,} of {len(text):,} characters cut here; {self._rest(text, head)} …]"
        return f"{text[:head]}\n{cut}\n{text[len(text) - tail :]}"

    def _rest(self, text: str, head: int) -> str:
        if self.results is None:
            return "request a smaller part to read them"
        try:
            name = self.results.keep(self.run.key, self.info, text)
        except StorageError as error:
            log.warning("a long result of %s was not stored: %s", self.info.tool, error)
            return "they could not be stored: request a smaller part to read them"
        how = f'path="{SCHEME}{name}", offset={len(split_pieces(text[:head])) or 1}'
        return f"read them with {how}" + (", up to a point" if len(text) > MAX_CHARACTERS_KEPT else "")


class ToolRegistry:
    """The tools of an agent, by name."""

    def __init__(self, tools: Iterable[Tool] = (), *, results: ResultStore | None = None) -> None:
        self._tools: dict[str, Tool] = {}
        self._results = results  # where cut parts can be read
        for each in sorted(tools, key=lambda tool: tool.spec.name):
            if each.spec.name in self._tools:
                raise ConfigError(f"two tools are called {each.spec.name}", hint="rename or remove one of them")
            self._tools[each.spec.name] = each
        self._specs = tuple(each.spec for each in self._tools.values())

    def specs(self) -> tuple[ToolSpec, ...]:
        """Sorted by name, so that the start of a request does not depend on the order of registration."""
        return self._specs

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def with_tools(self, more: Iterable[Tool]) -> ToolRegistry:
        return ToolRegistry([*self._tools.values(), *more], results=self._results)

    def all(self) -> tuple[Tool, ...]:
        return tuple(self._tools.values())

    def unknown(self, name: str) -> str:
        return f"there is no tool called {name[:80]!r}; the tools are: {', '.join(self._tools) or 'none'}"

    async def run(self, run: ToolRun, call: ToolCall) -> ToolOutput:
        """Runs one call without checking the policy. Raises nothing but cancellation; every failure is a result."""
        found = self.get(call.name)
        if found is None:
            return failed(self.unknown(call.name))
        return await self.execute(run, call, lambda: found.run(run, call.arguments))

    async def execute(self, run: ToolRun, call: ToolCall, work: Callable[[], Awaitable[ToolOutput]]) -> ToolOutput:
        """Runs a tool and returns its result or its failure as a result. Raises nothing but cancellation."""
        try:
            output = await work()
        except PalinurusError as error:
            output = failed(str(error))
        except asyncio.CancelledError:
            if _is_cancelled():  # otherwise the tool raised a cancellation of its own
                raise
            output = failed(f"{call.name} gave up: something that it waited for was cancelled")
        except Exception as error:
            # A tool may be third-party code. Its error costs this result, not the whole turn.
            log.exception("the tool %s failed", call.name)
            output = failed(f"{call.name} failed with an internal error: {type(error).__name__}: {error}")
        tool = self.get(call.name)
        outside = tool is not None and tool.outside
        return await clip_output(run, call.name, output, outside=outside, results=self._results)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
