"""A run on standard output, where there is no screen: piped chat and `pal agent`.

Text before and after a tool call stands in paragraphs of its own. With `/verbose on` each call is a line, with `full`
its result stands below; with `/reasoning on` the model's thinking comes before its text, with `stream` as it comes.
"""

from __future__ import annotations

from collections.abc import Callable

from palinurus.cli.shell import Shell, echo
from palinurus.cli.terminal.spans import harmless
from palinurus.cli.terminal.status_line import argument, tool_line
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
from palinurus.operations.runs import AcceptedMessage

WIDTH = 100
MOST_OF_A_RESULT = 2_000  # characters

OnApproval = Callable[[ApprovalAsked | ApprovalSettled], None]
"""Called when an approval is requested and when it is decided. Must neither block nor raise."""


class ReplyPrinter:
    """Prints one run. `silent`: only what goes to standard error, because a program reads the output."""

    def __init__(self, shell: Shell, hear_approval: OnApproval, *, silent: bool = False) -> None:
        self._shell = shell
        self._hear_approval = hear_approval
        self._silent = silent
        self._verbose = "on" if shell.color else "off"
        self._reasoning = "off"
        self._calls: dict[str, ToolStarted] = {}
        self._thoughts = ""
        self._open = False  # whether the line at the cursor has words on it
        self._apart = False  # whether a blank line comes before the next words
        self._answered = False  # whether words were shown since the last call of a tool

    def accepted(self, accepted: AcceptedMessage) -> None:
        self._verbose = accepted.verbose or self._verbose
        self._reasoning = accepted.reasoning or self._reasoning

    def hear(self, event: RunEvent) -> None:
        match event:
            case AssistantDelta():
                self._end_thoughts()
                self._say(event.text)
                self._answered = True
            case ThinkingDelta():
                self._think(event.text)
            case ToolStarted():
                self._end_thoughts()
                self._calls[event.id] = event
                self._apart, self._answered = self._apart or self._open, False
            case ToolFinished():
                self._finished(event)
            case Notice():
                self._close_line()
                self._shell.warn(event.text)
            case ApprovalAsked() | ApprovalSettled():
                self._close_line()
                self._hear_approval(event)
            case Lifecycle(phase="accepted", detail=detail) if detail:
                self._close_line()
                self._shell.warn(detail)
                self._answered = False
            case _:
                pass

    def end(self, result: RunResult) -> None:
        """What was not told by events: a reply that came whole, what `/usage` asks for, and what went wrong."""
        self._end_thoughts()
        if result.text and not self._answered and (result.status == "ok" or not self._open):
            self._say(result.text)
        self._close_line()
        if result.footer:
            self._line(self._shell.dim(result.footer))

    def _finished(self, event: ToolFinished) -> None:
        call = self._calls.pop(event.id, None)
        if self._verbose not in ("on", "full"):
            return
        self._close_line()
        error = event.text.strip().splitlines()[0] if event.is_error and event.text.strip() else ""
        spans = tool_line(event.name, argument(call.arguments) if call else "", event.seconds, error, WIDTH)
        self._line(self._shell.dim("".join(text for _, text in spans)))
        if self._verbose == "full" and event.text.strip() and not error:
            shown = harmless(event.text.strip()[:MOST_OF_A_RESULT])
            self._line(self._shell.dim("\n".join(f"  {line}" for line in shown.splitlines())))
        self._apart = True

    def _think(self, text: str) -> None:
        if self._reasoning not in ("on", "stream"):
            return
        if not self._thoughts:
            self._close_line()
            self._line(self._shell.dim("Reasoning:"))
        self._thoughts += text
        if self._reasoning == "stream":
            self._echo(self._shell.dim(harmless(text)))

    def _end_thoughts(self) -> None:
        if not self._thoughts:
            return
        if self._reasoning == "on":
            self._echo(self._shell.dim(harmless(self._thoughts)))
        self._thoughts, self._apart = "", True

    def _say(self, text: str) -> None:
        words = text.lstrip("\n") if self._apart else text
        if not words:
            return
        if self._apart:
            self._close_line()
            self._echo("\n")
            self._apart = False
        self._echo(words)

    def _line(self, text: str) -> None:
        self._echo(f"{text}\n")

    def _close_line(self) -> None:
        if self._open:
            self._echo("\n")

    def _echo(self, text: str) -> None:
        if not self._silent:
            echo(text, nl=False)  # and flushed
            self._open = not text.endswith("\n")
