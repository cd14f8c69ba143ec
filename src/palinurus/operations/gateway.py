"""The gateway as operations see it: how it stands, who may come in, and who holds the home.

Tokens and devices can be looked after whether or not a gateway runs. What concerns the process itself (ending it,
handing the home over) is asked on the unix socket only: nobody can do it from afar.
"""

from __future__ import annotations

import os
from typing import Annotated

from msgspec import Struct

from palinurus.domain.errors import BadRequest, HomeHeld, NotFound
from palinurus.operations.access import AccessToken, PairedDevice, Register
from palinurus.operations.operation import Days, Metavar, operation
from palinurus.operations.scopes import SCOPES, Scope
from palinurus.operations.services import DashboardLink, GatewayState, Services
from palinurus.operations.shapes import made_of

TokenName = Annotated[str, Metavar("NAME"), "Its id or its name."]
DeviceName = Annotated[str, Metavar("ID"), "Its id, the beginning of that, or the code it was told."]


class TokenInfo(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A token without its digest. `secret` is told once, when it is made."""

    id: str
    name: str
    scopes: tuple[Scope, ...]
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None
    last_used_at: int | None = None
    device_id: str = ""
    secret: str = ""


class TokenList(Struct, frozen=True):
    tokens: tuple[TokenInfo, ...]


class DeviceList(Struct, frozen=True):
    devices: tuple[PairedDevice, ...]


class ProcessLeaving(Struct, frozen=True):
    pid: int
    busy: int  # runs that are finished first


@operation("gateway.status", scope="admin")
async def show_gateway(services: Services) -> GatewayState:
    """How the gateway stands."""
    asked = services.holder.gateway
    return asked() if asked is not None else GatewayState(running=False, busy=services.dispatcher.busy)


@operation("gateway.stop", scope="admin", local=True)
async def stop_gateway(services: Services) -> ProcessLeaving:
    """Let it finish what runs, and end it."""
    if services.holder.end is None:
        raise BadRequest("no gateway is running", hint="`pal gateway run` starts one")
    services.holder.end()
    return ProcessLeaving(os.getpid(), services.dispatcher.busy)


@operation("house.hand_over", scope="admin", local=True)
async def hand_over_home(services: Services) -> ProcessLeaving:
    """Give the home to whoever asks, once what runs is finished."""
    if services.holder.gateway is not None:
        raise HomeHeld(
            f"a gateway holds this home: pid {os.getpid()}, {services.holder.gateway().url}",
            hint="`pal gateway status` shows it, `pal gateway stop` ends it",
        )
    if services.holder.hand_over is None:
        raise HomeHeld(f"pid {os.getpid()} holds this home and cannot hand it over", hint="end it")
    return ProcessLeaving(os.getpid(), await services.holder.hand_over())


@operation("page.link", scope="admin", local=True)
async def make_page_link(
    services: Services,
    lan: Annotated[bool, "For another machine in the network."] = False,
    scopes: tuple[Scope, ...] = SCOPES,
) -> DashboardLink:
    """An address that lets one browser in, once."""
    if services.holder.link is None:
        raise NotFound("no gateway is running", hint="`pal up` or `pal gateway run` starts one")
    return services.holder.link(lan, scopes)


@operation("gateway.tokens.list", scope="admin")
async def list_tokens(services: Services) -> TokenList:
    """List the tokens, without their secrets.

    Example:
      pal gateway token list --json
    """
    return TokenList(tuple(_describe(token) for token in (await _register(services)).tokens()))


@operation("gateway.tokens.create", scope="admin")
async def create_token(
    services: Services, name: str, scopes: tuple[Scope, ...] = ("read", "write"), days: Days | None = None
) -> TokenInfo:
    """Make a token; without days it lives until it is revoked."""
    return _describe(*await (await _register(services)).make_token(name, scopes, days=days))


@operation("gateway.tokens.rotate", scope="admin")
async def rotate_token(services: Services, token: TokenName) -> TokenInfo:
    """Give a token a new secret. The old secret stops working at once.

    Example:
      pal gateway token rotate phone
    """
    return _describe(*await (await _register(services)).rotate_token(token))


@operation("gateway.tokens.revoke", scope="admin")
async def revoke_token(services: Services, token: TokenName) -> TokenInfo:
    """Revoke a token. It stops working at once.

    Example:
      pal gateway token revoke phone
    """
    return _describe(await (await _register(services)).revoke_token(token))


@operation("devices.list", scope="admin")
async def list_devices(services: Services) -> DeviceList:
    """List the devices, waiting ones first.

    Example:
      pal devices list
    """
    return DeviceList(tuple((await _register(services)).devices()))


@operation("devices.approve", scope="admin")
async def approve_device(services: Services, device: DeviceName, scopes: tuple[Scope, ...] = ()) -> PairedDevice:
    """Let a device in from now on; without scopes it gets those that it asked for."""
    return await (await _register(services)).approve_device(device, scopes)


@operation("devices.revoke", scope="admin")
async def revoke_device(services: Services, device: DeviceName) -> PairedDevice:
    """Revoke a device and its token. Both stop working at once.

    Example:
      pal devices revoke 3f9c21aa
    """
    return await (await _register(services)).revoke_device(device)


async def _register(services: Services) -> Register:
    if services.access is None:
        raise BadRequest("this home keeps no tokens")
    await services.access.load()
    return services.access


def _describe(token: AccessToken, secret: str = "") -> TokenInfo:
    return made_of(TokenInfo, token, secret=secret)
