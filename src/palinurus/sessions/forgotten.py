"""The tombstone: what stands where words were that a person wanted forgotten, and the entry that says it happened.

Entries keep their place, id and parent, so nothing that leans on them breaks; only their words are gone. Behind them an
entry is added, by which whoever has read the transcript before knows that it has to be read anew.
"""

from __future__ import annotations

from palinurus.sessions.transcript import Broken, CustomEntry, Entry

TOMBSTONE = "[forgotten]"
FORGOTTEN = "palinurus:forgotten"


def is_forgetting(entry: Entry | Broken) -> bool:
    return isinstance(entry, CustomEntry) and entry.custom_type == FORGOTTEN
