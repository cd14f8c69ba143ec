"""The home: its root, config file and profile, chosen from flags and environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

from palinurus.domain.errors import BadRequest

CONFIG_NAME = "palinurus.json"
PROFILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
UNSET_WORDS = ("", "undefined", "null")  # what broken shell and service scripts pass for an empty value


class Home(Struct, frozen=True):
    """One home. State always goes to `root`; the config may be a foreign file that is only read."""

    root: Path
    config_path: Path
    profile: str = ""
    ours: bool = True  # the config is <root>/palinurus.json, so it may be written
    workspace_override: Path | None = None
    user_home: Path = field(default_factory=Path.home)  # what `~` means in the config

    @property
    def is_used(self) -> bool:
        """Whether the home has been used. A config alone does not count."""
        return any(os.access(self.root / name, os.F_OK) for name in ("home.sqlite", "workspace"))

    def expand(self, text: str, base: Path) -> Path:
        """A path as a person writes it: `~` is the user's home, a relative path starts at `base`."""
        return base / expand_user(text, self.user_home)


def find_home(
    env: Mapping[str, str], *, profile: str | None = None, config: Path | None = None, workspace: Path | None = None
) -> Home:
    """Chooses the home. Flags take precedence over the environment, and that over `~/.palinurus`.

    Raises BadRequest for a profile name that could not be part of a path.
    """
    user_home = Path(env_value(env, "HOME") or _home_of_this_user())
    name = _profile(profile if profile is not None else env_value(env, "PALINURUS_PROFILE"))
    root = _root(env, user_home, name)
    own_config = root / CONFIG_NAME
    config_path = own_config
    if chosen := (str(config) if config is not None else env_value(env, "PALINURUS_CONFIG_PATH")):
        config_path = expand_user(chosen, user_home).absolute()
    return Home(
        root=root,
        config_path=config_path,
        profile=name,
        ours=config_path == own_config or config_path.resolve() == own_config.resolve(),
        workspace_override=expand_user(str(workspace), user_home).absolute() if workspace is not None else None,
        user_home=user_home,
    )


def env_value(env: Mapping[str, str], name: str) -> str:
    """A variable's value, or "" if it is unset or a word for unset."""
    value = env.get(name, "").strip()
    return "" if value.lower() in UNSET_WORDS else value


def expand_user(text: str, user_home: Path) -> Path:
    """Expands `~` and `~/x` under `user_home`. Unlike Path.expanduser it reads no environment."""
    if text == "~":
        return user_home
    return user_home / text[2:] if text.startswith("~/") else Path(text)


def _root(env: Mapping[str, str], user_home: Path, profile: str) -> Path:
    if root := env_value(env, "PALINURUS_HOME"):
        return expand_user(root, user_home).absolute()
    return user_home.absolute() / (f".palinurus-{profile}" if profile else ".palinurus")


def _profile(name: str) -> str:
    """The profile's name, which becomes part of a path; "" for the default home."""
    if name in ("", "default"):
        return ""
    if not PROFILE_NAME.fullmatch(name):
        raise BadRequest(f"not a valid profile name: {name!r}", hint="letters, digits, - and _, at most 64")
    return name


def _home_of_this_user() -> str:
    found = os.path.expanduser("~")  # noqa: PTH111  the Path form raises where there is no home at all
    if found == "~":
        raise BadRequest("this user has no home directory", hint="set HOME or PALINURUS_HOME")
    return found
