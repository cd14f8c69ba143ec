"""Backups: a home in one file, made while it is in use; verified; restored to a new folder."""

from __future__ import annotations

from palinurus.runtime.extensions import App


def register(app: App) -> None:
    app.operation(f"{__name__}.operations:request_copy", "backup.copy")
    app.command("backup", f"{__name__}.commands:backup")
    app.doctor_check(f"{__name__}.backups:check_backup")
