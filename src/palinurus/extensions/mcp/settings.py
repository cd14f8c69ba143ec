"""The servers in the config, with their secrets resolved, and what of them may be shown."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from palinurus.config.agents import AgentSettings
from palinurus.config.home import Home
from palinurus.config.load import LoadedConfig, resolve_secret, secret_providers
from palinurus.config.section import Secret
from palinurus.domain.errors import ConfigError
from palinurus.sandbox.environment import clean_env
from palinurus.tools.settings import McpOptions, McpServerEntry

CALL_SECONDS = 60.0


class ServerSettings(Struct, frozen=True):
    """A program on its standard streams, or an address for streamable HTTP."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    cwd: str = ""  # empty: our current directory
    url: str = ""
    headers: Mapping[str, str] = {}
    timeout_seconds: float = CALL_SECONDS  # of one call, including the start of the server

    @property
    def fingerprint(self) -> str:
        """Returns the name of its stored data. Values of variables and headers are left out: they are secrets."""
        parts = (self.name, self.command, self.args, sorted(self.env), self.cwd, self.url, sorted(self.headers))
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:32]

    @property
    def transport(self) -> str:
        return "http" if self.url else "stdio"

    @property
    def where(self) -> str:
        """Returns the command or the address, for people. A query, and the part before an @, may contain a key."""
        if not self.url:
            return " ".join((self.command, *self.args))
        address = urlsplit(self.url)
        return f"{address.scheme}://{address.netloc.rpartition('@')[2]}{address.path}"

    def environment(self, ours: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Returns the environment of a child: PATH, user and locale, and the config's variables."""
        plain = clean_env(ours.get("PATH", os.defpath), ours.get("HOME", "/"))
        return {**plain, "LANG": ours.get("LANG", plain["LANG"]), "TERM": ours.get("TERM", plain["TERM"]), **self.env}


def server_settings(
    loaded: LoadedConfig, home: Home, agent: AgentSettings
) -> tuple[tuple[ServerSettings, ...], tuple[str, ...]]:
    """Returns the enabled servers with their secrets, and a line for each that cannot be used."""
    found: list[ServerSettings] = []
    problems: list[str] = []
    for name, server in loaded.config.section(McpOptions).servers.items():
        if not server.enabled:
            continue
        try:
            found.append(_resolved(name, server, loaded, home, agent))
        except ConfigError as error:
            problems.append(f"mcp: {name} is left out: {error}")
    return tuple(found), tuple(problems)


def _resolved(
    name: str, server: McpServerEntry, loaded: LoadedConfig, home: Home, agent: AgentSettings
) -> ServerSettings:
    def values(secrets: Mapping[str, Secret]) -> dict[str, str]:
        known = {key: resolve_secret(value, loaded.env, secret_providers(loaded)) for key, value in secrets.items()}
        return {key: value for key, value in known.items() if value is not None}

    return ServerSettings(
        name,
        server.command or "",
        server.args,
        values(server.env),
        str(home.expand(server.cwd, agent.workspace) if server.cwd else agent.workspace),
        server.url or "",
        values(server.headers),
        server.timeout_seconds,
    )
