"""What is on its way to people, and what only a person can decide: send it again, or let it be."""

from __future__ import annotations

from msgspec import Struct

from palinurus.dispatch.delivery import Standing
from palinurus.dispatch.parcel import Parcel, State
from palinurus.domain.errors import BadRequest
from palinurus.operations.bounds import Count
from palinurus.operations.house import House
from palinurus.operations.table import Operation

MOST_LISTED = 1000


class ListDeliveries(Struct, frozen=True):
    states: tuple[State, ...] = ()  # none: all of them
    limit: Count = 50


class DeliveryList(Struct, frozen=True):
    parcels: tuple[Parcel, ...]  # newest first
    standing: Standing


class RetryDelivery(Struct, frozen=True, rename="camel"):
    """Sends a parcel again that is ambiguous or failed, or at once what waits for its time."""

    id: str
    idempotency_key: str  # asking twice sends it once


class DropDelivery(Struct, frozen=True):
    id: str


async def _list(house: House, params: ListDeliveries) -> DeliveryList:
    if not 0 < params.limit <= MOST_LISTED:
        raise BadRequest(f"the limit is {params.limit}", hint=f"from 1 to {MOST_LISTED}")
    parcels = await house.deliveries.recent(states=params.states, limit=params.limit)
    return DeliveryList(tuple(parcels), await house.deliveries.standing())


async def _retry(house: House, params: RetryDelivery) -> Parcel:
    if not params.idempotency_key:
        raise BadRequest("sending again needs an idempotency key", hint="any text that is new each time")
    return await house.deliveries.retry(params.id, params.idempotency_key)


async def _drop(house: House, params: DropDelivery) -> Parcel:
    return await house.deliveries.drop(params.id)


LIST = Operation("delivery.list", ListDeliveries, DeliveryList, "read", _list)
RETRY = Operation("delivery.retry", RetryDelivery, Parcel, "write", _retry)
DROP = Operation("delivery.drop", DropDelivery, Parcel, "write", _drop)
OPERATIONS = (LIST, RETRY, DROP)
