"""The stores of one simulated home, and its files where they lie on a disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from palinurus.domain.clock import Clock, NewId
from palinurus.ledger.audit_log import AuditLog
from palinurus.sessions.store import SessionStore
from palinurus.storage.database import Database
from palinurus.storage.jobs import JobQueue

Pace = Callable[[], float]
"""Seconds that the next job of a disk takes; 0: done at once."""


class Files(Protocol):
    """A home on a disk: it is opened anew by each life, as by each process."""

    pace: Pace

    def open(self) -> Shelf:
        """As the next process does. Raises HomeHeld while another life has the lock."""

    def view(self) -> Shelf:
        """What is on the disk at each moment, past all slowness: for a witness."""

    def remove_lock(self) -> None:
        """As somebody does who believes that it was left behind."""

    def lose(self, what: str) -> str:
        """Start a copy of this home that has lost its "content", its "file" or its "log".

        What was wrong then; empty when nothing was. Called while nobody has the home open.
        """


class Shelf(Struct, frozen=True):
    """The stores of one home, as one process has opened them."""

    database: Database
    sessions: SessionStore
    queue: JobQueue
    audit: AuditLog
    kill: Callable[[], None] = lambda: None  # the process is no more; a second time does nothing
    keeps_lock: Callable[[], bool] = lambda: True  # looks whether the lock that others see is its own
    files: Files | None = None


MakeShelf = Callable[[Clock, NewId, Path], Shelf]
"""Makes the stores of a new home; the folder is the home's own."""
