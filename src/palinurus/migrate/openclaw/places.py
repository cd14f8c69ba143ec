"""Where an OpenClaw home is, under each of the names it has had."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from palinurus.config.home import PROFILE_NAME, env_value, expand_user
from palinurus.domain.errors import NotFound

NAMES = ("openclaw", "moltbot", "clawdbot", "clawdis")  # the newest first
CONFIGS = tuple(f"{name}.json" for name in NAMES)
_SIGNS = (*CONFIGS, "agents", "sessions", "state", "workspace")


def find_openclaw(env: Mapping[str, str], user_home: Path, given: Path | None = None) -> Path:
    """The state folder: the one that is named, or the one that OpenClaw itself would use. Raises NotFound.

    A named folder may also be the one that holds `.openclaw`.
    """
    if given is not None:
        return _named(expand_user(str(given), user_home).absolute())
    for folder in _candidates(env, user_home):
        if folder.is_dir():
            return folder
    raise NotFound("there is no OpenClaw home here", hint="name its folder: pal migrate openclaw DIR")


def is_packed(path: Path) -> bool:
    """Whether it is a home in one file, as `pal export` writes it. What is in it is looked at when it is unpacked."""
    return path.suffix == ".pal" and path.is_file()


def is_state_folder(name: str) -> bool:
    """Whether a folder of this name can be a state folder: `.openclaw`, `.openclaw-work`, `.clawdbot`."""
    return any(name == f".{known}" or name.startswith(f".{known}-") for known in NAMES)


def config_of(root: Path) -> Path | None:
    return next((path for name in CONFIGS if (path := root / name).is_file()), None)


def _named(folder: Path) -> Path:
    if not folder.is_dir():
        raise NotFound(f"there is no folder {folder}", hint="an OpenClaw home is a folder such as ~/.openclaw")
    if _is_home(folder):
        return folder
    inside = next((path for name in NAMES if (path := folder / f".{name}").is_dir()), None)
    if inside is None:
        raise NotFound(f"{folder} is no OpenClaw home", hint=f"one has {CONFIGS[0]} or a folder agents")
    return inside


def _is_home(folder: Path) -> bool:
    return any((folder / sign).exists() for sign in _SIGNS)


def _candidates(env: Mapping[str, str], user_home: Path) -> list[Path]:
    found = []
    homes = [user_home]
    for name in NAMES:
        if state := env_value(env, f"{name.upper()}_STATE_DIR"):
            found.append(expand_user(state, user_home).absolute())
        if home := env_value(env, f"{name.upper()}_HOME"):
            homes.insert(0, expand_user(home, user_home).absolute())
    profile = env_value(env, "OPENCLAW_PROFILE")
    for folder in homes:
        if PROFILE_NAME.fullmatch(profile) and profile != "default":
            found.append(folder / f".openclaw-{profile}")
        found += [folder / f".{name}" for name in NAMES]
    return found
