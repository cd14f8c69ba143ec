"""The gateway as operations see it: how it stands, who may come in, and who holds the home.

Tokens and devices can be looked after whether or not a gateway runs. What concerns the process itself (ending it,
handing the home over) is asked on the unix socket only: nobody can do it from afar.
"""

from __future__ import annotations

import os
from typing import Annotated

from msgspec import Struct

from palinurus.domain.errors import BadRequest, HomeHeld, NotFound
from palinurus.operations.access import PairedDevice, Token
from palinurus.operations.bounds import Days
from palinurus.operations.holder import GatewayStanding, PageLink
from palinurus.operations.house import House
from palinurus.operations.operation import Metavar, operation
from palinurus.operations.register import Register
from palinurus.operations.scopes import SCOPES, Scope

TokenName = Annotated[str, Metavar("NAME"), "Its id or its name."]
DeviceName = Annotated[str, Metavar("ID"), "Its id, the beginning of that, or the code it was told."]


class TokenShown(Struct, frozen=True, rename="camel", omit_defaults=True):
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
    tokens: tuple[TokenShown, ...]


class DeviceList(Struct, frozen=True):
    devices: tuple[PairedDevice, ...]


class HandingOver(Struct, frozen=True):
    pid: int
    busy: int  # runs that are finished first


class Ending(Struct, frozen=True):
    pid: int
    busy: int


@operation("gateway.status", scope="admin")
async def show_gateway(house: House) -> GatewayStanding:
    """How the gateway stands."""
    asked = house.holder.gateway
    return asked() if asked is not None else GatewayStanding(running=False, busy=house.dispatcher.busy)


@operation("gateway.stop", scope="admin", local=True)
async def stop_gateway(house: House) -> Ending:
    """Let it finish what runs, and end it."""
    if house.holder.end is None:
        raise BadRequest("no gateway is running", hint="`pal gateway run` starts one")
    house.holder.end()
    return Ending(os.getpid(), house.dispatcher.busy)


@operation("house.hand_over", scope="admin", local=True)
async def hand_over_home(house: House) -> HandingOver:
    """Give the home to whoever asks, once what runs is finished."""
    if house.holder.gateway is not None:
        raise HomeHeld(
            f"a gateway holds this home: pid {os.getpid()}, {house.holder.gateway().url}",
            hint="`pal gateway status` shows it, `pal gateway stop` ends it",
        )
    if house.holder.hand_over is None:
        raise HomeHeld(f"pid {os.getpid()} holds this home and cannot hand it over", hint="end it")
    return HandingOver(os.getpid(), await house.holder.hand_over())


@operation("page.link", scope="admin", local=True)
async def make_page_link(
    house: House,
    lan: Annotated[bool, "For another machine in the network."] = False,
    scopes: tuple[Scope, ...] = SCOPES,
) -> PageLink:
    """An address that lets one browser in, once."""
    if house.holder.link is None:
        raise NotFound("no gateway is running", hint="`pal up` or `pal gateway run` starts one")
    return house.holder.link(lan, scopes)


@operation("gateway.tokens.list", scope="admin")
async def list_tokens(house: House) -> TokenList:
    """List the tokens, without their secrets.

    Example:
      pal gateway token list --json
    """
    return TokenList(tuple(_shown(token) for token in (await _register(house)).tokens()))


@operation("gateway.tokens.create", scope="admin")
async def create_token(
    house: House, name: str, scopes: tuple[Scope, ...] = ("read", "write"), days: Days | None = None
) -> TokenShown:
    """Make a token; without days it lives until it is revoked."""
    return _shown(*await (await _register(house)).make_token(name, scopes, days=days))


@operation("gateway.tokens.rotate", scope="admin")
async def rotate_token(house: House, token: TokenName) -> TokenShown:
    """Give a token a new secret. The old one is dead at once.

    Example:
      pal gateway token rotate phone
    """
    return _shown(*await (await _register(house)).rotate_token(token))


@operation("gateway.tokens.revoke", scope="admin")
async def revoke_token(house: House, token: TokenName) -> TokenShown:
    """Take a token away. It is dead at once.

    Example:
      pal gateway token revoke phone
    """
    return _shown(await (await _register(house)).revoke_token(token))


@operation("devices.list", scope="admin")
async def list_devices(house: House) -> DeviceList:
    """List the devices, those that wait first.

    Example:
      pal devices list
    """
    return DeviceList(tuple((await _register(house)).devices()))


@operation("devices.approve", scope="admin")
async def approve_device(house: House, device: DeviceName, scopes: tuple[Scope, ...] = ()) -> PairedDevice:
    """Let a device in from now on; without scopes it gets those that it asked for."""
    return await (await _register(house)).approve_device(device, scopes)


@operation("devices.revoke", scope="admin")
async def revoke_device(house: House, device: DeviceName) -> PairedDevice:
    """Take a device and its token away. Both are dead at once.

    Example:
      pal devices revoke 3f9c21aa
    """
    return await (await _register(house)).revoke_device(device)


async def _register(house: House) -> Register:
    if house.access is None:
        raise BadRequest("this home keeps no tokens")
    await house.access.load()
    return house.access


def _shown(token: Token, secret: str = "") -> TokenShown:
    return TokenShown(
        token.id,
        token.name,
        token.scopes,
        token.created_at,
        token.expires_at,
        token.revoked_at,
        token.last_used_at,
        token.device_id,
        secret,
    )


OPERATIONS = (
    show_gateway,
    stop_gateway,
    hand_over_home,
    make_page_link,
    list_tokens,
    create_token,
    rotate_token,
    revoke_token,
    list_devices,
    approve_device,
    revoke_device,
)
