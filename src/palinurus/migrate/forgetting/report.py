"""What a forgetting would do, what it has done, and what is left."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Action = Literal["tombstone", "rewrite", "remove", "erase", "drop", "index anew", "stays"]


class Spot(Struct, frozen=True, omit_defaults=True):
    """A place that holds it, and what becomes of it there."""

    where: str
    action: Action
    count: int = 0  # rows, lines or files
    why: str = ""  # for what stays
    quotes: tuple[str, ...] = ()  # in a plan: the words as they stand there, and nothing of what is around them


class Probe(Struct, frozen=True):
    """A look after it was done."""

    name: str
    found: int


class ForgetReport(Struct, frozen=True, rename="camel"):
    id: str
    applied: bool
    spots: tuple[Spot, ...]
    remains: tuple[Spot, ...] = ()  # after it was done: where it still stands, and why
    probes: tuple[Probe, ...] = ()
    sessions: tuple[str, ...] = ()  # keys of conversations that were touched
    away: tuple[str, ...] = ()  # wikis and exports that are not where they were written


class ForgetProgress(Struct, frozen=True):
    """Without a total it is not known how much there is."""

    stage: str
    done: int
    total: int
