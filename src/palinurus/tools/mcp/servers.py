"""All MCP servers of an agent, as tools.

`tools` is asked before every turn, because the tools are part of the head of a request. It answers from what is known:
a server that was ever reached needs not run for it. Only of a server that nobody has met yet a turn waits to hear, for
at most ten seconds, and all such servers at the same time. What a server says later counts from the next turn on.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from palinurus.domain.clock import Clock
from palinurus.domain.errors import NotFound
from palinurus.domain.plan import Plan
from palinurus.domain.tool import Prepared, Tool, ToolOutput, ToolRun, ToolSpec
from palinurus.tools.mcp import package
from palinurus.tools.mcp.listing import ListedTool, Listing, Shelf
from palinurus.tools.mcp.naming import Named, name_tools
from palinurus.tools.mcp.server import FIRST_SECONDS, McpServer, ServerStanding
from palinurus.tools.mcp.settings import ServerSettings
from palinurus.tools.web.addresses import urls_among, why_ask

CHANGES = "a tool of a server that may change or send something, in a turn that has read text from outside"


class McpServers:
    """Names of servers are keys of the config, so no two are the same. Costs nothing while there are none."""

    def __init__(
        self,
        servers: Sequence[ServerSettings],
        listings: Path,
        clock: Clock,
        *,
        redact: Callable[[str], str] = lambda text: text,
        first_seconds: float = FIRST_SECONDS,
    ) -> None:
        shelf = Shelf(listings, redact)
        self._servers = {each.name: McpServer(each, shelf, clock, first_seconds=first_seconds) for each in servers}
        self._loading: asyncio.Lock | None = asyncio.Lock()
        self._made_of: tuple[Listing | None, ...] = ()
        self._named: tuple[Named, ...] = ()
        self._remarks: tuple[str, ...] = ()
        self._tools: tuple[Tool, ...] = ()
        self._listed: tuple[ListedTool, ...] = ()

    @property
    def listed(self) -> tuple[Tool, ...]:
        """The tools as they were last made; nobody is asked for news."""
        return self._tools

    async def tools(self) -> tuple[Tool, ...]:
        """Sorted by name; the very same tuple for as long as nothing has changed. Does not raise."""
        if not self._servers:
            return ()
        await self._load()
        if package.is_installed():
            await asyncio.gather(*(server.refresh() for server in self._servers.values()))
        self._make()
        return self._tools

    def warnings(self) -> tuple[str, ...]:
        """What a person should know, one line each."""
        if not self._servers:
            return ()
        if not package.is_installed():
            return (f"{package.NOT_INSTALLED} ({package.HINT})",)
        troubles = [f"mcp: {name}: {each.trouble}" for name, each in self._servers.items() if each.trouble]
        return (*troubles, *self._remarks)

    async def standings(self) -> tuple[ServerStanding, ...]:
        """How the servers stand, by what is known: none is started for it."""
        await self._load()
        self._make()
        return tuple(self._standing(server) for server in self._servers.values())

    async def test(self, name: str) -> ServerStanding:
        """Reach a server now and ask for its tools. Raises NotFound for one that is not configured, and
        PalinurusError when it cannot be reached."""
        server = self._servers.get(name)
        if server is None:
            known = ", ".join(self._servers) or "none"
            raise NotFound(f"there is no MCP server {name!r}", hint=f"configured under mcp.servers: {known}")
        await self._load()
        await server.test()
        self._make()
        return self._standing(server)

    async def close(self) -> None:
        """End all children and connections, within two seconds."""
        await asyncio.gather(*(server.close() for server in self._servers.values()))

    async def _load(self) -> None:
        if self._loading is None:
            return
        async with self._loading:
            if self._loading is not None:
                await asyncio.gather(*(server.load() for server in self._servers.values()))
                self._loading = None

    def _make(self) -> None:
        made_of = tuple(server.listing for server in self._servers.values())
        if all(new is old for new, old in zip(made_of, self._made_of, strict=False)) and self._made_of:
            return
        self._made_of = made_of
        listed = {
            (name, tool.name): tool
            for name, server in self._servers.items()
            for tool in (server.listing.tools if server.listing else ())
        }
        self._named, told = name_tools(listed)
        self._remarks = (*told, *_left_out(self._servers.values()))
        tools = tuple(self._tool(each, listed[each.server, each.tool]) for each in self._named)
        made = tuple(listed[each.server, each.tool] for each in self._named)
        if made != self._listed or [tool.spec for tool in tools] != [tool.spec for tool in self._tools]:
            self._tools, self._listed = tools, made

    def _tool(self, named: Named, listed: ListedTool) -> Tool:
        server = self._servers[named.server]

        async def run(run: ToolRun, sent: Mapping[str, Any]) -> ToolOutput:
            return await server.call(named.tool, sent)

        async def prepare(on: ToolRun, sent: Mapping[str, Any]) -> Prepared:
            plan = Plan(named.name, named.name, arguments=dict(sent))
            ask = await why_ask(on, urls_among(sent)) if listed.read_only else CHANGES
            return Prepared(plan, lambda: run(on, sent), when_untrusted=ask, lasting=True)

        spec = ToolSpec(named.name, listed.description, listed.parameters)
        return Tool(spec, run, prepare, outside=True)

    def _standing(self, server: McpServer) -> ServerStanding:
        return server.standing(tuple(each.name for each in self._named if each.server == server.settings.name))


def _left_out(servers: Any) -> list[str]:
    many = Counter({server.settings.name: server.listing.left_out for server in servers if server.listing})
    return [f"mcp: {name}: {count} of its tools are left out" for name, count in many.items() if count]
