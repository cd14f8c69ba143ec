"""The hooks of a home: those that extensions register, and those that they find, such as folders of a person.

Nothing is imported for an event to which nobody listens.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from palinurus.config.section import dig
from palinurus.domain.hooks import Hook
from palinurus.operations.services import Services
from palinurus.parts import resolve
from palinurus.runtime.extensions import LOADED, RegisteredHook, imported

ENTRIES = ("hooks", "internal", "entries")


def find_hooks(services: Services, event: str) -> Sequence[Hook]:
    """Implements domain.hooks.Find."""
    app = LOADED.with_hooks(event, partial(_is_there, services))
    names = (event, event.partition(":")[0])
    registered = sorted(app.hooks, key=lambda each: each.owner)  # ours, then those of plugins by id, then folders
    found = [
        _make_hook(services, each) for each in registered if each.event in names and _is_wanted(services, each.name)
    ]
    for finder in app.hook_finders:
        found += resolve(finder)(services, event)
    return sorted(found, key=lambda hook: -hook.priority) if len(found) > 1 else found


def _is_wanted(services: Services, name: str) -> bool:
    """Whether the config does not turn it off."""
    return dig(services.config.data, (*ENTRIES, name, "enabled")) is not False


def _make_hook(services: Services, registered: RegisteredHook) -> Hook:
    call = partial(imported(registered.where), services)
    return Hook(registered.name, (registered.event,), call, registered.priority)


def _is_there(services: Services, place: str) -> bool:
    if place.endswith("/"):
        return Path(services.home.root, place).is_dir()
    return dig(services.config.data, place.split(".")) is not None
