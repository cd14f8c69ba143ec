"""What the config says about memory, noted beside the index for a command that does one quick thing.

Reading a whole config takes longer than a search. So whoever has read it leaves this note with the digest of the text
that it was read from, and whoever starts cold believes the note as long as the config file holds that text. It is
derived: without it, or with one that is out of date, the config is read as ever.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from palinurus import __version__
from palinurus.config.atomic import make_directory, write_atomic
from palinurus.config.home import Home
from palinurus.config.remembering import MemorySettings
from palinurus.domain.errors import StorageError


class KnownMemory(Struct, frozen=True):
    """One agent's memory: where its files are, and how they are searched."""

    workspace: Path
    zone: str  # of its owner; empty: the machine's
    settings: MemorySettings


class Shortcut(Struct, frozen=True):
    source: str  # digest of what it was made from
    default_agent: str
    agents: dict[str, KnownMemory]


def read_shortcut(home: Home) -> Shortcut | None:
    """What is noted, if the config still says what it said then."""
    source = source_digest(home)
    try:
        data = _place(home).read_bytes()
        note = msgspec.json.decode(data, type=Shortcut, dec_hook=lambda kind, value: kind(value))
    except (OSError, msgspec.DecodeError, TypeError):
        return None
    return note if source is not None and note.source == source else None


def write_shortcut(home: Home, note: Shortcut) -> None:
    """Where nothing can be written the next one reads the config, as if it were the first."""
    data = msgspec.json.encode(note, enc_hook=str)
    place = _place(home)
    with suppress(OSError, StorageError):
        if not place.exists() or place.read_bytes() != data:
            make_directory(place.parent)
            write_atomic(place, data)


def forget_shortcut(home: Home) -> None:
    with suppress(OSError):
        _place(home).unlink(missing_ok=True)


def source_digest(home: Home) -> str | None:
    """Of all that a note depends on; None where the config depends on more than its own text."""
    if not home.ours or home.workspace_override is not None:
        return None
    try:
        text = home.config_path.read_bytes()
    except FileNotFoundError:
        text = b""
    except OSError:
        return None
    if any(sign in text for sign in (b"${", b"$include", b"\\")):  # a backslash may hide one of the others
        return None
    parts: tuple[Any, ...] = (__version__, MemorySettings(), home.root, home.user_home, home.profile)
    return hashlib.sha256("\n".join(map(str, parts)).encode() + b"\n" + text).hexdigest()


def _place(home: Home) -> Path:
    return home.root / "derived" / "memory" / "settings.json"
