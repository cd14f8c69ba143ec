"""An extension of somebody else with two hooks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from palinurus.domain.hooks import HookDecision, HookEvent
from palinurus.operations.services import Services
from palinurus.runtime.extensions import App


def register(app: App) -> None:
    app.hook("message", "harbour_hooks:note_message")
    app.hook("before_tool_call", "harbour_hooks:guard_tools", name="tide-guard", priority=5)


def note_message(services: Services, event: HookEvent) -> None:
    file = Path(services.home.root, "tides.txt")
    file.write_text(f"{file.read_text() if file.exists() else ''}{event.action}\n")


async def guard_tools(_: Services, event: HookEvent) -> Any:
    return HookDecision(block=True, block_reason="low tide") if event.context["toolName"] == "ls" else None
