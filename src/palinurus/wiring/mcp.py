"""The MCP servers of each agent, as the config names them.

They outlive a change of the config that leaves them as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from palinurus.config.hands import McpServer
from palinurus.config.home import Home
from palinurus.config.load import Loaded, resolve_secret, secret_providers
from palinurus.config.section import Secret
from palinurus.config.settings import AgentSettings
from palinurus.domain.clock import Clock
from palinurus.domain.errors import ConfigError
from palinurus.tools.mcp.servers import McpServers
from palinurus.tools.mcp.settings import CALL_SECONDS, ServerSettings


class McpBench:
    """`redact` is asked anew each time, so it may come to know more secrets."""

    def __init__(self, home: Home, clock: Clock, redact: Callable[[str], str]) -> None:
        self._home = home
        self._clock = clock
        self._redact = redact
        self._made: dict[str, tuple[tuple[ServerSettings, ...], McpServers]] = {}
        self._retired: list[McpServers] = []  # a turn may still be calling their tools
        self._troubles: dict[str, tuple[str, ...]] = {}

    def of(self, loaded: Loaded, agent: AgentSettings) -> McpServers:
        """The servers of an agent under this config."""
        settings, self._troubles[agent.agent_id] = server_settings(loaded, self._home, agent)
        known, servers = self._made.get(agent.agent_id, ((), None))
        if servers is not None and known == settings:
            return servers
        if servers is not None:
            self._retired.append(servers)
        made = McpServers(settings, self._home.root / "derived" / "mcp", self._clock, redact=self._redact)
        self._made[agent.agent_id] = (settings, made)
        return made

    @property
    def warnings(self) -> tuple[str, ...]:
        told = [line for _, servers in self._made.values() for line in servers.warnings()]
        troubles = [line for lines in self._troubles.values() for line in lines]
        return tuple(dict.fromkeys((*troubles, *told)))  # agents share servers, and their troubles

    async def close(self) -> None:
        for servers in (*self._retired, *(servers for _, servers in self._made.values())):
            await servers.close()


def server_settings(
    loaded: Loaded, home: Home, agent: AgentSettings
) -> tuple[tuple[ServerSettings, ...], tuple[str, ...]]:
    """The servers that are enabled, with their secrets; and a line for each that cannot be used."""
    found: list[ServerSettings] = []
    told: list[str] = []
    for name, server in loaded.config.mcp.servers.items():
        if not server.enabled:
            continue
        try:
            found.append(_resolved(name, server, loaded, home, agent))
        except ConfigError as error:
            told.append(f"mcp: {name} is left out: {error}")
    return tuple(found), tuple(told)


def _resolved(name: str, server: McpServer, loaded: Loaded, home: Home, agent: AgentSettings) -> ServerSettings:
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
        server.timeout_seconds or CALL_SECONDS,
    )
