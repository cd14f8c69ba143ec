"""What is on its way to people, and what only a person can decide: send it again, or let it be."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from palinurus.dispatch.delivery import Standing
from palinurus.dispatch.parcel import Parcel, State
from palinurus.domain.errors import BadRequest
from palinurus.operations.house import House
from palinurus.operations.operation import operation

MOST_LISTED = 1000


class DeliveryList(Struct, frozen=True):
    parcels: tuple[Parcel, ...]  # newest first
    standing: Standing


@operation("delivery.list", scope="read")
async def list_deliveries(
    house: House, states: tuple[State, ...] = (), limit: Annotated[int, Meta(ge=1, le=MOST_LISTED)] = 50
) -> DeliveryList:
    """What is on its way to people, the newest first; of no states: of all."""
    parcels = await house.deliveries.recent(states=states, limit=limit)
    return DeliveryList(tuple(parcels), await house.deliveries.standing())


@operation("delivery.retry", scope="write")
async def retry_delivery(house: House, id: str, idempotency_key: str) -> Parcel:  # noqa: A002  as it is called on the wire
    """Send one again that is ambiguous or failed, or now what waits for its time.

    Example:
      pal delivery retry 3f2a
    """
    if not idempotency_key:
        raise BadRequest("sending again needs an idempotency key", hint="any text that is new each time")
    return await house.deliveries.retry(id, idempotency_key)


@operation("delivery.drop", scope="write")
async def drop_delivery(house: House, id: str) -> Parcel:  # noqa: A002
    """Let one be: it is not sent any more.

    Example:
      pal delivery drop 3f2a
    """
    return await house.deliveries.drop(id)


OPERATIONS = (list_deliveries, retry_delivery, drop_delivery)
