"""What every route and method of the gateway works with."""

from __future__ import annotations

from msgspec import Struct

from palinurus.domain.clock import NewId
from palinurus.gateway.door.guard import Guard
from palinurus.gateway.frames.hub import Hub
from palinurus.operations.config import Ground
from palinurus.operations.house import House
from palinurus.operations.table import Table


class Endpoints(Struct, frozen=True):
    """Which HTTP endpoints are served, and which tools /tools/invoke reaches beyond or short of its own list."""

    chat_completions: bool = True
    responses: bool = True
    invoke_allow: tuple[str, ...] = ()
    invoke_deny: tuple[str, ...] = ()


class Desk(Struct, frozen=True):
    house: House
    ground: Ground
    table: Table
    guard: Guard
    hub: Hub
    new_id: NewId
    endpoints: Endpoints = Endpoints()
    started_at: int = 0
