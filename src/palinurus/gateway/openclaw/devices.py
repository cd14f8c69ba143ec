"""Who is connected, which devices wait and which are paired, in OpenClaw's shape. There are no nodes here.

With the scope pairing alone a caller sees the devices, and approves or rotates what has no more scopes than itself.
"""

from __future__ import annotations

import platform
import socket
from typing import Annotated, Any

from msgspec import Struct

from palinurus import __version__
from palinurus.domain.errors import BadRequest, MissingScope, NotFound
from palinurus.gateway.auth.devices import ROLE
from palinurus.gateway.hub import Presence
from palinurus.gateway.websocket.methods import ClientSession, method
from palinurus.operations.access import AccessToken, PairedDevice, Register
from palinurus.operations.scopes import Scope
from palinurus.operations.shapes import From, made_of


class DeviceTokenRow(Struct, frozen=True, rename="camel", omit_defaults=True):
    role: str
    scopes: tuple[str, ...]
    created_at_ms: int
    revoked_at_ms: int | None = None
    last_used_at_ms: int | None = None


class DeviceRow(Struct, frozen=True, rename="camel", omit_defaults=True):
    device_id: Annotated[str, From("id")]
    public_key: str
    request_id: Annotated[str, From("code")]
    display_name: Annotated[str, From("name")]
    platform: str
    role: str
    scopes: tuple[str, ...]
    roles: tuple[str, ...]
    tokens: tuple[DeviceTokenRow, ...]
    ts: Annotated[int, From("asked_at")]
    approved_at_ms: Annotated[int | None, From("paired_at")] = None


class DeviceRows(Struct, frozen=True):
    pending: tuple[DeviceRow, ...]
    paired: tuple[DeviceRow, ...]


class SettledDevice(Struct, frozen=True, rename="camel"):
    request_id: str
    device: DeviceRow


def _device_row(client: ClientSession, device: PairedDevice) -> DeviceRow:
    held = (each for each in _register(client).tokens() if each.device_id == device.id)
    tokens = tuple(
        DeviceTokenRow(ROLE, _named(each.scopes), each.created_at, each.revoked_at, each.last_used_at) for each in held
    )
    return made_of(DeviceRow, device, role=ROLE, roles=(ROLE,), scopes=_named(device.scopes), tokens=tokens)


def _named(scopes: tuple[Scope, ...]) -> tuple[str, ...]:
    return tuple(f"operator.{scope}" for scope in scopes)


def _register(client: ClientSession) -> Register:
    return client.gateway.guard.register


def _waiting(client: ClientSession, request_id: str) -> PairedDevice:
    """The device that waits under this code. Paired devices are not looked at."""
    for device in _register(client).devices():
        if device.status == "waiting" and device.code == request_id:
            return device
    raise NotFound(f"no device waits under {request_id[:40]!r}", hint="device.pair.list shows them")


def _need_all(client: ClientSession, scopes: tuple[Scope, ...]) -> None:
    """Raises MissingScope when a device would get more than the caller has."""
    for scope in scopes:
        if not client.principal.may(scope):
            raise MissingScope(f"this device has the scope {scope}, which you do not have", scope=scope)


def _announce(client: ClientSession, device: PairedDevice, decision: str) -> None:
    now = client.services.clock.now_ms()
    told = {"requestId": device.code, "deviceId": device.id, "decision": decision, "ts": now}
    client.gateway.hub.announce("device.pair.resolved", "pairing", lambda: told)


@method("device.pair.list", scope="pairing")
async def list_devices(client: ClientSession) -> DeviceRows:
    """Devices that wait, and those that are paired."""

    def rows(status: str) -> tuple[DeviceRow, ...]:
        return tuple(_device_row(client, each) for each in _register(client).devices() if each.status == status)

    return DeviceRows(rows("waiting"), rows("paired"))


