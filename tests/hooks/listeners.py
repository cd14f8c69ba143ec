"""Hooks of a test: what they are told is written down, and what they do is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from palinurus.domain.hooks import Hook, HookEvent, HookLimits, Hooks
from palinurus.testing.fakes import FakeClock

SHORT = HookLimits(gate_seconds=0.2, observer_seconds=0.2, close_seconds=0.2)  # for hooks that never end


class Listeners:
    """The hooks of a harness, in the order in which they are called."""

    def __init__(self) -> None:
        self.hooks: list[Hook] = []
        self.told: list[HookEvent] = []
        self.service = Hooks(lambda event: [hook for hook in self.hooks if hook.listens(event)], FakeClock())

    def add(self, name: str, *events: str, call: Callable[[HookEvent], Any] | None = None, **more: Any) -> None:
        async def write_down(event: HookEvent) -> None:
            self.told.append(event)

        self.hooks.append(Hook(name, events, call or write_down, **more))
        self.hooks.sort(key=lambda hook: -hook.priority)

    @property
    def names(self) -> list[str]:
        return [":".join(filter(None, (event.type, event.action))) for event in self.told]
