"""The dashboard: its files, and the login for a browser. It gets its data over the WebSocket, like any client."""

from __future__ import annotations

from palinurus.runtime.extensions import App


def register(app: App) -> None:
    app.http_routes(f"{__name__}.routes:ROUTES")
    app.command("up", f"{__name__}.up:up")
    app.command("dashboard", f"{__name__}.commands:dashboard")
