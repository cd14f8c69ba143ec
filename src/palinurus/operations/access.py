"""What is kept of those who may come in by the gateway: tokens and devices, with the scopes bound to each.

The records stand here because the store that keeps them and the gateway that reads them do not know each other.
"""

from __future__ import annotations

from typing import Literal, Protocol

from msgspec import Struct

from palinurus.operations.scopes import Scope


class Token(Struct, frozen=True, rename="camel", omit_defaults=True):
    id: str
    name: str
    digest: str
    scopes: tuple[Scope, ...]
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None
    last_used_at: int | None = None
    device_id: str = ""  # of a token that belongs to a device
    seal: str = ""  # of a browser's: over the owner's secret by which it was let in; see gateway/door/guard.py


class PairedDevice(Struct, frozen=True, rename="camel", omit_defaults=True):
    id: str
    public_key: str
    name: str
    scopes: tuple[Scope, ...]  # asked for, until it is approved; then granted
    status: Literal["waiting", "paired", "revoked"]
    asked_at: int
    code: str = ""  # shown on both sides, to compare
    paired_at: int | None = None
    platform: str = ""
    kind: Literal["device", "browser"] = "device"  # a browser has no key, only a cookie


class AccessStore(Protocol):
    """Keeps tokens and devices, each listed in the order in which it came. When a write returns it is on the disk."""

    async def tokens(self) -> list[Token]: ...

    async def put_token(self, token: Token) -> None:
        """Add it, or replace the one with its id. Raises BadRequest when another token has its digest."""

    async def devices(self) -> list[PairedDevice]: ...

    async def put_device(self, device: PairedDevice) -> None:
        """Add it, or replace the one with its id."""
