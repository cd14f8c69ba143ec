"""Tools in OpenClaw's shape: all that there are, those that a session may use, and a call of one for a program."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from msgspec import Struct

from palinurus.domain.tool import Tool
from palinurus.gateway.invoke.invoking import Invocations, Invoke
from palinurus.gateway.talk.methods import Method, Talk
from palinurus.operations.tools import ListedTool, list_tools
from palinurus.tools.policy.names import PROFILES, allowed_by, group_of

Source = Literal["core", "mcp"]
LABELS = {"fs": "Files", "runtime": "Commands", "ui": "Screen", "plugins": "MCP servers"}


class AskCatalog(Struct, frozen=True, rename="camel"):
    agent_id: str = ""


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


class AskEffective(Struct, frozen=True, rename="camel"):
    session_key: str
    agent_id: str = ""


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


async def _catalog(talk: Talk, params: AskCatalog) -> ToolCatalog:
    house = talk.desk.house
    agent = house.agents.get(params.agent_id.strip().lower() or house.agents.default).id
    groups: dict[str, list[CatalogTool]] = {}
    for tool in await house.hands.tools(agent):
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


async def _effective(talk: Talk, params: AskEffective) -> EffectiveTools:
    agent = params.agent_id.strip().lower()
    listed = await list_tools(talk.desk.house, agent=agent, session_key=params.session_key)
    allowed = [tool for tool in listed.tools if tool.allowed]
    groups = (_effective_group("core", "Built in", allowed), _effective_group("mcp", "MCP servers", allowed))
    agent = listed.session_key.split(":")[1]
    return EffectiveTools(agent, listed.session_key, listed.sandboxed, tuple(each for each in groups if each.tools))


async def _invoke(talk: Talk, params: Invoke) -> ToolInvoked:
    """A tool that fails is an answer; one that is not reached is an error, as on HTTP."""
    answer = await Invocations(talk.desk).invoke(talk.principal, params)
    told = msgspec.json.decode(answer.body)
    name = params.tool or params.name
    if answer.status == 200:
        return ToolInvoked(True, name, _source(name), told["result"])
    return ToolInvoked(False, name, _source(name), error=ToolFailure(told["code"], told["detail"]))


def _effective_group(source: Source, label: str, allowed: Iterable[ListedTool]) -> EffectiveGroup:
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


METHODS = (
    Method(
        "tools.catalog", AskCatalog, ToolCatalog, "read", _catalog, about="All tools of an agent, whoever may use them."
    ),
    Method("tools.effective", AskEffective, EffectiveTools, "read", _effective, about="Tools that a session may use."),
    Method(
        "tools.invoke",
        Invoke,
        ToolInvoked,
        "write",
        _invoke,
        about="Call a tool, under the policy of its agent and the list of /tools/invoke.",
    ),
)
