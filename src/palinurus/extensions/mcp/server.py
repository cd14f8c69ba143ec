"""One configured server while the process runs: which tools it has, whether it can be reached, and how it is called.

The first call starts it, and it keeps running. If it crashes the next call starts it again, at once the first time and
then after growing pauses. Its answer becomes a tool result: text between markers, small pictures, and a note about the
rest.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.domain.clock import Clock
from palinurus.domain.errors import BadRequest, PalinurusError
from palinurus.domain.messages import Image, Origin, Text, harmless, wrapped
from palinurus.domain.tool import MALFORMED, ToolOutput, failed
from palinurus.extensions.mcp.connection import ServerConnection, ServerGone, ServerListing
from palinurus.extensions.mcp.listing import ListingCache, ToolListing, read_listing, read_prompts
from palinurus.extensions.mcp.settings import ServerSettings
from palinurus.workspace.pictures import fit_image

MAX_TEXT = 1024 * 1024  # characters; the registry decides how much of them a model sees
MAX_PICTURES = 8
MAX_PICTURE = 5 * 1024 * 1024  # characters of base64
FIRST_SECONDS = 10.0  # how long a turn waits for a server that was never reached
AGAIN_SECONDS = 2.0  # how long a turn waits for a server that reports changed tools
OLD_MS = 24 * 3600 * 1000  # an older listing is refreshed in the background
LONGEST_PAUSE = 60.0
log = logging.getLogger(__name__)


async def read_result(server: str, sent: Any) -> ToolOutput:
    """Converts a server's answer. Never raises for JSON: unknown content is named."""
    if not isinstance(sent, Mapping):
        return _failure(server, f"{server} sent an invalid result")
    blocks = sent.get("content")
    texts: list[str] = []
    pictures: list[Image] = []
    for block in blocks if isinstance(blocks, list) else []:
        shown = await _shown(block, room=MAX_PICTURES - len(pictures))
        if isinstance(shown, Image):
            pictures.append(shown)
        else:
            texts.append(shown)
    structured = sent.get("structuredContent")
    if structured is not None and not texts and not pictures:  # blocks are for models and hold the same
        texts.append(_json(structured))
    text = "\n".join(texts)
    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]}\n[… {len(text) - MAX_TEXT:,} more characters were discarded]"
    words = wrapped(server, text or "[no text]")
    content: str | tuple[Text | Image, ...] = (Text(words), *pictures) if pictures else words
    failed = sent.get("isError") is True
    return ToolOutput(content, is_error=failed, origin=Origin.OUTSIDE, sources=(f"mcp:{server}",))


def _failure(server: str, text: str) -> ToolOutput:
    return ToolOutput(harmless(text), is_error=True, origin=Origin.OUTSIDE, sources=(f"mcp:{server}",))


async def _shown(block: Any, *, room: int) -> str | Image:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image", "data": str(data)}:
            return await _picture(data, room)
        case {"type": "resource_link", "uri": str(uri)}:
            return f"[a resource: {uri}]"
        case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)}}:
            return f"[{uri}]\n{text}"
        case {"type": str(kind)}:
            return f"[{kind[:40]}: cannot be shown]"
    return "[a part of unknown form]"


