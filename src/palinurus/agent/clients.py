"""Tools that the client of a turn does itself: what the model is offered, and the results that the client brings.

A call of such a tool ends the turn with the call open. The client comes back with its result, and the story goes on
from there; if it never does, assembly closes the call when somebody else speaks. What a client's tool says is text
from outside, whoever brings it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from palinurus.context.assemble import unanswered
from palinurus.context.view import View
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest
from palinurus.domain.messages import Origin, ToolResult
from palinurus.domain.tool import ToolOutput, ToolRun, ToolSpec
from palinurus.tools.results import Clip

CLIENTS = {"by": "client"}
CLIENT_SOURCE = "client"
"""The details of a result that a client brought."""


def is_clients(result: ToolResult) -> bool:
    return (result.details or {}).get("by") == "client"


def offered(own: tuple[ToolSpec, ...], theirs: Sequence[ToolSpec]) -> tuple[tuple[ToolSpec, ...], frozenset[str]]:
    """Our tools and the client's, sorted by name, and the names of those that the client does. Ours go first."""
    taken = {spec.name for spec in own}
    added = {spec.name: spec for spec in theirs if spec.name not in taken}
    if not added:
        return own, frozenset()
    return tuple(sorted((*own, *added.values()), key=lambda spec: spec.name)), frozenset(added)


def check_waited_for(view: View, results: Sequence[ToolResult]) -> None:
    """Raises BadRequest when none of these results has a call that waits for it."""
    waiting = {call.id for call in unanswered([line.message for line in view.lines])}
    if results and not any(result.tool_call_id in waiting for result in results):
        raise BadRequest("the conversation went on before the results of these calls came", hint="ask again")


async def brought(inbound: Inbound, run: ToolRun, now: int) -> Inbound:
    """The message with its results as they are stored: cut to what the model can use, and marked."""
    results = [await _stored(result, run, now) for result in inbound.results]
    return msgspec.structs.replace(inbound, results=tuple(results))


async def _stored(result: ToolResult, run: ToolRun, now: int) -> ToolResult:
    cut = await Clip(run, result.tool_name, outside=True)(ToolOutput(result.content))
    by = Origin.OUTSIDE, dict(CLIENTS), (CLIENT_SOURCE,)
    return ToolResult(result.tool_call_id, result.tool_name, cut.content, result.is_error, now, *by)
