"""One run on its way to the screen: events in, finished lines out, and what is still open beside them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from palinurus.cli.approvals import CHOICES, question, settled
from palinurus.cli.shell import moment
from palinurus.cli.terminal.markdown import BlockStream, plain, render, render_text
from palinurus.cli.terminal.spans import Line, argument, clip, harmless, tool_line, tool_running, wrap
from palinurus.domain import events
from palinurus.domain.errors import NotFound
from palinurus.domain.messages import AssistantMessage, UserMessage
from palinurus.operations.agents import AgentList
from palinurus.operations.sessions import Transcript
from palinurus.sessions.session import Session
from palinurus.sessions.transcript import MessageEntry, ResetEntry

Part = Literal["", "text", "tool", "thinking", "notice", "question"]


class Reply:
    """`now` is told in seconds. Nothing that was given out is ever changed: it has scrolled away."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._began: float | None = None
        self._blocks = BlockStream()
        self._thoughts = ""
        self._tools: dict[str, events.ToolStarted] = {}
        self._last: Part = ""
        self._shown = False  # whether something of the attempt that goes on is on the screen for good
        self._said = False
        self.asked: dict[str, events.ApprovalAsked] = {}  # what waits for an answer
        self.doing = ""

    @property
    def seconds(self) -> float | None:
        """Since its turn came; None while it waits."""
        return None if self._began is None else self._now() - self._began

    def hear(self, event: events.RunEvent, width: int, *, verbose: bool) -> list[Line]:
        """The lines that this event completes."""
        match event:
            case events.Lifecycle(phase="start", detail=detail) if detail:
                return self._part("notice", [[("dim", "· your message reached the running reply")]])
            case events.Lifecycle(phase="start"):
                self._began = self._now()
            case events.Lifecycle(phase="accepted", detail=detail) if detail:
                return self._given_up(detail, width)
            case events.AssistantDelta(text=text):
                return self._speak(text, width)
            case events.ThinkingDelta(text=text):
                self.doing = "thinking"
                return self._think(text, width) if verbose else []
            case events.ToolStarted():
                closed = self._close(width)
                self._tools[event.id] = event
                self.doing = event.name
                return closed
            case events.ToolFinished():
                return self._finished(event, width)
            case events.ApprovalAsked() | events.ApprovalSettled():
                return self._approval(event, width)
            case events.Notice():
                return self._noticed(event, width)
        return []

    def open_lines(self, width: int) -> list[Line]:
        """What is being written or done at this moment."""
        part: Part = "text"
        lines = [line for block in self._blocks.open for line in render(block, width, open_ended=True)]
        if not lines and self._thoughts:
            part, lines = "thinking", wrap([("thinking", harmless(self._thoughts))], width)
        elif not lines:
            part, lines = "tool", [tool_running(call.name, call.arguments, width) for call in self._tools.values()]
        return lines if self._last == part or not lines else [[], *lines]

    def end(self, result: events.RunResult, width: int, *, told_elsewhere: bool = False) -> list[Line]:
        """What is left to show. `told_elsewhere`: another run on this screen has told the result."""
        lines = self._close(width)
        if told_elsewhere:
            return lines
        waited = self._began is None
        if result.text and not self._said:
            # What never ran is the answer to a command, laid out by whoever wrote it.
            lines += self._part("text", plain(result.text, width) if waited else render_text(result.text, width))
        if result.status != "ok":
            style = "failed" if result.status == "error" else "notice"
            when = " before its turn came" if waited and result.status == "aborted" else ""
            lines += self._part("notice", wrap([(style, harmless((result.error or "stopped") + when))], width))
        if result.footer:
            lines += [[("dim", harmless(line))] for line in result.footer.splitlines()]
        return lines

    def _speak(self, text: str, width: int) -> list[Line]:
        closed = self._close_thoughts(width)
        self.doing, self._said = "", True
        done = [line for block in self._blocks.feed(text) for line in render(block, width)]
        self._shown = self._shown or bool(done)
        return [*closed, *self._part("text", done)]

    def _think(self, text: str, width: int) -> list[Line]:
        *whole, self._thoughts = (self._thoughts + text).split("\n")
        lines = [line for thought in whole for line in wrap([("thinking", harmless(thought))], width)]
        return self._part("thinking", lines)

    def _finished(self, event: events.ToolFinished, width: int) -> list[Line]:
        closed = self._close(width)
        call = self._tools.pop(event.id, None)
        self.doing, self._shown, self._said = "", False, False
        about = argument(call.arguments) if call else ""
        error = event.text.strip().splitlines()[0] if event.is_error and event.text.strip() else ""
        return [*closed, *self._part("tool", [tool_line(event.name, about, event.seconds, error, width)])]

    def _noticed(self, event: events.Notice, width: int) -> list[Line]:
        if event.discard:
            return self._given_up(event.text, width)
        return [*self._close(width), *self._part("notice", notice(event.text, width))]

    def _approval(self, event: events.ApprovalAsked | events.ApprovalSettled, width: int) -> list[Line]:
        if isinstance(event, events.ApprovalAsked):
            self.asked[event.id] = event
            self.doing = "waits for you"
            return [*self._close(width), *self._part("question", _question(event, width))]
        self.asked.pop(event.id, None)
        self.doing = ""
        return self._part("question", wrap([("dim", harmless(settled(event)))], width, [("dim", "· ")]))

    def _given_up(self, why: str, width: int) -> list[Line]:
        """What was begun is not part of the reply: what is still open goes away, what is printed is called off."""
        begun = "  (what was begun above is given up)" if self._shown else ""
        self._blocks, self._thoughts, self._tools, self.asked = BlockStream(), "", {}, {}
        self._shown = self._said = False
        return self._part("notice", notice(why + begun, width))

    def _close(self, width: int) -> list[Line]:
        thoughts = self._close_thoughts(width)
        lines = [line for block in self._blocks.finish() for line in render(block, width)]
        return [*thoughts, *self._part("text", lines)]

    def _close_thoughts(self, width: int) -> list[Line]:
        text, self._thoughts = self._thoughts, ""
        return self._part("thinking", wrap([("thinking", harmless(text))], width)) if text else []

    def _part(self, part: Part, lines: list[Line]) -> list[Line]:
        """A blank line where another kind of thing begins."""
        if not lines:
            return []
        begins, self._last = part != self._last, part
        return [[], *lines] if begins else lines


