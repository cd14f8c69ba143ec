"""The ids of a conversation that was brought in, entered in their order once it is whole.

One by one, as they arrive, they would be written all over a table that is far larger than what is kept at hand. Sorted,
they are written from its beginning to its end.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path

import apsw

from palinurus.storage.queries import load_queries

SQL = load_queries("imports.sql")
STEP = 8_000  # ids of one transaction
TOGETHER = 1_600  # ids of one statement; one of more than 16 KB would not be kept prepared

Placed = tuple[str, int, str]
"""Id, position and type of an entry."""


def sorted_ids(path: Path, session_id: str) -> Generator[Sequence[Placed], None, None]:
    """Those of a conversation, a step at a time, as they were when the first step was asked for."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        connection.set_busy_timeout(5_000)
        connection.execute(SQL["sort_ids"], {"id": session_id})  # aside: a long look would hold up the write-ahead log
        found = connection.execute(SQL["sorted_ids"])
        while step := list(islice(found, STEP)):
            yield step
    finally:
        connection.close()


def enter_ids(connection: apsw.Connection, session_id: str, placed: Sequence[Placed]) -> None:
    """Of a conversation that is not shown. What was entered before stays; the second of two equal ids gets a number."""
    for start in range(0, len(placed), TOGETHER):
        some = placed[start : start + TOGETHER]
        values: list[str | int] = [session_id]
        for entry_id, position, _ in some:
            values += (entry_id, position)
        try:
            connection.execute(_statement(len(some)), values)
        except apsw.ConstraintError:  # which undoes the statement by itself
            for entry_id, position, _ in some:
                _enter_one(connection, session_id, entry_id, position)


def _enter_one(connection: apsw.Connection, session_id: str, entry_id: str, position: int) -> None:
    free, number = entry_id, 1
    while (found := connection.execute(SQL["id_position"], (session_id, free)).get) is not None:
        if found == position:
            return
        number += 1
        free = f"{entry_id}~{number}"
    if free != entry_id:
        connection.execute(SQL["rename_entry"], (position, free))
    connection.execute(_statement(1), (session_id, free, position))


@cache
def _statement(rows: int) -> str:
    return SQL["enter_ids"].rstrip(";") + ",(?1,?,?)" * (rows - 1)
