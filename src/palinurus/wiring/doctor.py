"""Look at everything that can be wrong with a home, in the order in which things depend on each other."""

from __future__ import annotations

from collections.abc import Mapping

from palinurus.config.home import Home
from palinurus.config.load import Loaded, load_config
from palinurus.domain.errors import ConfigError
from palinurus.wiring.checks.agents import check_agents, check_model
from palinurus.wiring.checks.backup import check_backup
from palinurus.wiring.checks.check import Check, bad, ok, warning
from palinurus.wiring.checks.place import (
    check_database,
    check_git,
    check_holder,
    check_index,
    check_modes,
    check_room,
)
from palinurus.wiring.checks.sandbox import check_sandbox
from palinurus.wiring.checks.sessions import check_sessions


async def examine(home: Home, env: Mapping[str, str], *, fix: bool = False, ask_model: bool = True) -> list[Check]:
    """`fix` mends what can be mended without a decision. Never raises for what it finds."""
    checks = list(check_modes(home, fix=fix))
    loaded, about_config = _config(home, env)
    checks += about_config
    checks.append(await check_holder(home))
    database, entries = await check_database(home)
    checks += [*database, await check_index(home, entries, fix=fix), check_backup(home, entries)]
    if loaded is not None:
        checks += check_agents(home, loaded)
        checks += await check_sessions(home, loaded)
        checks += [check async for check in check_sandbox(home, loaded)]
        if ask_model:
            checks.append(await check_model(home, env, loaded))
    return [*checks, check_room(home), check_git()]


def _config(home: Home, env: Mapping[str, str]) -> tuple[Loaded | None, list[Check]]:
    path = home.config_path
    try:
        loaded = load_config(home, env)
    except ConfigError as error:
        mistakes = [line for line in error.message.splitlines() if line.strip()]
        return None, [bad("config", line, path, error.hint or "mend the file") for line in mistakes]
    odd = [warning("config", line, path) for line in loaded.warnings]
    return loaded, odd or [ok("config", "good" if loaded.files else "none; the defaults hold", path)]
