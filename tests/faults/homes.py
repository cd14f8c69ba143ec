"""A home on a real disk, the real `pal` on it, and processes that a test may talk to and kill."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from palinurus.config.home import find_home
from palinurus.operations.config import setup
from palinurus.operations.services import Services
from palinurus.testing.pytest_plugin import watched_child
from support.behaviours import Behaviour, Calls, Json, Says

PAL = Path(sys.executable).with_name("pal")
WORKER = Path(__file__).with_name("worker.py")
PATIENCE = 60.0  # of every wait here: generous, because it is only spent when something is wrong
TRYING_AGAIN = re.compile(r"; trying again in \d+ s$")
LINE_LIMIT = 4 * 1024 * 1024


@dataclass(frozen=True)
class Ended:
    """How a process came out."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def one_clear_line(self) -> str:
        """What it said about a failure: the one line on stderr. Anything else fails the test.

        That a model is asked once more is a notice and no failure.
        """
        lines = [line for line in self.err.splitlines() if not TRYING_AGAIN.search(line)]
        assert self.code not in (0, None), self
        assert len(lines) == 1, self
        assert lines[0].startswith("pal: "), self
        assert "Traceback" not in self.out + self.err, self
        return lines[0].removeprefix("pal: ")


class Talk:
    """A living process: say lines to it, wait for lines from it, kill it."""

    def __init__(self, process: asyncio.subprocess.Process, on_line: Callable[[str], None]) -> None:
        self.process = process
        self._on_line = on_line
        self.heard: list[str] = []
        self.complaints = ""
        self._deaf = False  # it has ended and everything was heard
        self._news = asyncio.Condition()
        self._ears = [asyncio.create_task(self._hear()), asyncio.create_task(self._hear_complaints())]

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.returncode is None

    async def say(self, line: str) -> None:
        stdin = self.process.stdin
        assert stdin is not None
        stdin.write(line.encode() + b"\n")
        with contextlib.suppress(ConnectionError):  # it may have been killed meanwhile, on purpose
            await asyncio.wait_for(stdin.drain(), PATIENCE)

    async def until(self, wanted: Callable[[str], bool]) -> str:
        """The first line, said already or still to come, that is wanted. Fails when the process ends without it."""
        seen = 0
        try:
            async with asyncio.timeout(PATIENCE), self._news:
                while True:
                    for line in self.heard[seen:]:
                        if wanted(line):
                            return line
                    seen = len(self.heard)
                    assert not self._deaf, f"it ended: {self.heard[-3:]} {self.complaints}"
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"never said: {self.heard[-3:]} {self.complaints}") from None

    async def until_complaint(self, text: str) -> None:
        """It has said this on standard error."""
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: text in self.complaints)

    async def answer(self, line: str) -> str:
        """Say a line and wait for the next one in return."""
        before = len(self.heard)
        await self.say(line)
        await self.until(lambda _: len(self.heard) > before)
        return self.heard[before]

    async def kill(self) -> None:
        """kill -9, and everything that it had managed to say."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self._gone()

    async def leave(self) -> Ended:
        """End its input and let it go in peace."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return await self.ended()

    async def ended(self) -> Ended:
        await self._gone()
        assert self.process.returncode is not None
        return Ended(self.process.returncode, "".join(f"{line}\n" for line in self.heard), self.complaints)

    async def _gone(self) -> None:
        await asyncio.wait_for(self.process.wait(), PATIENCE)
        await asyncio.wait_for(asyncio.gather(*self._ears), PATIENCE)
        if self.process.stdin is not None:
            self.process.stdin.close()

    async def _hear(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            async with self._news:
                self.heard.append(line.decode().rstrip("\n"))
                self._on_line(self.heard[-1])
                self._news.notify_all()
        async with self._news:
            self._deaf = True
            self._news.notify_all()

    async def _hear_complaints(self) -> None:
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            async with self._news:
                self.complaints += line.decode()
                self._news.notify_all()


@contextmanager
def stopped(talk: Talk) -> Iterator[None]:
    """A process that lives and does nothing meanwhile."""
    os.kill(talk.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(talk.pid, signal.SIGCONT)


@dataclass
class PalHome:
    """One PALINURUS_HOME and the way to run things in it. Nothing of the caller's own environment gets in."""

    root: Path
    variables: dict[str, str] = field(default_factory=dict)
    command: list[str] = field(default_factory=lambda: [str(PAL)])
    spawn: dict[str, Any] = field(default_factory=dict)  # extra arguments of the process: another user, inherited files

    @property
    def database(self) -> Path:
        return self.root / "home.sqlite"

    def stored(self) -> Path | None:
        """A file with all that is stored; none before anything was."""
        return self.database if self.database.exists() else None

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    @property
    def env(self) -> dict[str, str]:
        fixed = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.root.parent),
            "PALINURUS_HOME": str(self.root),
            "PYTHONUNBUFFERED": "1",
            "LANG": "C.UTF-8",
        }
        return fixed | self.variables

    def configure(self, base_url: str, **more: Any) -> None:
        """Have the model at this address answer."""
        models = {"providers": {"wire": {"baseUrl": base_url, "apiKey": "test-key-of-the-wire"}}}
        config = {"agents": {"defaults": {"model": "wire/test"}}, "models": models} | more
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / "palinurus.json").write_text(json.dumps(config), encoding="utf-8")

    def set_up(self, base_url: str, *, queue: str = "followup", agents: Mapping[str, Any] | None = None) -> None:
        """What `pal setup` does, without the time that a process takes to start. `agents` are their defaults."""
        defaults = {"model": "wire/test", **(agents or {})}
        self.configure(base_url, messages={"queue": {"mode": queue}}, agents={"defaults": defaults})
        setup(Services(home=find_home(self.env), env=self.env))

    async def pal(self, *arguments: str, said: str = "") -> Ended:
        """Run `pal` to its end."""
        talk = await self.start(*self.command, *arguments)
        for line in said.splitlines():
            await talk.say(line)
        return await talk.leave()

    async def start(self, *argv: str, on_line: Callable[[str], None] = lambda _: None) -> Talk:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=watched_child() | self.env,
            cwd=self.root.parent,
            limit=LINE_LIMIT,
            **self.spawn,
        )
        return Talk(process, on_line)

    @asynccontextmanager
    async def talking(self, *arguments: str) -> AsyncIterator[Talk]:
        """A `pal` to talk to; it is killed at the end if it has not left before."""
        talk = await self.start(*self.command, *arguments)
        try:
            yield talk
        finally:
            await talk.kill()

    async def worker(self, on_line: Callable[[str], None] = lambda _: None) -> Talk:
        """A worker.py; `on_line` is told of every line as it is heard, and must not raise."""
        return await self.start(sys.executable, str(WORKER), on_line=on_line)

    def holder(self) -> int:
        """The process that holds the home, or the last one that did."""
        words = (self.root / "lock").read_text(encoding="utf-8").split() if (self.root / "lock").exists() else []
        return int(words[0]) if words else 0


def heard(body: Mapping[str, Any]) -> str:
    """The newest words of a user in a request, without the notes that ride before them."""
    said = [message["content"] for message in body["messages"] if message["role"] == "user"]
    return str(said[-1]).splitlines()[-1]


def parrot(body: Json) -> Behaviour:
    """Says what it heard; looks around first when it is asked to `look`."""
    words = heard(body)
    if words.startswith("look") and body["messages"][-1]["role"] == "user":
        return Calls(("ls", {"path": "."}), ("read", {"path": "SOUL.md"}), text="Looking.")
    return Says(f"heard: {words}")
