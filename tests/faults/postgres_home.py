"""A home in PostgreSQL for the fault suites: what is stored there is copied into a file, which is then looked at."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

from homes import PalHome
from palinurus.extensions.postgres import transfer
from palinurus.extensions.postgres.database import PostgresDatabase
from palinurus.storage.database import Database


class PostgresHome(PalHome):
    def __init__(self, root: Path, url: str, tenant: str) -> None:
        super().__init__(root)
        self.url, self.tenant = url, tenant

    def configure(self, base_url: str, **more: Any) -> None:
        super().configure(base_url, storage={"url": self.url, "tenant": self.tenant}, **more)

    def stored(self) -> Path | None:
        """Also while the home is in use: the rows as they are at one moment, or a little later."""
        assert not self.database.exists()
        file = self.root.parent / "stored.sqlite"
        file.unlink(missing_ok=True)
        copying = threading.Thread(target=lambda: asyncio.run(self._copy(file)))
        copying.start()
        copying.join()
        assert file.exists()
        return file

    async def _copy(self, file: Path) -> None:
        source, target = PostgresDatabase(self.url, self.tenant), Database(file, "home", derived=True)
        await transfer.copy_rows(source, target, transfer.tables_of(source), lambda *_: None)
        await target.write(lambda tx: tx.execute(transfer.SHOW).fetchall())
        await target.close()
        await source.close()
