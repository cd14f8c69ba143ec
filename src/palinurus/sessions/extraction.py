"""An extraction: durable notes of a stretch of a conversation, made before that stretch is no longer read.

The records of a session have a cursor, the entry up to which its words are in notes. History leaves what the model
reads only behind the cursor: the keeper refuses a compaction or a reset that would pass it (promise 2). The record is
committed with the entry that relies on it; the file of the day is written from the record afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from palinurus.domain.errors import StorageError
from palinurus.sessions.transcript import CompactionEntry, Entry, ResetEntry, Row

NOT_SAVED = "some messages would leave the conversation before they were saved in notes"


class Extraction(Struct, frozen=True, rename="camel", omit_defaults=True):
    id: str
    session_id: str
    up_to: str  # id of the last entry whose words are in the notes, or in those of an earlier record
    notes: str  # markdown; empty when nothing was worth noting
    made_by: Literal["model", "extractor"]
    private: bool  # False: others were listening, and the notes stay with the session
    day: str  # YYYY-MM-DD where the user lives: whose file of the day they belong to
    at: int
    key: str = ""  # of the session, as it was called then
    place: str = ""  # the file that holds the notes; empty until they were written there


def check_saved(rows: Sequence[Row], entry: Entry, cursor_of: Callable[[], str]) -> None:
    """Raises StorageError when `entry` would let a message go that lies behind the cursor, as the database does."""
    if not isinstance(entry, CompactionEntry | ResetEntry):
        return
    ids, cursor = [row.id for row in rows], cursor_of()
    saved = ids.index(cursor) + 1 if cursor else 0
    kept = entry.first_kept_entry_id
    end = ids.index(kept) if kept in ids else len(ids)
    if any(_is_message(row) for row in rows[saved:end]):
        raise StorageError(NOT_SAVED)


class _Kind(Struct):
    type: str = ""


_kinds = msgspec.json.Decoder(_Kind)


def _is_message(row: Row) -> bool:
    try:
        return _kinds.decode(row.payload).type == "message"
    except msgspec.DecodeError:
        return False
