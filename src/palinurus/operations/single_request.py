"""One request to an agent's model that belongs to no session. Its usage is in the ledger."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from palinurus.domain.errors import BadRequest
from palinurus.domain.messages import AssistantMessage
from palinurus.ledger.usage import UsageRow
from palinurus.operations.services import Services
from palinurus.providers.provider import EMBEDDED, ModelRequest, ReplyDone, ReplyFailed


class SingleReply(Struct, frozen=True):
    text: str  # empty: there was no reply
    model: str = ""
    error: str = ""  # why there was none, in one line


async def send_single_request(
    services: Services, agent_id: str, model: str, request: ModelRequest, *, purpose: str, seconds: float
) -> SingleReply:
    """`model`: provider/model or a short name; empty: that of the agent, as is the model of the request.

    Raises BadRequest without a model, and NotFound for an unknown one.
    """
    agent = services.agents.get(agent_id)
    provider, route = await agent.choose_model(model)
    if route.provider == EMBEDDED:
        raise BadRequest("no model is configured", hint="`pal onboard` sets one up; or leave out --model")
    reply: AssistantMessage | None = None
    error = f"the model did not answer within {seconds:g} s"
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            async for event in provider.stream(replace(request, model=route.model)):
                if isinstance(event, ReplyDone):
                    reply = event.message
                elif isinstance(event, ReplyFailed):
                    error = " ".join(str(event.error).split())
    if reply is None:
        return SingleReply("", f"{route.provider}/{route.model}", error)
    row = UsageRow(
        entry_id=f"{purpose}-{services.new_id()}",
        at=services.clock.now_ms(),
        run_id="",
        session_key=f"agent:{agent.id}:{purpose}",
        agent=agent.id,
        provider=reply.provider,
        model=reply.model,
        usage=reply.usage,
        cost=agent.cost(reply.provider, reply.model, reply.usage),
    )
    await services.usage.append(row)
    return SingleReply(reply.text, f"{reply.provider}/{reply.model}")
