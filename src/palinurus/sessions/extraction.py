"""An extraction: durable notes from a part of a transcript, made before that part is no longer read.

The records of a session have a cursor: the last entry whose content is in notes. The model stops reading history only
before the cursor: the store refuses a compaction or a reset that would pass it (promise 2). The record is committed
with the entry that relies on it; the daily file is written from the record afterwards.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Extraction(Struct, frozen=True, rename="camel", omit_defaults=True):
    id: str
    session_id: str
    up_to: str  # id of the last entry whose content is in these or earlier notes
    notes: str  # markdown; empty if nothing was worth noting
    made_by: Literal["model", "extractor"]
    private: bool  # False: the session was shared, and the notes stay with the session
    day: str  # YYYY-MM-DD in the user's time zone: the daily file they belong to
    at: int
    key: str = ""  # name of the session at that time
    place: str = ""  # the file that holds the notes; empty until they are written there
