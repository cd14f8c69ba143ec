"""Runs hooks from folders: handler.py is loaded from the bytes that were checked, and its `handle(event)` is called."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from functools import lru_cache, partial
from types import ModuleType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from palinurus.config.load import LoadedConfig, resolve_secret, secret_providers
from palinurus.domain.errors import BadRequest
from palinurus.domain.hooks import BEFORE_TOOL, Hook, HookEvent, HookFailed
from palinurus.extensions.hooks.bundle import BUNDLED
from palinurus.extensions.hooks.folders import HANDLER, FoundHook, find_folders
from palinurus.runtime.services import HomeServices


def find_hooks(services: HomeServices, event: str) -> list[Hook]:
    """Those that are on and listen to an event."""
    loaded = services.agents.loaded
    found = [_hook(services, loaded, each) for each in find_folders(services.home, loaded, unread=False)]
    return [hook for hook in found if hook is not None and hook.listens(event)]


def _hook(services: HomeServices, loaded: LoadedConfig, found: FoundHook) -> Hook | None:
    info = found.info
    agents = frozenset(info.agents) or None
    if found.was_gate:
        return Hook(info.name, (BEFORE_TOOL,), partial(_refuse, info.reasons), version=info.digest, agents=agents)
    if info.state != "on":
        return None
    if info.tier == "bundled":
        return Hook(info.name, info.events, partial(BUNDLED[info.name].call, services, found.entry))
    call = FolderCall(found.handler, f"{info.folder}/{HANDLER}", partial(_variables, loaded, found))
    return Hook(info.name, info.events, call, info.priority, info.digest, agents)


class FolderCall(Struct, frozen=True):
    """Calls `handle` of a handler. It is no async function, so it has a thread to itself, for its import as well."""

    handler: bytes
    path: str
    variables: Callable[[], dict[str, str]]

    def __call__(self, event: HookEvent) -> Any:
        handle = load_handler(self.handler, self.path)
        return handle(replace(event, env=self.variables()))


@lru_cache(maxsize=100)
def load_handler(handler: bytes, path: str) -> Callable[[HookEvent], Any]:
    """Raises whatever the module raises."""
    name = f"palinurus_hook_{hashlib.sha256(path.encode() + handler).hexdigest()[:16]}"
    module = ModuleType(name)
    module.__file__ = path
    sys.modules[name] = module  # dataclasses look themselves up there
    exec(compile(handler, path, "exec"), vars(module))  # noqa: S102  # what a person has enabled
    handle = vars(module).get("handle")
    if not callable(handle):
        raise BadRequest(f"{path} has no function handle(event)")
    return handle  # type: ignore[no-any-return]  # it is callable


def _variables(loaded: LoadedConfig, found: FoundHook) -> dict[str, str]:
    providers = secret_providers(loaded)
    values = {name: resolve_secret(value, loaded.env, providers) for name, value in found.entry.env.items()}
    return {name: value for name, value in values.items() if value}


async def _refuse(reasons: tuple[str, ...], _: HookEvent) -> None:
    raise HookFailed("; ".join(reasons))
