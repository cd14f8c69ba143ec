"""Reflection by itself: one job for each agent and due time, and the next one before this one is done."""

from __future__ import annotations

from datetime import timedelta

from cronsim import CronSim
from msgspec import Struct

from palinurus.domain.clock import local_time
from palinurus.extensions.knowledge.core_block import refresh_core_block
from palinurus.extensions.knowledge.reflect import reflect
from palinurus.extensions.knowledge.settings import ReflectionSettings
from palinurus.operations.services import Services
from palinurus.storage.jobs import Job, JobKind

REFLECT = "memory.reflection"
DAYS = 7  # that a report speaks of; pages are made of all facts


class DueReflection(Struct, frozen=True):
    agent: str


async def keep_reflections(services: Services) -> None:
    """Called when a process begins to stay, and when the config has changed."""
    settings = services.config.section(ReflectionSettings)
    for agent in services.agents.ids:
        due = _next(services, settings) if settings.enabled else 0
        for job in await services.jobs.of_lane(REFLECT, agent):
            if job.state in ("waiting", "retry") and job.due_at != due:
                await services.jobs.drop(job.id)
        if due:
            await _add(services, agent, due)


async def reflect_when_due(services: Services, order: DueReflection, job: Job) -> str:
    settings = services.config.section(ReflectionSettings)
    if not settings.enabled or order.agent not in services.agents.ids:
        return "switched off"
    if not services.memory(order.agent).settings.enabled:
        return "the memory of this agent is switched off"
    since = local_time(services.clock).date() - timedelta(DAYS)
    done = await reflect(services, order.agent, since, dry_run=False, accept_loss=False)
    await refresh_core_block(services, order.agent)
    await _add(services, order.agent, _next(services, settings))
    alone = sum(bool(each.left_alone) for each in done.pages)
    return f"{done.facts} facts, {len(done.pages) - alone} pages written, {alone} left alone"


async def _add(services: Services, agent: str, due: int) -> None:
    await services.jobs.add(REFLECT, DueReflection(agent), f"{agent}:{due}", lane=agent, due_at=due)


def _next(services: Services, settings: ReflectionSettings) -> int:
    return round(next(CronSim(settings.schedule, local_time(services.clock))).timestamp() * 1000)


REFLECTION_KIND = JobKind(REFLECT, DueReflection, reflect_when_due, on_crash="retry", seconds=300, stays=True)
