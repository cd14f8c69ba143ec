"""`pal delivery`: what is on its way to people, and what has to be decided about it."""

from __future__ import annotations

from datetime import datetime
from typing import get_args

import click

from palinurus.cli.derived import ask, command_of
from palinurus.cli.shell import Shell, with_json
from palinurus.dispatch.delivery import Standing
from palinurus.dispatch.parcel import Parcel, State
from palinurus.operations.delivery import DeliveryList, drop_delivery, list_deliveries, retry_delivery
from palinurus.tools.approvals.rendering import visible

NOT_DONE: tuple[State, ...] = ("waiting", "sending", "ambiguous", "failed")
SHOWN = 100  # characters of a parcel's words


@click.group()
def delivery() -> None:
    """Show what is on its way to people; send again or drop what is stuck."""


@delivery.command("list")
@click.option("--state", type=click.Choice(get_args(State)), multiple=True, help="Only those; may be given twice.")
@click.option("--all", "everything", is_flag=True, help="Also what was sent or dropped.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="The newest so many.")
@with_json
@click.pass_obj
def list_(shell: Shell, state: tuple[State, ...], everything: bool, limit: int) -> None:
    """List what has not arrived yet, the newest last.

    An ambiguous one may have arrived: the connection broke, or the process died, before the answer came. It is not
    sent again by itself, because it could come twice.

    \b
    Examples:
      pal delivery list
      pal delivery list --state ambiguous --json
    """
    states = state or (() if everything else NOT_DONE)
    listed = ask(shell, list_deliveries, list_deliveries.params(states, limit))
    shell.show(listed, lambda: _list_text(shell, listed))


def standing_text(standing: Standing) -> str:
    """How many need attention, in one line; empty when none does."""
    counts = [
        (standing.waiting, "waiting"),
        (standing.sending, "being sent"),
        (standing.ambiguous, "ambiguous"),
        (standing.failed, "failed"),
    ]
    told = ", ".join(f"{number:,} {word}" for number, word in counts if number)
    lost = ", ".join(f"{number:,} for {visible(channel)}" for channel, number in sorted(standing.uncarried.items()))
    return f"{told} (nobody carries {lost})" if lost else told


def _list_text(shell: Shell, listed: DeliveryList) -> str:
    lines = [line for parcel in reversed(listed.parcels) for line in _lines(shell, parcel)]
    summary = standing_text(listed.standing)
    return "\n".join([*lines, f"In all: {summary}." if summary else "Everything has arrived."])


def _lines(shell: Shell, parcel: Parcel) -> list[str]:
    when = datetime.fromtimestamp(parcel.queued_at / 1000).astimezone()
    tried = f"  tried {parcel.attempts} times" if parcel.attempts > 1 else ""
    unsure = "  may have arrived" if parcel.state == "waiting" and parcel.unsure else ""
    head = f"{parcel.id}  {when:%m-%d %H:%M}  {parcel.state:<9}  {visible(str(parcel.recipient))}{tried}{unsure}"
    words = " ".join(parcel.text.split())
    below = [words if len(words) <= SHOWN else f"{words[: SHOWN - 1]}…", parcel.trouble]
    return [head, *(f"  {shell.dim(visible(text))}" for text in below if text)]


def _retried_text(_: Shell, parcel: Parcel) -> str:
    return f"{parcel.id} will be sent to {visible(str(parcel.recipient))}."


def _dropped_text(_: Shell, parcel: Parcel) -> str:
    return f"{parcel.id} to {visible(str(parcel.recipient))} is dropped."


delivery.add_command(command_of(retry_delivery, _retried_text))
delivery.add_command(command_of(drop_delivery, _dropped_text))
