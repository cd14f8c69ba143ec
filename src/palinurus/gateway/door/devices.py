"""Devices: a client that holds an Ed25519 key and proves it by signing our challenge, in OpenClaw's form.

The id of a device is the hash of its public key, so nobody can choose one. The signature covers what the client says
of itself and our nonce: a frame that was overheard is of no use for another connection.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import ipaddress

from palinurus.gateway.door.guard import Refused
from palinurus.gateway.frames.protocol import Connect, Device

SKEW_MS = 10 * 60 * 1000
KEY_BYTES, SIGNATURE_BYTES = 32, 64


def check_device(connect: Connect, device: Device, nonce: str, now_ms: int) -> None:
    """Raises Refused, with one of OpenClaw's DEVICE_AUTH_* codes, when the proof does not hold."""
    key = _decoded(device.public_key, KEY_BYTES)
    if key is None:
        raise _refused("DEVICE_AUTH_PUBLIC_KEY_INVALID", "device-public-key", "the device's public key is none")
    if device.id != hashlib.sha256(key).hexdigest():
        raise _refused("DEVICE_AUTH_DEVICE_ID_MISMATCH", "device-id-mismatch", "the device's id is not that of its key")
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
    """What the device may have signed: the newer form, which covers more, and the older one."""
    auth, client = connect.auth, connect.client
    said = (
        device.id,
        client.id,
        client.mode,
        connect.role,
        ",".join(connect.scopes),
        str(device.signed_at),
        auth.token or auth.device_token or auth.bootstrap_token,
        device.nonce,
    )
    machine = (_lower(client.platform), _lower(client.device_family))
    return "|".join(("v3", *said, *machine)), "|".join(("v2", *said))


def is_near(peer: str) -> bool:
    """Whether the peer is on this machine. One that came through a proxy has no address here."""
    try:
        return ipaddress.ip_address(peer.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _signed(key: bytes, signature: bytes, text: str) -> bool:
    # Here, so that nobody pays for the package who has no device.
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
    return "".join(letter.lower() if "A" <= letter <= "Z" else letter for letter in text.strip())


def _refused(code: str, reason: str, message: str) -> Refused:
    return Refused(401, "UNAUTHORIZED", message, details={"code": code, "reason": reason})
