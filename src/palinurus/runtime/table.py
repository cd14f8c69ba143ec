"""The table of all operations, those of extensions included."""

from __future__ import annotations

from collections.abc import Iterator

from palinurus.operations.table import Row, Table
from palinurus.parts import OPERATIONS
from palinurus.runtime.extensions import LOADED


class _HomeTable(Table):
    """Operations of extensions as well."""

    def __iter__(self) -> Iterator[Row]:
        yield from super().__iter__()
        yield from LOADED.all_operations()

    def loaded(self) -> tuple[list[Row], list[str]]:
        waiting = LOADED.waiting_operations()
        return [*super().__iter__(), *LOADED.all_operations(lambda _: False)], waiting

    def get(self, name: str) -> Row:
        return LOADED.find_operation(name) or super().get(name)


TABLE = _HomeTable(families=OPERATIONS)
