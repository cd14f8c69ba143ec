"""Runs qmd: with its own folders, a time limit, a limit to what it may write, and strict reading of what it says."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import signal
from asyncio import StreamReader
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

import msgspec
from msgspec import Struct

from palinurus.config.home import Home
from palinurus.config.load import LoadedConfig
from palinurus.domain.errors import BackendError
from palinurus.extensions.qmd.settings import QmdSettings
from palinurus.memory.settings import MemoryEngine
from palinurus.runtime.checks.check import Check, ok, warning

OLDEST = (2, 6, 3)  # before it, paths with spaces or brackets came back changed
MOST_OUTPUT = 8 * 1024 * 1024  # bytes
MOST_TOLD = 2_000
_VERSION = re.compile(r"^qmd (\d+)\.(\d+)\.(\d+)", re.MULTILINE)
_HEADER = re.compile(r"@@ -(\d{1,9}),(\d{1,9}) @@[^\n]*\n")
_MARKS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # of a terminal: some builds hide the cursor whatever NO_COLOR says
# Not all of the environment: it holds keys. What qmd calls its own, but for the folders that we choose.
_PASSED = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "SYSTEMROOT",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "https_proxy",
)
_OWN_FOLDERS = frozenset({"QMD_CONFIG_DIR", "QMD_SKILLS_DIR"})
HINT = "npm install -g @tobilu/qmd, or name the program in memory.qmd.command"


class QmdRow(Struct, frozen=True):
    """One result as qmd writes it, read strictly."""

    docid: str
    score: float
    file: str  # qmd://<collection>/<path>
    snippet: str

    @property
    def place(self) -> tuple[str, str]:
        """Collection and path. Raises BackendError."""
        name, slash, path = self.file.removeprefix("qmd://").partition("/")
        if not self.file.startswith("qmd://") or not slash or not path:
            raise BackendError(f"qmd named no file but {self.file[:100]!r}")
        return name, path

    @property
    def lines(self) -> tuple[int, list[str]]:
        """The number of its first line, and the lines. Raises BackendError."""
        found = _HEADER.match(self.snippet)
        if found is None or int(found[1]) < 1:
            raise BackendError("qmd did not say which lines it found (@@ -start,count @@)")
        return int(found[1]), self.snippet[found.end() :].split("\n")[: int(found[2])]


def parse_rows(text: str) -> list[QmdRow]:
    """Raises BackendError."""
    try:
        rows = msgspec.json.decode(text, type=list[QmdRow])
    except msgspec.DecodeError as error:
        raise BackendError(f"qmd answered with something else than its JSON: {error}") from None
    if odd := next((row.score for row in rows if not 0 <= row.score <= 1), None):
        raise BackendError(f"qmd gave a score of {odd}")
    return rows


class QmdCommand:
    def __init__(self, command: str, folder: Path, env: Mapping[str, str]) -> None:
        """`folder`: where its config, index and models are."""
        self._command = command
        self._folder = folder
        self._env = environment(folder, env)
        self._models = Path(env.get("XDG_CACHE_HOME") or Path(env.get("HOME", "/")) / ".cache") / "qmd" / "models"
        self._checked = False
        self._running: set[Process] = set()

    async def close(self) -> None:
        """Ends the commands that still run, also those whose callers have given up."""
        for process in self._running:
            _kill(process)
        await asyncio.gather(*(process.wait() for process in self._running))

    async def check(self, seconds: float) -> None:
        """Raises BackendError where it is missing or too old."""
        if self._checked:
            return
        await asyncio.to_thread(self._make_folders)
        said = await self.run("--version", seconds=seconds)
        found = _VERSION.search(said)
        if found is None:
            raise BackendError(f"{self._command} does not say which version of qmd it is", hint=HINT)
        if tuple(map(int, found.groups())) < OLDEST:
            need = ".".join(map(str, OLDEST))
            raise BackendError(f"{found[0]} is too old: {need} or newer is needed", hint="npm install -g @tobilu/qmd")
        self._checked = True

    async def run(self, *arguments: str, seconds: float) -> str:
        """What it writes. Raises BackendError when it fails, writes too much or takes longer."""
        what = f"qmd {arguments[0]}"
        process, through = await self._started(arguments), False
        self._running.add(process)
        stdout, stderr = cast("StreamReader", process.stdout), cast("StreamReader", process.stderr)
        reading, telling = asyncio.create_task(_read(stdout, what)), asyncio.create_task(_read_told(stderr))
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                output, told, _ = await asyncio.gather(reading, telling, process.wait())
            through = True
        except TimeoutError:
            raise BackendError(f"`{what}` took longer than {seconds:.3g} s") from None
        finally:
            if not through:  # with all that it has started
                _kill(process)
                reading.cancel()
                telling.cancel()
                await asyncio.wait([reading, telling])
                # Its end is seen only when its pipes were read to theirs: a full one is paused.
                await asyncio.gather(_read_told(stdout), _read_told(stderr), process.wait())
            self._running.discard(process)
        if process.returncode:
            how = f"signal {-process.returncode}" if process.returncode < 0 else f"exit code {process.returncode}"
            last = next((line for line in reversed(_plain(told).splitlines()) if line.strip()), "")
            raise BackendError(f"`{what}` ended with {how}" + (f": {last.strip()[:200]}" if last else ""))
        return _plain(output)

    async def _started(self, arguments: Sequence[str]) -> Process:
        words = program_words(self._command, self._env)
        try:
            return await asyncio.create_subprocess_exec(
                *words,
                *arguments,
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=PIPE,
                env=self._env,
                cwd=self._folder,  # not the workspace, which may hold a .qmd of somebody else
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise BackendError(f"qmd cannot be started: {error}", hint=HINT) from None

    def _make_folders(self) -> None:
        cache = self._folder / "xdg-cache" / "qmd"
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self._folder / "xdg-config").mkdir(mode=0o700, exist_ok=True)
        if self._models.is_dir() and not os.path.lexists(cache / "models"):  # gigabytes that every agent can share
            (cache / "models").symlink_to(self._models)


def environment(folder: Path, env: Mapping[str, str]) -> dict[str, str]:
    own = {name: value for name, value in env.items() if name.startswith("QMD_") and name not in _OWN_FOLDERS}
    passed = {name: env[name] for name in _PASSED if name in env}
    folders = {"XDG_CONFIG_HOME": str(folder / "xdg-config"), "XDG_CACHE_HOME": str(folder / "xdg-cache")}
    return {**passed, **own, **folders, "NO_COLOR": "1"}


def program_words(command: str, env: Mapping[str, str]) -> list[str]:
    """The program by its full path, and its arguments. Raises BackendError."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise BackendError(f"memory.qmd.command {command!r} cannot be read: {error}") from None
    program = shutil.which(str(Path(words[0]).expanduser()), path=env.get("PATH", os.defpath)) if words else None
    if program is None:
        raise BackendError(f"the program {words[0] if words else command!r} is not there", hint=HINT)
    return [program, *words[1:]]


def _kill(process: Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def _read(stream: StreamReader, what: str) -> bytes:
    output = bytearray()
    while part := await stream.read(65_536):
        output += part
        if len(output) > MOST_OUTPUT:
            raise BackendError(f"`{what}` wrote more than {MOST_OUTPUT // 2**20} MB")
    return bytes(output)


async def _read_told(stream: StreamReader) -> bytes:
    """The end of it."""
    told = b""
    while part := await stream.read(65_536):
        told = (told + part)[-MOST_TOLD:]
    return told


def _plain(output: bytes) -> str:
    return _MARKS.sub("", output.decode("utf-8", "replace"))


def check_command(_: Home, loaded: LoadedConfig | None) -> list[Check]:
    """For `pal doctor`: whether the program is there, where the config wants it."""
    if loaded is None or loaded.config.section(MemoryEngine).backend != "qmd":
        return []
    try:
        words = program_words(loaded.config.section(QmdSettings).command, loaded.env)
    except BackendError as error:
        return [warning("memory", f"{error.message}: the builtin engine searches", todo=error.hint)]
    return [ok("memory", "qmd searches", words[0])]
