"""Plugins: programs of others that extend Palinurus, and `pal plugins`.

`manifest` reads what a plugin is and asks for, `index` what a person has installed, `find` says which are used and why
others are not. `host` loads one when something of it is used, and `app` is what its `register(app)` is given.
"""

from __future__ import annotations

from palinurus.runtime.extensions import App


def register(app: App) -> None:
    for name in ("info", "enable", "disable", "prepare", "install", "uninstall", "new"):
        app.operation(f"{__name__}.operations:{name}_plugin", f"plugins.{name}")
    app.operation(f"{__name__}.operations:list_plugins", "plugins.list")
    app.operation(f"{__name__}.operations:show_panel", "plugins.panel")
    app.operation(f"{__name__}.operations:lock_plugins", "plugins.lock")
    app.operation(f"{__name__}.operations:check_all_plugins", "plugins.doctor")
    app.command("plugins", f"{__name__}.commands:plugins")
    app.doctor_check(f"{__name__}.operations:check_plugins")
