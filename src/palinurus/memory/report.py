"""What indexing did, and how the index stands beside the disk."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct


class Progress(Struct, frozen=True):
    """How far a long piece of work is, for a bar."""

    stage: str  # scan | text | vectors
    done: int
    total: int


OnProgress = Callable[[Progress], None]
"""Called on the event loop, often. Neither blocks nor raises."""


class Skipped(Struct, frozen=True, rename="camel"):
    path: str
    reason: str


class SyncReport(Struct, frozen=True, rename="camel", omit_defaults=True):
    compared: int  # files whose stamps were compared
    added: int = 0
    changed: int = 0
    removed: int = 0
    pieces: int = 0  # written
    embedded: int = 0  # vectors made
    cached: int = 0  # vectors that were known
    skipped: tuple[Skipped, ...] = ()
    behind: tuple[str, ...] = ()  # changed and not read, because time was up
    took_ms: float = 0.0
    trouble: str = ""  # of the index
    embedder_trouble: str = ""  # the words are indexed all the same


class Difference(Struct, frozen=True, rename="camel"):
    """A file in which the disk and the index do not say the same."""

    path: str
    what: str  # missing in the index | gone from the disk | changed | other pieces than the text has


class MemoryStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Computed from the disk each time it is asked for; there is no flag that says healthy."""

    agent: str
    enabled: bool
    files: int
    pieces: int
    passages: int
    text_bytes: int
    index_bytes: int
    sources: dict[str, int]  # files by source
    embedder: str  # space id; empty: none
    embedded: int = 0
    to_embed: int = 0
    shadow: str = ""  # a space that is being filled and not searched yet
    shadow_embedded: int = 0
    differences: tuple[Difference, ...] = ()  # by stamps; with `deep` by reading every file
    difference_count: int = 0
    deep: bool = False
    skipped: tuple[Skipped, ...] = ()
    watching: bool = False
    last_sweep_at: int | None = None
    trouble: str = ""
    index_path: str = ""
