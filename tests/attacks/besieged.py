"""A `pal gateway run` under attack: its process, its memory, its log, its home, and a guest who goes on working.

The model is a zero-delay server in another process. What an attack may do is said by `siege`: the guest beside it is
answered in time, memory stays, the log gets a line or two and the home is what it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import apsw
from msgspec import Struct
from serving import PATIENCE, Visitor

from palinurus.testing.pytest_plugin import watched_child
from support import TESTS

PAL = Path(sys.executable).with_name("pal")
PAGE = os.sysconf("SC_PAGE_SIZE")
MB = 1024 * 1024
STALL = 3.0  # seconds that the gateway may compute before it answers: of its own time, however busy the machine is
API_KEY = "sk-attack-suite-4f1d09c2b7e8a6355d1c"  # of the provider in the config
PASSING = ("gateway.json", "gateway.token", "pal.lock", "pal.sock", "config.lock")  # made when it starts


class Besieged(Struct):
    """The process. `siege` is around an attack."""

    root: Path
    process: subprocess.Popen[str]
    url: str

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def ws(self) -> str:
        return f"ws://127.0.0.1:{self.port}/"

    @property
    def token(self) -> str:
        file = self.home / "gateway.token"
        if file.exists():
            return file.read_text().strip()
        config = json.loads((self.home / "palinurus.json").read_text())
        return str(config["gateway"]["auth"].get("token", ""))  # none when the door is open

    def rss(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * PAGE

    def cpu(self) -> float:
        """Seconds of processor time that it has used."""
        words = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def logged(self, words: str = "") -> list[str]:
        """What its log says, those lines that hold the words."""
        files = sorted((self.home / "logs").glob("pal*"))
        lines = (line for file in files for line in file.read_text().splitlines())
        return [text for line in lines if words in (text := str(json.loads(line)["text"]))]

    def contents(self) -> dict[str, str]:
        """Everything in the home: files by their digest, tables of the database by the number of their rows."""
        found = {str(path.relative_to(self.root)): _digest(path) for path in self._files()}
        with contextlib.closing(apsw.Connection(str(self.home / "home.sqlite"), flags=apsw.SQLITE_OPEN_READONLY)) as db:
            named = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for (table,) in named:
                rows = db.execute(f'SELECT count(*) FROM "{table}"').fetchall()
                found[f"table {table}"] = str(rows[0][0])
        return found

    def _files(self) -> Iterator[Path]:
        for path in (*self.home.rglob("*"), *(self.root / "workspace").rglob("*")):
            is_ours = {"logs", "derived"} & {*path.parts} or ".sqlite" in path.name or path.name in PASSING
            if path.is_file() and not is_ours:
                yield path

    async def guest(self, **params: Any) -> Visitor:
        return await Visitor.enter(self.ws, self.token, **params)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


class Siege(Struct):
    """What was seen during an attack."""

    waits: list[float]  # for each question of a guest: what the gateway computed until it answered, in seconds
    told: list[str] = []  # new lines of the log


@asynccontextmanager
async def siege(here: Besieged, *, memory: int = 24 * MB, changes: bool = False) -> AsyncIterator[Siege]:
    """An attack goes on inside. Afterwards: nobody stalled, memory flat, told once, nothing changed."""
    async with AsyncExitStack() as leaving:
        guest = await here.guest()
        leaving.push_async_callback(guest.leave)
        assert (await guest.ask("health")).ok
        rss, said, before = here.rss(), len(here.logged()), here.contents()
        seen = Siege([])
        over = asyncio.Event()  # a cancelled wait_for may go on as if nothing were
        asking = asyncio.create_task(_ask_on(here, guest, seen.waits, over))
        try:
            yield seen
        finally:
            over.set()
            await asking
        began = here.cpu()
        late = await here.guest()  # somebody new comes in as well
        leaving.push_async_callback(late.leave)
        assert (await late.ask("health")).ok
        slowest = max([here.cpu() - began, *seen.waits])
        assert slowest < STALL, f"somebody waited while the gateway computed for {slowest:.2f} s"
        seen.told = here.logged()[said:]
        assert changes or max(Counter(map(_kind, seen.told)).values(), default=0) <= 1, seen.told
        assert not any("mistake" in line or "failed" in line for line in seen.told), seen.told
        grown = here.rss() - rss
        assert grown < memory, f"{grown / MB:.1f} MB more"
        after = here.contents()
        assert changes or after == before, dict(after.items() ^ before.items())


def _kind(line: str) -> str:
    """What a line is about: the status of a refusal, or its words."""
    status = re.search(r": (\d{3}) in \d+ ms by ", line)
    return status[1] if status else re.sub(r"\d+", "", line)


async def _ask_on(here: Besieged, guest: Visitor, waits: list[float], over: asyncio.Event) -> None:
    """A guest with ordinary questions, one after the other. Each is answered within a minute, or `ask` raises."""
    while not over.is_set():
        began = here.cpu()
        assert (await guest.ask("health")).ok
        waits.append(here.cpu() - began)
        await asyncio.sleep(0.02)


@contextmanager
def besieged(
    root: Path,
    *options: str,
    gateway: dict[str, Any] | None = None,
    more: dict[str, Any] | None = None,
    files: int | None = None,
) -> Iterator[Besieged]:
    """`gateway` is that section of the config, `more` are others; `files` is how many the process may have open."""
    with _model() as base_url:
        set_up(root, base_url, gateway or {}, more)
        words = [str(PAL), "gateway", "run", "--port", "0", "--json", *options]
        limited = ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", *words]
        process = subprocess.Popen(
            limited if files else words,
            env=environment(root) | watched_child(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield Besieged(root, process, _url_of(process))
        finally:
            end(process)


def environment(root: Path) -> dict[str, str]:
    known = {name: os.environ[name] for name in ("PATH", "LANG", "COVERAGE_PROCESS_START") if name in os.environ}
    return known | {"HOME": str(root), "PALINURUS_HOME": str(root / "home"), "PALINURUS_EMBEDDED": "0"}


def set_up(root: Path, base_url: str, gateway: dict[str, Any], more: dict[str, Any] | None = None) -> None:
    workspace, home = root / "workspace", root / "home"
    if home.exists():
        return
    home.mkdir(mode=0o700, parents=True)
    workspace.mkdir()
    (workspace / "AGENTS.md").write_text("# Rules\nBe brief.\n")
    provider = {"baseUrl": base_url, "apiKey": API_KEY, "models": [{"id": "test", "contextWindow": 64_000}]}
    config = {
        "agents": {"defaults": {"model": "loop/test", "workspace": str(workspace)}},
        "models": {"providers": {"loop": provider}},
        "gateway": gateway,
        **(more or {}),
    }
    (home / "palinurus.json").write_text(json.dumps(config))


@contextmanager
def _model() -> Iterator[str]:
    words = [sys.executable, "-m", "support.wire", "--reply", "aye"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=TESTS)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        end(process)


def _url_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    said = ""
    while line := process.stdout.readline():
        said += line
        if line.rstrip() == "}":
            return str(json.loads(said)["url"])
    raise AssertionError(f"it did not start: {said} {process.stderr and process.stderr.read()}")


def end(process: subprocess.Popen[str]) -> None:
    """In peace if it will, and in any case."""
    process.send_signal(signal.SIGTERM)
    try:
        process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate(timeout=PATIENCE)


async def exchange(port: int, data: bytes, *, seconds: float = PATIENCE) -> bytes:
    """Say these bytes on a connection and hear all that comes back. A gateway that does not close it fails."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        heard = b""
        async with asyncio.timeout(seconds):
            with contextlib.suppress(ConnectionError):
                await writer.drain()
                while more := await reader.read(MB):
                    heard += more
        return heard
    finally:
        writer.close()


def statuses(heard: bytes) -> list[int]:
    """Of all the answers on a connection."""
    parts = heard.split(b"HTTP/1.1 ")[1:]
    return [int(part[:3]) for part in parts]
