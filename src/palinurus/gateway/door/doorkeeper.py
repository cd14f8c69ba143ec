"""The doorkeeper of the WebSocket: who comes in by a connect frame, with which scopes, and which devices are paired.

The credential decides; what the client asks for only narrows it. A device that shows a valid credential on this
machine is paired at once and gets a token of its own, bounded by that credential; from elsewhere somebody must approve
it first (`pal devices approve`). Its token alone is enough later, until the device is revoked. A browser's
cookie came with the request for the WebSocket; its page adds the key that goes with it, as `bootstrapToken`.
"""

from __future__ import annotations

import msgspec

from palinurus.domain.clock import Clock, NewId
from palinurus.gateway.door.access import Principal, granted_scopes
from palinurus.gateway.door.devices import check_device, is_near
from palinurus.gateway.door.guard import Guard, Refused
from palinurus.gateway.frames.hub import Hub
from palinurus.gateway.frames.protocol import Connect, Device, Granted
from palinurus.operations.access import PairedDevice
from palinurus.operations.scopes import Scope

ROLE = "operator"
CODE_LETTERS = 8
LONGEST_NAME = 80


class DeviceDoorkeeper:
    """Implements talk.socket.Doorkeeper."""

    def __init__(self, guard: Guard, hub: Hub, clock: Clock, new_id: NewId) -> None:
        self._guard = guard
        self._hub = hub
        self._clock = clock
        self._new_id = new_id

    async def admit(self, connect: Connect, nonce: str, peer: str, cookie: str = "") -> tuple[Principal, Granted]:
        if connect.role != ROLE:
            raise Refused(403, "FORBIDDEN", f"there is no role {connect.role[:40]!r} here, only {ROLE}")
        auth = connect.auth
        said = (auth.token, auth.password, auth.device_token)
        by_cookie = bool(cookie) and not any(said)  # what a client says itself goes before what its browser adds
        found = (
            self._guard.browser(cookie, auth.bootstrap_token, peer) if by_cookie else self._guard.identify(said, peer)
        )
        scopes = granted_scopes(found.scopes, connect.scopes)
        secret = ""
        if connect.device is not None and not self._guard.open_door:
            check_device(connect, connect.device, nonce, self._clock.now_ms())
            paired = await self._paired(connect, connect.device, found, scopes, near=is_near(peer))
            if not is_near(peer):
                scopes = granted_scopes(paired.scopes, scopes or ("none",))
            secret = await self._guard.register.device_token(paired)
            found = msgspec.structs.replace(found, device_id=paired.id)
        principal = msgspec.structs.replace(found, scopes=frozenset(scopes))
        return principal, Granted(ROLE, tuple(f"operator.{scope}" for scope in scopes), secret)

    async def _paired(
        self, connect: Connect, device: Device, found: Principal, scopes: tuple[Scope, ...], *, near: bool
    ) -> PairedDevice:
        """The device, if it may come in. Raises Refused when somebody must approve it first."""
        if found.device_id and found.device_id != device.id:
            details = {"code": "AUTH_DEVICE_TOKEN_MISMATCH"}
            raise Refused(401, "UNAUTHORIZED", "this token belongs to another device", details=details)
        register = self._guard.register
        known = register.device(device.id)
        if known is not None and known.status == "revoked":
            details = {"code": "PAIRING_REQUIRED", "reason": "revoked", "deviceId": device.id}
            raise Refused(403, "NOT_PAIRED", "this device was revoked", details=details)
        if known is not None and known.status == "paired":
            more = tuple(scope for scope in scopes if scope not in known.scopes)
            if not near or not more or found.device_id:
                return known
            return await register.pair(msgspec.structs.replace(known, scopes=(*known.scopes, *more)))
        asked = self._asking(connect, device, scopes)
        if near and scopes:
            return await register.pair(asked)
        waiting = await register.ask_to_pair(asked)
        self._hub.publish("device.pair.requested", "", lambda: waiting)
        details = {"code": "PAIRING_REQUIRED", "reason": "not-paired", "requestId": waiting.code, "deviceId": device.id}
        raise Refused(403, "NOT_PAIRED", f"pairing required: pal devices approve {waiting.code}", details=details)

    def _asking(self, connect: Connect, device: Device, scopes: tuple[Scope, ...]) -> PairedDevice:
        client = connect.client
        name = "".join(letter for letter in client.display_name or client.id if letter.isprintable())
        return PairedDevice(
            id=device.id,
            public_key=device.public_key,
            name=name[:LONGEST_NAME],
            scopes=scopes,
            status="waiting",
            asked_at=self._clock.now_ms(),
            code=self._new_id()[:CODE_LETTERS],
            platform=client.platform[:LONGEST_NAME],
        )
