"""A program in a pseudo-terminal: type into it, and wait for what it shows."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import struct
import sys
import termios
from collections.abc import Mapping, Sequence
from typing import Self

ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[()][A-Z0-9]|[=>78]|\].*?(?:\x07|\x1b\\))")
ENTER, CTRL_C, CTRL_D, CTRL_L = "\r", "\x03", "\x04", "\x0c"
PAL = (sys.executable, "-m", "palinurus")
ESCAPE, ALT_ENTER, TAB, UP = "\x1b", "\x1b\r", "\t", "\x1b[A"


TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Done by the child itself: Python code between fork and exec waits forever for a lock that another thread has held."""


def pasted(text: str) -> str:
    """As a terminal sends what is pasted."""
    return f"\x1b[200~{text}\x1b[201~"


class Terminal:
    """`shown` is everything that was written, without escape sequences: what is drawn again stands there again."""

    def __init__(
        self, env: Mapping[str, str], *arguments: str, columns: int = 90, rows: int = 30, program: Sequence[str] = PAL
    ) -> None:
        self.raw = ""
        self._env = {**os.environ, "TERM": "xterm-256color", **env}
        self._command = (*program, *arguments)
        self._size = struct.pack("HHHH", rows, columns, 0, 0)
        self._news = asyncio.Event()
        self._mark = 0

    async def __aenter__(self) -> Self:
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, self._size)
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-ISc", TAKE_TERMINAL, *self._command,
            stdin=slave, stdout=slave, stderr=slave, env=self._env, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        asyncio.get_running_loop().add_reader(self._master, self._read)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def shown(self) -> str:
        return ESCAPES.sub("", self.raw)

    def type(self, text: str) -> None:
        self._mark = len(self.shown)
        os.write(self._master, text.encode())

    async def sees(self, *texts: str, seconds: float = 60.0, in_order: bool = False) -> str:
        """What was shown since the last typing, once all of these stand in it."""
        wanted = [".*".join(map(re.escape, texts))] if in_order else list(map(re.escape, texts))
        try:
            async with asyncio.timeout(seconds):
                while not all(re.search(each, self.shown[self._mark :], re.DOTALL) for each in wanted):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"{texts} were not shown; what was: {self.shown[self._mark :][-3000:]}") from None
        return self.shown[self._mark :]

    async def ends(self, seconds: float = 60.0) -> int:
        async with asyncio.timeout(seconds):
            return await self._process.wait()

    def _read(self) -> None:
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the program has ended and the terminal with it
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._master)
        self.raw += data.decode(errors="replace")
        self._news.set()
