"""Has web pages made into markdown by a process that is killed when it takes too long: see page.py for why."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sys
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

from palinurus.domain.errors import WebError
from palinurus.tools.web import page

SECONDS = 10.0
AT_ONCE = 2

_NEEDED = ("SYSTEMROOT", "LD_LIBRARY_PATH")  # without which Python does not start on some machines


class Page(Struct, frozen=True):
    title: str
    text: str
    total: int  # characters, of which `text` has the first


class PageReader:
    """Reads pages, a few at once."""

    def __init__(self, *, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._room = asyncio.Semaphore(AT_ONCE)

    async def read(self, html: bytes, *, url: str, charset: str, most: int) -> Page:
        """The page as markdown. Raises WebError for one that cannot be read in time and memory."""
        request = json.dumps({"url": url, "charset": charset, "most": most}).encode() + b"\n" + html
        async with self._room:
            answer = await self._ask(request)
        try:
            return msgspec.json.decode(answer, type=Page)
        except msgspec.DecodeError:
            raise _unreadable("its reader broke down over it") from None

    async def _ask(self, request: bytes) -> bytes:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", "-X", "utf8", str(Path(page.__file__)), _library(),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            env={name: os.environ[name] for name in _NEEDED if name in os.environ},
        )  # fmt: skip
        try:
            async with asyncio.timeout(self._seconds):
                return (await child.communicate(request))[0]
        except TimeoutError:
            raise _unreadable(f"it takes longer than {self._seconds:g} seconds") from None
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()


@cache
def _library() -> str:
    found = importlib.util.find_spec("turbohtml")
    if found is None or found.origin is None:
        raise WebError("the package turbohtml is not installed", hint="install palinurus again, or ask with raw=true")
    return str(Path(found.origin).parent.parent)


def _unreadable(why: str) -> WebError:
    return WebError(f"the page's HTML cannot be read: {why}", hint="ask with raw=true for the source")
