"""The owner's secret of the gateway: from the config, from the environment, or from a file that is made once.

It is looked up anew for every credential that comes in, which costs a few `stat` calls; so a secret that was changed
in the config or in the file is in force at once, and the old one is dead.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

from palinurus.config.atomic import storage_error, write_atomic
from palinurus.config.home import env_value
from palinurus.config.load import LoadedConfig, resolve_secret, secret_providers
from palinurus.domain.errors import ConfigError
from palinurus.gateway.settings import GatewaySecrets, Mode

log = logging.getLogger(__name__)

FILE = "gateway.token"
VARIABLES: dict[Mode, str] = {"token": "PALINURUS_GATEWAY_TOKEN", "password": "PALINURUS_GATEWAY_PASSWORD"}
SHORT = 16  # characters below which a secret can be guessed


def named_secret(loaded: LoadedConfig, env: Mapping[str, str], mode: Mode) -> tuple[str, str]:
    """The secret that config or environment name, and where it stands. Raises ConfigError when it cannot be read."""
    known = loaded.config.section(GatewaySecrets)
    value = known.password if mode == "password" else known.token
    if value is not None:
        found = resolve_secret(value, loaded.env, secret_providers(loaded))
        if not found:
            raise ConfigError(f"gateway.auth.{mode} names a secret that does not exist", hint="set it, or take it out")
        return found, f"gateway.auth.{mode} in the config"
    variable = VARIABLES.get(mode, "")
    return env_value(env, variable), f"the variable {variable}"


class TokenFile:
    """`<home>/gateway.token`, for this user alone. Read again when it changes."""

    def __init__(self, root: Path) -> None:
        self.path = root / FILE
        self._seen: tuple[int, int, int] | None = None
        self._secret = ""

    def make(self) -> None:
        """Make the file if there is none. Raises StorageError."""
        try:
            os.stat(self.path)  # noqa: PTH116  # a broken link is a trouble too, and is told
        except FileNotFoundError:
            write_atomic(self.path, f"pal_{secrets.token_urlsafe(32)}\n")
        except OSError as error:
            raise storage_error(error, self.path) from None

    def read(self) -> str:
        """Empty when it is not there or cannot be read."""
        try:
            found = self.path.stat()
            seen = found.st_ino, found.st_size, found.st_mtime_ns
            if seen != self._seen:
                self._secret = self.path.read_text(encoding="utf-8").strip()
                self._seen = seen
        except (OSError, UnicodeDecodeError):
            self._seen, self._secret = None, ""
        return self._secret


class OwnerSecret:
    """Implements guard's `configured`. `current` gives the config in force, looking whether it has changed."""

    def __init__(self, current: Callable[[], LoadedConfig], env: Mapping[str, str], root: Path, mode: Mode) -> None:
        self._current = current
        self._env = env
        self._mode = mode
        self._file = TokenFile(root)
        self._trouble = ""

    def prepare(self) -> str:
        """See that there is one, and say where. Raises ConfigError."""
        found, where = named_secret(self._current(), self._env, self._mode)
        if found:
            return where
        if self._mode == "password":
            raise ConfigError("gateway.auth.mode password needs a password", hint="set gateway.auth.password")
        self._file.make()
        if not self._file.read():
            raise ConfigError(f"{self._file.path} contains no token", hint="delete it, and a new one is created")
        return str(self._file.path)

    def is_short(self) -> bool:
        return 0 < len(self()) < SHORT

    def __call__(self) -> str:
        try:
            found, _ = named_secret(self._current(), self._env, self._mode)
        except ConfigError as error:  # nobody comes in by it, and nothing else takes its place
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.warning("nobody can log in with the owner's secret: %s", error)
            return ""
        self._trouble = ""
        return found or (self._file.read() if self._mode == "token" else "")
