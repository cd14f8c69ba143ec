"""`pal chat`: a conversation in a terminal, or line by line when standard input is no terminal."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import click

from palinurus.cli.asking import Asking
from palinurus.cli.entrance import make_on_first_run, open_door
from palinurus.cli.lines import Lines
from palinurus.cli.printing import ReplyPrinter
from palinurus.cli.shell import Shell, run_async
from palinurus.cli.terminal.attachments import Places
from palinurus.cli.terminal.completion import WorkspaceNames, completer_of
from palinurus.cli.terminal.conversation import Conversation, Place
from palinurus.cli.terminal.history import NAME, TypedLines, history_of
from palinurus.cli.terminal.screen import Screen
from palinurus.domain.clock import random_id
from palinurus.domain.envelope import Inbound
from palinurus.domain.events import RunResult
from palinurus.operations.agents import STOP, Accepted, StoppedRuns, StopRuns
from palinurus.operations.converse import converse
from palinurus.operations.status import Status, show_session_status, show_status
from palinurus.providers.scout.scout import SCOUT
from palinurus.wiring.door import Door
from palinurus.wiring.redaction import redactor_of
from palinurus.workspace.boundary import Boundary

LEAVE = ("/quit", "/exit")


@click.command()
@click.option("--session-key", default="", help="The conversation: a full key or a name of your own.")
@click.option("--agent", "agent_id", default="", help="Which agent; the default one when left out.")
@click.pass_obj
def chat(shell: Shell, session_key: str, agent_id: str) -> int:
    """Talk with the agent in this terminal.

    Replies are streamed. Enter sends, also while a run goes on; Alt-Enter starts a new line; /help lists the commands;
    @ names a file or attaches a picture; Ctrl-C stops the run, Ctrl-D leaves. When standard input is no terminal, each
    line is answered in turn and the program ends with the input.

    \b
    Examples:
      pal chat
      pal chat --session-key holiday
      printf 'remember that my bicycle is green\\n' | pal chat
    """
    first = make_on_first_run(shell)
    return run_async(talk_here(shell, Inbound("", "", session_key=session_key, agent=agent_id), first=first))


Tell = Callable[[str], None]
Entrance = Callable[[Door, Tell], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def _just_enter(door: Door, _: Tell) -> AsyncIterator[None]:
    await door.enter()
    yield


async def talk_here(shell: Shell, where: Inbound, *, first: bool, entrance: Entrance = _just_enter) -> int:
    """A conversation, as this terminal or this pipe allows. `entrance` comes in by the door, and lasts as long."""
    if sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return await _in_terminal(shell, where, entrance, first=first)
    return await _line_by_line(shell, where.session_key, where.agent, entrance)


async def _in_terminal(shell: Shell, where: Inbound, entrance: Entrance, *, first: bool) -> int:
    screen = Screen(color=shell.color)

    def tell(text: str) -> None:
        screen.print([[("notice", f"! {text}")]])

    async with open_door(shell, tell) as door, entrance(door, tell):
        status = await door.call(show_status, show_status.params(where.agent))
        asked = show_session_status.params(where.session_key, where.agent)
        key = (await door.call(show_session_status, asked)).session_key
        files = Places(Path(status.workspace), Path.cwd(), shell.home.user_home)
        talk = Conversation(door, screen, Place(key, where.agent, files))
        _greet(screen, status, first=first)
        await talk.look()
        history = history_of(TypedLines(shell.home.root / NAME, partial(_without_secrets, shell)))
        completer = completer_of(talk.vocabulary(WorkspaceNames(Boundary(files.workspace))))
        await screen.run(talk, history, completer)
        await talk.close()
        _say_goodbye(shell, door, talk.key)
    return 0


def _without_secrets(shell: Shell, text: str) -> str:
    """Asked for each line that is typed: a key may have been added since the last one."""
    return redactor_of(shell.home, os.environ).redact(text)


def _greet(screen: Screen, status: Status, *, first: bool) -> None:
    screen.print([[("dim", f"{status.agent} · {status.model} ({status.model_reason}) · /help · Ctrl-D leaves")]])
    screen.print([[("notice", f"! {warning}")] for warning in status.warnings])
    if first and status.model == str(SCOUT):
        screen.print([[("dim", "`pal onboard` sets up a model; until then scout notes, finds and quotes.")]])


def _say_goodbye(shell: Shell, door: Door, key: str) -> None:
    """What was accepted is finished before the home is let go; who does not want that can still stop it."""
    if not door.busy:
        return
    shell.warn(f"finishing {door.busy} run(s); Ctrl-C stops them")
    stopping: list[asyncio.Task[StoppedRuns]] = []
    asyncio.get_running_loop().add_signal_handler(
        signal.SIGINT, lambda: stopping.append(asyncio.create_task(door.call(STOP, StopRuns(key))))
    )


async def _line_by_line(shell: Shell, session_key: str, agent_id: str, entrance: Entrance) -> int:
    terminal = sys.stdin.isatty()
    lines = Lines("you> " if terminal else "")
    failed = 0
    async with open_door(shell) as door, entrance(door, shell.warn):
        status = await door.call(show_status, show_status.params(agent_id))
        for warning in status.warnings:
            shell.warn(warning)
        talk = _Talk(shell, door, Asking(shell, door, lines if terminal else None))
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, talk.interrupt)
        while (line := await lines.next()) is not None and line.strip() not in LEAVE:
            if line.strip():
                inbound = Inbound(line, random_id(), session_key=session_key, agent=agent_id, attended=terminal)
                result = await talk.exchange(inbound)
                failed += result.status == "error"
        if door.busy:
            shell.warn(f"finishing {door.busy} run(s) for another terminal")
        if not terminal:
            await door.finish_upkeep()
    return 1 if failed and not terminal else 0


class _Talk:
    """Shows one exchange after the other."""

    def __init__(self, shell: Shell, door: Door, asking: Asking) -> None:
        self._shell = shell
        self._door = door
        self._asking = asking
        self._key = ""  # of the session in which something runs
        self._stopping: asyncio.Task[object] | None = None

    async def exchange(self, inbound: Inbound) -> RunResult:
        printer = ReplyPrinter(self._shell, self._asking)

        def on_accepted(accepted: Accepted) -> None:
            self._key = accepted.session_key
            printer.accepted(accepted)

        result = await converse(self._door, inbound, printer.hear, on_accepted)
        self._key = ""
        printer.end(result)
        if result.status != "ok":
            self._shell.warn(result.error or "stopped")
        return result

    def interrupt(self) -> None:
        """Ctrl-C stops the run, not the program."""
        if self._key:
            self._stopping = asyncio.create_task(self._door.call(STOP, StopRuns(self._key)))
        else:
            click.echo(self._shell.dim("\n(Ctrl-D leaves)"), err=True)
