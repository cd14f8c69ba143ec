"""Ask how the models of an agent stand, and whether one answers."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Annotated

from msgspec import Struct

from palinurus.context.epoch import Route
from palinurus.domain.messages import Usage, UserMessage
from palinurus.operations.house import House
from palinurus.operations.operation import Metavar, Positional, Private, operation
from palinurus.providers.keys.pool import CredentialState
from palinurus.providers.provider import Head, ModelRequest, Notice, Provider, ReplyDone, ReplyFailed

PROBE_HEAD = Head("You are being tested. Answer with the single word ok.")
PROBE_TOKENS = 512  # a model that thinks spends some before it says a word


class ModelStatus(Struct, frozen=True, rename="camel"):
    agent: str
    model: str
    reason: str
    wire: str
    context_window: int
    fallbacks: tuple[str, ...]
    credentials: tuple[CredentialState, ...]
    warnings: tuple[str, ...]


class ProbeReport(Struct, frozen=True, rename="camel"):
    ok: bool
    asked: str
    answered: str = ""
    first_ms: int = 0  # until something came
    total_ms: int = 0
    usage: Usage = Usage()
    notices: tuple[str, ...] = ()
    error: str = ""
    error_kind: str = ""
    hint: str = ""


@operation("models.status", scope="read")
async def show_model_status(
    house: House, agent: Annotated[str, "Which agent; the default one when left out."] = ""
) -> ModelStatus:
    """Show which model an agent asks, what it falls back to, and how its keys stand.

    Example:
      pal models status --agent main
    """
    agent_id = agent or house.agents.default
    provider, route = await house.models.choose(agent_id)
    return ModelStatus(
        agent=agent_id,
        model=f"{route.provider}/{route.model}",
        reason=route.reason,
        wire=route.wire,
        context_window=provider.context_window(route.model),
        fallbacks=tuple(house.models.fallbacks(agent_id)),
        credentials=tuple(house.models.credential_states(agent_id)),
        warnings=house.warnings(),
    )


@operation("models.test", scope="write")
async def probe_model(
    house: House,
    ref: Annotated[
        str, Positional, Metavar("MODEL"), "provider/model or a short name; none: what the agent would ask."
    ] = "",
    agent: Annotated[str, "With the keys of this agent."] = "",
    credential: Annotated[str, Private, "Ask with this key alone."] = "",
) -> ProbeReport:
    """Send one tiny request and say how long the answer took, or why there was none.

    Examples:
      pal models test
      pal models test openai/gpt-6-luna
    """
    agent_id = agent or house.agents.default
    return await probe(lambda name: house.models.choose(agent_id, name, credential), ref)


async def probe(choose: Callable[[str], Awaitable[tuple[Provider, Route]]], ref: str = "") -> ProbeReport:
    """One tiny request. It is no part of any conversation and is not kept."""
    provider, route = await choose(ref)
    asked = f"{route.provider}/{route.model}"
    request = ModelRequest(route.model, PROBE_HEAD, (UserMessage("Are you there?"),), max_tokens=PROBE_TOKENS)
    began, first, notices = time.monotonic(), 0, list[str]()
    outcome: ReplyDone | ReplyFailed | None = None
    async for event in provider.stream(request):
        first = first or _ms(began)
        match event:
            case Notice():
                notices.append(event.text)
            case ReplyDone() | ReplyFailed():
                outcome = event
            case _:
                pass
    if isinstance(outcome, ReplyDone):
        message = outcome.message
        answered = f"{message.provider}/{message.model}"
        return ProbeReport(True, asked, answered, first, _ms(began), message.usage, tuple(notices))
    error = outcome.error if outcome else None
    return ProbeReport(
        ok=False,
        asked=asked,
        total_ms=_ms(began),
        notices=tuple(notices),
        error=error.message if error else "the stream ended without a reply",
        error_kind=str(error.kind) if error else "malformed",
        hint=error.hint if error else "",
    )


def _ms(began: float) -> int:
    return max(1, round((time.monotonic() - began) * 1000))


OPERATIONS = (show_model_status, probe_model)
