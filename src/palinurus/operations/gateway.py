"""The gateway as operations see it: how it stands, who may come in, and who holds the home.

Tokens and devices can be looked after whether or not a gateway runs. What concerns the process itself (ending it,
handing the home over) is asked on the unix socket only: nobody can do it from afar.
"""

from __future__ import annotations

import os

from msgspec import Struct

from palinurus.domain.errors import BadRequest, HomeHeld, NotFound
from palinurus.operations.access import PairedDevice, Token
from palinurus.operations.bounds import Days
from palinurus.operations.holder import AskLink, GatewayStanding, PageLink
from palinurus.operations.house import House
from palinurus.operations.register import Register
from palinurus.operations.scopes import Scope
from palinurus.operations.table import Operation


class AskGateway(Struct, frozen=True):
    """Nothing to say."""


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


class MakeToken(Struct, frozen=True):
    name: str
    scopes: tuple[Scope, ...] = ("read", "write")
    days: Days | None = None


class NameToken(Struct, frozen=True):
    """By its id or its name."""

    token: str


class DeviceList(Struct, frozen=True):
    devices: tuple[PairedDevice, ...]


class ApproveDevice(Struct, frozen=True):
    """By its id, the beginning of that, or the code it was told. Without scopes it gets those it asked for."""

    device: str
    scopes: tuple[Scope, ...] = ()


class NameDevice(Struct, frozen=True):
    device: str


class HandingOver(Struct, frozen=True):
    pid: int
    busy: int  # runs that are finished first


class Ending(Struct, frozen=True):
    pid: int
    busy: int


async def _status(house: House, _: AskGateway) -> GatewayStanding:
    asked = house.holder.gateway
    return asked() if asked is not None else GatewayStanding(running=False, busy=house.dispatcher.busy)


async def _stop(house: House, _: AskGateway) -> Ending:
    if house.holder.end is None:
        raise BadRequest("no gateway is running", hint="`pal gateway run` starts one")
    house.holder.end()
    return Ending(os.getpid(), house.dispatcher.busy)


async def _hand_over(house: House, _: AskGateway) -> HandingOver:
    if house.holder.gateway is not None:
        raise HomeHeld(
            f"a gateway holds this home: pid {os.getpid()}, {house.holder.gateway().url}",
            hint="`pal gateway status` shows it, `pal gateway stop` ends it",
        )
    if house.holder.hand_over is None:
        raise HomeHeld(f"pid {os.getpid()} holds this home and cannot hand it over", hint="end it")
    return HandingOver(os.getpid(), await house.holder.hand_over())


async def _link(house: House, params: AskLink) -> PageLink:
    if house.holder.link is None:
        raise NotFound("no gateway is running", hint="`pal up` or `pal gateway run` starts one")
    return house.holder.link(params)


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


async def _tokens(house: House, _: AskGateway) -> TokenList:
    return TokenList(tuple(_shown(token) for token in (await _register(house)).tokens()))


async def _make_token(house: House, params: MakeToken) -> TokenShown:
    return _shown(*await (await _register(house)).make_token(params.name, params.scopes, days=params.days))


async def _rotate_token(house: House, params: NameToken) -> TokenShown:
    return _shown(*await (await _register(house)).rotate_token(params.token))


async def _revoke_token(house: House, params: NameToken) -> TokenShown:
    return _shown(await (await _register(house)).revoke_token(params.token))


async def _devices(house: House, _: AskGateway) -> DeviceList:
    return DeviceList(tuple((await _register(house)).devices()))


async def _approve(house: House, params: ApproveDevice) -> PairedDevice:
    return await (await _register(house)).approve_device(params.device, params.scopes)


async def _revoke_device(house: House, params: NameDevice) -> PairedDevice:
    return await (await _register(house)).revoke_device(params.device)


STATUS = Operation("gateway.status", AskGateway, GatewayStanding, "admin", _status)
STOP = Operation("gateway.stop", AskGateway, Ending, "admin", _stop, local=True)
HAND_OVER = Operation("house.hand_over", AskGateway, HandingOver, "admin", _hand_over, local=True)
LINK = Operation("page.link", AskLink, PageLink, "admin", _link, local=True)
TOKENS = Operation("gateway.tokens.list", AskGateway, TokenList, "admin", _tokens)
MAKE_TOKEN = Operation("gateway.tokens.create", MakeToken, TokenShown, "admin", _make_token)
ROTATE_TOKEN = Operation("gateway.tokens.rotate", NameToken, TokenShown, "admin", _rotate_token)
REVOKE_TOKEN = Operation("gateway.tokens.revoke", NameToken, TokenShown, "admin", _revoke_token)
DEVICES = Operation("devices.list", AskGateway, DeviceList, "admin", _devices)
APPROVE_DEVICE = Operation("devices.approve", ApproveDevice, PairedDevice, "admin", _approve)
REVOKE_DEVICE = Operation("devices.revoke", NameDevice, PairedDevice, "admin", _revoke_device)
OPERATIONS = (
    STATUS,
    STOP,
    HAND_OVER,
    LINK,
    TOKENS,
    MAKE_TOKEN,
    ROTATE_TOKEN,
    REVOKE_TOKEN,
    DEVICES,
    APPROVE_DEVICE,
    REVOKE_DEVICE,
)