def _question(event: events.ApprovalAsked, width: int) -> list[Line]:
    """The exact plan, with a bar beside it, and how to answer."""
    headline, plan = question(event)
    lines = wrap([("ask", harmless(headline))], width, [("ask", "? ")], [("", "  ")])
    for text in plan:
        lines += wrap([("", harmless(text))], width, [("ask", "│ ")], [("ask", "│ "), ("", "          ")])
    return [*lines, [("ask", "│ "), ("dim", CHOICES)]]


def notice(text: str, width: int) -> list[Line]:
    return wrap([("notice", harmless(text))], width, [("notice", "! ")], [("", "  ")])


EXCHANGES = 3

PAST_ROWS = 12  # of one old reply


def session_lines(sessions: Sequence[Session], current: str, width: int) -> list[Line]:
    if not sessions:
        return [[("dim", "no conversation yet")]]
    longest = min(max(len(session.key) for session in sessions), max(20, width - 40))
    lines: list[Line] = []
    for number, session in enumerate(sessions, start=1):
        here = " ← here" if session.key == current else ""
        name = f"  {harmless(session.label)}" if session.label else ""
        about = f"  {moment(session.updated_at)}  {session.entry_count:,} entries{here}{name}"
        told = clip(about, max(20, width - longest - 4))
        lines.append([("dim", f"{number:>2}  "), ("", f"{clip(session.key, longest):<{longest}}"), ("dim", told)])
    return [*lines, [("dim", "/resume NUMBER, a name or a part of the key")]]


def agent_lines(listed: AgentList, current: str) -> list[Line]:
    longest = max(len(each.id) for each in listed.agents)
    lines: list[Line] = []
    for each in listed.agents:
        told = [each.identity.title if each.identity.title != each.id else "", each.model.primary]
        told += ["the default"] * (each.id == listed.default_id) + ["← here"] * (each.id == current)
        lines.append([("", f"{each.id:<{longest}}"), ("dim", "".join(f"  {harmless(word)}" for word in told if word))])
    return [*lines, [("dim", "/agent ID changes to another one")]]


def wanted_session(name: str, sessions: Sequence[Session]) -> str:
    """The key that is meant: a number of the list, a key, a name, or a part of exactly one key. Raises NotFound."""
    keys = [session.key for session in sessions]
    if name.isdigit() and 1 <= int(name) <= len(keys):
        return keys[int(name) - 1]
    low = name.lower()
    if low in keys or low.startswith("agent:"):
        return low
    found = (
        [key for key in keys if low == key.rpartition(":")[2]]
        or [session.key for session in sessions if low == session.label.lower()]
        or [key for key in keys if low in key]
    )
    if len(found) == 1:
        return found[0]
    if not found:
        raise NotFound(f"there is no session {name!r}", hint="/resume lists them")
    raise NotFound(f"{name!r} may be {', '.join(found[:4])}", hint="say more of the key")


def past_lines(shown: Transcript, width: int) -> list[Line]:
    """A line with the session's name, then its last exchanges."""
    key = shown.session.key
    lines: list[Line] = [[], [("dim", f"── {key} " + "─" * max(4, min(60, width) - len(key) - 4))]]
    for said in _last_exchanges(shown):
        if isinstance(said, UserMessage):
            lines += [[], *wrap([("you", harmless(clip(said.text, 400)))], width, [("mark", "› ")], [("", "  ")])]
        else:
            reply = said_lines(said.text, width)
            cut: list[Line] = [[("dim", "  …")]] if len(reply) > PAST_ROWS else []
            lines += [[], *reply[:PAST_ROWS], *cut]
    return lines


def said_lines(text: str, width: int) -> list[Line]:
    """What the agent said."""
    return [[("", "  "), *line] if line else [] for line in render_text(text, width - 2)]


def _last_exchanges(shown: Transcript) -> list[UserMessage | AssistantMessage]:
    said: list[UserMessage | AssistantMessage] = []
    for entry in shown.entries:
        match entry:
            case ResetEntry():
                said.clear()  # what stands before a fresh start is not read any more
            case MessageEntry(message=UserMessage() | AssistantMessage() as message) if message.text.strip():
                said.append(message)
    spoken = [index for index, message in enumerate(said) if isinstance(message, UserMessage)]
    return said[spoken[-EXCHANGES] if len(spoken) >= EXCHANGES else 0 :]
