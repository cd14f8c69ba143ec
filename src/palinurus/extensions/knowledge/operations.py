"""Knowledge from every surface: recall, entities, beliefs, reflection and the bank, proposals for MEMORY.md."""

from __future__ import annotations

import asyncio
from datetime import date
from typing import Annotated

from msgspec import Struct

from palinurus.domain.clock import local_time
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.extensions.knowledge.beliefs import Belief, BeliefChange, beliefs_of, changes_between
from palinurus.extensions.knowledge.core_block import refresh_core_block
from palinurus.extensions.knowledge.entities import Declaration, Merge
from palinurus.extensions.knowledge.facts import ALIASES, BANK, FactTrouble
from palinurus.extensions.knowledge.knowledge import AgentKnowledge, Knowledge, day_of, find_entity, since_day
from palinurus.extensions.knowledge.recall import RecallAnswer, RecallQuestion, RecallResult
from palinurus.extensions.knowledge.reflect import BankProposal, Reflection, read_record, restore_page, settle_proposal
from palinurus.extensions.knowledge.reflect import reflect as reflect_on
from palinurus.extensions.knowledge.store import Entity
from palinurus.operations.memory import OfAgent, memory_of
from palinurus.operations.operation import Metavar, operation
from palinurus.operations.services import Services
from palinurus.workspace.history import WorkspaceHistory


class EntityList(Struct, frozen=True, rename="camel"):
    entities: tuple[Entity, ...]
    facts: int
    troubles: tuple[FactTrouble, ...] = ()  # bullets that are no facts as they stand
    merges: tuple[Merge, ...] = ()  # which names were taken for one, and why


@operation("memory.recall", scope="read")
async def recall(services: Services, asked: RecallQuestion) -> RecallAnswer:
    """Facts and lines of notes that answer a question, with what they are, since when, and from where."""
    memory_of(services, asked.agent)  # switched off is switched off
    return await services.keep(Knowledge).recall(asked, counts=True)


