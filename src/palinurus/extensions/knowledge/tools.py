"""What the model is offered to ask what is known. Private sessions only (promise 17)."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from palinurus.domain.errors import BadRequest
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import OUTSIDE_MARK, Origin
from palinurus.domain.tool import UNLISTED, Tool, ToolOutput, ToolRun, tool
from palinurus.memory.question import why_not
from palinurus.memory.settings import memory_settings
from palinurus.operations.services import Services

TOKENS = 1_000  # of an answer


class RecalledFact(Struct, frozen=True, rename="camel", omit_defaults=True):
    kind: str
    content: str
    source: str
    timestamp: str = ""
    until: str = ""
    entities: tuple[str, ...] = ()
    confidence: float | None = None
    origin: str = ""


class RecalledFacts(Struct, frozen=True, rename="camel", omit_defaults=True):
    results: tuple[RecalledFact, ...]
    refused: str = ""


def recall_tools(services: Services) -> tuple[Tool, ...]:
    def fits(key: SessionKey) -> bool:
        return key.is_private and memory_settings(services.config, services.home, key.agent).enabled

    @tool("memory_recall", "What is known of people, places, things, and since when.")
    async def memory_recall(
        run: ToolRun,
        query: str,
        entity: str = "",
        asOf: Annotated[str, "as known then, YYYY-MM-DD"] = "",  # noqa: N803  # as the other tools'
        since: Annotated[str, UNLISTED] = "",
        k: Annotated[int, Meta(ge=1, le=100), UNLISTED] = 25,
    ) -> ToolOutput:
        from palinurus.extensions.knowledge.knowledge import Knowledge
        from palinurus.extensions.knowledge.recall import RecallQuestion
        from palinurus.memory.answer import SearchResult
        from palinurus.memory.get import outside_sources

        if not query.strip() and not entity:
            raise BadRequest("the question is empty", hint="say what you want to know")
        if why := why_not(services.memory(run.key.agent).settings, run.key, private=run.private):
            return _json(RecalledFacts((), why))
        asked = RecallQuestion(query, run.key.agent, k=k, since=since, as_of=asOf, entity=entity, budget_tokens=TOKENS)
        answer = await services.keep(Knowledge).recall(asked, counts=run.attended)
        lines = [
            SearchResult(each.path, each.start_line, each.end_line, 0, each.text)
            for each in answer.results
            if each.kind == "note"  # of the others it is known
        ]
        files = services.agents.get(run.key.agent).files
        origins = files.boundary, files.origins
        outside = await outside_sources(services.memory(run.key.agent), origins, lines)
        return _json(
            RecalledFacts(
                tuple(
                    RecalledFact(
                        each.kind, each.text, each.source, each.timestamp, each.until, each.entities, each.confidence,
                        each.origin,
                    )
                    for each in answer.results
                )
            ),
            outside,
        )  # fmt: skip

    return (msgspec.structs.replace(memory_recall, fits=fits),)


def _json(found: RecalledFacts, lines: tuple[str, ...] = ()) -> ToolOutput:
    """`lines`: the outside sources of those that are no facts."""
    facts = (each for each in found.results if each.kind != "note" and (each.origin or OUTSIDE_MARK in each.content))
    outside = (*(f"written:{each.source}" for each in facts), *lines)
    origin = Origin.OUTSIDE if outside else Origin.OWNER
    return ToolOutput(msgspec.json.encode(found).decode(), origin=origin, sources=outside)
