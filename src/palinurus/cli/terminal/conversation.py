"""What goes on between a person at a terminal and the agent: messages out, replies in, several at a time.

A message is sent at once, also while a run goes on; what becomes of it then (it steers, waits, interrupts) is decided
where the session is, and told by the events of its run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from palinurus.cli.approvals import answer, meaning
from palinurus.cli.terminal.input import CompletionWords, FileLookup, Message, attach
from palinurus.cli.terminal.reply import (
    Reply,
    agent_lines,
    notice,
    past_lines,
    said_lines,
    session_lines,
    wanted_session,
)
from palinurus.cli.terminal.screen import Screen
from palinurus.cli.terminal.spans import Line, StatusLine, harmless, status_line, wrap
from palinurus.dispatch.commands import COMMANDS, DIRECTIVES
from palinurus.domain.clock import random_id
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import PalinurusError
from palinurus.domain.events import ApprovalAsked, RunEvent
from palinurus.domain.keys import SessionKey
from palinurus.operations.agents import AgentList, find_agent, list_agents
from palinurus.operations.runs import AcceptedMessage, StopRuns, converse, stop_runs
from palinurus.operations.session_news import SessionNews, follow_news
from palinurus.operations.sessions import list_sessions, show_session
from palinurus.operations.shapes import made_of
from palinurus.operations.status import SessionStanding, show_session_status
from palinurus.operations.table import OperationClient
from palinurus.sessions.session import Session
from palinurus.tools.approval import Answer

RECENT = 20
PAST_ENTRIES = 60  # looked through for the last exchanges of a session
TICK_SECONDS = 1.0
ALSO = {"/reset": COMMANDS["new"].meaning}
LOCAL = {
    "/agent": "talk with another agent; without an id, list them",
    "/resume": "go on with another conversation; without a name, list them",
    "/quit": "leave (or Ctrl-D)",
}
KEYS = (
    ("Enter", "send, also while a run goes on"),
    ("Alt-Enter, \\ Enter", "a new line"),
    ("Ctrl-C, Esc Esc", "stop the run"),
    ("y, a, n", "when asked: allow once, allow always, no"),
    ("@name", "name a file of the workspace, attach a picture"),
)


class Conversation:
    """Implements screen.Owner."""

    def __init__(self, caller: OperationClient, screen: Screen, key: str, agent: str, files: FileLookup) -> None:
        """`key`: of the session. `files`: where names of files are looked up."""
        self.key = key
        self._caller = caller
        self._screen = screen
        self._agent = agent
        self._files = files
        self._replies: dict[str, Reply] = {}  # by idempotency key, in the order of sending
        self._followed: set[str] = set()  # runs and entries that were or are told on this screen
        self._tasks: set[asyncio.Task[None]] = set()
        self._sending = asyncio.Lock()  # messages are accepted in the order in which they were typed
        self._standing: SessionStanding | None = None
        self._recent: tuple[Session, ...] = ()
        self._agents = AgentList("", ())
        self._ticking = False
        self._warned: set[str] = set()  # approvals of which it was told what always would mean
        self._watching: asyncio.Task[None] | None = None

    async def look(self) -> None:
        """Ask how the session stands. What cannot be answered now is asked again after the next run."""
        with self._telling_errors():
            self._standing = await self._caller.call(show_session_status, show_session_status.params(self.key))
            await self._list_recent()
            if not self._agents.agents:
                self._agents = await self._caller.call(list_agents, list_agents.params())
        self._screen.refresh()

    def watch(self) -> None:
        """From now on shows what the agent says in this session without having been asked."""
        if self._watching is not None:
            self._watching.cancel()

        def show(news: SessionNews) -> None:
            self._screen.print([[], *said_lines(news.text, self._screen.width)], margin=False)

        self._watching = asyncio.create_task(follow_news(self._caller, self.key, self._followed, show))
        self._tasks.add(self._watching)
        self._watching.add_done_callback(self._tasks.discard)

    async def _list_recent(self) -> None:
        self._recent = (await self._caller.call(list_sessions, list_sessions.params(limit=RECENT))).sessions

    def vocabulary(self, names_in: Callable[[Path], Callable[[], Sequence[str]]]) -> CompletionWords:
        """`names_in` makes what lists the files of a workspace."""
        listing = cache(names_in)

        def files() -> Sequence[str]:
            return listing(self._files.workspace)()

        described = {f"/{name}": row.meaning for name, row in (*COMMANDS.items(), *DIRECTIVES.items())}
        recent: Callable[[], Sequence[tuple[str, str]]] = lambda: [(session.key, "") for session in self._recent]  # noqa: E731
        known: Callable[[], Sequence[tuple[str, str]]] = lambda: [(each.id, each.name) for each in self._agents.agents]  # noqa: E731
        words = dict(sorted({**described, **ALSO, **LOCAL}.items()))
        return CompletionWords(words, {"resume": recent, "agent": known}, files)

    def submit(self, text: str) -> None:
        word, _, rest = text.strip().partition(" ")
        waiting = [asked for reply in self._replies.values() for asked in reply.asked.values()]  # on this screen
        if word in ("/quit", "/exit"):
            self._screen.leave()
        elif word == "/resume":
            self._spawn(self._resume(text, rest.strip()))
        elif word == "/agent":
            self._spawn(self._change_agent(text, rest.strip()))
        elif waiting and (said := meaning(text)):
            self._spawn(self._decide(waiting, said, text))
        else:
            self._spawn(self._exchange(text))

    def stop(self) -> bool:
        """Stop what runs and waits in this session, whoever asked for it."""
        if not self._replies:
            return False
        self._spawn(self._stop())
        return True

    def live(self, width: int) -> Sequence[Line]:
        return [line for reply in self._replies.values() for line in reply.open_lines(width)]

    def status(self, width: int) -> Line:
        running = [reply for reply in self._replies.values() if reply.seconds is not None]
        standing = made_of(
            StatusLine,
            self._standing,
            session=self.key,
            running=running[0].seconds if running else None,
            waiting=len(self._replies) - len(running),
            doing=running[0].doing if running else "",
        )
        return status_line(standing, width)

    async def close(self) -> None:
        """Stop following runs. The runs themselves go on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _decide(self, asked: list[ApprovalAsked], said: Answer, text: str) -> None:
        """An answer belongs to one question: where several wait, it must name its own."""
        if len(asked) > 1:
            self.tell(f"{len(asked)} approvals wait: say /approve ID {said}")
            self._screen.restore(text)
            return
        with self._telling_errors():
            await answer(self._caller, asked[0], said, self._warned)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _exchange(self, text: str) -> None:
        name, reply = random_id(), Reply(time.monotonic)
        await self._sending.acquire()
        accepted = False

        def on_accepted(run: AcceptedMessage) -> None:
            nonlocal accepted
            self._followed.add(run.run_id)
            if not accepted:
                accepted = True
                self._sending.release()

        try:
            message = await asyncio.to_thread(attach, text, self._files)
            self._screen.print(_echo(text, message, self._screen.width), margin=False)
            self._replies[name] = reply
            self._spawn(self._tick())
            inbound = Inbound(message.text, name, images=message.images, session_key=self.key, agent=self._agent)
            result = await converse(self._caller, inbound, lambda event: self._show(reply, event), on_accepted)
            here = result.joined in self._followed
            self._screen.print(reply.end(result, self._screen.width, told_elsewhere=here))
        except PalinurusError as error:
            self.tell(str(error))
            if not accepted:
                self._screen.restore(text)
        finally:
            self._replies.pop(name, None)
            if not accepted:
                self._sending.release()
        if text.strip() == "/help":
            self._screen.print(_own_help())
        await self.look()

    def _show(self, reply: Reply, event: RunEvent) -> None:
        known = self._standing
        thinking = known is not None and (known.verbose in ("on", "full") or known.reasoning in ("on", "stream"))
        self._screen.print(reply.hear(event, self._screen.width, verbose=thinking))

    async def _stop(self) -> None:
        with self._telling_errors():
            await self._caller.call(stop_runs, StopRuns(self.key))

    async def _tick(self) -> None:
        """The seconds in the status line, while there are any."""
        if self._ticking:
            return
        self._ticking = True
        try:
            while self._replies:
                self._screen.refresh()
                await asyncio.sleep(TICK_SECONDS)
        finally:
            self._ticking = False

    async def _resume(self, text: str, name: str) -> None:
        try:
            await self._list_recent()
            if not name:
                self._screen.print([[], *session_lines(self._recent, self.key, self._screen.width)])
                return
            key = wanted_session(name, self._recent)
            shown = await self._caller.call(show_session, show_session.params(key, last=PAST_ENTRIES))
        except PalinurusError as error:
            self.tell(str(error))
            self._screen.restore(text)
            return
        self.key = shown.session.key
        self._screen.print(past_lines(shown, self._screen.width), margin=False)
        self._followed |= {entry.id for entry in shown.entries}
        self.watch()
        await self.look()

    async def _change_agent(self, text: str, name: str) -> None:
        """Go on in the main session of another agent."""
        try:
            self._agents = await self._caller.call(list_agents, list_agents.params())
            if not name:
                self._screen.print([[], *agent_lines(self._agents, SessionKey.parse(self.key).agent)])
                return
            found = find_agent(self._agents, name)
            asked = show_session_status.params("", found.id)
            self.key = (await self._caller.call(show_session_status, asked)).session_key
        except PalinurusError as error:
            self.tell(str(error))
            self._screen.restore(text)
            return
        self._agent, self._files = "", FileLookup(Path(found.workspace), self._files.here, self._files.user_home)
        self._screen.print([[], [("dim", f"— {found.identity.title or found.id} · {self.key}")]])
        self.watch()
        await self.look()

    @contextmanager
    def _telling_errors(self) -> Iterator[None]:
        try:
            yield
        except PalinurusError as error:
            self.tell(str(error))

    def tell(self, text: str) -> None:
        """One line that somebody else has to say: a warning, a log record."""
        self._screen.print([[], *notice(text, self._screen.width)])


def _echo(text: str, message: Message, width: int) -> list[Line]:
    """What was said, as it stands in the conversation."""
    said = wrap([("you", harmless(text.strip("\n")))], width, [("mark", "› ")], [("", "  ")])
    attached: list[Line] = [[("dim", f"  + {name}")] for name in message.names]
    return [[], *said, *attached]


def _own_help() -> list[Line]:
    rows = [*LOCAL.items(), *KEYS]
    width = max(len(name) for name, _ in rows)
    return [[], [("dim", "in this terminal")], *([("", f"{name:<{width}}  {meaning}")] for name, meaning in rows)]
