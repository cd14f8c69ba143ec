"""Where a home keeps what was said and done."""

from typing import Annotated

from palinurus.config.section import Secret, Section, option


class StorageSettings(Section, frozen=True):
    """The database of the home."""

    url: Annotated[
        Secret | None,
        option("A PostgreSQL database: postgresql://user@host/name. Unset: SQLite, in the file home.sqlite."),
    ] = None
    tenant: Annotated[str, option("Whose rows this home reads and writes in that database.", longest=200)] = "default"
