"""Where a home is kept, for people and programs."""

from __future__ import annotations

from palinurus.domain.errors import NotOffered
from palinurus.operations.operation import operation
from palinurus.operations.services import Services
from palinurus.storage.database import StorageStatus


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
