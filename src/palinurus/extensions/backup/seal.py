"""A sealed stream: AES-GCM over pieces of 64 kB, under a key that scrypt makes of a passphrase.

    PALINURUS SEALED BACKUP 1
    {"id": …, "createdAt": …, "kdf": "scrypt", "n": 32768, "r": 8, "p": 1, "salt": …}
    pieces

Every piece is authenticated together with the head, with its number and with whether it is the last: nothing can be
changed, left out, swapped or cut off unnoticed. The key belongs to this file alone, so numbers are good nonces.
"""

from __future__ import annotations

import base64
import binascii
import io
import os
from typing import IO, Any

import msgspec
from msgspec import Struct

from palinurus.domain.errors import ConfigError, StorageDamaged
from palinurus.providers.keys.credential_file import BLOCK, COST, COSTS, LANES, PASSPHRASE_ENV, cipher

MAGIC = b"PALINURUS SEALED BACKUP 1\n"
PIECE = 64 * 1024
TAG = 16
LONGEST_HEAD = 4096
DEAREST = 2**20  # 128 MB: a forged head must not use up the memory


class SealHead(Struct, frozen=True, rename="camel", kw_only=True):
    id: str
    created_at: int
    salt: str
    kdf: str = "scrypt"
    n: int = COST
    r: int = BLOCK
    p: int = LANES


class SealedWriter(io.RawIOBase):
    """Write, then `finish`, which makes the last piece. Raises ConfigError when `cryptography` is not installed."""

    def __init__(self, file: IO[bytes], passphrase: str, backup_id: str, created_at: int) -> None:
        salt = os.urandom(16)
        head = SealHead(id=backup_id, created_at=created_at, salt=base64.b64encode(salt).decode())
        self._head = MAGIC + msgspec.json.encode(head) + b"\n"
        self._cipher = cipher(passphrase, salt, COST, BLOCK, LANES)
        self._file = file
        self._held = bytearray()
        self._number = 0
        file.write(self._head)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._held += data
        while len(self._held) > PIECE:  # one piece is always held back: it may be the last
            self._put(bytes(self._held[:PIECE]), last=False)
            del self._held[:PIECE]
        return len(data)

    def finish(self) -> None:
        self._put(bytes(self._held), last=True)
        self._held.clear()

    def _put(self, piece: bytes, *, last: bool) -> None:
        self._file.write(self._cipher.encrypt(_nonce(self._number, last=last), piece, self._head))
        self._number += 1


class SealedReader(io.RawIOBase):
    """What was sealed. Raises ConfigError for a passphrase that does not open it, StorageDamaged for any change."""

    def __init__(self, file: IO[bytes], passphrase: str, where: str) -> None:
        self._file, self._where = file, where
        head, self._head = read_head(file, where)
        if not passphrase:
            raise ConfigError(f"{where} is sealed", hint=f"set {PASSPHRASE_ENV} to its passphrase, or type it")
        self._cipher = cipher(passphrase, base64.b64decode(head.salt), head.n, head.r, head.p)
        self._next = file.read(PIECE + TAG)
        self._open = b""
        self._number = 0
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._open and not self._ended:
            self._advance()
        count = min(len(buffer), len(self._open))
        buffer[:count], self._open = self._open[:count], self._open[count:]
        return count

    def _advance(self) -> None:
        from cryptography.exceptions import InvalidTag

        piece, self._next = self._next, self._file.read(PIECE + TAG)
        self._ended = not self._next
        try:
            self._open = self._cipher.decrypt(_nonce(self._number, last=self._ended), piece, self._head)
        except (InvalidTag, ValueError):
            if self._number == 0:
                raise ConfigError(
                    f"the passphrase does not open {self._where}, or the file is damaged", hint="check the passphrase"
                ) from None
            raise damaged(self._where, "a sealed piece was changed") from None
        self._number += 1


def read_head(file: IO[bytes], where: str) -> tuple[SealHead, bytes]:
    """The head and its bytes. Raises StorageDamaged."""
    magic, line = file.read(len(MAGIC)), file.readline(LONGEST_HEAD)
    try:
        head = msgspec.json.decode(line, type=SealHead)
        base64.b64decode(head.salt, validate=True)
    except (msgspec.DecodeError, ValueError, binascii.Error):
        raise damaged(where, "its head cannot be read") from None
    if head.kdf != "scrypt" or head.n not in COSTS or not 1 <= head.r * head.n <= DEAREST or not 1 <= head.p <= 4:
        raise damaged(where, "its head needs what this release does not know")
    return head, magic + line


def damaged(where: str, what: str) -> StorageDamaged:
    return StorageDamaged(f"the backup {where} is damaged: {what}", hint="use another one")


def _nonce(number: int, *, last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([last])
