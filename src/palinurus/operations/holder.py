"""What others can ask of the process that holds the home, besides the house itself. Its door fills this in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct

from palinurus.operations.scopes import Scope


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
    secure_url: str = ""  # where the network reaches it by TLS
    fingerprint: str = ""  # of its certificate


class PageLink(Struct, frozen=True, rename="camel"):
    """An address that lets one browser in, once. `url` holds the code: it is for the owner's eyes."""

    url: str
    expires_at: int = 0  # 0: no code is needed
    fingerprint: str = ""  # of the certificate, where TLS is spoken


class Holder:
    """Empty for a process that serves nobody."""

    def __init__(self) -> None:
        self.gateway: Callable[[], GatewayStanding] | None = None
        self.end: Callable[[], None] | None = None
        """Ends the gateway in peace, once it has finished what it accepted. Must not block."""
        self.link: Callable[[bool, tuple[Scope, ...]], PageLink] | None = None
        """Makes a link to the page, by the network or not. Raises BadRequest when there is none of the kind."""
        self.hand_over: Callable[[], Awaitable[int]] | None = None
        """Gives the home to whoever asked for it, once what runs is finished; returns at once with how many run."""
