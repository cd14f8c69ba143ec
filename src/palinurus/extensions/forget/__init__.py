"""Removes text, or a whole session, from every place that contains it."""

from __future__ import annotations

from palinurus.runtime.extensions import App


def register(app: App) -> None:
    app.operation(f"{__name__}.operations:forget_words", "forget")
    app.command("forget", f"{__name__}.commands:forget")
