"""Which keys rest and which answered last, on the disk: a process that is started for one message knows it too.

    {"version": 1, "lastGood": {"openai": "openai:work"},
     "rests": [{"id": "openai:home", "key": "9f86d081…", "model": "m", "until": 1794772097429, "failures": 2}]}

The key itself is not in it, only a digest that tells whether it is still the same: a changed key starts fresh. The
file lies below `derived`: without it every key is asked as if for the first time.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

import msgspec
from msgspec import Struct

from palinurus.config.atomic import make_directory, write_atomic
from palinurus.domain.errors import StorageError

NAME = "cooldowns.json"
MOST = 1000  # rests in one file
LARGEST = 1 << 20

log = logging.getLogger(__name__)


class Rest(Struct, frozen=True, omit_defaults=True):
    """A key that failed, for one model or ("") for all."""

    id: str
    key: str  # see `fingerprint`
    model: str = ""
    until: int = 0  # milliseconds
    failures: int = 0  # in a row


class Cooldowns(Struct, frozen=True, rename="camel"):
    last_good: dict[str, str] = {}  # provider -> id
    rests: tuple[Rest, ...] = ()
    version: int = 1


class CooldownFile:
    def __init__(self, path: Path, *, readonly: bool = False) -> None:
        self._path = path
        self._readonly = readonly

    def read(self) -> Cooldowns:
        """Nothing when there is no file, or none that can be used: it is a hint. Never raises."""
        try:
            with self._path.open("rb") as file:
                return msgspec.json.decode(file.read(LARGEST), type=Cooldowns)
        except (OSError, msgspec.DecodeError):
            return Cooldowns()

    def write(self, cooldowns: Cooldowns) -> None:
        """Never raises: a full disk shall not keep a model from being asked."""
        if self._readonly:
            return
        newest = sorted(cooldowns.rests, key=lambda rest: -rest.until)[:MOST]
        kept = msgspec.structs.replace(cooldowns, rests=tuple(newest))
        try:
            make_directory(self._path.parent)
            write_atomic(self._path, msgspec.json.format(msgspec.json.encode(kept)))
        except StorageError as error:
            log.warning("which keys rest is not remembered: %s", error)


def fingerprint(secret: str) -> str:
    """Tells whether a key is the same as before, and nothing else about it."""
    return hashlib.sha256(secret.encode()).hexdigest()[:32]
