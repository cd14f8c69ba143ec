"""`pal jobs` and `pal delivery`: work that survives a restart, and what a person decides about it."""

from __future__ import annotations

from datetime import datetime
from typing import get_args

import click

from palinurus.cli.command import call_operation, command_of
from palinurus.cli.shell import Shell, with_json
from palinurus.dispatch.delivery import DeliveryCounts, DeliveryJob, State
from palinurus.operations.jobs import (
    DeliveryList,
    JobList,
    drop_delivery,
    drop_job,
    list_deliveries,
    list_jobs,
    retry_delivery,
    retry_job,
)
from palinurus.storage.jobs import Job
from palinurus.tools.approvals.rendering import visible


@click.group()
def jobs() -> None:
    """List durable jobs; retry or drop them."""


def list_text(shell: Shell, listed: JobList) -> str:
    lines = [line for job in reversed(listed.jobs) for line in _lines(shell, job)]
    counts = ", ".join(f"{each.jobs:,} {visible(each.kind)} {each.state}" for each in listed.counts)
    return "\n".join([*lines, f"In all: {counts}." if counts else "There are no jobs."])


def _lines(shell: Shell, job: Job) -> list[str]:
    when = datetime.fromtimestamp(job.due_at / 1000).astimezone()
    tried = f"  tried {job.attempts} times" if job.attempts > 1 else ""
    unsure = "  may have happened" if job.state == "retry" and job.unsure else ""
    lane = "" if job.lane == job.id else f"  {shell.dim(visible(job.lane))}"
    head = f"{job.id}  {when:%m-%d %H:%M}  {job.state:<9}  {visible(job.kind)}{lane}{tried}{unsure}"
    return [head, *([f"  {shell.dim(visible(job.trouble))}"] if job.trouble else [])]


jobs.add_command(command_of(list_jobs, list_text))
jobs.add_command(command_of(retry_job, lambda _, job: f"{job.id} will be done."))
jobs.add_command(command_of(drop_job, lambda _, job: f"{job.id} is dropped."))


NOT_DONE: tuple[State, ...] = ("waiting", "sending", "ambiguous", "failed")
SHOWN = 100  # characters of a delivery's text


@click.group()
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
@with_json
@click.pass_obj
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
    listed = call_operation(shell, list_deliveries, list_deliveries.params(states, limit))
    shell.show(listed, lambda: _deliveries_text(shell, listed))


def counts_text(counts: DeliveryCounts) -> str:
    """How many need attention, in one line; empty when none does."""
    numbers = [
        (counts.waiting, "waiting"),
        (counts.sending, "being sent"),
        (counts.ambiguous, "ambiguous"),
        (counts.failed, "failed"),
    ]
    text = ", ".join(f"{number:,} {word}" for number, word in numbers if number)
    lost = ", ".join(f"{number:,} for {visible(channel)}" for channel, number in sorted(counts.uncarried.items()))
    return f"{text} (no sender: {lost})" if lost else text


def _deliveries_text(shell: Shell, listed: DeliveryList) -> str:
    lines = [line for each in reversed(listed.parcels) for line in _delivery_lines(shell, each)]
    summary = counts_text(listed.standing)
    return "\n".join([*lines, f"In all: {summary}." if summary else "There are no undelivered messages."])


def _delivery_lines(shell: Shell, delivery: DeliveryJob) -> list[str]:
    when = datetime.fromtimestamp(delivery.queued_at / 1000).astimezone()
    tried = f"  tried {delivery.attempts} times" if delivery.attempts > 1 else ""
    unsure = "  may have arrived" if delivery.state == "waiting" and delivery.unsure else ""
    head = f"{delivery.id}  {when:%m-%d %H:%M}  {delivery.state:<9}  {visible(delivery.recipient)}{tried}{unsure}"
    words = " ".join(delivery.text.split())
    below = [words if len(words) <= SHOWN else f"{words[: SHOWN - 1]}…", delivery.trouble]
    return [head, *(f"  {shell.dim(visible(text))}" for text in below if text)]


def _retried_text(_: Shell, delivery: DeliveryJob) -> str:
    return f"{delivery.id} will be sent to {visible(delivery.recipient)}."


def _dropped_text(_: Shell, delivery: DeliveryJob) -> str:
    return f"{delivery.id} to {visible(delivery.recipient)} is dropped."


delivery.add_command(command_of(retry_delivery, _retried_text))
delivery.add_command(command_of(drop_delivery, _dropped_text))