@operation("memory.entities", scope="read")
async def list_entities(services: Services, agent: OfAgent = "") -> EntityList:
    """List people, places and things that facts name, with their other names.

    Examples:
      pal memory entities list
      pal memory entities list --json
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
    return await _declare(own, [Declaration(each, same_as=other) for each in names], other)


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
    return await _declare(own, [Declaration(named, apart_from=each) for each in others], named)


async def _declare(own: AgentKnowledge, declared: list[Declaration], name: str) -> DeclaredNames:
    await own.declare(declared)
    await own.sync()
    return DeclaredNames(ALIASES, await _entity_of(own, await find_entity(own.store, name)))


async def _entity_of(own: AgentKnowledge, listed: str) -> Entity:
    for each in await own.store.entities():
        if each.name == listed:
            return each
    raise NotFound(f"no fact names {listed!r}")


Since = Annotated[str, Metavar("DUR"), "A length of time before today, or a day: 7d, 6w, 3m, 2026-03-01."]
HEADING = "## Learned"  # of MEMORY.md, under which proposals go


class BeliefList(Struct, frozen=True, rename="camel"):
    beliefs: tuple[Belief, ...]
    changes: tuple[BeliefChange, ...] = ()  # since the day that was asked for
    on: str = ""


class ProposalList(Struct, frozen=True, rename="camel"):
    proposals: tuple[BankProposal, ...]


class BankDiff(Struct, frozen=True, rename="camel"):
    text: str
    commit: str = ""
    is_cut: bool = False


class RestoredPage(Struct, frozen=True, rename="camel"):
    path: str
    commit: str


@operation("memory.beliefs", scope="read")
async def list_beliefs(
    services: Services,
    entity: Annotated[str, Metavar("NAME"), "Only about this person, place or thing."] = "",
    as_of: Annotated[str, Metavar("DATE"), "As it was believed on that day."] = "",
    since: Annotated[str, Metavar("DUR"), "What has changed since: 30d, 6w, 3m, a day."] = "",
    agent: OfAgent = "",
) -> BeliefList:
    """Show beliefs: each with its confidence, and the facts for and against it.

    Examples:
      pal memory beliefs
      pal memory beliefs --entity Peter --as-of 2026-03-01
      pal memory beliefs --since 90d --json
    """
    memory_of(services, agent)
    own = await services.keep(Knowledge).of(agent)
    today = local_time(services.clock).date()
    day = day_of(as_of) if as_of else today
    listed = await find_entity(own.store, entity) if entity else ""
    opinions = [each for each in await own.store.facts_of("opinion") if not listed or listed in each.entities]
    changes: list[BeliefChange] = []
    if since:
        changes = await asyncio.to_thread(changes_between, opinions, since_day(since, day), day)
    return BeliefList(tuple(await asyncio.to_thread(beliefs_of, opinions, day)), tuple(changes), day.isoformat())


@operation("memory.reflect", scope="write")
async def reflect(
    services: Services,
    since: Since = "7d",
    dry_run: Annotated[bool, "Show what would change, write nothing."] = False,
    accept_loss: Annotated[bool, "Also remove lines that no note has any more, however many."] = False,
    agent: OfAgent = "",
) -> Reflection:
    """Write the pages of the bank from the facts, and propose lines for MEMORY.md.

    Plain notes since then are read for facts first: by the model in four calls at most, if there is one, else by rule.
    What you have written, changed or deleted on the pages stays as you left it.

    Examples:
      pal memory reflect
      pal memory reflect --since 30d --dry-run
    """
    memory_of(services, agent)
    today: date = local_time(services.clock).date()
    done = await reflect_on(services, agent, since_day(since, today), dry_run=dry_run, accept_loss=accept_loss)
    if not dry_run:
        await refresh_core_block(services, agent)
    return done


@operation("memory.proposals", scope="read")
async def list_proposals(services: Services, agent: OfAgent = "") -> ProposalList:
    """List lines that a reflection proposes for MEMORY.md.

    Examples:
      pal memory proposals list
    """
    own = await services.keep(Knowledge).of(agent)
    return ProposalList(tuple((await asyncio.to_thread(read_record, own.boundary)).proposals))


ProposalId = Annotated[str, Metavar("ID"), "As `pal memory proposals` shows it."]


@operation("memory.proposals.accept", scope="write")
async def accept_proposal(
    services: Services,
    proposal: ProposalId,
    text: Annotated[str, "These words instead."] = "",
    agent: OfAgent = "",
) -> BankProposal:
    """Put a proposed line into MEMORY.md, perhaps with other words.

    Examples:
      pal memory proposals accept 1f2e3a4b
      pal memory proposals accept 1f2e3a4b --text "Peter: no calls before ten"
    """
    own, said = await services.keep(Knowledge).of(agent), services.agents.redact(text)
    async with own.reflecting:
        return await asyncio.to_thread(settle_proposal, own.boundary, proposal, said, is_accepted=True, heading=HEADING)


@operation("memory.proposals.reject", scope="write")
async def reject_proposal(services: Services, proposal: ProposalId, agent: OfAgent = "") -> BankProposal:
    """Drop a proposed line. It is not proposed again.

    Examples:
      pal memory proposals reject 1f2e3a4b
    """
    own = await services.keep(Knowledge).of(agent)
    async with own.reflecting:
        return await asyncio.to_thread(settle_proposal, own.boundary, proposal, "", is_accepted=False, heading=HEADING)


@operation("memory.bank.diff", scope="read")
async def diff_bank(
    services: Services,
    page: Annotated[str, "Only this page: bank/opinions.md."] = "",
    commit: Annotated[str, "This reflection, instead of the last one."] = "",
    agent: OfAgent = "",
) -> BankDiff:
    """What the last reflection has changed on the pages of the bank. Needs git.

    Examples:
      pal memory bank diff
      pal memory bank diff --page bank/opinions.md
    """
    own = await services.keep(Knowledge).of(agent)
    history, path = WorkspaceHistory(own.boundary.root), page or BANK.rstrip("/")

    def look() -> BankDiff:
        commits = history.log(path, limit=1).commits
        wanted = commit or (commits[0].id if commits else "")
        if not wanted:
            raise NotFound(f"{path} has no history yet", hint="`pal memory reflect` makes a commit where it may")
        found = history.diff(wanted, path)
        return BankDiff(found.text, wanted, found.truncated)

    return await asyncio.to_thread(look)


@operation("memory.bank.restore", scope="write")
async def restore_bank_page(
    services: Services,
    page: Annotated[str, "Such as bank/opinions.md."],
    commit: Annotated[str, "As this commit has it. Default: as it was before the last change."] = "",
    agent: OfAgent = "",
) -> RestoredPage:
    """Restore an earlier version of a page of the bank. The next reflection continues from it.

    Examples:
      pal memory bank restore bank/opinions.md
    """
    own = await services.keep(Knowledge).of(agent)
    now_ms = services.clock.now_ms()
    async with own.reflecting:
        return RestoredPage(page, await asyncio.to_thread(restore_page, own.boundary, page, commit, now_ms))
