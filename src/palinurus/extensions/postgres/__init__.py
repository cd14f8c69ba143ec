"""A home kept in a PostgreSQL database that teams share: one tenant sees nothing of another, by the database."""

from __future__ import annotations

from palinurus.runtime.extensions import App


def register(app: App) -> None:
    app.operation(f"{__name__}.engine:show_storage", "storage.status")
    app.command("storage", f"{__name__}.commands:storage")
    app.command("migrate sqlite-to-postgres", f"{__name__}.migrate_commands:to_postgres")
    app.command("migrate postgres-to-sqlite", f"{__name__}.migrate_commands:to_sqlite")
    app.doctor_check(f"{__name__}.engine:check_database")
