"""All MCP servers of an agent, as tools.

`tools` is called before every turn, because the tools are part of the start of a request. It answers from stored
listings: a server that was reached once need not run. Only for servers that were never reached a turn waits, at most
ten seconds for all of them together. What a server reports later counts from the next turn on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from msgspec import Struct

from palinurus.config.agents import agent_settings
from palinurus.config.home import Home, env_value
from palinurus.config.load import LoadedConfig
from palinurus.domain.clock import Clock
from palinurus.domain.errors import NotFound
from palinurus.domain.events import Plan
from palinurus.domain.tool import PreparedCall, Tool, ToolOutput, ToolRun, ToolSpec, failed
from palinurus.extensions.mcp.connection import INSTALL_HINT, NOT_INSTALLED, is_package_installed
from palinurus.extensions.mcp.listing import ListingCache, NamedTool, RemotePrompt, RemoteTool, ToolListing, name_tools
from palinurus.extensions.mcp.logins import ServerLogins
from palinurus.extensions.mcp.server import FIRST_SECONDS, McpClient, ServerStatus
from palinurus.extensions.mcp.settings import ServerSettings, server_settings
from palinurus.operations.operation import operation
from palinurus.operations.services import Services
from palinurus.providers.keys.credential_file import PASSPHRASE_ENV
from palinurus.runtime.tool_sources import SourceContext
from palinurus.tools.web.addresses import urls_among, why_ask_for

OfAgent = Annotated[str, "Of this agent."]
CHANGES = "a tool of a server that may change or send something, in a turn that has read text from outside"


class McpServers:
    """The servers by name; names are keys of the config, so they are unique. Costs nothing while there are none."""

    def __init__(
        self,
        servers: Sequence[ServerSettings],
        listings: Path,
        clock: Clock,
        *,
        redact: Callable[[str], str] = lambda text: text,
        first_seconds: float = FIRST_SECONDS,
        logins: ServerLogins | None = None,
    ) -> None:
        cache, auth = ListingCache(listings, redact), logins.auth if logins else None
        self._servers = {
            each.name: McpClient(each, cache, clock, first_seconds=first_seconds, auth=auth) for each in servers
        }
        self._loading: asyncio.Lock | None = asyncio.Lock()
        self._made_of: tuple[ToolListing | None, ...] = ()
        self._named: list[tuple[NamedTool, RemoteTool]] = []
        self._readable: list[McpClient] = []  # those that have resources
        self._remarks: tuple[str, ...] = ()
        self._tools: tuple[Tool, ...] = ()

    @property
    def listed(self) -> tuple[Tool, ...]:
        """Returns the tools of the last listing; no server is queried."""
        return self._tools

    async def tools(self) -> tuple[Tool, ...]:
        """Returns the tools sorted by name; the same tuple as long as nothing has changed. Does not raise."""
        if not self._servers:
            return ()
        await self._load()
        if is_package_installed():
            await asyncio.gather(*(server.refresh() for server in self._servers.values()))
        self._make()
        return self._tools

    def warnings(self) -> tuple[str, ...]:
        """Returns warnings for people, one line each."""
        if not self._servers:
            return ()
        if not is_package_installed():
            return (f"{NOT_INSTALLED} ({INSTALL_HINT})",)
        troubles = [f"mcp: {name}: {each.trouble}" for name, each in self._servers.items() if each.trouble]
        return (*troubles, *self._remarks)

    async def statuses(self) -> tuple[ServerStatus, ...]:
        """Returns the known state of the servers: none is started."""
        await self._load()
        self._make()
        return tuple(self._status(server) for server in self._servers.values())

    async def test(self, name: str) -> ServerStatus:
        """Connects to a server now and requests its tools. Raises NotFound for one that is not configured, and
        PalinurusError if it cannot be reached."""
        server = await self.find(name)
        await server.test()
        self._make()
        return self._status(server)

    async def find(self, name: str) -> McpClient:
        """Raises NotFound for one that is not configured."""
        server = self._servers.get(name)
        if server is None:
            known = ", ".join(self._servers) or "none"
            raise NotFound(f"there is no MCP server {name!r}", hint=f"configured under mcp.servers: {known}")
        await self._load()
        return server

    async def prompts(self) -> list[tuple[str, RemotePrompt]]:
        """The prompts of all servers, by the name of the server. Servers that were never reached are started."""
        await self.tools()
        return [
            (name, each) for name, server in self._servers.items() if server.listing for each in server.listing.prompts
        ]

    async def close(self) -> None:
        """Ends all child processes and connections, within two seconds."""
        await asyncio.gather(*(server.close() for server in self._servers.values()))

    async def _load(self) -> None:
        if self._loading is None:
            return
        async with self._loading:
            if self._loading is not None:
                await asyncio.gather(*(server.load() for server in self._servers.values()))
                self._loading = None

    def _make(self) -> None:
        """Rebuilds the tools if the listings changed. While they are equal, the old tuple stays."""
        made_of = tuple(server.listing for server in self._servers.values())
        if made_of == self._made_of:
            return
        self._made_of = made_of
        listed = {
            (name, tool.name): tool
            for name, server in self._servers.items()
            for tool in (server.listing.tools if server.listing else ())
        }
        named, renamed = name_tools(listed)
        made = [(each, listed[each.server, each.tool]) for each in named]
        counts = {name: server.listing.left_out for name, server in self._servers.items() if server.listing}
        left_out = (f"mcp: {name}: {count} of its tools are left out" for name, count in counts.items() if count)
        self._remarks = (*renamed, *left_out)
        readable = [server for server in self._servers.values() if server.listing and server.listing.has_resources]
        if made != self._named or readable != self._readable:
            tools = [self._tool(*pair) for pair in made]
            self._named, self._readable = made, readable
            self._tools = (*tools, resource_tool(readable)) if readable else tuple(tools)

    def _tool(self, named: NamedTool, listed: RemoteTool) -> Tool:
        server = self._servers[named.server]

        async def run(run: ToolRun, sent: Mapping[str, Any]) -> ToolOutput:
            return await server.call(named.tool, sent)

        async def prepare(on: ToolRun, sent: Mapping[str, Any]) -> PreparedCall:
            plan = Plan(named.name, named.name, arguments=dict(sent))
            ask = await why_ask_for(on, urls_among(sent)) if listed.read_only else CHANGES
            return PreparedCall(plan, lambda: run(on, sent), when_untrusted=ask, lasting=True)

        return Tool(ToolSpec(named.name, listed.description, listed.parameters), run, prepare, outside=True)

    def _status(self, server: McpClient) -> ServerStatus:
        return server.status(tuple(each.name for each, _ in self._named if each.server == server.settings.name))


class _AgentServers(Struct, frozen=True):
    loaded: LoadedConfig  # the config that they were built from
    settings: tuple[ServerSettings, ...]
    troubles: tuple[str, ...]
    servers: McpServers


class McpSource:
    """Implements runtime.ToolSource: the servers of each agent. They survive a config change that does not affect
    them."""

    def __init__(self, context: SourceContext) -> None:
        self._context = context
        self._made: dict[str, _AgentServers] = {}
        self._retired: list[McpServers] = []  # a turn may still be calling their tools
        self.logins = logins_of(context.home, context.clock, context.config)

    def of(self, agent_id: str) -> McpServers:
        """Returns the servers of an agent under the current config. Raises NotFound for an unknown agent."""
        home, loaded, known = self._context.home, self._context.config(), self._made.get(agent_id)
        if known is not None and known.loaded is loaded:
            return known.servers
        settings, troubles = server_settings(loaded, home, agent_settings(loaded.config, home, agent_id))
        if known is not None and known.settings == settings:
            servers = known.servers
        else:
            self._retired += [known.servers] if known else []
            listings = home.root / "derived" / "mcp"
            servers = McpServers(
                settings, listings, self._context.clock, redact=self._context.redact, logins=self.logins
            )
        self._made[agent_id] = _AgentServers(loaded, settings, troubles, servers)
        return servers

    async def tools(self, agent_id: str) -> tuple[Tool, ...]:
        return await self.of(agent_id).tools()

    def listed(self, agent_id: str) -> tuple[Tool, ...]:
        return self.of(agent_id).listed

    def warnings(self) -> tuple[str, ...]:
        troubles = [line for each in self._made.values() for line in each.troubles]
        lines = [line for each in self._made.values() for line in each.servers.warnings()]
        return tuple(dict.fromkeys((*troubles, *lines)))  # agents share servers, and their errors

    async def close(self) -> None:
        for servers in (*self._retired, *(each.servers for each in self._made.values())):
            await servers.close()
        await self.logins.close()


def logins_of(home: Home, clock: Clock, config: Callable[[], LoadedConfig]) -> ServerLogins:
    return ServerLogins(home, clock, lambda: env_value(config().env, PASSPHRASE_ENV))


class McpServerList(Struct, frozen=True):
    servers: tuple[ServerStatus, ...]
    warnings: tuple[str, ...] = ()


class McpTestResult(Struct, frozen=True):
    server: ServerStatus
    seconds: float


@operation("mcp.list", scope="read")
async def list_mcp_servers(services: Services, agent: OfAgent = "") -> McpServerList:
    """List the servers and their known state; none is started.

    Examples:
      pal mcp list
      pal mcp list --json
    """
    servers = _servers(services, agent)
    return McpServerList(await servers.statuses(), servers.warnings())


@operation("mcp.test", scope="write")  # it starts a program
async def check_mcp_server(services: Services, name: str, agent: OfAgent = "") -> McpTestResult:
    """Connect to a server now and list its tools.

    Examples:
      pal mcp test files
    """
    began = services.clock.now_ms()
    status = await _servers(services, agent).test(name)
    return McpTestResult(status, (services.clock.now_ms() - began) / 1000)


def _servers(services: Services, agent: str) -> McpServers:
    source: McpSource = services.get(McpSource)
    return source.of(agent or services.agents.default)


TOOL = "mcp__read_resource"  # of no server: a person can still allow and deny it like theirs
MOST_LISTED = 200
LONGEST_LINE = 300
UNLISTED = "an address that the server did not list, in a turn that has read text from outside"


def resource_tool(servers: Sequence[McpClient]) -> Tool:
    """The tool over the servers that have resources."""
    by_name = {server.settings.name: server for server in servers}
    known: dict[str, set[str]] = {name: set() for name in by_name}  # addresses that the servers have listed

    async def run(_: ToolRun, sent: Mapping[str, Any]) -> ToolOutput:
        server, uri = by_name.get(str(sent.get("server", ""))), sent.get("uri") or ""
        if server is None or not isinstance(uri, str):
            return failed(f"server is one of {', '.join(by_name)}, and uri is a text")
        if uri:
            return await server.shown("resources/read", {"uri": uri}, _as_result)
        return await server.shown("resources/list", {}, lambda answer: _listed(answer, known[server.settings.name]))

    async def prepare(on: ToolRun, sent: Mapping[str, Any]) -> PreparedCall:
        uri = sent.get("uri") or ""
        ask = UNLISTED if uri and uri not in known.get(str(sent.get("server", "")), ()) else ""
        plan = Plan(TOOL, TOOL, arguments=dict(sent))
        return PreparedCall(plan, lambda: run(on, sent), when_untrusted=ask, lasting=True)

    parameters = {
        "type": "object",
        "properties": {
            "server": {"type": "string", "enum": list(by_name)},
            "uri": {"type": "string", "description": "Address of a resource. Without it they are listed."},
        },
        "required": ["server"],
    }
    return Tool(ToolSpec(TOOL, "List or read resources of MCP servers.", parameters), run, prepare, outside=True)


def _listed(answer: Any, known: set[str]) -> dict[str, Any]:
    """A list of resources as a tool result."""
    rows = answer.get("resources") if isinstance(answer, Mapping) else None
    found = [each for each in rows or [] if isinstance(each, Mapping) and isinstance(each.get("uri"), str)]
    known.clear()
    known.update(each["uri"] for each in found[:MOST_LISTED])
    lines = [_line(each) for each in found[:MOST_LISTED]]
    more = [f"[{len(found) - MOST_LISTED} more]"] if len(found) > MOST_LISTED else []
    return {"content": [{"type": "text", "text": "\n".join((*lines, *more)) or "[no resources]"}]}


def _line(sent: Mapping[str, Any]) -> str:
    words = (sent["uri"], *(each for key in ("name", "description", "mimeType") if (each := sent.get(key))))
    return " · ".join(" ".join(str(each).split()) for each in words)[:LONGEST_LINE]


def _as_result(answer: Any) -> dict[str, Any]:
    """The contents of a resource as a tool result."""
    parts = answer.get("contents") if isinstance(answer, Mapping) else None
    return {"content": [_block(each) for each in parts] if isinstance(parts, list) else []}


def _block(part: Any) -> dict[str, Any]:
    match part:
        case {"text": str(text)}:
            return {"type": "text", "text": text}
        case {"blob": str(data), "mimeType": str(kind)} if kind.startswith("image/"):
            return {"type": "image", "data": data}
    return {"type": "blob"}
