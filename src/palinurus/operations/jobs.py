"""Jobs and deliveries: work that survives a restart, its state, and what a person decides: do it again, or drop it."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, structs

from palinurus.dispatch.delivery import DeliveryCounts, DeliveryJob
from palinurus.dispatch.delivery import State as DeliveryState
from palinurus.domain.errors import BadRequest
from palinurus.operations.operation import operation
from palinurus.operations.services import Services
from palinurus.storage.jobs import Job, State

MOST_LISTED = 1000


class JobCount(Struct, frozen=True):
    kind: str
    state: State
    jobs: int


class JobInfo(Job, frozen=True, rename="camel"):
    """A job as others read it."""

    outcome: Any = None  # JSON; msgspec reads no Raw that may be null


class JobList(Struct, frozen=True):
    jobs: tuple[JobInfo, ...]  # newest first
    counts: tuple[JobCount, ...]  # of all, whatever was asked for


@operation("jobs.list", scope="read")
async def list_jobs(
    services: Services,
    kind: Annotated[tuple[str, ...], "Only this kind, or kinds that match a pattern; can be repeated."] = (),
    state: Annotated[tuple[State, ...], "Only this state; can be repeated."] = (),
    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED), "Maximum number, counted from the newest."] = 50,
) -> JobList:
    """List jobs, newest last: waiting, running and ended.

    An ambiguous job may have been done: the process or the job broke off before its end was known. It is not run
    again automatically, because it could happen twice.

    Examples:
      pal jobs list
      pal jobs list --state ambiguous --json
    """
    jobs = await services.jobs.recent(kinds=kind, states=state, limit=limit)
    counts = (await services.jobs.counts()).items()
    return JobList(tuple(map(_info, jobs)), tuple(JobCount(kind, state, number) for (kind, state), number in counts))


@operation("jobs.retry", scope="write")
async def retry_job(services: Services, id: str, idempotency_key: str = "") -> JobInfo:  # noqa: A002  as it is called on the wire
    """Run an ambiguous or failed job again, or run a waiting one now.

    Example:
      pal jobs retry 3f2a
    """
    if not idempotency_key:
        raise BadRequest("doing it again needs an idempotency key", hint="any text that is new each time")
    return _info(await services.jobs.retry(id, idempotency_key))


@operation("jobs.drop", scope="write")
async def drop_job(services: Services, id: str) -> JobInfo:  # noqa: A002
    """Drop a job: it is not run.

    Example:
      pal jobs drop 3f2a
    """
    return _info(await services.jobs.drop(id))


def _info(job: Job) -> JobInfo:
    return JobInfo(**structs.asdict(job))


class DeliveryList(Struct, frozen=True):
    parcels: tuple[DeliveryJob, ...]  # newest first
    standing: DeliveryCounts


@operation("delivery.list", scope="read")
async def list_deliveries(
    services: Services, states: tuple[DeliveryState, ...] = (), limit: Annotated[int, Meta(ge=1, le=MOST_LISTED)] = 50
) -> DeliveryList:
    """What is on its way to people, the newest first; of no states: of all."""
    deliveries = await services.deliveries.recent(states=states, limit=limit)
    return DeliveryList(tuple(deliveries), await services.deliveries.counts())


@operation("delivery.get", scope="read")
async def get_delivery(services: Services, id: Annotated[str, "Its whole id."]) -> DeliveryJob:  # noqa: A002
    """One message to somebody, and what has become of it."""
    return await services.deliveries.get(id)


@operation("delivery.retry", scope="write")
async def retry_delivery(services: Services, id: str, idempotency_key: str = "") -> DeliveryJob:  # noqa: A002  as it is called on the wire
    """Send an ambiguous or failed message again, or send a waiting one now.

    Example:
      pal delivery retry 3f2a
    """
    if not idempotency_key:
        raise BadRequest("sending again needs an idempotency key", hint="any text that is new each time")
    return await services.deliveries.retry(id, idempotency_key)


@operation("delivery.drop", scope="write")
async def drop_delivery(services: Services, id: str) -> DeliveryJob:  # noqa: A002
    """Drop a message: it is not sent.

    Example:
      pal delivery drop 3f2a
    """
    return await services.deliveries.drop(id)
