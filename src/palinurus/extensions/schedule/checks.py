"""What `pal doctor` finds wrong with cron jobs."""

from __future__ import annotations

from collections.abc import Iterator

from palinurus.config.agents import agent_ids, agent_settings
from palinurus.config.home import Home
from palinurus.config.load import LoadedConfig
from palinurus.domain.clock import SystemClock, random_id
from palinurus.domain.errors import BadRequest, StorageError
from palinurus.extensions.schedule.cron_job import AtSchedule, CronJob
from palinurus.extensions.schedule.store import CronStore
from palinurus.extensions.schedule.times import check_schedule
from palinurus.runtime.checks.check import Check, ok, warning
from palinurus.runtime.checks.place import open_database

NAME = "cron"


async def check_cron_jobs(home: Home, loaded: LoadedConfig | None) -> list[Check]:
    """Nothing when there are none, or the database cannot be read: others say so."""
    path = home.root / "home.sqlite"
    if loaded is None or not path.exists():
        return []
    try:
        async with open_database(path, "home") as database:
            jobs = await CronStore(database, random_id).all()
    except StorageError:
        return []
    found = [check for job in jobs for check in _faults(home, loaded, job)]
    return found or ([ok(NAME, f"{sum(job.enabled for job in jobs)} of {len(jobs)} cron jobs enabled")] if jobs else [])


def _faults(home: Home, loaded: LoadedConfig, job: CronJob) -> Iterator[Check]:
    about, agents = f"{job.name!r} ({job.id})", agent_ids(loaded.config)
    if job.agent_id not in agents:
        todo = f"`pal cron rm {job.id}`, or add the agent again"
        yield warning(NAME, f"{about}: there is no agent {job.agent_id!r}", todo=todo)
        return
    if job.state.disabled_why:
        yield warning(NAME, f"{about} {job.state.disabled_why}", todo=f"`pal cron show {job.id}` says more")
        return
    zone = SystemClock(agent_settings(loaded.config, home).zone).zone
    try:
        check_schedule(job.schedule, zone)
    except BadRequest as error:
        yield warning(NAME, f"{about}: {error.message}", todo=f"`pal cron edit {job.id}` gives it another time")
        return
    if job.enabled and not job.next_run_at_ms and not isinstance(job.schedule, AtSchedule):
        yield warning(NAME, f"{about} is enabled and not due at any time", todo=f"`pal cron enable {job.id}` plans it")
