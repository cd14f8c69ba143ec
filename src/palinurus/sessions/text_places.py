"""Where sessions store text: transcripts, notes, names, and the index."""

from __future__ import annotations

import json

from palinurus.domain.text_places import (
    TOMBSTONE,
    Spot,
    TextFiles,
    TextPlace,
    TextRows,
    WordCheck,
    Words,
    forget_in_json,
)

SQL = ("session_places", __file__)
MOST_ASKED = 5  # texts that are searched for in the index afterwards


def clean_session(row: str, words: Words, *, whole: bool = False) -> str:
    """Cleans a session's row: only its name and that of its peer are user text."""
    cleaned = forget_in_json(row, words)
    value = json.loads(cleaned)
    names = [name for name in ("label", "peerName") if value.get(name, TOMBSTONE) != TOMBSTONE] if whole else []
    if names:
        return json.dumps({**value, **dict.fromkeys(names, TOMBSTONE)}, separators=(",", ":"))
    return cleaned


class SessionSearch(TextPlace):
    """The index is deleted with the words; afterwards it is searched for them."""

    async def look_again(self) -> tuple[list[Spot], list[WordCheck]]:
        words = self.search.said
        hits = [hit for text in words.texts[:MOST_ASKED] for hit in await self.search.services.index.search(text)]
        return [], [WordCheck("search in conversations", sum(words.hold(hit.snippet) for hit in hits))]


PLACES = (
    TextRows("entries", "what was said", "tombstone", *SQL),
    TextRows("extractions", "notes of conversations", "tombstone", *SQL),
    TextRows(
        "sessions",
        "names of conversations",
        "rewrite",
        *SQL,
        clean=clean_session,
        kept={"sessions.key": "the name by which a conversation is found"},
    ),
    TextFiles(r"derived/transcripts\.sqlite(-wal|-shm)?", "index"),
    SessionSearch,
)
