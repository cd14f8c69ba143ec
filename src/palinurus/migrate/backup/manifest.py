"""What a backup says about itself: a label at its beginning, and at its end a list of all parts with their digests."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

FORMAT = 1
LABEL = "backup.json"  # the first part, which can be read without the rest
MANIFEST = "manifest.json"  # the last one: only then the digests are known
HOME, WORKSPACES = "home", "workspaces"  # folders in the archive
DATABASE = f"{HOME}/home.sqlite"

Kind = Literal["file", "folder", "link"]


class Label(Struct, frozen=True, rename="camel"):
    """Which backup it is."""

    id: str
    created_at: int  # milliseconds; every message that was acknowledged before is in it
    release: str
    home: str  # where it was taken
    format: int = FORMAT


class Part(Struct, frozen=True, rename="camel", omit_defaults=True):
    path: str
    kind: Kind = "file"
    size: int = 0
    mode: int = 0o600
    sha256: str = ""
    target: str = ""  # of a link


class LeftOut(Struct, frozen=True):
    path: str
    why: str


class Outside(Struct, frozen=True):
    """A workspace that lies outside of the home."""

    agent: str
    path: str


class Manifest(Struct, frozen=True, rename="camel"):
    label: Label
    credentials: bool  # whether stored keys are among the parts
    parts: tuple[Part, ...]
    left_out: tuple[LeftOut, ...] = ()
    outside: tuple[Outside, ...] = ()

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)


class Made(Struct, frozen=True, rename="camel"):
    """A backup that was made."""

    id: str
    path: str
    created_at: int
    bytes: int  # of the file
    parts: int
    content: int  # bytes of the parts
    sealed: bool
    credentials: bool
    left_out: tuple[LeftOut, ...] = ()
    seconds: float = 0.0


class Verified(Struct, frozen=True, rename="camel"):
    id: str
    path: str
    created_at: int
    parts: int
    content: int
    sealed: bool
    credentials: bool
    ok: bool = True  # what is not raises


class Restored(Struct, frozen=True, rename="camel"):
    id: str
    home: str
    parts: int
    content: int
    credentials: bool
    notes: tuple[str, ...] = ()
