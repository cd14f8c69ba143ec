"""Which tools there are, who may use them where, and why not."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import NotFound
from palinurus.domain.keys import SessionKey
from palinurus.domain.tool import Tool
from palinurus.operations.house import House
from palinurus.operations.table import Operation
from palinurus.tools.policy.decide import Asked, Policy, Verdict, decide, explain
from palinurus.tools.policy.names import BUILT_IN, canonical, group_of, is_known, members


class AskTools(Struct, frozen=True):
    """Where, with which model and for whom. Unset: the main session, its last model, the owner."""

    agent: str = ""
    session_key: str = ""
    model: str = ""  # provider/model
    sender: str = ""  # channel:id of somebody who is not the owner


class ExplainTool(Struct, frozen=True):
    name: str
    agent: str = ""
    session_key: str = ""
    model: str = ""
    sender: str = ""


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


async def _list(house: House, params: AskTools) -> ToolList:
    place = await _place(house, params)
    listed = tuple(_listed(tool, decide(place.policy, place.about(tool))) for tool in place.tools)
    return ToolList(str(place.asked.key), place.model, place.asked.sandboxed, listed)


async def _explain(house: House, params: ExplainTool) -> Explanation:
    place = await _place(house, AskTools(params.agent, params.session_key, params.model, params.sender))
    name = canonical(params.name)
    tool = next((tool for tool in place.tools if canonical(tool.spec.name) == name), None)
    if (group := members(name.removeprefix("group:")) if name.startswith("group:") else None) is not None:
        raise NotFound(f"{name} is a group: {', '.join(group)}", hint=_of_group(group))
    if tool is None and (not is_known(name) or "*" in name or ":" in name):
        raise NotFound(f"there is no tool {params.name!r}", hint="`pal tools list` shows them")
    verdict = explain(place.policy, place.about(tool, name))
    asked = place.asked
    shown = tool.spec.name if tool else name
    return Explanation(shown, group_of(name), str(asked.key), place.model, asked.sandboxed, tool is not None, verdict)


def _of_group(group: tuple[str, ...]) -> str:
    here = [name for name in group if name in BUILT_IN or "*" in name]
    return f"name one of them, such as {here[0]}" if here else "this version has no such tool"


async def _place(house: House, params: AskTools) -> _Place:
    inbound = Inbound("", "", session_key=params.session_key, agent=params.agent)
    key = await house.dispatcher.place(inbound)
    provider, _, model = (params.model or await _next_model(house, key)).partition("/")
    channel, _, sender = params.sender.partition(":") if params.sender else ("cli", "", "owner")
    asked = Asked(
        "",
        key,
        owner=not params.sender,
        channel=channel,
        sender=sender or channel,
        provider=provider,
        model=model,
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


LIST = Operation("tools.list", AskTools, ToolList, "read", _list)
EXPLAIN = Operation("tools.explain", ExplainTool, Explanation, "read", _explain)
OPERATIONS = (LIST, EXPLAIN)
