"""Knowledge from every surface: recall, and the entities that facts name."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from palinurus.domain.errors import BadRequest, NotFound
from palinurus.extensions.knowledge.entities import Declaration, Merge
from palinurus.extensions.knowledge.facts import ALIASES, FactTrouble
from palinurus.extensions.knowledge.knowledge import AgentKnowledge, Knowledge, find_entity
from palinurus.extensions.knowledge.recall import RecallAnswer, RecallQuestion, RecallResult
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


Name = Annotated[str, "A person, place or thing, by any of its names."]


class EntityDetails(Struct, frozen=True, rename="camel"):
    """An entity, and what its facts say, the newest first."""

    entity: Entity
    facts: tuple[RecallResult, ...]
    merges: tuple[Merge, ...]  # why its names were taken for one


class DeclaredNames(Struct, frozen=True, rename="camel"):
    path: str  # where it was written down
    entity: Entity  # as it is listed now


@operation("memory.entities.show", scope="read")
async def show_entity(services: Services, name: Name, agent: OfAgent = "") -> EntityDetails:
    """One of them: its names, why they are taken for one, and the facts that name it.

    Examples:
      pal memory entities show Peter
      pal memory entities show "The Castle" --json
    """
    memory_of(services, agent)
    own = await services.keep(Knowledge).of(agent)
    entity = await _entity_of(own, await find_entity(own.store, name))
    answer = await services.keep(Knowledge).recall(RecallQuestion("", agent, k=50, entity=entity.name))
    merges = tuple(each for each in await own.store.merges() if each.into == entity.name)
    return EntityDetails(entity, answer.results, merges)


@operation("memory.entities.merge", scope="write")
async def merge_entities(
    services: Services, name: Name, into: Annotated[str, "Whose other name this is."], agent: OfAgent = ""
) -> DeclaredNames:
    """Say that two names are one. It is written to `bank/aliases.md`; the last line about two names counts.

    Examples:
      pal memory entities merge Bob "Robert Klein"
    """
    memory_of(services, agent)
    own = await services.keep(Knowledge).of(agent)
    one, other = await find_entity(own.store, name), await find_entity(own.store, into)
    if one == other:
        raise BadRequest(f"{name[:60]!r} and {into[:60]!r} are one already", hint="`split` takes a name out again")
    names = [each for each, entity in (await own.store.names()).items() if entity == one]
    return await _declare(services, agent, own, [Declaration(each, same_as=other) for each in names], other)


@operation("memory.entities.split", scope="write")
async def split_entity(services: Services, name: Name, agent: OfAgent = "") -> DeclaredNames:
    """Say that a name means somebody else than those it was taken for. It is written to `bank/aliases.md`.

    Examples:
      pal memory entities split Maria
    """
    memory_of(services, agent)
    own = await services.keep(Knowledge).of(agent)
    entity, names = await find_entity(own.store, name), await own.store.names()
    named = next((each for each in names if each.casefold() == name.casefold()), entity)
    others = [each for each, whose in names.items() if whose == entity and each != named]
    if not others:
        raise BadRequest(f"{entity!r} has no other name", hint="`pal memory entities show` lists the names of each")
    return await _declare(services, agent, own, [Declaration(named, apart_from=each) for each in others], named)


async def _declare(
    services: Services, agent: str, own: AgentKnowledge, declared: list[Declaration], name: str
) -> DeclaredNames:
    files = services.agents.get(agent.strip().lower() or services.agents.default).files
    await own.declare(files.boundary, declared)
    await own.sync()
    return DeclaredNames(ALIASES, await _entity_of(own, await find_entity(own.store, name)))


async def _entity_of(own: AgentKnowledge, listed: str) -> Entity:
    for each in await own.store.entities():
        if each.name == listed:
            return each
    raise NotFound(f"no fact names {listed!r}")
