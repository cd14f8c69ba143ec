"""Tokens and devices kept in memory, held to the suite of SQLite's."""

from __future__ import annotations

import asyncio

from palinurus.operations.access import PairedDevice, Token
from palinurus.storage.access import digest_taken


class MemoryAccess:
    """Implements operations.access.AccessStore."""

    def __init__(self) -> None:
        self.kept_tokens: dict[str, Token] = {}  # by id
        self.kept_devices: dict[str, PairedDevice] = {}

    async def tokens(self) -> list[Token]:
        await asyncio.sleep(0)
        return list(self.kept_tokens.values())

    async def put_token(self, token: Token) -> None:
        await asyncio.sleep(0)
        if any(known.digest == token.digest and known.id != token.id for known in self.kept_tokens.values()):
            raise digest_taken(token)
        self.kept_tokens[token.id] = token

    async def devices(self) -> list[PairedDevice]:
        await asyncio.sleep(0)
        return list(self.kept_devices.values())

    async def put_device(self, device: PairedDevice) -> None:
        await asyncio.sleep(0)
        self.kept_devices[device.id] = device
