"""A second pair of eyes on an index: a connection and a thread of their own, for what can be looked up meanwhile.

SQLite works without Python's lock, so on two cores the vectors of a question are gone through while its words are. The
two may see the index a moment apart; ids are never given twice, so what one has seen and the other has not is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import apsw

T = TypeVar("T")
CACHE = 8 * 1024  # kilobytes


class Aside:
    """Opened when it is first needed. Where it cannot be, the work is done at once, by the connection at hand."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._connection: apsw.Connection | None = None

    def start(self, beside: apsw.Connection, work: Callable[[apsw.Connection], T]) -> Callable[[], T]:
        """Begin to work; call what is returned to wait for the outcome, which may be what the work raised."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "pal-aside")
            self._connection = _opened(beside)
        if self._connection is None:
            done = work(beside)
            return lambda: done
        future: Future[T] = self._thread.submit(work, self._connection)
        return future.result

    def close(self) -> None:
        """After the work that is under way."""
        if self._thread is not None:
            self._thread.shutdown()
        if self._connection is not None:
            self._connection.close()
        self._thread = self._connection = None


def _opened(beside: apsw.Connection) -> apsw.Connection | None:
    try:
        connection = apsw.Connection(beside.filename, flags=apsw.SQLITE_OPEN_READONLY)
        connection.set_busy_timeout(5_000)
        connection.pragma("cache_size", -CACHE)
        connection.pragma("schema_version")
    except apsw.Error:  # a home that may only be read, whose log belongs to somebody else
        return None
    return connection
