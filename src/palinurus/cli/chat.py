"""`pal chat`: a conversation in a terminal, or line by line when standard input is no terminal."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import click
from msgspec.structs import replace

from palinurus.cli.approvals import ApprovalPrompt
from palinurus.cli.command import complete_agents, make_on_first_run, open_home
from palinurus.cli.shell import Shell, echo, run_async
from palinurus.cli.stdio import InputLines, ReplyPrinter
from palinurus.cli.terminal.conversation import Conversation
from palinurus.cli.terminal.input import NAME, FileLookup, TypedLines, WorkspaceNames, completer_of, history_of
from palinurus.cli.terminal.reply import agent_lines
from palinurus.cli.terminal.screen import Screen
from palinurus.domain.clock import random_id
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import PalinurusError
from palinurus.domain.events import RunResult
from palinurus.operations.agents import find_agent, list_agents
from palinurus.operations.runs import AcceptedMessage, StoppedRuns, StopRuns, converse, stop_runs
from palinurus.operations.session_news import follow_news
from palinurus.operations.status import Status, show_session_status, show_status
from palinurus.providers.provider import SCOUT
from palinurus.runtime.home_access import HomeAccess
from palinurus.runtime.redaction import redactor_of
from palinurus.workspace.boundary import Boundary

LEAVE = ("/quit", "/exit")


@click.command()
@click.option("--session-key", default="", help="The session: a full key or a name of your own.")
@click.option(
    "--agent", "agent_id", default="", shell_complete=complete_agents, help="Which agent. Default: the default agent."
)
@click.pass_obj
def chat(shell: Shell, session_key: str, agent_id: str) -> int:
    """Talk with the agent in this terminal.

    Replies are streamed. Enter sends, also during a run; Alt-Enter starts a new line; /help lists the commands;
    @ names a file or attaches a picture; Ctrl-C stops the run, Ctrl-D leaves. When standard input is not a terminal,
    each line is answered in turn and the program ends with the input.

    \b
    Examples:
      pal chat
      pal chat --session-key holiday
      printf 'remember that my bicycle is green\\n' | pal chat
    """
    first = make_on_first_run(shell)
    return run_async(talk_here(shell, Inbound("", "", session_key=session_key, agent=agent_id), first=first))


ShowLine = Callable[[str], None]
EnterHome = Callable[[HomeAccess, ShowLine], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def _enter(home: HomeAccess, _: ShowLine) -> AsyncIterator[None]:
    await home.enter()
    yield


async def talk_here(shell: Shell, where: Inbound, *, first: bool, enter_home: EnterHome = _enter) -> int:
    """A conversation, as this terminal or this pipe allows. `enter_home` opens the home for as long as it lasts."""
    if sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return await _in_terminal(shell, where, enter_home, first=first)
    return await _line_by_line(shell, where, enter_home)


async def _in_terminal(shell: Shell, where: Inbound, enter_home: EnterHome, *, first: bool) -> int:
    screen = Screen(color=shell.color)

    def tell(text: str) -> None:
        screen.print([[("notice", f"! {text}")]])

    async with open_home(shell, tell) as home, enter_home(home, tell):
        status = await home.call(show_status, show_status.params(where.agent))
        asked = show_session_status.params(where.session_key, where.agent)
        key = (await home.call(show_session_status, asked)).session_key
        files = FileLookup(Path(status.workspace), Path.cwd(), shell.home.user_home)
        talk = Conversation(home, screen, key, where.agent, files)
        _greet(screen, status, first=first)
        talk.watch()
        await talk.look()
        # The redactor is made for each line that is typed: a key may have been added since the last one.
        history = history_of(
            TypedLines(shell.home.root / NAME, lambda text: redactor_of(shell.home, os.environ).redact(text))
        )
        completer = completer_of(talk.vocabulary(lambda workspace: WorkspaceNames(Boundary(workspace))))
        await screen.run(talk, history, completer)
        await talk.close()
        _say_goodbye(shell, home, talk.key)
    return 0


def _greet(screen: Screen, status: Status, *, first: bool) -> None:
    screen.print([[("dim", f"{status.agent} · {status.model} ({status.model_reason}) · /help · Ctrl-D leaves")]])
    screen.print([[("notice", f"! {warning}")] for warning in status.warnings])
    if first and status.model == str(SCOUT):
        hint = "`pal onboard` sets up a model; until then scout answers: it notes, finds and quotes."
        screen.print([[("dim", hint)]])


def _say_goodbye(shell: Shell, home: HomeAccess, key: str) -> None:
    """What was accepted is finished before the home is let go; who does not want that can still stop it."""
    if not home.busy:
        return
    shell.warn(f"finishing {home.busy} run(s); Ctrl-C stops them")
    stopping: list[asyncio.Task[StoppedRuns]] = []
    asyncio.get_running_loop().add_signal_handler(
        signal.SIGINT, lambda: stopping.append(asyncio.create_task(home.call(stop_runs, StopRuns(key))))
    )


async def _line_by_line(shell: Shell, where: Inbound, enter_home: EnterHome) -> int:
    terminal = sys.stdin.isatty()
    lines = InputLines("you> " if terminal else "")
    failed = 0
    async with open_home(shell) as home, enter_home(home, shell.warn):
        status = await home.call(show_status, show_status.params(where.agent))
        for warning in status.warnings:
            shell.warn(warning)
        talk = _LineChat(shell, home, ApprovalPrompt(shell, home, lines.next if terminal else None))
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, talk.interrupt)
        await talk.watch(where)
        while (line := await lines.next()) is not None and line.strip() not in LEAVE:
            word, _, rest = line.strip().partition(" ")
            if word == "/agent":
                where = await _change_agent(shell, home, where, rest.strip())
                await talk.watch(where)
            elif line.strip():
                inbound = replace(where, text=line, idempotency_key=random_id(), attended=terminal)
                failed += (await talk.exchange(inbound)).status == "error"
        talk.close()
        if home.busy:
            shell.warn(f"finishing {home.busy} run(s) for another terminal")
        if not terminal:
            await home.finish_upkeep()
    return 1 if failed and not terminal else 0


async def _change_agent(shell: Shell, home: HomeAccess, where: Inbound, name: str) -> Inbound:
    """Where the next lines go; a list of agents when none is named."""
    try:
        listed = await home.call(list_agents, list_agents.params())
        if name:
            return replace(where, session_key="", agent=find_agent(listed, name).id)
    except PalinurusError as error:
        shell.warn(str(error))
    else:
        key = where.session_key
        here = where.agent or (key.split(":")[1] if key.startswith("agent:") else listed.default_id)
        echo("\n".join("".join(text for _, text in line) for line in agent_lines(listed, here)))
    return where


class _LineChat:
    """Shows one exchange after the other."""

    def __init__(self, shell: Shell, home: HomeAccess, asking: ApprovalPrompt) -> None:
        self._shell = shell
        self._home = home
        self._asking = asking
        self._key = ""  # of the session in which something runs
        self._stopping: asyncio.Task[object] | None = None
        self._told: set[str] = set()  # runs and entries that are shown
        self._watching: asyncio.Task[None] | None = None

    async def watch(self, where: Inbound) -> None:
        """From now on prints what the agent says in this session without having been asked."""
        self.close()
        asked = show_session_status.params(where.session_key, where.agent)
        key = (await self._home.call(show_session_status, asked)).session_key
        self._watching = asyncio.create_task(follow_news(self._home, key, self._told, lambda news: echo(news.text)))

    def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    async def exchange(self, inbound: Inbound) -> RunResult:
        printer = ReplyPrinter(self._shell, self._asking.hear)

        def on_accepted(accepted: AcceptedMessage) -> None:
            self._key = accepted.session_key
            self._told.add(accepted.run_id)
            printer.accepted(accepted)

        result = await converse(self._home, inbound, printer.hear, on_accepted)
        self._key = ""
        printer.end(result)
        if result.status != "ok":
            self._shell.warn(result.error or "stopped")
        return result

    def interrupt(self) -> None:
        """Ctrl-C stops the run, not the program."""
        if self._key:
            self._stopping = asyncio.create_task(self._home.call(stop_runs, StopRuns(self._key)))
        else:
            click.echo(self._shell.dim("\n(Ctrl-D leaves)"), err=True)
