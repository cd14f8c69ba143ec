"""qmd as the memory backend: the program of that name indexes and searches an agent's markdown and sessions.

`backend` keeps its index up to date and asks it, `command` runs it and reads what it says, `collections` says which
folders it is told of and by which paths we know its results, `exports` writes the sessions that it reads.
"""

from __future__ import annotations

from palinurus.runtime.extensions import App


def register(app: App) -> None:
    app.doctor_check(f"{__name__}.command:check_command")
