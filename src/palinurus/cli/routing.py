"""`pal route` and `pal pairing`: which agent answers a message, and who is let in."""

from __future__ import annotations

from datetime import datetime

import click

from palinurus.cli.command import command_of
from palinurus.cli.shell import CommandGroup, Shell
from palinurus.dispatch.pairing import Pairing
from palinurus.dispatch.routing import MessageRoute
from palinurus.domain.events import visible
from palinurus.operations.routing import (
    ApprovedPairing,
    PairingList,
    approve_pairing,
    explain_route,
    list_pairings,
    reject_pairing,
)


@click.group(cls=CommandGroup)
def route() -> None:
    """Explain which agent answers a message."""


def route_text(shell: Shell, found: MessageRoute) -> str:
    rows = [("agent", found.agent_id), ("session", found.session_key), ("because", found.why), ("", found.session_why)]
    if len(found.targets) > 1:
        others = [f"{each.agent_id}  {each.session_key}" for each in found.targets[1:]]
        rows += [("also", each) for each in others] + [("", f"they answer in {_order(found.strategy)}")]
    lines = [f"{name:<8} {visible(value)}" for name, value in rows]
    if found.near_misses:
        lines += ["", "Other bindings of this channel:"]
        lines += [f"  {each.binding}  {each.agent_id}  {shell.dim(visible(each.why))}" for each in found.near_misses]
    return "\n".join(lines)


def _order(strategy: str) -> str:
    return "parallel" if strategy == "parallel" else "sequence: each when the one before has answered"


route.add_command(command_of(explain_route, route_text))


@click.group(cls=CommandGroup)
def pairing() -> None:
    """Approve or refuse unknown people who write on a channel."""


def pairings_text(shell: Shell, listed: PairingList) -> str:
    waiting = [each for each in listed.pairings if each.status == "pending"]
    approved = [each for each in listed.pairings if each.status == "approved"]
    lines = [f"{each.code}  {_who(each)}  {shell.dim(f'asked {_when(each.asked_at)}')}" for each in waiting]
    lines = lines or ["There are no pairing requests."]
    if approved:
        lines += ["", "Approved:"]
        lines += [
            f"  {_who(each)}  {shell.dim(f'since {_when(each.decided_at or each.asked_at)}')}" for each in approved
        ]
    return "\n".join(lines)


def _who(each: Pairing) -> str:
    account = "" if each.account == "default" else f" at account {each.account}"
    name = f" ({each.sender_name})" if each.sender_name else ""
    return visible(f"{each.identity}{name}{account}")


def _when(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1000).astimezone():%Y-%m-%d %H:%M}"


def approved_text(_: Shell, approved: ApprovedPairing) -> str:
    owner = "\nThey are the owner from now on (commands.ownerAllowFrom)." if approved.is_owner else ""
    return f"{_who(approved.pairing)} may write now.{owner}"


pairing.add_command(command_of(list_pairings, pairings_text))
pairing.add_command(command_of(approve_pairing, approved_text))
pairing.add_command(command_of(reject_pairing, lambda _, each: f"{_who(each)} may not write."))
