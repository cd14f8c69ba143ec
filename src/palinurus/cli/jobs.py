"""`pal jobs` and `pal delivery`: work that survives a restart, and what a person decides about it."""

from __future__ import annotations

from typing import get_args

import click

from palinurus.cli.command import add_operation, call_operation
from palinurus.cli.shell import CommandGroup, Shell, moment, shorten, with_shell
from palinurus.dispatch.delivery import DeliveryCounts, DeliveryJob, State
from palinurus.domain.events import visible
from palinurus.operations import jobs as operations
from palinurus.operations.jobs import DeliveryList, JobList, list_deliveries
from palinurus.storage.jobs import Job


@click.group(cls=CommandGroup)
def jobs() -> None:
    """List durable jobs; retry or drop them."""


def list_text(shell: Shell, listed: JobList) -> str:
    lines = [line for job in reversed(listed.jobs) for line in _lines(shell, job)]
    counts = ", ".join(f"{each.jobs:,} {visible(each.kind)} {each.state}" for each in listed.counts)
    return "\n".join([*lines, f"In all: {counts}." if counts else "There are no jobs."])


def _lines(shell: Shell, job: Job) -> list[str]:
    unsure = "  may have happened" if job.state == "retry" and job.unsure else ""
    lane = "" if job.lane == job.id else f"  {shell.dim(visible(job.lane))}"
    head = _head(job, job.due_at, f"{visible(job.kind)}{lane}")
    return [head + unsure, *([f"  {shell.dim(visible(job.trouble))}"] if job.trouble else [])]


def _head(job: Job | DeliveryJob, at: int, what: str) -> str:
    tried = f"  tried {job.attempts} times" if job.attempts > 1 else ""
    return f"{job.id}  {moment(at, '%m-%d %H:%M')}  {job.state:<9}  {what}{tried}"


add_operation(jobs, operations.list_jobs, list_text)
add_operation(jobs, operations.retry_job, lambda _, job: f"{job.id} will be done.")
add_operation(jobs, operations.drop_job, lambda _, job: f"{job.id} is dropped.")


NOT_DONE: tuple[State, ...] = ("waiting", "sending", "ambiguous", "failed")
SHOWN = 100  # characters of a delivery's text
ADVICE = {
    "ambiguous": "An ambiguous message may have arrived: look there first.\n"
    "If it has not, `pal delivery retry {id}` sends it again; if it has, `pal delivery drop {id}`.",
    "failed": "A failed message has not arrived: `pal delivery retry {id}` sends it again.",
}


@click.group(cls=CommandGroup)
def delivery() -> None:
    """List outgoing messages; retry or drop those that are stuck."""


@delivery.command("list")
@click.option("--state", type=click.Choice(get_args(State)), multiple=True, help="Only this state; can be repeated.")
@click.option("--all", "everything", is_flag=True, help="Also show sent and dropped messages.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=50,
    show_default=True,
    help="Maximum number, counted from the newest.",
)
@with_shell
def list_(shell: Shell, state: tuple[State, ...], everything: bool, limit: int) -> None:
    """List messages that have not been delivered yet, newest last.

    An ambiguous message may have arrived: the connection or the process broke off before the confirmation. It is not
    sent again automatically, because it could arrive twice.

    \b
    Examples:
      pal delivery list
      pal delivery list --state ambiguous --json
    """
    states = state or (() if everything else NOT_DONE)
    listed = call_operation(shell, list_deliveries, states=states, limit=limit)
    shell.show(listed, lambda: _deliveries_text(shell, listed))


def counts_text(counts: DeliveryCounts) -> str:
    """How many need attention, in one line; empty when none does."""
    words = {"waiting": "waiting", "sending": "being sent", "ambiguous": "ambiguous", "failed": "failed"}
    text = ", ".join(f"{number:,} {word}" for state, word in words.items() if (number := getattr(counts, state)))
    lost = ", ".join(f"{number:,} for {visible(channel)}" for channel, number in sorted(counts.uncarried.items()))
    return f"{text} (no sender: {lost})" if lost else text


def outcome_text(delivery: DeliveryJob) -> str:
    """What became of one message, and what a person can do about it."""
    to = visible(delivery.recipient)
    match delivery.state:
        case "sent":
            return f"{delivery.id} to {to} was sent."
        case "waiting" | "sending":
            return f"{delivery.id} to {to} is not sent yet; it stays in the outbox (pal delivery list)."
    why = f": {visible(delivery.trouble)}" if delivery.trouble else "."
    advice = ADVICE.get(delivery.state, "").format(id=delivery.id)
    return "\n".join(filter(None, (f"{delivery.id} to {to} is {delivery.state}{why}", advice)))


def _deliveries_text(shell: Shell, listed: DeliveryList) -> str:
    lines = [line for each in reversed(listed.parcels) for line in _delivery_lines(shell, each)]
    states = {each.state for each in listed.parcels}
    lines += [text.format(id="ID") for state, text in ADVICE.items() if state in states]
    summary = counts_text(listed.standing)
    return "\n".join([*lines, f"In all: {summary}." if summary else "There are no undelivered messages."])


def _delivery_lines(shell: Shell, delivery: DeliveryJob) -> list[str]:
    unsure = "  may have arrived" if delivery.state == "waiting" and delivery.unsure else ""
    head = _head(delivery, delivery.queued_at, visible(delivery.recipient)) + unsure
    below = [shorten(" ".join(delivery.text.split()), SHOWN), delivery.trouble]
    return [head, *(f"  {shell.dim(visible(text))}" for text in below if text)]


add_operation(
    delivery, operations.retry_delivery, lambda _, done: f"{done.id} will be sent to {visible(done.recipient)}."
)
add_operation(delivery, operations.drop_delivery, lambda _, done: f"{done.id} to {visible(done.recipient)} is dropped.")
