"""What a move of a home's rows has to say, also where the library of PostgreSQL is not installed."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

Tell = Callable[[str, int, int], None]
"""Called with the table and how many rows of how many there are. Neither blocks nor raises."""


class TableReport(Struct, frozen=True, rename="camel"):
    """The rows of a table, the same on both sides."""

    table: str
    rows: int
    sha256: str = ""


class TransferReport(Struct, frozen=True, rename="camel"):
    source: str
    target: str
    tables: tuple[TableReport, ...]
    dry_run: bool = False

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.tables)
