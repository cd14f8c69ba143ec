"""Ask a model one thing for a wiki that is being made. For those on the machine only.

The wiki itself is made by whoever wants it, in their own process: only the keys and the ledger are the holder's.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

from msgspec import Struct

from palinurus.domain.errors import BadRequest
from palinurus.domain.messages import AssistantMessage, UserMessage
from palinurus.ledger.usage import UsageRow
from palinurus.operations.house import House
from palinurus.operations.operation import operation
from palinurus.providers.offers import EMBEDDED
from palinurus.providers.provider import Head, ModelRequest, ReplyDone, ReplyFailed

PATIENCE_SECONDS = 180.0
MAX_TEXT = 100_000


class WikiAnswer(Struct, frozen=True):
    text: str
    model: str = ""
    error: str = ""  # in one line, with what to do


@operation("ingest.ask", scope="write", local=True)
async def ask_for_wiki(
    house: House,
    system: str,
    text: str,
    model: Annotated[str, "Provider/model or a short name; without it what the agent would ask."] = "",
    agent: str = "",
) -> WikiAnswer:
    """One request that is no part of any conversation. It is paid for, so it is in the ledger."""
    if len(system) + len(text) > MAX_TEXT:
        raise BadRequest("the question is too long")
    asked = house.agents.get(agent or house.agents.default)
    provider, route = await asked.choose_model(model)
    if route.provider == EMBEDDED:
        raise BadRequest("no model is set up that could write", hint="`pal onboard` sets one up; or leave out --model")
    request = ModelRequest(route.model, Head(system), (UserMessage(text),))
    reply: AssistantMessage | None = None
    error = "the model did not answer in time"
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for event in provider.stream(request):
                if isinstance(event, ReplyDone):
                    reply = event.message
                elif isinstance(event, ReplyFailed):
                    error = " ".join(str(event.error).split())
    except TimeoutError:
        pass
    if reply is None:
        return WikiAnswer("", f"{route.provider}/{route.model}", error)
    await _pay(house, asked.id, reply, asked.cost(reply.provider, reply.model, reply.usage))
    return WikiAnswer(reply.text, f"{reply.provider}/{reply.model}")


async def _pay(house: House, agent: str, reply: AssistantMessage, cost: float | None) -> None:
    row = UsageRow(
        entry_id=f"ingest-{house.new_id()}",
        at=house.clock.now_ms(),
        run_id="",
        session_key=f"agent:{agent}:ingest",
        agent=agent,
        provider=reply.provider,
        model=reply.model,
        usage=reply.usage,
        cost=cost,
    )
    await house.usage.append(row)


OPERATIONS = (ask_for_wiki,)
