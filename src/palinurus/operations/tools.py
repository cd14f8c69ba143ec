"""Which tools there are, who may use them where, and why not."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Struct

from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import NotFound
from palinurus.domain.keys import SessionKey
from palinurus.domain.tool import Tool
from palinurus.operations.house import House
from palinurus.operations.operation import Metavar, operation
from palinurus.tools.policy.decide import Asked, Policy, Verdict, decide, explain
from palinurus.tools.policy.names import BUILT_IN, canonical, group_of, is_known, members

OfAgent = Annotated[str, "Of this agent."]
InSession = Annotated[str, "In this session. Default: the agent's main one."]
WithModel = Annotated[str, Metavar("PROVIDER/MODEL"), "With this model. Default: the session's."]
ForSender = Annotated[str, Metavar("CHANNEL:ID"), "As if this person asked, not the owner."]


class ListedTool(Struct, frozen=True):
    name: str
    group: str
    allowed: bool
    layer: str  # the one that decided
    why: str
    description: str = ""


class ToolList(Struct, frozen=True, rename="camel"):
    session_key: str
    model: str
    sandboxed: bool
    tools: tuple[ListedTool, ...]


class Explanation(Struct, frozen=True, rename="camel"):
    name: str
    group: str
    session_key: str
    model: str
    sandboxed: bool
    present: bool  # whether there is such a tool at all
    verdict: Verdict


class _Place(Struct, frozen=True):
    """What a question about tools is asked of."""

    tools: tuple[Tool, ...]
    policy: Policy
    asked: Asked

    def about(self, tool: Tool | None, name: str = "") -> Asked:
        """The question for one tool, or for one that there is not."""
        owner_only = tool is not None and tool.owner_only
        return msgspec.structs.replace(self.asked, tool=tool.spec.name if tool else name, owner_only=owner_only)

    @property
    def model(self) -> str:
        return f"{self.asked.provider}/{self.asked.model}" if self.asked.provider else ""


@operation("tools.list", scope="read")
async def list_tools(
    house: House, agent: OfAgent = "", session_key: InSession = "", model: WithModel = "", sender: ForSender = ""
) -> ToolList:
    """List the tools, whether they may be used here, and what decided it.

    Examples:
      pal tools list
      pal tools list --session-key agent:main:telegram:group:-1001 --sender telegram:42
    """
    place = await _place(house, agent, session_key, model, sender)
    listed = tuple(_listed(tool, decide(place.policy, place.about(tool))) for tool in place.tools)
    return ToolList(str(place.asked.key), place.model, place.asked.sandboxed, listed)


@operation("tools.explain", scope="read")
async def explain_tool(
    house: House,
    name: str,
    agent: OfAgent = "",
    session_key: InSession = "",
    model: WithModel = "",
    sender: ForSender = "",
) -> Explanation:
    """Show layer by layer why a tool may be used here or not.

    Examples:
      pal tools explain exec
      pal tools explain exec --session-key agent:main:telegram:group:-1001
    """
    place = await _place(house, agent, session_key, model, sender)
    plain = canonical(name)
    tool = next((tool for tool in place.tools if canonical(tool.spec.name) == plain), None)
    if (group := members(plain.removeprefix("group:")) if plain.startswith("group:") else None) is not None:
        raise NotFound(f"{plain} is a group: {', '.join(group)}", hint=_of_group(group))
    if tool is None and (not is_known(plain) or "*" in plain or ":" in plain):
        raise NotFound(f"there is no tool {name!r}", hint="`pal tools list` shows them")
    verdict = explain(place.policy, place.about(tool, plain))
    asked = place.asked
    shown = tool.spec.name if tool else plain
    return Explanation(shown, group_of(plain), str(asked.key), place.model, asked.sandboxed, tool is not None, verdict)


def _of_group(group: tuple[str, ...]) -> str:
    here = [name for name in group if name in BUILT_IN or "*" in name]
    return f"name one of them, such as {here[0]}" if here else "this version has no such tool"


async def _place(house: House, agent: str, session_key: str, model: str, sender: str) -> _Place:
    key = await house.dispatcher.place(Inbound("", "", session_key=session_key, agent=agent))
    provider, _, name = (model or await _next_model(house, key)).partition("/")
    channel, _, person = sender.partition(":") if sender else ("cli", "", "owner")
    asked = Asked(
        "",
        key,
        owner=not sender,
        channel=channel,
        sender=person or channel,
        provider=provider,
        model=name,
        sandboxed=house.hands.quarters(key).sandboxed == "required",
        elevated_allowed=house.hands.settings(key.agent).elevated.enabled,
    )
    return _Place(tuple(await house.hands.tools(key.agent)), house.hands.policy(key.agent), asked)


async def _next_model(house: House, key: SessionKey) -> str:
    """What the next message of the session is sent to, whether or not there was one before."""
    _, route = await house.models.choose(key.agent, (await house.turns.view_of(key)).model)
    return f"{route.provider}/{route.model}"


def _listed(tool: Tool, verdict: Verdict) -> ListedTool:
    name = tool.spec.name
    return ListedTool(name, group_of(name), verdict.allowed, verdict.layer, verdict.why, tool.spec.description)


OPERATIONS = (list_tools, explain_tool)
