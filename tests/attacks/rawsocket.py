"""WebSocket frames byte by byte, for clients that keep to no rule."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any, Self

from serving import PATIENCE

CONT, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA


def frame(data: bytes, opcode: int = TEXT, *, fin: bool = True, rsv: int = 0, masked: bool = True) -> bytes:
    """Masked with zeros, so that the data can be seen."""
    return head(len(data), opcode, fin=fin, rsv=rsv, masked=masked) + data


def head(size: int, opcode: int = TEXT, *, fin: bool = True, rsv: int = 0, masked: bool = True) -> bytes:
    mask = 0x80 if masked else 0
    if size < 126:
        length = bytes([mask | size])
    elif size < 65_536:
        length = bytes([mask | 126]) + size.to_bytes(2, "big")
    else:
        length = bytes([mask | 127]) + size.to_bytes(8, "big")
    return bytes([(0x80 if fin else 0) | (rsv << 4) | opcode]) + length + (b"\0\0\0\0" if masked else b"")


def asked(method: str, number: str = "1", **params: Any) -> bytes:
    return json.dumps({"type": "req", "id": number, "method": method, "params": params}).encode()


class RawSocket:
    """One connection after its upgrade. It need not read what it is told."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, port: int, token: str = "") -> Self:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        lines = [
            "GET / HTTP/1.1",
            f"Host: 127.0.0.1:{port}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Key: c2l4dGVlbiBieXRlcyBvaw==",
            "Sec-WebSocket-Version: 13",
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        assert b" 101 " in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
        opened = cls(reader, writer)
        if token:
            writer.write(frame(asked("connect", "c", auth={"token": token})))
            while b'"hello-ok"' not in ((await asyncio.wait_for(opened.next(), PATIENCE)) or (0, b""))[1]:
                pass
        return opened

    async def shout(self, data: bytes, *, seconds: float = PATIENCE) -> bool:
        """Whether all of it was taken, before the connection ended or the time was over."""
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(seconds):
                self.writer.write(data)
                await self.writer.drain()
            return True
        return False

    async def rest(self, seconds: float = PATIENCE) -> bytes:
        """All that still comes, until the gateway closes or says that it will. One that does neither fails."""
        heard = b""
        try:
            async with asyncio.timeout(seconds):
                while (told := await self.next()) is not None:
                    opcode, data = told
                    heard += data
                    if opcode == CLOSE:
                        break
        finally:
            self.close()
        return heard

    async def next(self) -> tuple[int, bytes] | None:
        """One frame of the gateway; None at the end."""
        try:
            first, size = await self.reader.readexactly(2)
            if size >= 126:
                size = int.from_bytes(await self.reader.readexactly(2 if size == 126 else 8), "big")
            return first & 0x0F, await self.reader.readexactly(size)
        except (ConnectionError, asyncio.IncompleteReadError):
            return None

    def close(self) -> None:
        self.writer.transport.abort()
