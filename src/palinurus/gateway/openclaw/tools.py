"""Tools in OpenClaw's shape: all of an agent, those that a session may use, and a direct call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from msgspec import Struct

from palinurus.domain.tool import Tool
from palinurus.gateway.http.invoke import Invocations, InvokeTool
from palinurus.gateway.websocket.methods import ClientSession, method
from palinurus.operations.tools import ToolAccess, list_tools
from palinurus.tools.tool_names import PROFILES, allowed_by, group_of

Source = Literal["core", "mcp"]
LABELS = {"fs": "Files", "runtime": "Commands", "ui": "Screen", "plugins": "MCP servers"}


class Profile(Struct, frozen=True):
    id: str
    label: str


class CatalogTool(Struct, frozen=True, rename="camel"):
    id: str
    label: str
    description: str
    source: Source
    default_profiles: tuple[str, ...]


class CatalogGroup(Struct, frozen=True):
    id: str
    label: str
    source: Source
    tools: tuple[CatalogTool, ...]


class ToolCatalog(Struct, frozen=True, rename="camel"):
    agent_id: str
    profiles: tuple[Profile, ...]
    groups: tuple[CatalogGroup, ...]


class EffectiveTool(Struct, frozen=True, rename="camel"):
    id: str
    label: str
    description: str
    raw_description: str
    source: Source


class EffectiveGroup(Struct, frozen=True):
    id: Source
    label: str
    source: Source
    tools: tuple[EffectiveTool, ...]


class EffectiveTools(Struct, frozen=True, rename="camel"):
    agent_id: str
    session_key: str
    sandboxed: bool
    groups: tuple[EffectiveGroup, ...]


class ToolFailure(Struct, frozen=True):
    code: str
    message: str


class ToolInvoked(Struct, frozen=True, rename="camel", omit_defaults=True):
    ok: bool
    tool_name: str
    source: Source
    output: dict[str, Any] | None = None
    error: ToolFailure | None = None


@method("tools.catalog", scope="read")
async def show_catalog(client: ClientSession, agent_id: str = "") -> ToolCatalog:
    """All tools of an agent, allowed or not."""
    services = client.services
    agent = services.agents.get(agent_id.strip().lower() or services.agents.default).id
    groups: dict[str, list[CatalogTool]] = {}
    for tool in await services.toolsets.tools(agent):
        groups.setdefault(group_of(tool.spec.name) or "other", []).append(_in_catalog(tool))
    profiles = tuple(Profile(name, name.capitalize()) for name in PROFILES)
    return ToolCatalog(agent, profiles, tuple(_group(name, found) for name, found in sorted(groups.items())))


def _group(name: str, found: list[CatalogTool]) -> CatalogGroup:
    source: Source = "mcp" if all(tool.source == "mcp" for tool in found) else "core"
    return CatalogGroup(name, LABELS.get(name, name.capitalize()), source, tuple(found))


def _in_catalog(tool: Tool) -> CatalogTool:
    name = tool.spec.name
    profiles = tuple(profile for profile, listed in PROFILES.items() if allowed_by(listed, name))
    return CatalogTool(name, _label(name), tool.spec.description, _source(name), profiles)


@method("tools.effective", scope="read")
async def show_effective_tools(client: ClientSession, session_key: str, agent_id: str = "") -> EffectiveTools:
    """Tools that a session may use."""
    listed = await list_tools(client.services, agent=agent_id.strip().lower(), session_key=session_key)
    allowed = [tool for tool in listed.tools if tool.allowed]
    groups = (_effective_group("core", "Built in", allowed), _effective_group("mcp", "MCP servers", allowed))
    agent = listed.session_key.split(":")[1]
    return EffectiveTools(agent, listed.session_key, listed.sandboxed, tuple(each for each in groups if each.tools))


@method("tools.invoke", scope="write")
async def invoke_tool(client: ClientSession, params: InvokeTool, idempotency_key: str = "") -> ToolInvoked:
    """Call a tool, under the policy of its agent and the limits of /tools/invoke."""
    # A tool that fails is a result; one that this route does not offer is an error, as on HTTP.
    wanted = msgspec.structs.replace(params, idempotency_key=idempotency_key)
    reply = await Invocations(client.gateway).invoke(client.principal, wanted)
    body = msgspec.json.decode(reply.body)
    name = params.tool or params.name
    if reply.status == 200:
        return ToolInvoked(True, name, _source(name), body["result"])
    return ToolInvoked(False, name, _source(name), error=ToolFailure(body["code"], body["detail"]))


def _effective_group(source: Source, label: str, allowed: Iterable[ToolAccess]) -> EffectiveGroup:
    own = (tool for tool in allowed if _source(tool.name) == source)
    rows = (
        EffectiveTool(tool.name, _label(tool.name), _first_line(tool.description), tool.description, source)
        for tool in own
    )
    return EffectiveGroup(source, label, source, tuple(rows))


def _source(name: str) -> Source:
    return "mcp" if "__" in name else "core"  # <server>__<tool>


def _label(name: str) -> str:
    return name.replace("__", ": ").replace("_", " ")


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


METHODS = (show_catalog, show_effective_tools, invoke_tool)
