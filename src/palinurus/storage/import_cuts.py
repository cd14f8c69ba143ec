"""Compactions and resets of conversations that were brought in: a record says that what they put away is saved.

It left what the model reads long ago, in the other home, and its words are in the summary that stands there. Nothing
leaves a conversation of ours without such a record (promise 2).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import apsw
import msgspec
from msgspec import Struct

from palinurus.sessions.extraction import Extraction
from palinurus.storage.queries import load_queries
from palinurus.storage.sqlite import add_extraction

SQL = load_queries("imports.sql")
CUTS = ("compaction", "reset")
PLACE = "imported"  # of notes that stand in the other home's transcript and are written into no file here
LAST = 2**63 - 1


class Cut(Struct, frozen=True):
    id: str  # of its entry
    kept: str | None = None  # the first entry that stays; None: nothing before it does
    notes: str = ""


class _Written(Struct, rename="camel"):
    first_kept_entry_id: str | None = None
    summary: str = ""


def read_cut(entry_id: str, payload: str) -> Cut:
    try:
        told = msgspec.json.decode(payload, type=_Written)
    except (msgspec.DecodeError, RecursionError):
        told = _Written()
    return Cut(entry_id, told.first_kept_entry_id, told.summary)


def record_cuts(connection: apsw.Connection, session_id: str, positions: Sequence[int], at: int) -> None:
    """Of those that are stored, in the order in which they were made. The ids of the entries must have been entered."""
    for position in positions:
        found: Any = connection.execute(SQL["entry_at"], (position,)).fetchall()
        ((entry_id, payload),) = found
        record_cut(connection, session_id, read_cut(entry_id, payload), at, before=position)


def record_cut(connection: apsw.Connection, session_id: str, cut: Cut, at: int, before: int = LAST) -> None:
    """`before` is where it stands; the default is behind everything that was said."""
    up_to = connection.execute(SQL["cut_before"], {"session_id": session_id, "kept": cut.kept, "cut": before}).get
    if up_to is None:
        return
    made = Extraction(
        id=hashlib.sha256(f"{session_id}\0{cut.id}\0{up_to}".encode()).hexdigest()[:32],
        session_id=session_id,
        up_to=str(up_to),
        notes=cut.notes,
        made_by="model" if cut.notes else "extractor",
        private=False,
        day="",
        at=at,
        place=PLACE,
    )
    add_extraction(connection, made)
