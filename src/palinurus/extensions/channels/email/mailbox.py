"""One connection to a folder of a mailbox over IMAP.

aioimaplib speaks the protocol; what it leaves open is closed here: STARTTLS, the end of commands when the connection is
lost, and answers that it cannot parse. Nothing in the mailbox is changed, mail is not even marked as read.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import re
import ssl
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from aioimaplib.aioimaplib import AioImapException, Command, IMAP4ClientProtocol, quoted
from aiosmtplib.auth import auth_xoauth2_encode

from palinurus.domain.errors import ConfigError
from palinurus.extensions.channels.email.structure import read_fetches
from palinurus.extensions.channels.settings import LOGIN_HINT, EmailSettings, MailServer

T = TypeVar("T")
TIMEOUT = 60.0
IDLE_SECONDS = 9 * 60.0  # servers end an IDLE after 29 minutes, and routers forget silent connections much earlier
PIECE = 256 * 1024
PORTS = {"tls": 993, "starttls": 143, "none": 143}
_TEMPORARY = re.compile(rb"\[(UNAVAILABLE|INUSE|LIMIT|SERVERBUG)\]", re.IGNORECASE)
_STATE = re.compile(rb"\[(UIDVALIDITY|UIDNEXT) (\d{1,10})\]", re.IGNORECASE)
_CODED = re.compile(r"&|[^\x20-\x7e]+")

logging.getLogger("aioimaplib").setLevel(logging.WARNING)  # it logs whole mails


class MailboxLost(ConnectionError):
    """The connection has ended. `garbled`: by an answer that cannot be parsed."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.garbled = "makes no sense" in why


class MailRefused(Exception):
    """The server gives no answer to this command, but is still there."""


