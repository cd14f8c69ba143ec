"""Models in OpenClaw's shape: those that are known, with what is known of them."""

from __future__ import annotations

import asyncio
from typing import Literal

from msgspec import Struct

from palinurus.gateway.talk.methods import Method, Talk
from palinurus.operations.catalog import ListedModel, models_list


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


class ModelChoices(Struct, frozen=True):
    models: tuple[ModelChoice, ...]


async def _list(talk: Talk, params: AskModelList) -> ModelChoices:
    listed = await asyncio.to_thread(models_list, talk.desk.ground)
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
    )


METHODS = (Method("models.list", AskModelList, ModelChoices, "read", _list, about="Models that can be asked, or all."),)
