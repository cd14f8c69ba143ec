"""What others can ask of the process that holds the home, besides the house itself. Its door fills this in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct


class GatewayStanding(Struct, frozen=True, rename="camel"):
    """How the gateway stands. Nothing here is secret."""

    running: bool
    pid: int = 0
    url: str = ""
    bind: str = ""
    auth: str = ""
    token_from: str = ""  # where the owner's secret stands, not what it is
    version: str = ""
    started_at: int = 0
    uptime_ms: int = 0
    clients: int = 0
    busy: int = 0
    ready: bool = False


class Holder:
    """Empty for a process that serves nobody."""

    def __init__(self) -> None:
        self.gateway: Callable[[], GatewayStanding] | None = None
        self.end: Callable[[], None] | None = None
        """Ends the gateway in peace, once it has finished what it accepted. Must not block."""
        self.hand_over: Callable[[], Awaitable[int]] | None = None
        """Gives the home to whoever asked for it, once what runs is finished; returns at once with how many run."""
