"""`pal agent`: one message in, one reply out."""

from __future__ import annotations

import asyncio
import sys
from functools import cache
from typing import TYPE_CHECKING

import click

from palinurus.cli.command import complete_agents, make_on_first_run, open_home
from palinurus.cli.shell import Shell, run_async, with_shell
from palinurus.cli.stdio import InputLines, ReplyPrinter
from palinurus.domain.clock import random_id
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest, WaitTimeout
from palinurus.domain.events import RunResult
from palinurus.operations.runs import AcceptedMessage, StopRuns, converse, stop_runs, submit_message

if TYPE_CHECKING:
    from palinurus.cli.approvals import ApprovalPrompt


@click.command()
@click.option("--message", "-m", required=True, help="The message; - reads it from standard input.")
@click.option(
    "--session-key", "--session-id", default="", help="The session: a full key, a name of your own, or an id."
)
@click.option(
    "--agent", "agent_id", default="", shell_complete=complete_agents, help="Which agent. Default: the default agent."
)
@click.option("--ask", is_flag=True, help="Wait for approvals; another terminal can answer: pal approvals allow ID.")
@click.option("--timeout", type=click.FloatRange(min=0.1), default=600.0, show_default=True, help="Seconds to wait.")
@with_shell
def agent(shell: Shell, message: str, session_key: str, agent_id: str, ask: bool, timeout: float) -> int:
    """Send one message and print the reply.

    When the agent needs an approval, it asks in this terminal. Without a terminal the call is denied and the run
    continues, unless --ask is given: then it waits for an answer from another terminal.

    \b
    Examples:
      pal agent --message "what did we decide about the boat?"
      pal agent -m - --session-key holiday < question.txt
      pal agent -m hi --json
    """
    text = sys.stdin.read() if message == "-" else message.encode(errors="replace").decode()
    if not text.strip():
        raise BadRequest("the message is empty", hint='pal agent --message "say something"')
    make_on_first_run(shell)
    here = sys.stdin.isatty() and sys.stderr.isatty()
    inbound = Inbound(text, random_id(), session_key=session_key, agent=agent_id, attended=ask or here)
    result = run_async(_ask(shell, inbound, timeout, here=here))
    return 0 if result.status == "ok" else 1


async def _ask(shell: Shell, inbound: Inbound, timeout: float, *, here: bool) -> RunResult:
    run_ids: list[str] = []

    def on_accepted(accepted: AcceptedMessage) -> None:
        run_ids.append(accepted.run_id)
        printer.accepted(accepted)

    async with open_home(shell) as home:

        @cache
        def asking() -> ApprovalPrompt:
            from palinurus.cli.approvals import ApprovalPrompt

            return ApprovalPrompt(shell, home, InputLines("").next if here else None)

        printer = ReplyPrinter(shell, lambda event: asking().hear(event), silent=shell.as_json)
        try:
            async with asyncio.timeout(timeout):
                result = await converse(home, inbound, printer.hear, on_accepted)
        except TimeoutError:
            # The run must not outlive the patience of the one who asked: stop it, it is kept as stopped.
            # Cut off while it was being accepted, it may be a row already; asking again tells which run it is.
            run_id = run_ids[-1] if run_ids else (await home.call(submit_message, inbound)).run_id
            await home.call(stop_runs, StopRuns(run_id=run_id))
            why = f"no reply within {timeout:g} s; the run was stopped"
            raise WaitTimeout(why, hint="--timeout waits longer") from None
        printer.end(result)
        if shell.as_json:
            shell.show(result, str)
        elif result.status != "ok":
            shell.warn(result.error or "stopped")
        await home.finish_upkeep()  # in the open: notes may be taken now, and nobody waits for anything else
    return result
