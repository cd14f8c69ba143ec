"""Operations on the ground floor: look at the config, change it, make a home.

They need no house, only the ground it stands on, so they work when the config is broken or the home is held; the
holder notices a changed file before its next turn. Writes are serialised by a lock beside the config.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from palinurus.config.atomic import make_directory, storage_error, write_atomic
from palinurus.config.edit import get_value, set_value, unset_value
from palinurus.config.home import Home
from palinurus.config.load import load_config
from palinurus.config.schema import json_schema
from palinurus.config.settings import agent_ids, agent_settings
from palinurus.workspace.seed import SeedReport, seed_workspace

FIRST_CONFIG = """{
  // Palinurus reads this file; `pal config schema` lists what can stand here, `pal config set` changes it.
}
"""


class Ground(Struct, frozen=True):
    """What is there before any house: a place and an environment."""

    home: Home
    env: Mapping[str, str]


class Validated(Struct, frozen=True):
    file: str
    exists: bool
    files: tuple[str, ...]
    warnings: tuple[str, ...]
    unused: tuple[str, ...] = ()  # keys that we know and do not use


class SetupReport(Struct, frozen=True):
    home: str
    config: str
    workspaces: dict[str, str]  # agent -> folder
    created: tuple[str, ...]
    kept: tuple[str, ...]


def config_get(ground: Ground, path: str) -> Any:
    return get_value(load_config(ground.home, ground.env), path)


def config_set(ground: Ground, path: str, value: Any, *, force: bool = False) -> tuple[str, ...]:
    """What is to be said about it, one line each. With `force` also under a key that nobody knows."""
    with one_editor(ground.home):
        return set_value(ground.home, ground.env, path, value, force=force)


def config_unset(ground: Ground, path: str) -> None:
    with one_editor(ground.home):
        unset_value(ground.home, ground.env, path)


def config_validate(ground: Ground) -> Validated:
    """Raises ConfigError with every mistake when there are any."""
    loaded = load_config(ground.home, ground.env)
    files = tuple(map(str, loaded.files))
    path = ground.home.config_path
    return Validated(str(path), _is_there(path), files, loaded.warnings, loaded.unused)


def config_schema() -> dict[str, Any]:
    return json_schema()


def is_new(ground: Ground) -> bool:
    """Whether nobody has lived in this home yet. A config may stand in it already."""
    return not any(_is_there(ground.home.root / name) for name in ("home.sqlite", "workspace"))


def setup(ground: Ground, *, complete: bool = True) -> SetupReport:
    """Make the home, its config and the workspace of every agent. Nothing that exists is touched.

    A folder that is there gets the files that it lacks, unless `complete` is false.
    """
    home = ground.home
    make_directory(home.root)
    created: list[str] = []
    if home.ours and not _is_there(home.config_path):
        write_atomic(home.config_path, FIRST_CONFIG)
        created.append(str(home.config_path))
    loaded = load_config(home, ground.env)
    reports: dict[Path, SeedReport] = {}
    workspaces: dict[str, str] = {}
    for agent_id in agent_ids(loaded.config):
        settings = agent_settings(loaded.config, home, agent_id)
        workspaces[agent_id] = str(settings.workspace)
        if not complete and _is_there(settings.workspace):
            continue
        reports[settings.workspace] = seed_workspace(
            settings.workspace,
            skip_bootstrap=settings.skip_bootstrap,
            skip_optional=settings.skip_optional_bootstrap_files,
        )
    created += [str(root / name) for root, report in reports.items() for name in report.created]
    kept = [str(root / name) for root, report in reports.items() for name in report.kept]
    return SetupReport(str(home.root), str(home.config_path), workspaces, tuple(created), tuple(kept))


@contextmanager
def one_editor(home: Home) -> Iterator[None]:
    """Two editors at once would each write what the other had not seen."""
    if not home.ours:  # refused below, with the reason
        yield
        return
    make_directory(home.root)
    path = home.root / "config.lock"
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise storage_error(error, path) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _is_there(path: Path) -> bool:
    """Path.exists raises where a folder on the way may not be entered; for us, what nobody can see is not there."""
    return os.access(path, os.F_OK)