class MailboxProtocol(IMAP4ClientProtocol):  # type: ignore[misc]  # the library has no types
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.lost: asyncio.Future[str] = loop.create_future()
        self.news = asyncio.Event()  # the number of mails has changed

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except Exception as error:  # noqa: BLE001  whatever it is; and its text may hold the password
            self.lose(f"an answer of the server makes no sense ({type(error).__name__})")

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self.lose("the server has closed the connection")

    def lose(self, why: str) -> None:
        if not self.lost.done():
            self.lost.set_result(why)
        if self.transport is not None:
            self.transport.abort()

    async def finish(self, work: Awaitable[T], seconds: float = TIMEOUT) -> T:
        """The result of a command. Raises MailboxLost: the library itself would wait for ever."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait((task, self.lost), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                self.lose(f"the server was silent for {seconds:g} seconds")
                raise MailboxLost(self.lost.result())
            return task.result()
        except AioImapException as error:
            self.lose(f"a command failed ({type(error).__name__})")
            raise MailboxLost(self.lost.result()) from None
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def command(self, name: str, *arguments: str, prefix: str = "", scrub: str | None = None) -> list[Any]:
        """The lines of the answer, its last one included. Raises MailRefused."""
        command = Command(name, self.new_tag(), *arguments, prefix=prefix, loop=self.loop)
        response = await self.finish(self.execute(command, scrub=scrub))
        if response.result != "OK":
            raise MailRefused(response.lines[-1].decode("utf-8", "replace")[:200])
        return list(response.lines)

    def _continuation(self, line: bytes) -> None:
        if self.pending_sync_command is not None and self.pending_sync_command.name == "AUTHENTICATE":
            self.transport.write(b"\r\n")  # why it fails; the server wants an answer before it says so
        else:
            super()._continuation(line)

    def _handle_line(self, line: bytes, current_cmd: Any) -> Any:
        if current_cmd is None and line.endswith(b" EXISTS"):
            self.news.set()
        return super()._handle_line(line, current_cmd)


class Mailbox:
    """The folder that is open. Its methods raise MailboxLost, and MailRefused where the server refuses one command."""

    def __init__(self, protocol: MailboxProtocol, state: dict[str, int]) -> None:
        self._protocol = protocol
        self._can_idle = "IDLE" in protocol.capabilities
        self.validity = state.get("UIDVALIDITY", 0)
        self.next_uid = state.get("UIDNEXT", 0)

    async def search(self, *criteria: str) -> list[int]:
        """UIDs, in their order."""
        lines = await self._protocol.command("SEARCH", *criteria, prefix="UID")
        return sorted({int(word) for line in lines[:-1] for word in line.split() if word.isdigit()})

    async def search_after(self, uid: int) -> list[int]:
        self._protocol.news.clear()
        return [each for each in await self.search(f"UID {uid + 1}:*") if each > uid]  # `*` is the last one in any case

    async def fetch(self, uids: str, items: str) -> list[dict[str, Any]]:
        """What there is of each mail, by the names of the items; mail that is gone is not among it."""
        lines = await self._protocol.command("FETCH", uids, f"(UID {items})", prefix="UID")
        return await asyncio.to_thread(read_fetches, lines[:-1])

    async def read(self, uid: int, section: str, start: int = 0, most: int = PIECE) -> bytes:
        for each in await self.fetch(str(uid), f"BODY.PEEK[{section}]<{start}.{most}>"):
            body = next((value for name, value in each.items() if name.startswith("BODY[")), None)
            if each.get("UID") == str(uid) and body is not None:
                return bytes(body)
        return b""

    async def read_pieces(self, uid: int, section: str) -> AsyncIterator[bytes]:
        start, piece = 0, b""
        while start == 0 or len(piece) == PIECE:
            piece = await self.read(uid, section, start)
            start += len(piece)
            yield piece
            if not piece:
                return

    async def wait_for_news(self, poll_seconds: float) -> None:
        """Returns when there may be new mail."""
        if not self._can_idle:
            await asyncio.wait((self._protocol.lost,), timeout=poll_seconds)
            await self._protocol.command("NOOP")
            return
        idle = asyncio.ensure_future(self._protocol.idle())
        news = asyncio.ensure_future(self._protocol.news.wait())
        try:
            waited = (idle, news, self._protocol.lost)
            await asyncio.wait(waited, timeout=IDLE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not idle.done() and not self._protocol.lost.done():
                self._protocol.idle_done()
            response = await self._protocol.finish(idle)
            self._can_idle = response.result == "OK"
        finally:
            news.cancel()
            idle.cancel()
            await asyncio.gather(news, idle, return_exceptions=True)
            self._protocol.idle_queue = asyncio.Queue()


@asynccontextmanager
async def open_mailbox(settings: EmailSettings, user: str, password: str) -> AsyncIterator[Mailbox]:
    """Raises ConfigError for what only a person can mend, else OSError."""
    server = settings.imap
    protocol = await _connect(server)
    try:
        await _log_in(protocol, settings, user, password)
        yield Mailbox(protocol, await _select(protocol, settings.folder))
    finally:
        protocol.lose("closed")
        for task in protocol.tasks:
            task.cancel()
        await asyncio.gather(*protocol.tasks, return_exceptions=True)


async def _connect(server: MailServer) -> MailboxProtocol:
    loop = asyncio.get_running_loop()
    secure = None if server.security == "none" else await asyncio.to_thread(ssl.create_default_context)
    async with asyncio.timeout(TIMEOUT):
        _, protocol = await loop.create_connection(
            lambda: MailboxProtocol(loop),
            server.host,
            server.port or PORTS[server.security],
            ssl=secure if server.security == "tls" else None,
        )
    try:
        await protocol.finish(protocol.wait("AUTH|NONAUTH"))
        if server.security == "starttls" and secure is not None:
            await _start_tls(protocol, secure, server.host)
    except BaseException:
        protocol.lose("closed")
        raise
    return protocol


async def _start_tls(protocol: MailboxProtocol, secure: ssl.SSLContext, host: str) -> None:
    try:
        await protocol.command("STARTTLS")
    except MailRefused as error:
        raise ConfigError(
            f"{host} does not encrypt the connection: {error}",
            hint="set channels.email.imap.security to tls if the server has that; else somebody may be listening",
        ) from None
    if protocol.incomplete_line:
        raise MailboxLost("the server, or somebody in between, sent more before the encryption")
    protocol.transport = await protocol.loop.start_tls(protocol.transport, protocol, secure, server_hostname=host)
    await protocol.finish(protocol.capability())  # what was said before proves nothing


async def _log_in(protocol: MailboxProtocol, settings: EmailSettings, user: str, password: str) -> None:
    host = settings.imap.host
    try:
        if settings.auth == "xoauth2":
            said = auth_xoauth2_encode(user, password).decode()
            await protocol.command("AUTHENTICATE", "XOAUTH2", said, scrub=said)
        else:
            await protocol.command("LOGIN", quoted(user), quoted(password), scrub=quoted(password))
    except MailRefused as error:
        if _TEMPORARY.search(str(error).encode()):
            raise MailboxLost(f"{host} is not available: {error}") from None
        raise ConfigError(f"{host} refuses the user {user} or the password", hint=LOGIN_HINT) from None
    protocol.state = "AUTH"
    await protocol.finish(protocol.capability())  # some servers speak of IDLE only now


async def _select(protocol: MailboxProtocol, folder: str) -> dict[str, int]:
    response = await protocol.finish(protocol.select(quoted(_CODED.sub(_encode_run, folder))))
    if response.result != "OK":
        raise ConfigError(
            f"the mailbox has no folder {folder}", hint="set channels.email.folder to one that there is, such as INBOX"
        )
    said = (_STATE.search(line) for line in response.lines)
    return {found[1].decode().upper(): int(found[2]) for found in said if found}


def _encode_run(run: re.Match[str]) -> str:
    """Names of folders are in a UTF-7 of IMAP's own."""
    coded = base64.b64encode(run[0].encode("utf-16-be")).decode().rstrip("=").replace("/", ",")
    return "&-" if run[0] == "&" else f"&{coded}-"
