"""Runs each named query of a home as one tenant against the rows of another.

Rows and parameters are made of one table of values by name, so that a query finds what is there: run as the owner of
the rows it gives something else than in a database without any. Run as another tenant it must give exactly what it
gives there: the same rows, the same count, the same error. A column or a parameter whose name is not in the table
cannot be tried, which is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import psycopg
from test_dialects import home_nouns, queries_of

from palinurus.extensions.postgres.form import SHARED
from palinurus.extensions.postgres.transaction import parameters_of, prepare_connection, translate_query

OWNER, OTHER = "owner", "other"
SESSION, STAGED, KEY = "session-1", "session-2", "agent:main:main"
ROW = '{"name": "n", "nextRunAtMs": 5, "updatedAtMs": 5, "state": {"lastStatus": "failed"}}'
TEXTS = {
    "account": "desk", "agent": "main", "call_id": "c", "channel": "x", "cursor": "7", "details": "{}", "digest": "d",
    "entry_id": "e1", "extra": "{}", "hash": "h", "id": SESSION, "idempotency_key": "key", "key": KEY, "kind": "letter",
    "lane": "ann", "message": "m", "model": "m", "name": "n", "outcome": "{}", "parent_id": "e0", "path": "a.md",
    "payload": '{"timestamp": "2026"}', "place": "", "previous": "p", "provider": "p", "retry_key": "", "row": ROW,
    "run": "r", "run_id": "r", "salt": "s", "sender": "ann", "session_id": SESSION, "session_key": KEY,
    "source": "there", "state": "waiting", "status": "pending", "text": "words", "tool": "exec",
    "trouble": "t", "type": "message",
}  # fmt: skip
NUMBERS = {
    "added_at": 1, "archived_at": None, "asked_at": 1, "at": 1, "attempts": 1, "cache_read": 1, "cache_write": 1,
    "cost": 0.5, "created_at": 1, "doubtful_at": 0, "due_at": 1, "enabled": 1, "ended": 1, "entries": 1, "epoch": 3,
    "fence": 1, "finished": 1, "input": 1, "lease_until": 1, "notes": 1, "number": 1, "open": 0, "output": 1,
    "position": 1, "private": 1, "queued": 1, "retried_at": 0, "revoked_at": None, "seq": 1, "staged": None,
    "updated_at": 1,
}  # fmt: skip
COLUMNS: Mapping[str, Any] = TEXTS | NUMBERS
PARAMETERS: Mapping[str, Any] = COLUMNS | {
    "after": 0, "archived": 1, "archived_at": 2, "beginning": "session", "before": 99, "count": 1, "cut": 99,
    "disabled": 1, "keys": "[1, 2, 3]", "kept": 0, "kinds": "[]", "limit": 9, "longest": 1, "most": 9, "now": 2,
    "offset": 0, "one_offs": 1, "place": "there", "row": '{"other": 1}', "prefix": "agent:",
    "cursor": "8", "text": "other words", "seen_fence": 1, "seen_state": "waiting",
    "session": KEY, "sessions": f'["{SESSION}"]', "since": 0, "states": "[]", "until": 99, "up_to": "e1", "which": KEY,
}  # fmt: skip
ROWS: list[tuple[str, dict[str, Any]]] = [  # table -> what is not as in COLUMNS, in an order that all rules allow
    ("holder", {}),
    ("sessions", {}),
    ("sessions", {"number": 2, "id": STAGED, "key": "agent:main:two", "staged": 1}),
    ("sessions", {"number": 3, "id": "session-3", "archived_at": 5}),
    ("imports", {}),
    ("imports", {"source": "elsewhere", "session_id": STAGED}),
    ("entries", {"id": "e1"}),
    ("entries", {"id": "e2", "session_id": STAGED, "position": 2}),
    ("entries", {"id": "r", "position": 3}),  # of a run
    ("entry_ids", {"id": "e2", "session_id": STAGED, "position": 2}),
    ("extractions", {"id": "x1"}),
    ("extractions", {"id": "x2", "number": 2, "session_id": STAGED, "position": 2}),
    ("forgettings", {}),
    ("imported_documents", {}),
    ("imported_documents", {"number": 2, "source": "", "kind": "cron-import", "name": SESSION}),
    ("usage", {}),
    ("audit", {"kind": "call"}),
    ("audit_details", {}),
    ("approvals", {}),
    ("approvals", {"number": 2, "id": "decided", "status": "allowed"}),
    ("grants", {}),
    ("tokens", {}),
    ("devices", {}),
    ("traces", {}),
    ("file_origins", {}),
    ("jobs", {"id": SESSION}),
    ("jobs", {"id": "r", "queued": 2, "kind": "run", "state": "running"}),
    ("jobs", {"id": "done", "queued": 3, "idempotency_key": "2", "lane": "bob", "state": "done"}),
    ("jobs", {"id": "going", "queued": 4, "idempotency_key": "3", "lane": "cid", "state": "running"}),
    ("jobs", {"id": "again", "queued": 5, "idempotency_key": "4", "lane": "dan", "state": "retry", "due_at": 1000}),
    ("jobs", {"id": "reply", "queued": 6, "kind": "delivery:x"}),
    ("channel_pairings", {}),
    ("channel_cursors", {}),
    ("channel_previews", {}),
    ("cron_jobs", {}),
    ("transfers", {}),
]  # fmt: skip
ODD: dict[str, dict[str, Any]] = {  # queries that look for something else than the rows above have
    "forgetting.keep_session": {"row": "{}"},
    "imports.add_entries": {"p1": SESSION, "p2": "e1", "p3": None, "p4": "message", "p5": "{}"},
    "imports.adopt": {"id": SESSION},
    "imports.cut_before": {"kept": "e9"},
    "imports.drop_extractions": {"id": STAGED},
    "imports.drop_ids": {"id": STAGED},
    "imports.drop_session": {"id": STAGED},
    "imports.drop_some_entries": {"id": STAGED},
    "imports.enter_ids": {"p1": SESSION, "p2": "e1", "p3": 1},
    "imports.id_position": {"id": "e1"},
    "imports.rename_entry": {"position": 2, "id": "e9"},
    "imports.stage_session": {"key": KEY},
    "jobs.cancel_job": {"now": 0},
    "jobs.end_job": {"id": "going"},
    "jobs.note_progress": {"id": "going"},
    "jobs.jobs_beginning": {"kind": "*"},
    "jobs.next_due": {"now": 1},
    "sessions.add_entry": {"id": "e1"},
    "sessions.add_extraction": {"id": "x1"},
    "sessions.place_extraction": {"id": "x1"},
    "traces.beginning": {"beginning": "r"},
    "sessions.position_of": {"id": "e1"},
}
SAME = {  # that give an owner of rows the same as anybody: of the schema, of the transaction, a form for other queries
    "audit.stray_details",
    "forgetting.chosen",
    "forgetting.text_columns",
    "imports.sort_ids",
    "jobs.has_queue",
}


class Outcome(NamedTuple):
    """What a query gives: rows, how many it changed, and the whole text of its error."""

    rows: tuple[Any, ...] = ()
    changed: int = 0
    error: str = ""


def all_queries() -> Iterator[tuple[str, str]]:
    for noun, folder in home_nouns():
        for name, text in queries_of(noun, folder, "postgres").items():
            yield f"{noun}.{name}", text


class Tried:
    """A connection in a transaction that is never committed."""

    def __init__(self, url: str) -> None:
        self.connection: Any = psycopg.connect(url)
        prepare_connection(self.connection)

    def close(self) -> None:
        self.connection.rollback()
        self.connection.close()

    def be(self, tenant: str) -> None:
        self.connection.execute("SELECT set_config('pal.tenant', %s, true)", [tenant])

    def fill(self) -> None:
        """The rows of the owner, a row in each table at least. Raises KeyError for a column without a value."""
        self.be(OWNER)
        for table, own in ROWS:
            values = {name: (COLUMNS | own)[name] for name in self.columns_of(table)}
            names, marks = ", ".join(values), ", ".join(f"%({name})s" for name in values)
            self.connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", values)
        assert {table for table, _ in ROWS} == set(self.tables)

    @cached_property
    def tables(self) -> list[str]:
        rows = self.connection.execute(
            "SELECT table_name FROM information_schema.tables"
            " WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'"
        )
        return sorted(name for (name,) in rows if name not in SHARED)

    def columns_of(self, table: str) -> list[str]:
        rows = self.connection.execute(
            "SELECT column_name FROM information_schema.columns"
            " WHERE table_schema = current_schema() AND table_name = %s AND column_name <> 'tenant'",
            [table],
        )
        return [name for (name,) in rows]

    def digest(self) -> str:
        """Of all rows of the owner."""
        self.be(OWNER)
        rows = (f"(SELECT string_agg({name}::text, ' ' ORDER BY {name}::text) FROM {name})" for name in self.tables)
        return str(self.connection.execute(f"SELECT md5(concat_ws('/', {', '.join(rows)}))").fetchone()[0])

    def try_as(self, tenant: str, name: str, text: str) -> tuple[Outcome, str]:
        """The outcome, and the digest of the owner's rows behind it. Nothing of it stays."""
        self.connection.execute("SAVEPOINT tried")
        values = self.values_for(name, text)
        self.be(tenant)
        if name == "imports.sorted_ids":
            self.connection.execute("SELECT set_config('pal.sorted', %s, true)", [SESSION])
        try:
            with self.connection.transaction():
                cursor = self.connection.execute(translate_query(text), values)
                rows = tuple(cursor.fetchall()) if cursor.description else ()
            outcome = Outcome(rows, cursor.rowcount)
        except psycopg.Error as error:
            outcome = Outcome(error=str(error))
        behind = self.digest()
        self.connection.execute("ROLLBACK TO tried")
        return outcome, behind

    def values_for(self, name: str, text: str) -> dict[str, Any]:
        """Raises KeyError for a parameter that nobody has a value for."""
        wanted = parameters_of(text)
        values = dict(PARAMETERS) | ODD.get(name, {})
        verb, _, table = name.partition(".")[2].partition("_")
        if verb in ("set", "drop") and "p1" in wanted and "p1" not in values:
            key = {"entries": "position", "extractions": "number", "traces": "ended", "cron_jobs": "id"}.get(
                table, "queued" if table in ("runs", "deliveries", "jobs") else "number"
            )
            values |= {"p1": COLUMNS[key], "p2": '{"gone": 1}', "p3": '{"gone": 1}', "p4": '"gone"'}
        return {each: values[each] for each in wanted}


def leaks(filled: Tried, empty: Tried) -> Iterator[str]:
    """Queries whose outcome for another tenant depends on the owner's rows, or that change them."""
    untouched = filled.digest()
    for name, text in all_queries():
        there, _ = empty.try_as(OTHER, name, text)
        here, behind = filled.try_as(OTHER, name, text)
        if here != there or behind != untouched:
            yield name
