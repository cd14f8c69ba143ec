"""Keeps the cron jobs of heartbeats as the config says: one for each agent, with the id `heartbeat:<agent>`.

That of an agent whose heartbeat is off stays, disabled: it holds what was seen and reported last.
"""

from __future__ import annotations

from datetime import tzinfo

from msgspec.structs import replace

from palinurus.config.load import Config
from palinurus.domain.keys import SessionKey
from palinurus.extensions.schedule.cron_job import CronDelivery, CronJob, EverySchedule, HeartbeatPayload
from palinurus.extensions.schedule.events import publish_cron
from palinurus.extensions.schedule.heartbeat_settings import HeartbeatSettings, runs_heartbeat
from palinurus.extensions.schedule.store import CronStore, find_cron_job, put_cron_job, save_cron_job
from palinurus.operations.services import Services
from palinurus.storage.jobs import Job
from palinurus.storage.transaction import Transaction

PREFIX = "heartbeat:"
DEFAULT_MS = 1_800_000


async def keep_heartbeats(services: Services) -> None:
    """Called when a process begins to stay, and when the config has changed."""
    agents = services.agents.ids
    for agent in agents:
        await keep_heartbeat(services, agent)
    store = CronStore(services.database, services.new_id)
    for cron in await store.all():
        if cron.is_heartbeat and cron.agent_id not in agents:
            await store.remove(cron.id, services.clock.now_ms(), services.clock.zone)


async def keep_heartbeat(
    services: Services, agent_id: str, *, make: bool = False, revive: bool = False
) -> CronJob | None:
    """The cron job as the config wants it now; None: there is none and none is wanted.

    `make`: one is wanted even if it is off. `revive`: one that was disabled after failures is enabled.
    """
    config, now, zone = services.config, services.clock.now_ms(), services.clock.zone

    before: CronJob | None = None

    def work(tx: Transaction) -> tuple[CronJob | None, Job | None]:
        nonlocal before
        before = find_cron_job(tx, PREFIX + agent_id)
        if before is None and not make and not runs_heartbeat(config, agent_id):
            return None, None
        wanted = _wanted(config, agent_id, before, now, revive=revive)
        return _store(tx, before, wanted, now, zone, services)

    cron: CronJob | None
    cron, row = await services.database.write(work)
    if row is not None:
        services.jobs.expect(row)
    if cron != before:
        publish_cron(services, "updated", PREFIX + agent_id)
    return cron


def _wanted(config: Config, agent_id: str, before: CronJob | None, now: int, *, revive: bool) -> CronJob:
    settings = config.section(HeartbeatSettings, agent_id)
    schedule = EverySchedule(settings.every_ms or DEFAULT_MS, now)
    known = before or CronJob(PREFIX + agent_id, agent_id, f"Heartbeat ({agent_id})", schedule, HeartbeatPayload())
    state = replace(known.state, disabled_why="", consecutive_errors=0) if revive else known.state
    enabled = runs_heartbeat(config, agent_id) and not state.disabled_why
    goes_on = known.enabled and getattr(known.schedule, "every_ms", 0) == schedule.every_ms
    return replace(
        known,
        schedule=schedule if enabled and not goes_on else known.schedule,
        session_target="isolated" if settings.is_isolated else f"session:{session_of_heartbeat(settings, agent_id)}",
        delivery=_delivery(settings),
        catch_up="skip",  # a look that was missed is made up by the next one
        enabled=enabled,
        state=state,
    )


def _delivery(settings: HeartbeatSettings) -> CronDelivery:
    if settings.target == "none":
        return CronDelivery("none")
    return CronDelivery("announce", settings.target, settings.to, settings.account_id)


def _store(
    tx: Transaction, before: CronJob | None, wanted: CronJob, now: int, zone: tzinfo, services: Services
) -> tuple[CronJob, Job | None]:
    if before == wanted:
        return wanted, None
    if before is not None and (before.schedule, before.enabled) == (wanted.schedule, wanted.enabled):
        return put_cron_job(tx, wanted), None  # it is due as before
    return save_cron_job(tx, wanted, now, zone, services.new_id)


def session_of_heartbeat(settings: HeartbeatSettings, agent_id: str) -> SessionKey:
    """The session in which it looks."""
    if settings.is_isolated:
        return SessionKey(agent_id, "named", peer="heartbeat")
    return SessionKey.recipient(settings.session or "main", agent_id)