async def _picture(data: str, room: int) -> str | Image:
    if len(data) > MAX_PICTURE or room <= 0:
        return f"[a picture of about {len(data) * 3 // 4:,} bytes: too large to show]"
    try:
        return await asyncio.to_thread(fit_image, base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return "[a picture that is damaged]"
    except BadRequest as error:
        return f"[a picture that cannot be shown: {error}]"


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (OverflowError, UnicodeError, RecursionError, msgspec.MsgspecError):
        return "[structured content that is not JSON]"


class ServerStatus(Struct, frozen=True, rename="camel"):
    """The state of a server, for people."""

    name: str
    transport: str  # stdio | http
    where: str
    state: str  # connected | starting | idle | failed | unknown
    about: str = ""  # the name it reports, while connected
    trouble: str = ""
    listed_at: int = 0  # milliseconds; 0: never
    tools: tuple[str, ...] = ()  # as models call them
    left_out: int = 0
    prompts: tuple[str, ...] = ()
    has_resources: bool = False


class McpClient(Struct, eq=False):
    settings: ServerSettings
    cache: ListingCache
    clock: Clock
    first_seconds: float = FIRST_SECONDS
    auth: Callable[[ServerSettings], Any] | None = None  # adds a login to requests
    listing: ToolListing | None = None
    trouble: str = ""  # why it could not be reached the last time
    _connection: ServerConnection | None = None
    _calls: set[asyncio.Task[Any]] = set()
    _failures: int = 0
    _not_before: int = 0
    _waited: bool = False
    _closed: bool = False

    async def load(self) -> None:
        """Loads its stored listing."""
        self.listing = await asyncio.to_thread(self.cache.load, self.settings.fingerprint)

    async def refresh(self) -> None:
        """Before a turn: gets listings that are missing, and starts refreshing old ones. Waits for a bounded time."""
        live, now = self._live, self.clock.now_ms()
        if live and live.started.is_set() and live.is_stale:
            await self._within(AGAIN_SECONDS, live.relist())
        elif self.listing is None and not self._waited:
            self._waited = True
            await self._within(self.first_seconds, self._connected())
        elif live is None and (self.listing is None or now - self.listing.at > OLD_MS) and now >= self._not_before:
            self._keep(self._connected())  # in the background: this turn uses the known listing

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolOutput:
        """Calls a tool; every failure is a result. If cancelled, it tells the server and returns at once."""
        if MALFORMED in arguments:
            return failed(f"the arguments were not JSON: {str(arguments[MALFORMED])[:200]!r}")
        return await self.shown("tools/call", {"name": tool, "arguments": arguments}, lambda answer: answer)

    async def shown(self, method: str, params: Mapping[str, Any], as_result: Callable[[Any], Any]) -> ToolOutput:
        """Makes any request for a model: the answer as a tool result, which every failure is too."""
        try:
            return await read_result(self.settings.name, as_result(await self.ask(method, params)))
        except PalinurusError as error:
            return _failure(self.settings.name, str(error))

    async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        """Makes a request, for which the server is started if needed. Raises PalinurusError, in words without secrets.
        If cancelled, it tells the server and returns at once."""
        limit, name = self.settings.timeout_seconds, self.settings.name
        work = self._keep(self._asked(method, params))
        try:
            done, _ = await asyncio.wait({work}, timeout=limit)
        finally:
            work.cancel()  # has no effect if it is done
        if not done:
            raise ServerGone(f"{name} did not answer within {limit:g} s; the call was cancelled")
        try:
            return work.result()
        except PalinurusError as error:
            raise ServerGone(f"{name}: {self.cache.redact(str(error))}") from error

    async def test(self) -> None:
        """Connects now, whatever happened before, and requests its tools. Raises PalinurusError."""
        self._not_before = 0
        await (await self._connected()).relist()
        self._failures, self.trouble = 0, ""

    def status(self, names: tuple[str, ...]) -> ServerStatus:
        listing, live = self.listing, self._live
        state = "failed" if self.trouble else "idle" if listing else "unknown"
        if live is not None:
            state = "connected" if live.started.is_set() else "starting"
        return ServerStatus(
            name=self.settings.name,
            transport=self.settings.transport,
            where=self.cache.redact(self.settings.where),
            state=state,
            about=live.about if live else "",
            trouble=self.trouble,
            listed_at=listing.at if listing else 0,
            tools=names,
            left_out=listing.left_out if listing else 0,
            prompts=tuple(each.name for each in listing.prompts) if listing else (),
            has_resources=listing is not None and listing.has_resources,
        )

    @property
    def _live(self) -> ServerConnection | None:
        return self._connection if self._connection and self._connection.is_alive else None

    async def close(self) -> None:
        self._closed = True
        for task in self._calls:
            task.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
        if self._calls:
            await asyncio.wait(self._calls, timeout=0.5)

    async def _asked(self, method: str, params: Mapping[str, Any]) -> Any:
        connection = await self._connected()
        try:
            answer = await connection.ask(method, _as_json(params))
        except ServerGone as error:
            self._failed(connection)
            why = f"the call was interrupted: {error}"
            raise ServerGone(why, hint="it is started again for the next call") from error
        self._failures, self.trouble = 0, ""
        return answer

    async def _connected(self) -> ServerConnection:
        """Returns the connection, creating it if needed. Raises PalinurusError if it is not available now."""
        if self._closed:
            raise ServerGone("this process is shutting down")
        connection = self._live
        if connection is None:
            if self._connection is not None:
                self._failed(self._connection)  # the connection ended meanwhile
            wait = self._not_before - self.clock.now_ms()
            if wait > 0:
                raise ServerGone(f"it cannot be reached: {self.trouble}", hint=f"tried again in {wait / 1000:.0f} s")
            connection = self._connection = ServerConnection(self.settings, self._listed, self._login)
        await connection.started.wait()
        if connection.reason:
            self._failed(connection)
            raise ServerGone(f"it cannot be reached: {self.trouble}")
        return connection

    def _login(self) -> Any:
        """A configured Authorization goes before a login."""
        named = any(name.lower() == "authorization" for name in self.settings.headers)
        return None if self.auth is None or named else self.auth(self.settings)

    def _failed(self, connection: ServerConnection) -> None:
        """Counts a failure once, however many calls wait for it."""
        if connection is not self._connection:
            return
        self._connection = None
        self._failures += 1
        pause = min(LONGEST_PAUSE, 2.0 ** (self._failures - 2)) if self._failures > 1 else 0.0
        self._not_before = self.clock.now_ms() + int(pause * 1000)
        self.trouble = self.cache.redact(connection.reason or "the connection ended")
        self._keep(connection.close())

    async def _listed(self, offered: ServerListing) -> None:
        found = msgspec.structs.replace(
            read_listing(offered.tools, at=self.clock.now_ms()),
            prompts=read_prompts(offered.prompts),
            has_resources=offered.has_resources,
        )
        self.listing = await asyncio.to_thread(self.cache.keep, self.settings.fingerprint, found)
        self.trouble = ""

    async def _within(self, seconds: float, work: Any) -> None:
        """Waits this long; the work continues without us."""
        done, _ = await asyncio.wait({self._keep(work)}, timeout=seconds)
        if not done:
            self.trouble = self.trouble or f"it did not answer within {seconds:g} s"

    def _keep(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.create_task(work)
        self._calls.add(task)
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._calls.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.info("MCP server %s: %s", self.settings.name, error)


def _as_json(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns JSON. Raises PalinurusError for values that JSON cannot represent."""
    try:
        return msgspec.json.decode(msgspec.json.encode(arguments), type=dict[str, Any])
    except (OverflowError, UnicodeError, RecursionError, msgspec.MsgspecError) as error:
        raise PalinurusError(f"the arguments cannot be sent: {error}") from error
