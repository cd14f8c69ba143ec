"""Slash commands that look at the home or change it. Those of a session itself are the dispatcher's."""

from __future__ import annotations

import msgspec

from palinurus.dispatch.immediate import Answer
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import PalinurusError
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin
from palinurus.operations.services import Services
from palinurus.runtime.extensions import LOADED


def slash_commands(services: Services) -> dict[str, Answer]:
    """Name -> what answers it. What it needs is imported when it is called."""

    async def say_status(key: SessionKey, _: str, __: Inbound) -> str:
        from palinurus.operations.status import session_report

        return await session_report(services, key)

    async def say_context(key: SessionKey, view: str, _: Inbound) -> str:
        from palinurus.context.report import render
        from palinurus.operations.status import show_context

        report = await show_context(services, session_key=str(key))
        if view.lower() == "json":
            return msgspec.json.format(msgspec.json.encode(report)).decode()
        return render(report, detail=view.lower() == "detail")

    async def say_models(_: SessionKey, __: str, ___: Inbound) -> str:
        from palinurus.operations.models import chat_models

        return await chat_models(services)

    async def approve(key: SessionKey, words: str, inbound: Inbound) -> str:
        from palinurus.operations.approve import answer_command

        owner = inbound.origin == Origin.OWNER
        return await answer_command(
            services.approvals, session_key=str(key), words=words, by=_speaker(inbound), owner=owner
        )

    async def trust(key: SessionKey, words: str, inbound: Inbound) -> str:
        from palinurus.operations.trust import trust_command

        return await trust_command(services, key, words, _speaker(inbound), owner=inbound.origin == Origin.OWNER)

    def answered_by_extension(name: str) -> Answer:
        async def answer(key: SessionKey, words: str, inbound: Inbound) -> str:
            try:
                return str(await LOADED.find_slash_command(name)(services, key, words, inbound))
            except PalinurusError as error:  # an answer like any other: the chat goes on
                return str(error)

        return answer

    LOADED.announce_plugins()
    return {
        **{name: answered_by_extension(name) for each in LOADED.known for name in each.slash_commands},
        "status": say_status,
        "context": say_context,
        "models": say_models,
        "approve": approve,
        "trust": trust,
    }


def _speaker(inbound: Inbound) -> str:
    return inbound.sender if inbound.channel == "cli" else f"{inbound.channel}:{inbound.sender}"
