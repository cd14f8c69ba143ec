"""Knowledge from every surface: recall, and the entities that facts name."""

from __future__ import annotations

from msgspec import Struct

from palinurus.extensions.knowledge.entities import Merge
from palinurus.extensions.knowledge.facts import FactTrouble
from palinurus.extensions.knowledge.knowledge import Knowledge
from palinurus.extensions.knowledge.recall import RecallAnswer, RecallQuestion
from palinurus.extensions.knowledge.store import Entity
from palinurus.operations.memory import OfAgent, memory_of
from palinurus.operations.operation import operation
from palinurus.operations.services import Services


class EntityList(Struct, frozen=True, rename="camel"):
    entities: tuple[Entity, ...]
    facts: int
    troubles: tuple[FactTrouble, ...] = ()  # bullets that are no facts as they stand
    merges: tuple[Merge, ...] = ()  # which names were taken for one, and why


@operation("memory.recall", scope="read")
async def recall(services: Services, asked: RecallQuestion) -> RecallAnswer:
    """Facts and lines of notes that answer a question, with what they are, since when, and from where."""
    memory_of(services, asked.agent)  # switched off is switched off
    return await services.keep(Knowledge).recall(asked)


@operation("memory.entities", scope="read")
async def list_entities(services: Services, agent: OfAgent = "") -> EntityList:
    """People, places and things that facts name, with their other names.

    Examples:
      pal memory entities
      pal memory entities --json
    """
    memory_of(services, agent)
    own = await services.keep(Knowledge).of(agent)
    entities, merges = await own.store.entities(), await own.store.merges()
    return EntityList(tuple(entities), await own.store.count(), tuple(await own.troubles()), tuple(merges))
