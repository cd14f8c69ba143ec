"""Hooks as people ask for them: list them, read one, enable and disable it. No tool of an agent can do this."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Annotated

from msgspec import Struct
from msgspec.structs import replace

from palinurus.config.load import load_config
from palinurus.domain.errors import BadRequest, NotFound, Stale
from palinurus.extensions.hooks.folders import (
    EnabledHook,
    FoundHook,
    HookInfo,
    find_folders,
    load_enabled,
    save_enabled,
)
from palinurus.extensions.hooks.settings import HookEntry, InternalHookSettings
from palinurus.operations.config import set_option
from palinurus.operations.operation import Private, operation
from palinurus.operations.services import Services
from palinurus.runtime.extensions import LOADED
from palinurus.text.words import nearest

HookName = Annotated[str, "Its name."]


class HookList(Struct, frozen=True):
    hooks: tuple[HookInfo, ...]


class HookPage(Struct, frozen=True):
    """A hook, and the text of its handler."""

    hook: HookInfo
    handler: str = ""


@operation("hooks.list", scope="read")
async def list_hooks(services: Services) -> HookList:
    """List hooks: which are on, which are off and why, which failed too often.

    Examples:
      pal hooks list
      pal hooks list --json
    """
    return HookList(tuple(hook.info for hook in await _find_all(services)))


@operation("hooks.show", scope="read")
async def show_hook(services: Services, name: HookName) -> HookPage:
    """Show a hook and its code.

    Example:
      pal hooks show boot-md
    """
    found = await _find(services, name)
    return HookPage(found.info, found.handler.decode("utf-8", "replace"))


@operation("hooks.enable", scope="admin")
async def enable_hook(
    services: Services,
    name: HookName,
    digest: Annotated[str, Private, "Of the content that the person has seen; another one is refused."] = "",
) -> HookInfo:
    """Enable a hook. One in a workspace is enabled as it is now: when it is changed, it is off again.

    Examples:
      pal hooks enable boot-md
      pal hooks enable my-hook --yes
    """
    found = await _find(services, name)
    info = found.info
    if digest and digest != info.digest:
        raise Stale(f"the hook {info.name} has changed since it was shown", hint=f"`pal hooks show {info.name}`")
    if info.tier == "workspace":
        if not info.digest:
            raise BadRequest(f"the hook {info.name} cannot be enabled: {'; '.join(info.reasons)}")
        record = EnabledHook(info.name, info.digest, info.events)
        await asyncio.to_thread(_change_enabled, services, info.folder, record)
    await _switch(services, found, on=True)
    services.hooks.reset_failures(info.name)
    return (await _find(services, info.folder or info.name)).info


@operation("hooks.disable", scope="admin")
async def disable_hook(services: Services, name: HookName) -> HookInfo:
    """Disable a hook.

    Example:
      pal hooks disable boot-md
    """
    found = await _find(services, name)
    info = found.info
    if info.tier == "workspace":
        await asyncio.to_thread(_change_enabled, services, info.folder, None)
    else:
        await _switch(services, found, on=False)
    services.hooks.reset_failures(info.name)
    left = [
        hook.info
        for hook in await _find_all(services)
        if (hook.info.name, hook.info.folder) == (info.name, info.folder)
    ]
    return left[0] if left else replace(info, state="off", reasons=("its folder is gone",))


async def _switch(services: Services, hook: FoundHook, *, on: bool) -> None:
    """In the config, unless that says so already."""
    info, state = hook.info, hook.entry.enabled
    is_default = on and info.tier != "bundled" and state is not False
    if state is not on and not is_default:
        await asyncio.to_thread(set_option, services, f'hooks.internal.entries."{info.key or info.name}".enabled', on)


def _change_enabled(services: Services, folder: str, record: EnabledHook | None) -> None:
    known = {path: each for path, each in load_enabled(services.home).items() if path != folder}
    save_enabled(services.home, {**known, **({folder: record} if record else {})})


async def _find(services: Services, name: str) -> FoundHook:
    found = await _find_all(services)
    named = [hook for hook in found if name.strip() in (hook.info.name, hook.info.folder)]
    if named:
        return next((hook for hook in named if hook.info.state == "on"), named[0])
    near = nearest(name, [hook.info.name for hook in found])
    raise NotFound(f"there is no hook {name[:80]!r}", hint=f"did you mean {near}?" if near else "`pal hooks list`")


async def _find_all(services: Services) -> list[FoundHook]:
    loaded = await asyncio.to_thread(load_config, services.home, services.env)  # it may have just been changed
    folders = await asyncio.to_thread(find_folders, services.home, loaded)
    entries = loaded.config.section(InternalHookSettings).entries
    return [_with_health(services, hook) for hook in (*folders, *_registered(entries))]


def _registered(entries: Mapping[str, HookEntry]) -> Iterator[FoundHook]:
    """Those of extensions, each name once."""
    events: dict[str, list[str]] = {}
    for hook in LOADED.load(lambda each: bool(each.hooks)).hooks:
        events.setdefault(hook.name, []).append(hook.event)
    for name, heard in events.items():
        info, entry = HookInfo(name, "extension", tuple(heard), key=name), entries.get(name, HookEntry())
        off = (f"switched off (hooks.internal.entries.{name}.enabled)",)
        yield FoundHook(replace(info, state="off", reasons=off) if entry.enabled is False else info, entry)


def _with_health(services: Services, hook: FoundHook) -> FoundHook:
    health, info = services.hooks.health.get(hook.info.name), hook.info
    if health is None:
        return hook
    state = "disabled" if services.hooks.is_disabled(info.name) and info.state == "on" else info.state
    info = replace(info, state=state, failures=health.failures, trouble=health.trouble, dropped=health.dropped)
    return replace(hook, info=info)
