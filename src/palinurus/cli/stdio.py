"""A conversation without a screen, as in `pal agent` and piped chat: standard output and lines of standard input.

Text before and after a tool call stands in paragraphs of its own. With `/verbose on` each call is a line, with `full`
its result stands below; with `/reasoning on` the model's thinking comes before its text, with `stream` as it comes.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable

from palinurus.cli.shell import Shell, echo
from palinurus.cli.terminal.spans import argument, harmless, tool_line
from palinurus.domain import events
from palinurus.operations.runs import AcceptedMessage

WIDTH = 100
MOST_OF_A_RESULT = 2_000  # characters

OnApproval = Callable[[events.ApprovalAsked | events.ApprovalSettled], None]
"""Called when an approval is requested and when it is decided. Must neither block nor raise."""


class ReplyPrinter:
    """Prints one run. `silent`: only what goes to standard error, because a program reads the output."""

    def __init__(self, shell: Shell, hear_approval: OnApproval, *, silent: bool = False) -> None:
        self._shell = shell
        self._hear_approval = hear_approval
        self._silent = silent
        self._verbose = "on" if shell.color else "off"
        self._reasoning = "off"
        self._calls: dict[str, events.ToolStarted] = {}
        self._thoughts = ""
        self._open = False  # whether the line at the cursor has words on it
        self._apart = False  # whether a blank line comes before the next words
        self._answered = False  # whether words were shown since the last call of a tool

    def accepted(self, accepted: AcceptedMessage) -> None:
        self._verbose = accepted.verbose or self._verbose
        self._reasoning = accepted.reasoning or self._reasoning

    def hear(self, event: events.RunEvent) -> None:
        match event:
            case events.AssistantDelta():
                self._end_thoughts()
                self._say(event.text)
                self._answered = True
            case events.ThinkingDelta():
                self._think(event.text)
            case events.ToolStarted():
                self._end_thoughts()
                self._calls[event.id] = event
                self._apart, self._answered = self._apart or self._open, False
            case events.ToolFinished():
                self._finished(event)
            case events.Notice():
                self._close_line()
                self._shell.warn(event.text)
            case events.ApprovalAsked() | events.ApprovalSettled():
                self._close_line()
                self._hear_approval(event)
            case events.Lifecycle(phase="accepted", detail=detail) if detail:
                self._close_line()
                self._shell.warn(detail)
                self._answered = False

    def end(self, result: events.RunResult) -> None:
        """What was not told by events: a reply that came whole, what `/usage` asks for, and what went wrong."""
        self._end_thoughts()
        if result.text and not self._answered and (result.status == "ok" or not self._open):
            self._say(result.text)
        self._close_line()
        if result.footer:
            self._dim_line(result.footer)

    def _finished(self, event: events.ToolFinished) -> None:
        call = self._calls.pop(event.id, None)
        if self._verbose not in ("on", "full"):
            return
        self._close_line()
        error = event.text.strip().splitlines()[0] if event.is_error and event.text.strip() else ""
        spans = tool_line(event.name, argument(call.arguments) if call else "", event.seconds, error, WIDTH)
        self._dim_line("".join(text for _, text in spans))
        if self._verbose == "full" and event.text.strip() and not error:
            shown = harmless(event.text.strip()[:MOST_OF_A_RESULT])
            self._dim_line("\n".join(f"  {line}" for line in shown.splitlines()))
        self._apart = True

    def _think(self, text: str) -> None:
        if self._reasoning not in ("on", "stream"):
            return
        if not self._thoughts:
            self._close_line()
            self._dim_line("Reasoning:")
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

    def _dim_line(self, text: str) -> None:
        self._echo(f"{self._shell.dim(text)}\n")

    def _close_line(self) -> None:
        if self._open:
            self._echo("\n")

    def _echo(self, text: str) -> None:
        if not self._silent:
            echo(text, nl=False)  # and flushed
            self._open = not text.endswith("\n")


class InputLines:
    """Lines of standard input.

    A daemon thread: whoever leaves must not wait for a line that nobody will type.
    """

    def __init__(self, prompt: str) -> None:
        self._prompt = prompt
        self._loop = asyncio.get_running_loop()
        self._coming: asyncio.Future[str | None] | None = None
        if prompt:
            import readline  # noqa: F401  # gives input() history and editing

    async def next(self) -> str | None:
        """The next line; None at the end. A line that nobody waits for any more goes to whoever asks next."""
        if self._coming is None:
            self._coming = self._loop.create_future()
            threading.Thread(target=self._read, args=(self._coming,), daemon=True).start()
        line = await asyncio.shield(self._coming)
        self._coming = None
        return line

    def _read(self, future: asyncio.Future[str | None]) -> None:
        try:
            line: str | None = input(self._prompt) if self._prompt else sys.stdin.readline() or None
            line = line.rstrip("\r\n") if line else line
        except (EOFError, UnicodeDecodeError) as error:
            line = None if isinstance(error, EOFError) else "\ufffd"
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_hand_over, future, line)


def _hand_over(future: asyncio.Future[str | None], line: str | None) -> None:
    if not future.done():
        future.set_result(line)
