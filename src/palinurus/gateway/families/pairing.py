"""Methods to look after devices, in OpenClaw's shape, over the register of those who may come in."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from palinurus.domain.errors import BadRequest, NotFound
from palinurus.gateway.talk.methods import Method, Talk
from palinurus.operations.access import PairedDevice
from palinurus.operations.register import Register


class NoParams(Struct, frozen=True):
    """Nothing to say."""


class Request(Struct, frozen=True, rename="camel"):
    request_id: str


class Named(Struct, frozen=True, rename="camel"):
    device_id: str
    role: str = "operator"


class DeviceShown(Struct, frozen=True, rename="camel", omit_defaults=True):
    device_id: str
    request_id: str
    display_name: str
    platform: str
    role: str
    scopes: tuple[str, ...]
    ts: int
    approved_at_ms: int | None = None


class Listed(Struct, frozen=True):
    pending: tuple[DeviceShown, ...]
    paired: tuple[DeviceShown, ...]


class Settled(Struct, frozen=True, rename="camel"):
    request_id: str
    device: DeviceShown


def _shown(device: PairedDevice) -> DeviceShown:
    return DeviceShown(
        device.id,
        device.code,
        device.name,
        device.platform,
        "operator",
        tuple(f"operator.{scope}" for scope in device.scopes),
        device.asked_at,
        device.paired_at,
    )


def _register(talk: Talk) -> Register:
    return talk.desk.guard.register


def _waiting(talk: Talk, request_id: str) -> PairedDevice:
    """By its code only: a paired device is not approved by mistake."""
    for device in _register(talk).devices():
        if device.status == "waiting" and device.code == request_id:
            return device
    raise NotFound(f"nobody waits under {request_id[:40]!r}", hint="device.pair.list shows who does")


async def _list(talk: Talk, _: NoParams) -> Listed:
    devices = _register(talk).devices()
    pending, paired = (
        tuple(_shown(device) for device in devices if device.status == status) for status in ("waiting", "paired")
    )
    return Listed(pending, paired)


async def _approve(talk: Talk, params: Request) -> Settled:
    device = _waiting(talk, params.request_id)
    return Settled(params.request_id, _shown(await _register(talk).approve_device(device.id)))


async def _reject(talk: Talk, params: Request) -> Settled:
    device = _waiting(talk, params.request_id)
    return Settled(params.request_id, _shown(await _register(talk).revoke_device(device.id)))


async def _remove(talk: Talk, params: Named) -> dict[str, Any]:
    return {"deviceId": (await _register(talk).revoke_device(params.device_id)).id}


async def _rotate(talk: Talk, params: Named) -> dict[str, Any]:
    token, secret = await _register(talk).rotate_token(_token_of(talk, params))
    return {"deviceId": token.device_id, "role": "operator", "token": secret}


async def _revoke(talk: Talk, params: Named) -> dict[str, Any]:
    token = await _register(talk).revoke_token(_token_of(talk, params))
    return {"deviceId": token.device_id, "role": "operator", "revokedAtMs": token.revoked_at}


def _token_of(talk: Talk, params: Named) -> str:
    if params.role != "operator":
        raise BadRequest(f"there is no role {params.role[:40]!r}", hint="operator")
    held = [each for each in _register(talk).tokens() if each.device_id == params.device_id and not each.revoked_at]
    if not held:
        raise NotFound(f"the device {params.device_id[:80]!r} has no token", hint="device.pair.list shows the devices")
    return held[0].id


METHODS = (
    Method("device.pair.list", NoParams, Listed, "admin", _list, about="Devices that wait, and those that are paired."),
    Method("device.pair.approve", Request, Settled, "admin", _approve, about="Let a device in from now on."),
    Method("device.pair.reject", Request, Settled, "admin", _reject, about="Turn a device away."),
    Method("device.pair.remove", Named, dict[str, Any], "admin", _remove, about="Take a device and its token away."),
    Method("device.token.rotate", Named, dict[str, Any], "admin", _rotate, about="A new token; the old one is dead."),
    Method("device.token.revoke", Named, dict[str, Any], "admin", _revoke, about="Take the token of a device away."),
)
