"""Hooks of people: folders with HOOK.md and handler.py, the hooks that come with Palinurus, and `pal hooks`.

`folders` finds them and says which are on, `handlers` runs a handler.py, `bundle` has those of ours. What an event is
and how hooks are called is in domain/hooks.py.
"""

from __future__ import annotations

from palinurus.runtime.extensions import App


def register(app: App) -> None:
    app.find_hooks(f"{__name__}.handlers:find_hooks")
    for name in ("list", "show", "enable", "disable"):
        app.operation(f"{__name__}.operations:{name}_hook{'s' if name == 'list' else ''}", f"hooks.{name}")
    app.command("hooks", f"{__name__}.commands:hooks")
    app.doctor_check(f"{__name__}.folders:check_hooks")
