"""Single lines of the chat terminal: a tool call, and the status below the input. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from palinurus.cli.terminal.spans import Line, clip, harmless, width_of

# The argument that says what a call is about, by the names that tools usually give it.
TELLING = ("command", "cmd", "path", "file", "url", "query", "pattern", "q", "name", "text", "message", "task", "id")


def argument(arguments: Mapping[str, Any]) -> str:
    """The one argument that matters, as text."""
    named = [arguments[name] for name in TELLING if isinstance(arguments.get(name), str) and arguments[name]]
    others = [value for value in arguments.values() if isinstance(value, str | int | float) and value != ""]
    found = named or others
    return str(found[0]) if found else ""


def tool_running(name: str, arguments: Mapping[str, Any], width: int) -> Line:
    about = clip(harmless(argument(arguments)), max(8, width - width_of(name) - 6))
    return [("dim", "· "), ("tool", harmless(name)), ("dim", f" {about} …".rstrip())]


def tool_line(name: str, about: str, seconds: float, error: str, width: int) -> Line:
    """`· read notes/boat.md 0.1 s`, or the first line of what went wrong behind it."""
    took = f" {seconds:.1f} s"
    room = max(16, width - width_of(name) - len(took) - 4)
    about = clip(harmless(about), room // 2 if error else room)
    reason = f" {clip(harmless(error), max(8, room - width_of(about) - 1))}" if error else ""
    line: Line = [("dim", "· "), ("tool", harmless(name)), ("dim", f" {about}" if about else ""), ("dim", took)]
    if error:
        line = [("failed", "× "), *line[1:], ("failed", reason)]
    return [span for span in line if span[1]]


class StatusLine(Struct, frozen=True):
    """What the status line is made of."""

    session: str = ""
    model: str = ""
    tokens: int = 0
    window: int = 0
    cost: float | None = None
    unpriced: int = 0  # calls that the cost leaves out
    running: float | None = None  # seconds; None when nothing runs
    waiting: int = 0
    doing: str = ""  # thinking, or the tool that runs


def status_line(standing: StatusLine, width: int) -> Line:
    """Model, context, cost, what runs. Where it is narrow the later parts go first."""
    parts = [_run(standing), standing.model, _context(standing), _cost(standing), _session(standing.session)]
    shown: list[str] = []
    for part in filter(None, parts):
        if width_of(" · ".join([*shown, part])) > width:
            break
        shown.append(part)
    busy = standing.running is not None
    spans: Line = []
    for number, part in enumerate(shown):
        if number:
            spans.append(("status", " · "))
        spans.append(("status busy" if busy and number == 0 else "status", part))
    return spans


def _run(standing: StatusLine) -> str:
    waiting = f"{standing.waiting} waiting" if standing.waiting else ""
    if standing.running is None:
        return waiting
    doing = f"{standing.doing or 'running'} {standing.running:.0f} s"
    return f"{doing}, {waiting}" if waiting else doing


def _context(standing: StatusLine) -> str:
    if not standing.window:
        return ""
    return f"{amount(standing.tokens)} of {amount(standing.window)} tokens"


def _cost(standing: StatusLine) -> str:
    if standing.cost is None:
        return ""
    if standing.unpriced and not standing.cost:
        return "cost unknown"
    digits = 2 if standing.cost >= 1 or not standing.cost else 4
    told = f"${standing.cost:.{digits}f}" if standing.cost >= 0.0001 or not standing.cost else "under $0.0001"
    return told + (" and more" if standing.unpriced else "")


def _session(key: str) -> str:
    return "" if key.endswith(":main:main") else key.removeprefix("agent:")


def amount(number: int) -> str:
    """12, 3.4k, 128k, 1M."""
    for unit, size in (("M", 1_000_000), ("k", 1000)):
        if number >= size:
            value = number / size
            return f"{value:.1f}".removesuffix(".0") + unit if value < 10 else f"{value:.0f}{unit}"
    return str(number)
