"""The browsers of sessions: each has its own process and proxy, and ends when it was not used for a while."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from palinurus.domain.errors import WebError
from palinurus.domain.worker import PROGRAM, Worker, WorkerFailed
from palinurus.domain.worker_program import QUERY
from palinurus.tools.web.guard import AddressGuard

from .proxy import GuardedProxy

LOAD_SECONDS = 60.0
GRACE_SECONDS = 5.0  # within which the program itself tells that a page took too long


class BrowserSettings(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """`plugins.entries.browser.config`; the manifest has the same with its meaning."""

    executable: str = "/usr/bin/chromium"
    timeout_seconds: float = 20.0
    idle_seconds: float = 120.0
    max_chars: int = 20_000
    max_bytes: int = 20_000_000
    memory_mb: int = 1_500
    sessions: int = 3


class PageView(Struct, frozen=True):
    """What the page shows after an action. `error`: why it could not be done."""

    url: str = ""
    title: str = ""
    text: str = ""
    total: int = 0  # characters in all; `text` has the first of them
    image: str = ""
    error: str = ""
    ended: bool = False
    refused: tuple[str, ...] = ()  # what the page wanted to reach and did not


class SessionBrowser:
    """One session's. Its process starts with the first action."""

    def __init__(self, settings: BrowserSettings, owner: Browsers) -> None:
        self._settings = settings
        self._owner = owner
        self._proxy = GuardedProxy(owner.guard)
        self._one_at_a_time = asyncio.Lock()
        self._profile = tempfile.TemporaryDirectory(prefix="pal-browser-", ignore_cleanup_errors=True)
        env = {"TMPDIR": self._profile.name, "HOME": self._profile.name}
        self.worker = Worker("the browser", self._arguments, settings.idle_seconds, LOAD_SECONDS, env=env)

    @contextmanager
    def _arguments(self) -> Iterator[Sequence[str | Path]]:
        settings = self._settings
        walls = "none" if os.getuid() == 0 else "own"  # Chromium refuses its own sandbox to root
        options = (settings.executable, str(settings.timeout_seconds), str(settings.memory_mb), walls)
        yield PROGRAM, Path(__file__).with_name("program.py"), str(self._proxy.port), *options

    async def act(self, order: dict[str, Any], refuse: Callable[[str], str]) -> PageView:
        async with self._one_at_a_time:
            return await self._act(order, refuse)

    async def _act(self, order: dict[str, Any], refuse: Callable[[str], str]) -> PageView:
        proxy = self._proxy
        if not proxy.port:
            await proxy.start()
        proxy.guard = self._owner.guard
        proxy.left, proxy.refuse = self._settings.max_bytes, refuse
        proxy.refusals.clear()
        try:
            parts = self.worker.ask(QUERY, order | {"most": self._settings.max_chars}, self._seconds)
            async with aclosing(parts):
                answer = b"".join([part.body async for part in parts])
        except WorkerFailed as error:
            await self.worker.stop()  # it may have used all its memory
            raise WebError(f"the browser was closed: {error}", hint="open the page again, or another one") from error
        view = PageView(**json.loads(answer), refused=tuple(proxy.refusals))
        if view.ended:
            await self.worker.stop()
        return view

    @property
    def _seconds(self) -> float:
        return 2 * self._settings.timeout_seconds + GRACE_SECONDS  # one for the action and one for what it shows

    async def close(self) -> None:
        await self.worker.stop()
        await self._proxy.close()
        await asyncio.to_thread(self._profile.cleanup)


class Browsers:
    """By session; the one that was not used longest is closed when there are too many."""

    def __init__(self, settings: BrowserSettings, guard: AddressGuard | None = None) -> None:
        self.settings = settings
        self.guard = guard or AddressGuard()
        self._known: dict[str, SessionBrowser] = {}

    async def of(self, session: str) -> SessionBrowser:
        found = self._known.pop(session, None) or SessionBrowser(self.settings, self)
        self._known[session] = found
        for oldest in [*self._known][: -self.settings.sessions]:
            await self._known.pop(oldest).close()
        return found

    async def close(self) -> None:
        while self._known:
            await self._known.popitem()[1].close()
