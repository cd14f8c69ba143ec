"""What rows of the database are called in the report of a forgetting, and why some of them stay."""

from __future__ import annotations

from palinurus.migrate.forgetting.report import Action, Spot
from palinurus.migrate.forgetting.store import Looked

TABLES: dict[str, tuple[str, Action]] = {
    "entries": ("what was said", "tombstone"),
    "extractions": ("notes of conversations", "tombstone"),
    "runs": ("accepted messages and replies", "tombstone"),
    "sessions": ("names of conversations", "rewrite"),
    "outbox": ("messages on their way out", "tombstone"),
    "imported_documents": ("documents of other homes", "rewrite"),
    "approvals": ("decided approvals", "remove"),
    "grants": ("grants", "remove"),
    "traces": ("traces of runs", "remove"),
    "audit_details": ("details of the audit log", "erase"),
}
KEPT_WHY = {
    "audit": "the audit log's own chain, which covers it",
    "sessions.key": "the name by which a conversation is found",
    "approvals": "a question that still waits for an answer",
}


def row_spots(looked: Looked, *, quoting: bool) -> list[Spot]:
    quotes = looked.quotes if quoting else {}
    return [
        Spot(f"home.sqlite: {TABLES[table][0]}", TABLES[table][1], count, quotes=quotes.get(table, ()))
        for table, count in looked.rows.items()
    ]


def keys_of(looked: Looked) -> tuple[str, ...]:
    return tuple(sorted({each.key for each in looked.sessions}))


def kept_why(column: str) -> str:
    table = column.partition(".")[0]
    return KEPT_WHY.get(column) or KEPT_WHY.get(table) or "the same words stand there, said elsewhere or as a name"