@method("device.pair.approve", scope="pairing")
async def approve_device(client: ClientSession, request_id: str) -> SettledDevice:
    """Approve a device."""
    device = _waiting(client, request_id)
    _need_all(client, device.scopes)
    _announce(client, device, "approved")
    return SettledDevice(request_id, _device_row(client, await _register(client).approve_device(device.id)))


@method("device.pair.reject", scope="pairing")
async def reject_device(client: ClientSession, request_id: str) -> SettledDevice:
    """Reject a device."""
    device = _waiting(client, request_id)
    _announce(client, device, "rejected")
    return SettledDevice(request_id, _device_row(client, await _register(client).revoke_device(device.id)))


@method("device.pair.remove", scope="pairing")
async def remove_device(client: ClientSession, device_id: str) -> dict[str, Any]:
    """Remove a device and its token."""
    _need_all(
        client, tuple(scope for each in _register(client).devices() if each.id == device_id for scope in each.scopes)
    )
    return {"deviceId": (await _register(client).revoke_device(device_id)).id}


@method("device.token.rotate", scope="pairing")
async def rotate_device_token(client: ClientSession, device_id: str, role: str = "operator") -> dict[str, Any]:
    """Replace the token of a device; the old one is invalid at once."""
    held = _token_of(client, device_id, role)
    _need_all(client, held.scopes)
    token, secret = await _register(client).rotate_token(held.id)
    return {"deviceId": token.device_id, "role": "operator", "token": secret}


@method("device.token.revoke", scope="pairing")
async def revoke_device_token(client: ClientSession, device_id: str, role: str = "operator") -> dict[str, Any]:
    """Revoke the token of a device."""
    held = _token_of(client, device_id, role)
    _need_all(client, held.scopes)
    token = await _register(client).revoke_token(held.id)
    return {"deviceId": token.device_id, "role": "operator", "revokedAtMs": token.revoked_at}


def _token_of(client: ClientSession, device_id: str, role: str) -> AccessToken:
    if role != "operator":
        raise BadRequest(f"there is no role {role[:40]!r}", hint="operator")
    held = [each for each in _register(client).tokens() if each.device_id == device_id and not each.revoked_at]
    if not held:
        raise NotFound(f"the device {device_id[:80]!r} has no token", hint="device.pair.list shows the devices")
    return held[0]


class PresentClient(Struct, frozen=True, rename="camel", omit_defaults=True):
    host: str
    version: str
    platform: str
    mode: str
    reason: str
    text: str
    ts: int
    instance_id: str = ""
    device_family: str = ""
    device_id: str = ""
    roles: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()


@method("system-presence", scope="read")
async def list_present(client: ClientSession) -> tuple[PresentClient, ...]:
    """The gateway itself, and the clients that are connected, the first one first."""
    host, started = socket.gethostname(), client.gateway.started_at
    about = f"Gateway: {host} · app {__version__} · mode gateway"
    own = PresentClient(host, __version__, platform.system().lower(), "gateway", "self", about, started)
    return (own, *(_present_client(each) for each in client.gateway.hub.present))


def _present_client(found: Presence) -> PresentClient:
    about = found.client
    name = about.display_name or about.id or "a client"
    return made_of(
        PresentClient,
        about,
        host=name,
        reason="connect",
        text=f"Client: {name} · mode {about.mode or 'unknown'}",
        ts=found.since,
        device_id=found.device_id,
        roles=(ROLE,),
        scopes=_named(found.scopes),
    )


class NodeRows(Struct, frozen=True):
    ts: int
    nodes: tuple[str, ...] = ()


@method("node.list", scope="read")
async def list_nodes(client: ClientSession) -> NodeRows:
    """Nothing: there are no nodes here."""
    return NodeRows(client.services.clock.now_ms())


@method("node.pair.list", scope="pairing")
async def list_node_requests(client: ClientSession) -> DeviceRows:
    """Nothing: there are no nodes here."""
    return DeviceRows((), ())
