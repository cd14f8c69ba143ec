"""Look at everything that can be wrong with a home, in the order in which things depend on each other."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from palinurus.config.home import Home
from palinurus.config.load import LoadedConfig, load_config
from palinurus.domain.errors import ConfigError, PalinurusError
from palinurus.runtime.checks.agents import check_agents, check_model
from palinurus.runtime.checks.check import Check, bad, ok, warning
from palinurus.runtime.checks.place import (
    check_database,
    check_git,
    check_holder,
    check_index,
    check_memory,
    check_modes,
    check_room,
)
from palinurus.runtime.checks.sandbox import check_sandbox
from palinurus.runtime.checks.sessions import check_sessions
from palinurus.runtime.extensions import LOADED, imported
from palinurus.storage.settings import StorageSettings


async def examine(home: Home, env: Mapping[str, str], *, fix: bool = False, ask_model: bool = True) -> list[Check]:
    """`fix` mends what can be mended without a decision. Never raises for what it finds."""
    checks: list[Check] = []
    entries = 0
    with _told("home", checks):
        checks += check_modes(home, fix=fix)
    loaded, about_config = _config(home, env)
    checks += about_config
    with _told("lock", checks):
        checks.append(await check_holder(home))
    if loaded is None or loaded.config.section(StorageSettings).url is None:  # else an extension looks at it
        with _told("database", checks):
            database, entries = await check_database(home)
            checks += database
        with _told("index", checks):
            checks.append(await check_index(home, entries, fix=fix))
    with _told("memory", checks):
        checks += [check async for check in check_memory(home)]
    for check in LOADED.load().checks:
        with _told("extensions", checks):
            found = imported(check)(home, loaded)
            checks += await found if inspect.isawaitable(found) else found
    if loaded is not None:
        with _told("agents", checks):
            checks += check_agents(home, loaded)
        with _told("sessions", checks):
            checks += await check_sessions(home, loaded)
        with _told("sandbox", checks):
            checks += [check async for check in check_sandbox(home, loaded)]
    if loaded is not None and ask_model:
        with _told("model", checks):
            checks.append(await check_model(home, env, loaded))
    with _told("disk", checks):
        checks.append(check_room(home))
    return [*checks, check_git()]


@contextmanager
def _told(name: str, checks: list[Check]) -> Iterator[None]:
    """What cannot be looked at is a finding, and no reason to look at nothing else."""
    try:
        yield
    except PalinurusError as error:
        checks.append(bad(name, f"cannot be checked: {error.message}", "", error.hint))
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        checks.append(bad(name, f"cannot be checked: {why}", error.filename or "", "check who owns it, and its mode"))


def _config(home: Home, env: Mapping[str, str]) -> tuple[LoadedConfig | None, list[Check]]:
    path = home.config_path
    try:
        loaded = load_config(home, env, thorough=True)
    except ConfigError as error:
        mistakes = [line for line in error.message.splitlines() if line.strip()]
        return None, [bad("config", line, path, error.hint or "fix the file") for line in mistakes]
    odd = [warning("config", line, path) for line in (*loaded.warnings, *loaded.unused)]
    return loaded, odd or [ok("config", "valid" if loaded.files else "none; the defaults are used", path)]
