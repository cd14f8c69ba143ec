"""Whether notes wait in the home for a file of their own: one look, for a command that opens nothing else of it."""

from __future__ import annotations

from pathlib import Path

import apsw

from palinurus.storage.queries import load_queries


def notes_wait(path: Path) -> bool:
    """Also when it cannot be told: whoever opens the home in the ordinary way will know."""
    if not path.exists():
        return False
    if not path.stat().st_size:  # SQLite would remove the log of an emptied file
        return True
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return bool(connection.execute(load_queries("home.sql")["extractions_unplaced"], {"limit": 1}).fetchall())
        finally:
            connection.close()
    except apsw.Error:
        return True
