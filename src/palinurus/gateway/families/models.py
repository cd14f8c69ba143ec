"""Models in OpenClaw's shape: those that are known, with what is known of them."""

from __future__ import annotations

import asyncio
from typing import Literal

from msgspec import Struct

from palinurus.gateway.door.untouchable import check_change
from palinurus.gateway.talk.methods import Method, Talk
from palinurus.operations.catalog import ListedModel, model_choose, models_here
from palinurus.operations.onboarding import KeyedProvider, LocalServer, look_around
from palinurus.providers.offers import Price


class AskModelList(Struct, frozen=True, rename="camel"):
    view: Literal["default", "configured", "provider-config", "all"] = "default"  # default: those that can be asked
    provider: str = ""


class ModelChoice(Struct, frozen=True, rename="camel", omit_defaults=True):
    id: str
    name: str
    provider: str
    available: bool
    reasoning: bool
    input: tuple[str, ...]
    alias: str = ""
    context_window: int | None = None
    max_tokens: int | None = None
    unavailable_reason: str = ""
    cost: Price | None = None  # US dollars per million tokens; absent: nobody knows


class ModelChoices(Struct, frozen=True):
    models: tuple[ModelChoice, ...]


class SetModel(Struct, frozen=True, rename="camel", omit_defaults=True):
    model: str  # provider/model or a short name; empty: whatever is there
    idempotency_key: str = ""


class ChosenModel(Struct, frozen=True):
    model: str
    ok: bool = True


class AskAround(Struct, frozen=True):
    pass


class ShownProvider(Struct, frozen=True, rename="camel"):
    provider: str
    model: str  # the one to begin with
    has_key: bool


class Around(Struct, frozen=True, rename="camel"):
    servers: tuple[LocalServer, ...]  # those that answer
    providers: tuple[ShownProvider, ...]
    first_model: str  # of what can be used right now; empty: nothing but scout


async def _list(talk: Talk, params: AskModelList) -> ModelChoices:
    listed = await models_here(talk.desk.ground)
    wanted = [each for each in listed if params.provider.lower() in ("", each.info.provider)]
    return ModelChoices(tuple(_choice(each) for each in wanted if each.usable or params.view == "all"))


def _choice(listed: ListedModel) -> ModelChoice:
    info = listed.info
    return ModelChoice(
        id=info.id,
        name=info.name or info.id,
        provider=info.provider,
        available=listed.usable,
        reasoning=info.reasoning,
        input=info.inputs,
        alias=listed.aliases[0] if listed.aliases else "",
        context_window=info.context_window or None,
        max_tokens=info.max_output or None,
        unavailable_reason=listed.lacks,
        cost=info.price,
    )


async def _set(talk: Talk, params: SetModel) -> ChosenModel:
    return ChosenModel(await asyncio.to_thread(model_choose, talk.desk.ground, params.model, check_change))


async def _look(talk: Talk, _: AskAround) -> Around:
    found = await look_around(talk.desk.ground)
    return Around(found.servers, tuple(map(_keyed, found.providers)), found.first_model())


def _keyed(known: KeyedProvider) -> ShownProvider:
    return ShownProvider(known.provider, known.model, known.has_key)


METHODS = (
    Method("models.list", AskModelList, ModelChoices, "read", _list, about="Models that can be asked, or all."),
    Method("models.set", SetModel, ChosenModel, "admin", _set, about="The model that all agents ask first."),
    Method(
        "onboarding.look",
        AskAround,
        Around,
        "write",
        _look,
        about="What a newcomer can choose from: model servers on this machine, and providers with or without a key.",
    ),
)
