"""`pal message`: send a message to a person or a group on a channel."""

from __future__ import annotations

import asyncio
import sys

import click

from palinurus.cli.command import complete_agents, complete_channels, open_home
from palinurus.cli.jobs import outcome_text
from palinurus.cli.shell import CommandGroup, Shell, run_async, with_shell
from palinurus.dispatch.delivery import DeliveryJob
from palinurus.domain.clock import random_id
from palinurus.domain.events import visible
from palinurus.operations.jobs import get_delivery
from palinurus.operations.message import SendMessage, SentMessage, send_message

LOOK_SECONDS = 0.2
OPEN = ("waiting", "sending")


@click.group(cls=CommandGroup)
def message() -> None:
    """Send messages to people on channels."""


@message.command()
@click.option("--channel", required=True, shell_complete=complete_channels, help="The channel, such as telegram.")
@click.option("--to", required=True, metavar="ID|NAME", help="An id, kind:id such as group:7, or a known name.")
@click.option("--text", required=True, help="What to say; - reads it from standard input.")
@click.option("--account", default="", help="The account of the channel. Default: its default account.")
@click.option("--thread", default="", metavar="ID", help="The thread or topic.")
@click.option("--agent", default="", shell_complete=complete_agents, help="In whose name. Default: who answers there.")
@click.option("--wait", type=click.FloatRange(min=0), default=0.0, metavar="SECONDS", help="Wait for the outcome.")
@with_shell
def send(shell: Shell, text: str, wait: float, **where: str) -> int:
    """Send a message to a person or a group.

    It is stored first and sent once, by the gateway. The agent has it in the session of that chat, so that it
    understands the answer. With --wait the exit code is 0 only if the network has taken it.

    \b
    Examples:
      pal message send --channel telegram --to 12345 --text "The boat is ready."
      pal message send --channel slack --to channel:C042 --thread 17.5 --text - --wait 30 < report.txt
    """
    said = sys.stdin.read() if text == "-" else text.encode(errors="replace").decode()
    sent, outcome = run_async(_send(shell, SendMessage(text=said, **where), wait))
    shown = outcome or sent
    shell.show(shown, lambda: outcome_text(outcome) if outcome else _sent_text(sent))
    return 0 if not wait or (outcome and outcome.state == "sent") else 1


async def _send(shell: Shell, message: SendMessage, wait: float) -> tuple[SentMessage, DeliveryJob | None]:
    """What was stored, and how it stands after that time."""
    async with open_home(shell) as home:
        sent = await home.call(send_message, message, random_id())
        if not wait:
            return sent, None
        if not sent.is_connected:
            shell.warn(f"{visible(sent.channel)} is not connected: the message waits for `pal gateway run`")
        outcome = await home.call(get_delivery, get_delivery.params(sent.id))
        told = ""
        try:
            async with asyncio.timeout(wait):
                while outcome.state in OPEN:
                    if outcome.trouble and (line := _progress_text(outcome)) != told and not shell.as_json:
                        shell.warn(line)
                        told = line
                    await asyncio.sleep(LOOK_SECONDS)
                    outcome = await home.call(get_delivery, get_delivery.params(sent.id))
        except TimeoutError:
            pass  # it is sent later
        return sent, outcome


def _progress_text(delivery: DeliveryJob) -> str:
    return f"attempt {delivery.attempts} failed, and it is tried again: {visible(delivery.trouble)}"


def _sent_text(sent: SentMessage) -> str:
    to = visible(f"{sent.channel}:{sent.to}")
    return f"{sent.id} to {to} is {sent.state}.\n  agent {sent.agent_id}, session {visible(sent.session_key)}"
