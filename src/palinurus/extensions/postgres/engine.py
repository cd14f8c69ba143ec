"""Opens the database that `storage.url` names, and says what is there. The library is imported here and not before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palinurus.config.home import Home
from palinurus.config.load import LoadedConfig, resolve_secret, secret_providers
from palinurus.domain.errors import ConfigError, NotOffered, StorageError
from palinurus.operations.operation import operation
from palinurus.operations.services import Services
from palinurus.runtime.checks.check import Check, bad, ok
from palinurus.storage.database import StorageStatus
from palinurus.storage.settings import StorageSettings

if TYPE_CHECKING:
    from palinurus.extensions.postgres.database import PostgresDatabase


def open_database(url: str, tenant: str, *, readonly: bool = False) -> PostgresDatabase:
    """For the process that holds the home, or one that only reads. Blocks. Raises StorageError and ConfigError."""
    return load_engine()(url, tenant, readonly=readonly, exclusive=not readonly)


def load_engine() -> type[PostgresDatabase]:
    """Raises ConfigError where its library is not installed."""
    try:
        from palinurus.extensions.postgres.database import PostgresDatabase
    except ImportError:
        raise ConfigError(
            "storage.url names a PostgreSQL database, whose library is not installed",
            hint="pip install 'palinurus[postgres]'",
        ) from None
    return PostgresDatabase


def configured_url(loaded: LoadedConfig) -> str:
    """What `storage.url` says; empty: the home is kept in a file."""
    return resolve_secret(loaded.config.section(StorageSettings).url, loaded.env, secret_providers(loaded)) or ""


async def check_database(home: Home, loaded: LoadedConfig | None) -> list[Check]:
    """For `pal doctor`. Nothing when the home is kept in a file."""
    settings = loaded.config.section(StorageSettings) if loaded is not None else StorageSettings()
    if loaded is None or settings.url is None:
        return []
    try:
        database = open_database(configured_url(loaded), settings.tenant, readonly=True)
    except (StorageError, ConfigError) as error:
        return [bad("database", error.message, "storage.url", error.hint)]
    try:
        found = await database.describe()
    finally:
        await database.close()
    return [ok("database", f"tenant {found.tenant}, {found.entries:,} entries, role {found.role}", found.url)]


@operation("storage.status", scope="admin")
async def show_storage(services: Services) -> StorageStatus:
    """Show where the home is kept: the engine, its address, the tenant, the role and what keeps tenants apart.

    Examples:
      pal storage status
      pal storage status --json
    """
    if services.database is None:
        raise NotOffered("this home has no database")
    status: StorageStatus = await services.database.describe()
    return status
