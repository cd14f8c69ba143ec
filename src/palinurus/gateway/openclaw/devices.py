"""Paired devices and their tokens under OpenClaw's names."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Struct

from palinurus.domain.errors import BadRequest, NotFound
from palinurus.gateway.websocket.methods import ClientSession, method
from palinurus.operations.access import PairedDevice, Register
from palinurus.operations.shapes import From, made_of


class DeviceRow(Struct, frozen=True, rename="camel", omit_defaults=True):
    device_id: Annotated[str, From("id")]
    request_id: Annotated[str, From("code")]
    display_name: Annotated[str, From("name")]
    platform: str
    role: str
    scopes: tuple[str, ...]
    ts: Annotated[int, From("asked_at")]
    approved_at_ms: Annotated[int | None, From("paired_at")] = None


class DeviceRows(Struct, frozen=True):
    pending: tuple[DeviceRow, ...]
    paired: tuple[DeviceRow, ...]


class SettledDevice(Struct, frozen=True, rename="camel"):
    request_id: str
    device: DeviceRow


def _shown(device: PairedDevice) -> DeviceRow:
    return made_of(DeviceRow, device, role="operator", scopes=tuple(f"operator.{scope}" for scope in device.scopes))


def _register(client: ClientSession) -> Register:
    return client.gateway.guard.register


def _waiting(client: ClientSession, request_id: str) -> PairedDevice:
    """The device that waits under this code. Paired devices are not looked at."""
    for device in _register(client).devices():
        if device.status == "waiting" and device.code == request_id:
            return device
    raise NotFound(f"no device waits under {request_id[:40]!r}", hint="device.pair.list shows them")


@method("device.pair.list", scope="admin")
async def list_devices(client: ClientSession) -> DeviceRows:
    """Devices that wait, and those that are paired."""
    devices = _register(client).devices()
    pending, paired = (
        tuple(_shown(device) for device in devices if device.status == status) for status in ("waiting", "paired")
    )
    return DeviceRows(pending, paired)


@method("device.pair.approve", scope="admin")
async def approve_device(client: ClientSession, request_id: str) -> SettledDevice:
    """Approve a device."""
    device = _waiting(client, request_id)
    return SettledDevice(request_id, _shown(await _register(client).approve_device(device.id)))


@method("device.pair.reject", scope="admin")
async def reject_device(client: ClientSession, request_id: str) -> SettledDevice:
    """Reject a device."""
    device = _waiting(client, request_id)
    return SettledDevice(request_id, _shown(await _register(client).revoke_device(device.id)))


@method("device.pair.remove", scope="admin")
async def remove_device(client: ClientSession, device_id: str) -> dict[str, Any]:
    """Remove a device and its token."""
    return {"deviceId": (await _register(client).revoke_device(device_id)).id}


@method("device.token.rotate", scope="admin")
async def rotate_device_token(client: ClientSession, device_id: str, role: str = "operator") -> dict[str, Any]:
    """Replace the token of a device; the old one is invalid at once."""
    token, secret = await _register(client).rotate_token(_token_of(client, device_id, role))
    return {"deviceId": token.device_id, "role": "operator", "token": secret}


@method("device.token.revoke", scope="admin")
async def revoke_device_token(client: ClientSession, device_id: str, role: str = "operator") -> dict[str, Any]:
    """Revoke the token of a device."""
    token = await _register(client).revoke_token(_token_of(client, device_id, role))
    return {"deviceId": token.device_id, "role": "operator", "revokedAtMs": token.revoked_at}


def _token_of(client: ClientSession, device_id: str, role: str) -> str:
    if role != "operator":
        raise BadRequest(f"there is no role {role[:40]!r}", hint="operator")
    held = [each for each in _register(client).tokens() if each.device_id == device_id and not each.revoked_at]
    if not held:
        raise NotFound(f"the device {device_id[:80]!r} has no token", hint="device.pair.list shows the devices")
    return held[0].id


METHODS = (list_devices, approve_device, reject_device, remove_device, rotate_device_token, revoke_device_token)
