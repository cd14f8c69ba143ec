"""One run on its way to the screen: events in, finished lines out, and what is still open beside them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from palinurus.cli.asking import CHOICES, question, settled
from palinurus.cli.terminal.blocks import BlockStream
from palinurus.cli.terminal.markdown import plain, render, render_text
from palinurus.cli.terminal.spans import Line, harmless, wrap
from palinurus.cli.terminal.told import argument, tool_line, tool_running
from palinurus.domain.events import (
    ApprovalAsked,
    ApprovalSettled,
    AssistantDelta,
    Lifecycle,
    Notice,
    RunEvent,
    RunResult,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
)

Part = Literal["", "text", "tool", "thinking", "notice", "question"]


class Reply:
    """`now` is told in seconds. Nothing that was given out is ever changed: it has scrolled away."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._began: float | None = None
        self._blocks = BlockStream()
        self._thoughts = ""
        self._tools: dict[str, ToolStarted] = {}
        self._last: Part = ""
        self._shown = False  # whether something of the attempt that goes on is on the screen for good
        self._said = False
        self.asked: dict[str, ApprovalAsked] = {}  # what waits for an answer
        self.doing = ""

    @property
    def seconds(self) -> float | None:
        """Since its turn came; None while it waits."""
        return None if self._began is None else self._now() - self._began

    def hear(self, event: RunEvent, width: int, *, verbose: bool) -> list[Line]:
        """The lines that this event completes."""
        match event:
            case Lifecycle(phase="start", detail=detail) if detail:
                return self._part("notice", [[("dim", "· heard by the turn that goes on")]])
            case Lifecycle(phase="start"):
                self._began = self._now()
            case Lifecycle(phase="accepted", detail=detail) if detail:
                return self._given_up(detail, width)
            case AssistantDelta(text=text):
                return self._speak(text, width)
            case ThinkingDelta(text=text):
                self.doing = "thinking"
                return self._think(text, width) if verbose else []
            case ToolStarted():
                closed = self._close(width)
                self._tools[event.id] = event
                self.doing = event.name
                return closed
            case ToolFinished():
                return self._finished(event, width)
            case ApprovalAsked() | ApprovalSettled():
                return self._approval(event, width)
            case Notice():
                return self._noticed(event, width)
        return []

    def open_lines(self, width: int) -> list[Line]:
        """What is being written or done at this moment."""
        text = [line for block in self._blocks.open for line in render(block, width, open_ended=True)]
        if text:
            return text if self._last == "text" else [[], *text]
        thoughts = wrap([("thinking", harmless(self._thoughts))], width) if self._thoughts else []
        if thoughts:
            return thoughts if self._last == "thinking" else [[], *thoughts]
        tools = [tool_running(call.name, call.arguments, width) for call in self._tools.values()]
        return tools if self._last == "tool" or not tools else [[], *tools]

    def end(self, result: RunResult, width: int, *, told_elsewhere: bool = False) -> list[Line]:
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

    def _finished(self, event: ToolFinished, width: int) -> list[Line]:
        closed = self._close(width)
        call = self._tools.pop(event.id, None)
        self.doing, self._shown, self._said = "", False, False
        about = argument(call.arguments) if call else ""
        error = event.text.strip().splitlines()[0] if event.is_error and event.text.strip() else ""
        return [*closed, *self._part("tool", [tool_line(event.name, about, event.seconds, error, width)])]

    def _noticed(self, event: Notice, width: int) -> list[Line]:
        if event.discard:
            return self._given_up(event.text, width)
        return [*self._close(width), *self._part("notice", _notice(event.text, width))]

    def _approval(self, event: ApprovalAsked | ApprovalSettled, width: int) -> list[Line]:
        if isinstance(event, ApprovalAsked):
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
        return self._part("notice", _notice(why + begun, width))

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


def _question(event: ApprovalAsked, width: int) -> list[Line]:
    """The exact plan, with a bar beside it, and how to answer."""
    headline, plan = question(event)
    lines = wrap([("ask", harmless(headline))], width, [("ask", "? ")], [("", "  ")])
    for text in plan:
        lines += wrap([("", harmless(text))], width, [("ask", "│ ")], [("ask", "│ "), ("", "          ")])
    return [*lines, [("ask", "│ "), ("dim", CHOICES)]]


def _notice(text: str, width: int) -> list[Line]:
    return wrap([("notice", harmless(text))], width, [("notice", "! ")], [("", "  ")])
