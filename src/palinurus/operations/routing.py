"""Routes and pairings: which agent answers a message and why, who asks to be let in, and who was."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from palinurus.config.load import load_config
from palinurus.dispatch.pairing import Pairing
from palinurus.dispatch.routing import MessageRoute, find_route, routing_table
from palinurus.dispatch.settings import CommandOptions
from palinurus.domain.envelope import Peer
from palinurus.domain.errors import BadRequest
from palinurus.domain.keys import PEER_KINDS
from palinurus.operations.config import set_option
from palinurus.operations.operation import Metavar, OptionNames, operation
from palinurus.operations.scopes import LOCAL, Caller
from palinurus.operations.services import Services
from palinurus.text.words import nearest

PairingName = Annotated[str, Metavar("CODE|CHANNEL:ID"), "The code that the sender was told, or channel:id."]


class PairingList(Struct, frozen=True):
    pairings: tuple[Pairing, ...]  # those who wait first


class ApprovedPairing(Struct, frozen=True, rename="camel"):
    pairing: Pairing
    is_owner: bool = False  # whether the sender has become the owner by this


@operation("route.explain", scope="read", needs_home=False)
def explain_route(
    services: Services,
    channel: Annotated[str, "The channel, such as telegram."] = "",
    account: Annotated[str, "The account of the channel; by default its default account."] = "",
    guild: Annotated[str, "The Discord server."] = "",
    team: Annotated[str, "The Slack workspace, or team."] = "",
    role: Annotated[tuple[str, ...], "A role of the sender in the server; can be repeated."] = (),
    parent: Annotated[str, Metavar("ID"), "The chat in which this thread was opened."] = "",
    thread: Annotated[str, Metavar("ID"), "The thread or topic."] = "",
    peer: Annotated[str, Metavar("KIND:ID"), OptionNames("--peer"), "direct:ID, group:ID or channel:ID."] = "",
) -> MessageRoute:
    """Say which agent answers a message, in which session, and why; and which bindings nearly fit.

    It reads the config only. Whether the sender may speak at all is decided before: see dmPolicy and groupPolicy.

    Examples:
      pal route explain --channel telegram --peer direct:12345
      pal route explain --channel discord --guild 987 --role admin --peer channel:55 --json
    """
    if not channel.strip():
        raise BadRequest("which channel?", hint="for example --channel telegram")
    table = routing_table(load_config(services.home, services.env).config)
    place = _peer(peer, parent=parent, thread=thread, guild=guild, roles=role, team=team)
    return find_route(table, channel, account, place)


def _peer(said: str, **more: object) -> Peer:
    """Raises BadRequest."""
    kind, _, name = said.strip().partition(":")
    kind = "direct" if kind.lower() == "dm" else kind.lower()
    if kind not in PEER_KINDS or not name.strip():
        near = nearest(kind, PEER_KINDS) if kind not in PEER_KINDS else ""
        meant = (
            f"did you mean {near}:{name or 'ID'}?" if near else "for example --peer direct:12345 or --peer group:-100"
        )
        raise BadRequest(f"not a chat: {said[:80]!r}", hint=meant)
    return Peer(name.strip(), kind, **more)  # type: ignore[arg-type]  # fields of Peer


@operation("pairing.list", scope="approvals")
async def list_pairings(services: Services) -> PairingList:
    """List pairing requests with their codes, and approved people.

    Example:
      pal pairing list
    """
    return PairingList(tuple(await services.pairings.entries()))


@operation("pairing.approve", scope="approvals")
async def approve_pairing(services: Services, which: PairingName, caller: Caller = LOCAL) -> ApprovedPairing:
    """Approve a person: they may write directly to that account of the channel, and nothing more.

    The first one that is approved at this command line becomes the owner: see commands.ownerAllowFrom.

    Examples:
      pal pairing approve K7QM2XWD
      pal pairing approve telegram:12345
    """
    pairing = await services.pairings.approve(which, caller.id)
    loaded = load_config(services.home, services.env)
    if not caller.is_local or loaded.config.section(CommandOptions).owner_allow_from:
        return ApprovedPairing(pairing)
    set_option(services, "commands.ownerAllowFrom", [pairing.identity])
    return ApprovedPairing(pairing, is_owner=True)


@operation("pairing.reject", scope="approvals")
async def reject_pairing(services: Services, which: PairingName, caller: Caller = LOCAL) -> Pairing:
    """Refuse a person, also one who was approved before.

    Example:
      pal pairing reject telegram:12345
    """
    return await services.pairings.reject(which, caller.id)
