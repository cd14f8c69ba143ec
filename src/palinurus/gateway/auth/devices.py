"""Devices: clients that hold an Ed25519 key and sign our challenge with it, in OpenClaw's form.

The id of a device is the hash of its public key, so nobody can choose one. The signature covers the client's own data
and our nonce, so a frame that was overheard is useless for another connection.

ConnectAuthenticator handles the connect frame. The credential decides; the requested scopes only narrow it. A device
with a valid credential on this machine is paired at once and gets a token of its own with at most the same scopes. From
another machine somebody must approve it first (`pal devices approve`). Later its token alone is enough, until the
device is revoked. A browser's cookie comes with the WebSocket upgrade; its page adds the key as `bootstrapToken`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import ipaddress

import msgspec

from palinurus.domain.clock import Clock, NewId
from palinurus.gateway.auth.guard import Guard, Principal, granted_scopes
from palinurus.gateway.hub import Hub
from palinurus.gateway.protocol import Connect, Device, GrantedAccess, Refused
from palinurus.operations.access import PairedDevice
from palinurus.operations.scopes import Scope

SKEW_MS = 10 * 60 * 1000
KEY_BYTES, SIGNATURE_BYTES = 32, 64
ROLE = "operator"
CODE_LENGTH = 8
LONGEST_NAME = 80


def check_device(connect: Connect, device: Device, nonce: str, now_ms: int) -> None:
    """Raises Refused, with one of OpenClaw's DEVICE_AUTH_* codes, when the proof does not hold."""
    key = _decoded(device.public_key, KEY_BYTES)
    if key is None:
        raise _refused("DEVICE_AUTH_PUBLIC_KEY_INVALID", "device-public-key", "the device's public key is invalid")
    if device.id != hashlib.sha256(key).hexdigest():
        raise _refused("DEVICE_AUTH_DEVICE_ID_MISMATCH", "device-id-mismatch", "the device's id is not its key's hash")
    if abs(now_ms - device.signed_at) > SKEW_MS:
        raise _refused("DEVICE_AUTH_SIGNATURE_EXPIRED", "device-signature-stale", "the device's clock is wrong")
    if not device.nonce.strip():
        raise _refused("DEVICE_AUTH_NONCE_REQUIRED", "device-nonce-missing", "the device has not signed a challenge")
    if device.nonce != nonce:
        raise _refused("DEVICE_AUTH_NONCE_MISMATCH", "device-nonce-mismatch", "the device signed another challenge")
    signature = _decoded(device.signature, SIGNATURE_BYTES)
    if signature is None or not any(_signed(key, signature, text) for text in signed_texts(connect, device)):
        raise _refused("DEVICE_AUTH_SIGNATURE_INVALID", "device-signature", "the device's signature is wrong")


def signed_texts(connect: Connect, device: Device) -> tuple[str, str]:
    """The texts that the device may have signed: the newer form, which covers more, and the older one."""
    auth, client = connect.auth, connect.client
    secret = auth.token or auth.device_token or auth.bootstrap_token
    about = (device.id, client.id, client.mode, connect.role, ",".join(connect.scopes), str(device.signed_at))
    signed = (*about, secret, device.nonce)
    machine = (_lower(client.platform), _lower(client.device_family))
    return "|".join(("v3", *signed, *machine)), "|".join(("v2", *signed))


def is_near(peer: str) -> bool:
    """Whether the peer is on this machine. Behind a proxy its address is empty."""
    try:
        return ipaddress.ip_address(peer.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _signed(key: bytes, signature: bytes, text: str) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, text.encode("utf-8", "surrogatepass"))
    except InvalidSignature:
        return False
    return True


def _decoded(text: str, size: int) -> bytes | None:
    """base64url, with or without its padding."""
    try:
        data = base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if len(data) == size else None


def _lower(text: str) -> str:
    """As OpenClaw writes it: trimmed, and only A to Z in lower case."""
    return "".join(char.lower() if "A" <= char <= "Z" else char for char in text.strip())


def _refused(code: str, reason: str, message: str) -> Refused:
    return Refused(401, "UNAUTHORIZED", message, details={"code": code, "reason": reason})


class ConnectAuthenticator:
    """Authenticates a client by the credential and the device of its connect frame, or by its browser's cookie.

    Raises Refused or a PalinurusError.
    """

    def __init__(self, guard: Guard, hub: Hub, clock: Clock, new_id: NewId) -> None:
        self._guard = guard
        self._hub = hub
        self._clock = clock
        self._new_id = new_id

    async def admit(self, connect: Connect, nonce: str, peer: str, cookie: str = "") -> tuple[Principal, GrantedAccess]:
        if connect.role != ROLE:
            raise Refused(403, "FORBIDDEN", f"there is no role {connect.role[:40]!r}, only {ROLE}")
        auth = connect.auth
        sent = (auth.token, auth.password, auth.device_token)
        if cookie and not any(sent):  # what the client itself sends goes before what its browser adds
            found = self._guard.identify_browser(cookie, auth.bootstrap_token, peer)
        else:
            found = self._guard.identify(sent, peer)
        scopes = granted_scopes(found.scopes, connect.scopes)
        secret = ""
        if connect.device is not None and not self._guard.no_auth:
            check_device(connect, connect.device, nonce, self._clock.now_ms())
            paired = await self._paired(connect, connect.device, found, scopes, near=is_near(peer))
            if not is_near(peer):
                scopes = granted_scopes(paired.scopes, scopes or ("none",))
            secret = await self._guard.register.device_token(paired)
            found = msgspec.structs.replace(found, device_id=paired.id)
        principal = msgspec.structs.replace(found, scopes=frozenset(scopes))
        return principal, GrantedAccess(ROLE, tuple(f"operator.{scope}" for scope in scopes), secret)

    async def _paired(
        self, connect: Connect, device: Device, found: Principal, scopes: tuple[Scope, ...], *, near: bool
    ) -> PairedDevice:
        """Returns the paired device. Raises Refused if it must be approved first."""
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
        unpaired = self._unpaired(connect, device, scopes)
        if near and scopes:
            return await register.pair(unpaired)
        waiting = await register.ask_to_pair(unpaired)
        told = {**msgspec.to_builtins(waiting), "requestId": waiting.code, "deviceId": waiting.id}
        self._hub.announce("device.pair.requested", "pairing", lambda: told)
        details = {"code": "PAIRING_REQUIRED", "reason": "not-paired", "requestId": waiting.code, "deviceId": device.id}
        raise Refused(403, "NOT_PAIRED", f"pairing required: pal devices approve {waiting.code}", details=details)

    def _unpaired(self, connect: Connect, device: Device, scopes: tuple[Scope, ...]) -> PairedDevice:
        client = connect.client
        name = "".join(char for char in client.display_name or client.id if char.isprintable())
        return PairedDevice(
            id=device.id,
            public_key=device.public_key,
            name=name[:LONGEST_NAME],
            scopes=scopes,
            status="waiting",
            asked_at=self._clock.now_ms(),
            code=self._new_id()[:CODE_LENGTH],
            platform=client.platform[:LONGEST_NAME],
        )
