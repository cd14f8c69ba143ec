"""Import homes of other programs, export this one, and make wikis of either."""

from __future__ import annotations

from palinurus.runtime.extensions import App


def register(app: App) -> None:
    app.operation(f"{__name__}.operations:migrate_home", "migrate.openclaw")
    app.operation(f"{__name__}.operations:import_session", "sessions.import")
    app.operation(f"{__name__}.operations:export_home", "home.export")
    app.operation(f"{__name__}.operations:write_lines", "sessions.lines")
    app.operation(f"{__name__}.ingest.prose:ask_for_wiki", "ingest.ask")
    app.command("migrate", f"{__name__}.commands:migrate")
    app.command("export", f"{__name__}.commands:export")
    app.command("ingest", f"{__name__}.ingest.commands:ingest")
    app.command("sessions export", f"{__name__}.commands:export_command")
    app.command("sessions import", f"{__name__}.commands:import_command")
