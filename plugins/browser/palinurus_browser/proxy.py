"""The only way of a browser to the network: a proxy on loopback which lets the guard of web_fetch resolve every name.

A browser opens connections for redirects, frames, pictures, scripts and WebSockets; with a proxy all of them come here.
The guard refuses what is not public, and the connection goes to the address that it has checked, so that a name which
changes at the next lookup gains nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from palinurus.domain.errors import AddressRefused, WebError
from palinurus.tools.web.guard import AddressGuard, WebAddress, parse_address

HEAD_BYTES = 64 * 1024
PIECE = 64 * 1024
CONNECT_SECONDS = 10.0
MAX_REFUSALS = 5  # that are told
OWN_HEADERS = ("proxy-", "connection:", "keep-alive:")


class GuardedProxy:
    """For one session. `refuse` says why an address is not for its run, in words; `left` is what it may still read."""

    def __init__(self, guard: AddressGuard) -> None:
        self.port = 0
        self.left = 0
        self.refuse: Callable[[str], str] = lambda _: ""
        self.refusals: list[str] = []
        self.guard = guard
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=HEAD_BYTES)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._open):
            task.cancel()
        if self._open:
            await asyncio.wait(self._open)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  a callback of a server runs in one
        self._open.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # one of both ends is gone or speaks no HTTP: the browser tells its page
        except asyncio.CancelledError:
            pass  # the proxy was closed; nobody waits for this task
        except WebError as error:
            if len(self.refusals) < MAX_REFUSALS and error.message not in self.refusals:
                self.refusals.append(error.message)
        finally:
            writer.close()
            self._open.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line, *headers = (await reader.readuntil(b"\r\n\r\n"))[:-4].decode("latin-1").split("\r\n")
        method, target, _ = line.split(" ")
        tunnel = method == "CONNECT"
        address = parse_address(f"https://{target}/" if tunnel else target)
        above_reader, above = await self._connect(address)
        try:
            if tunnel:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await asyncio.gather(self._pump(reader, above, up=True), self._pump(above_reader, writer))
                return
            kept = [each for each in headers if not each.lower().startswith(OWN_HEADERS)]
            head = "\r\n".join([f"{method} {address.path} HTTP/1.1", *kept, "Connection: close", "", ""])
            above.write(head.encode("latin-1"))
            # Exactly one request: the next one on this connection might be meant for another host.
            body = next((int(each[15:]) for each in kept if each.lower().startswith("content-length:")), 0)
            await asyncio.gather(self._pump(reader, above, up=True, most=body), self._pump(above_reader, writer))
        finally:
            above.close()

    async def _connect(self, address: WebAddress) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if why := self.refuse(address.url):
            raise AddressRefused(f"{address.host} may not be reached here: {why}")
        failure: Exception | None = None
        for each in await self.guard.addresses(address.host, address.port):
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    return await asyncio.open_connection(each, address.port)
            except (OSError, TimeoutError) as error:
                failure = error
        raise WebError(f"{address.host} cannot be reached on port {address.port}: {failure}")

    async def _pump(
        self, source: asyncio.StreamReader, to: asyncio.StreamWriter, *, up: bool = False, most: int | None = None
    ) -> None:
        left = most
        while left is None or left > 0:
            data = await source.read(PIECE if left is None else min(PIECE, left))
            if not data:
                break
            left = None if left is None else left - len(data)
            if not up:
                self.left -= len(data)
                if self.left < 0:
                    raise WebError("the page loads more bytes than allowed; what had arrived is shown")
            to.write(data)
            await to.drain()
        if most is None:  # the other direction ends with this one
            with suppress(OSError):
                to.close()
