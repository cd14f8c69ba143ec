"""What goes on between a person at a terminal and the agent: messages out, replies in, several at a time.

A message is sent at once, also while a run goes on; what becomes of it then (it steers, waits, interrupts) is decided
where the session is, and told by the events of its run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from msgspec import Struct

from palinurus.cli.approval_prompt import answer, meaning
from palinurus.cli.terminal.attachments import FileLookup, Message, attach
from palinurus.cli.terminal.completion import CompletionWords
from palinurus.cli.terminal.reply import Reply, past_lines, session_lines, wanted_session
from palinurus.cli.terminal.spans import Line, harmless, wrap
from palinurus.cli.terminal.status_line import StatusLine, status_line
from palinurus.dispatch.commands import COMMANDS, DIRECTIVES
from palinurus.domain.clock import random_id
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import PalinurusError
from palinurus.domain.events import ApprovalAsked, RunEvent
from palinurus.operations.runs import AcceptedMessage, StopRuns, converse, stop_runs
from palinurus.operations.sessions import list_sessions, show_session
from palinurus.operations.status import SessionStanding, show_session_status
from palinurus.operations.table import OperationClient
from palinurus.sessions.session import Session
from palinurus.tools.approvals.approval import Answer

RECENT = 20
PAST_ENTRIES = 60  # looked through for the last exchanges of a session
TICK_SECONDS = 1.0
ALSO = {"/reset": COMMANDS["new"].meaning}
LOCAL = {
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


class Paper(Protocol):
    """What the conversation needs of a screen."""

    @property
    def width(self) -> int: ...

    def print(self, lines: Sequence[Line], *, margin: bool = True) -> None: ...

    def refresh(self) -> None: ...

    def restore(self, text: str) -> None: ...

    def leave(self) -> None: ...


class ChatTarget(Struct, frozen=True):
    """Where the conversation takes place, and where names of files are looked up."""

    session_key: str
    agent: str
    files: FileLookup


class Conversation:
    """Implements screen.Owner."""

    def __init__(
        self, caller: OperationClient, paper: Paper, place: ChatTarget, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.key = place.session_key
        self._caller = caller
        self._paper = paper
        self._place = place
        self._now = now
        self._replies: dict[str, Reply] = {}  # by idempotency key, in the order of sending
        self._followed: set[str] = set()  # runs that were or are told on this screen
        self._tasks: set[asyncio.Task[None]] = set()
        self._sending = asyncio.Lock()  # messages are accepted in the order in which they were typed
        self._standing: SessionStanding | None = None
        self._recent: tuple[Session, ...] = ()
        self._ticking = False
        self._warned: set[str] = set()  # approvals of which it was told what always would mean

    async def look(self) -> None:
        """Ask how the session stands. What cannot be answered now is asked again after the next run."""
        try:
            self._standing = await self._caller.call(show_session_status, show_session_status.params(self.key))
            self._recent = (await self._caller.call(list_sessions, list_sessions.params(limit=RECENT))).sessions
        except PalinurusError as error:
            self._complain(error)
        self._paper.refresh()

    def vocabulary(self, files: Callable[[], Sequence[str]]) -> CompletionWords:
        described = {f"/{name}": row.meaning for name, row in (*COMMANDS.items(), *DIRECTIVES.items())}
        recent: Callable[[], Sequence[tuple[str, str]]] = lambda: [(session.key, "") for session in self._recent]  # noqa: E731
        return CompletionWords(dict(sorted({**described, **ALSO, **LOCAL}.items())), {"resume": recent}, files)

    def submit(self, text: str) -> None:
        word, _, rest = text.strip().partition(" ")
        if word in ("/quit", "/exit"):
            self._paper.leave()
        elif word == "/resume":
            self._spawn(self._resume(text, rest.strip()))
        elif (said := meaning(text)) and (asked := self._asked()):
            self._spawn(self._decide(asked, said, text))
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
        known = self._standing
        standing = StatusLine(
            session=self.key,
            model=known.model if known else "",
            tokens=known.context_tokens if known else 0,
            window=known.window if known else 0,
            cost=known.cost if known else None,
            unpriced=known.unpriced if known else 0,
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

    def _asked(self) -> list[ApprovalAsked]:
        """What waits for an answer on this screen."""
        return [asked for reply in self._replies.values() for asked in reply.asked.values()]

    async def _decide(self, asked: list[ApprovalAsked], said: Answer, text: str) -> None:
        """An answer belongs to one question: where several wait, it must name its own."""
        if len(asked) > 1:
            self.tell(f"{len(asked)} approvals wait: say /approve ID {said}")
            self._paper.restore(text)
            return
        try:
            await answer(self._caller, asked[0], said, self._warned)
        except PalinurusError as error:
            self._complain(error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _exchange(self, text: str) -> None:
        name, reply = random_id(), Reply(self._now)
        await self._sending.acquire()
        accepted = False

        def on_accepted(run: AcceptedMessage) -> None:
            nonlocal accepted
            self._followed.add(run.run_id)
            if not accepted:
                accepted = True
                self._sending.release()

        try:
            message = await asyncio.to_thread(attach, text, self._place.files)
            self._paper.print(_echo(text, message, self._paper.width), margin=False)
            self._replies[name] = reply
            self._spawn(self._tick())
            inbound = Inbound(message.text, name, images=message.images, session_key=self.key, agent=self._place.agent)
            result = await converse(self._caller, inbound, lambda event: self._show(reply, event), on_accepted)
            here = result.joined in self._followed
            self._paper.print(reply.end(result, self._paper.width, told_elsewhere=here))
        except PalinurusError as error:
            self._complain(error)
            if not accepted:
                self._paper.restore(text)
        finally:
            self._replies.pop(name, None)
            if not accepted:
                self._sending.release()
        if text.strip() == "/help":
            self._paper.print(_own_help())
        await self.look()

    def _show(self, reply: Reply, event: RunEvent) -> None:
        known = self._standing
        thinking = known is not None and (known.verbose in ("on", "full") or known.reasoning in ("on", "stream"))
        lines = reply.hear(event, self._paper.width, verbose=thinking)
        if lines:
            self._paper.print(lines)
        self._paper.refresh()

    async def _stop(self) -> None:
        try:
            await self._caller.call(stop_runs, StopRuns(self.key))
        except PalinurusError as error:
            self._complain(error)

    async def _tick(self) -> None:
        """The seconds in the status line, while there are any."""
        if self._ticking:
            return
        self._ticking = True
        try:
            while self._replies:
                self._paper.refresh()
                await asyncio.sleep(TICK_SECONDS)
        finally:
            self._ticking = False

    async def _resume(self, text: str, name: str) -> None:
        try:
            self._recent = (await self._caller.call(list_sessions, list_sessions.params(limit=RECENT))).sessions
            if not name:
                self._paper.print([[], *session_lines(self._recent, self.key, self._paper.width)])
                return
            key = wanted_session(name, self._recent)
            shown = await self._caller.call(show_session, show_session.params(key, last=PAST_ENTRIES))
        except PalinurusError as error:
            self._complain(error)
            self._paper.restore(text)
            return
        self.key = shown.session.key
        self._paper.print(past_lines(shown, self._paper.width), margin=False)
        await self.look()

    def _complain(self, error: PalinurusError) -> None:
        self.tell(str(error))

    def tell(self, text: str) -> None:
        """One line that somebody else has to say: a warning, a log record."""
        self._paper.print(
            [[], *wrap([("notice", harmless(text))], self._paper.width, [("notice", "! ")], [("", "  ")])]
        )


def _echo(text: str, message: Message, width: int) -> list[Line]:
    """What was said, as it stands in the conversation."""
    said = wrap([("you", harmless(text.strip("\n")))], width, [("mark", "› ")], [("", "  ")])
    attached: list[Line] = [[("dim", f"  + {name}")] for name in message.names]
    return [[], *said, *attached]


def _own_help() -> list[Line]:
    rows = [*LOCAL.items(), *KEYS]
    width = max(len(name) for name, _ in rows)
    return [[], [("dim", "in this terminal")], *([("", f"{name:<{width}}  {meaning}")] for name, meaning in rows)]
