"""Text with styles, as the terminal shows it: inline markdown into spans, spans into lines of a given width, and the
single lines for a tool call and for the status below the input. Pure.

A span is a style's name and a text, a line is a list of spans; what the names look like is the screen's business.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from msgspec import Struct

from palinurus.operations.shapes import From

Span = tuple[str, str]
Line = list[Span]

_INLINE = re.compile(
    r"\\(?P<escaped>[\\`*_{}\[\]()#+.!|~<>-])"
    r"|(?<!`)(?P<ticks>`++)(?P<code>.{1,2000}?)(?<!`)(?P=ticks)(?!`)"
    r"|\*\*(?=\S)(?P<strong>.{1,600}?)(?<=\S)\*\*"
    r"|(?<!\w)__(?=\S)(?P<strong_>.{1,600}?)(?<=\S)__(?!\w)"
    r"|~~(?=\S)(?P<struck>.{1,600}?)(?<=\S)~~"
    r"|(?<!\*)\*(?=[^\s*])(?P<em>.{1,600}?)(?<=[^\s*])\*(?!\*)"
    r"|(?<!\w)_(?=[^\s_])(?P<em_>.{1,600}?)(?<=[^\s_])_(?!\w)"
    r"|!?\[(?P<label>[^\]\n]{1,500})\]\((?P<address>[^)\s]{1,2000}+)(?:\s+\"[^\"\n]*\")?\)"
    r"|<(?P<bare>https?://[^>\s]{1,2000})>",
    re.DOTALL,
)
_STYLES = {"code": "code", "strong": "strong", "strong_": "strong", "struck": "struck", "em": "em", "em_": "em"}
_BEGUN = re.compile(r"(?P<mark>`|\*\*)(?=\S)(?P<rest>[^`*]{0,2000})\Z", re.DOTALL)
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    """The text without what a terminal would obey: escape sequences, and marks that turn the direction of writing."""
    return _CONTROL.sub("", text.replace("\r\n", "\n").expandtabs(4))


def inline(text: str, style: str = "", *, open_ended: bool = False) -> list[Span]:
    """Bold, emphasis, code and links of one block. `open_ended`: its end is yet to come, so a mark may be begun."""
    spans: list[Span] = []
    at = 0
    for match in _INLINE.finditer(text):
        _add(spans, style, text[at : match.start()])
        at = match.end()
        spans += _marked(match, style)
    rest = text[at:]
    if open_ended and (begun := _BEGUN.search(rest)):
        _add(spans, style, rest[: begun.start()])
        _add(spans, _joined(style, "code" if begun["mark"] == "`" else "strong"), begun["rest"])
    else:
        _add(spans, style, rest)
    return spans


def _marked(match: re.Match[str], style: str) -> list[Span]:
    kind = match.lastgroup or ""
    if kind == "escaped":
        return [(style, match["escaped"])]
    if kind == "code":
        code = match["code"]
        plain = code[1:-1] if code.strip() and code[0] == code[-1] == " " else code
        return [(_joined(style, "code"), plain)]
    if kind == "bare":
        return [(_joined(style, "link"), match["bare"])]
    if kind == "address":
        named = inline(match["label"], _joined(style, "link"))
        address = [] if match["label"] == match["address"] else [(_joined(style, "dim"), f" ({match['address']})")]
        return [*named, *address]
    return inline(match[kind], _joined(style, _STYLES[kind]))


def _joined(style: str, more: str) -> str:
    return f"{style} {more}".strip()


def _add(spans: list[Span], style: str, text: str) -> None:
    if text:
        spans.append((style, text))


def width_of(text: str) -> int:
    """How many columns the text takes."""
    if text.isascii():
        return len(text)
    from wcwidth import wcswidth

    return max(0, wcswidth(text))


def line_width(line: Sequence[Span]) -> int:
    return sum(width_of(text) for _, text in line)


def wrap(spans: Sequence[Span], width: int, first: Sequence[Span] = (), rest: Sequence[Span] = ()) -> list[Line]:
    """Lines of at most so many columns, `first` before the first and `rest` before the others.

    Line breaks in the text stay; a word that is wider than a line is cut.
    """
    lines: list[Line] = []
    line: Line = list(first)
    room = left = max(1, width - line_width(first))
    blank: list[Span] = []  # white space that may turn out to stand at the end of a line
    for word in _words(spans):
        text = "".join(part for _, part in word)
        if text == "\n" or (not text.isspace() and width_of(text) + line_width(blank) > left and left < room):
            lines.append(line)
            line, blank = list(rest), []
            room = left = max(1, width - line_width(rest))
        if text == "\n":
            continue
        if text.isspace():
            blank += word
            continue
        for piece in _cut(blank + word, left, room):
            if piece is None:
                lines.append(line)
                line = list(rest)
                room = left = max(1, width - line_width(rest))
            else:
                line.append(piece)
                left -= width_of(piece[1])
        blank = []
    return [*lines, line]


def _words(spans: Sequence[Span]) -> Iterator[list[Span]]:
    """Words, which may change style in their midst, and what stands between them."""
    word: list[Span] = []
    for style, text in spans:
        for part in re.findall(r"\n|[^\S\n]+|\S+", text):
            if part.isspace():
                if word:
                    yield word
                    word = []
                yield [(style, part)]
            else:
                word.append((style, part))
    if word:
        yield word


def _cut(word: list[Span], left: int, room: int) -> Iterator[Span | None]:
    """The word in pieces that fit, None where a new line begins. Usually it is one piece."""
    for style, text in word:
        if width_of(text) <= left:
            left -= width_of(text)
            yield style, text
            continue
        piece = ""
        for char in text:
            if width_of(piece + char) > left and (piece or left < room):
                if piece:
                    yield style, piece
                yield None
                piece, left = "", room
            piece += char
        left -= width_of(piece)
        yield style, piece


def clip(text: str, width: int) -> str:
    """One line of at most so many columns."""
    flat = " ".join(text.split())
    if width_of(flat) <= width:
        return flat
    while flat and width_of(flat) > width - 1:
        flat = flat[: max(0, min(len(flat) - 1, width - 1))] if len(flat) > width else flat[:-1]
    return f"{flat}…"


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
    tokens: Annotated[int, From("context_tokens")] = 0
    window: int = 0
    cost: float | None = None
    unpriced: int = 0  # calls that the cost leaves out
    running: float | None = None  # seconds; None when nothing runs
    waiting: int = 0
    doing: str = ""  # thinking, or the tool that runs


def status_line(standing: StatusLine, width: int) -> Line:
    """Model, context, cost, what runs. Where it is narrow the later parts go first."""
    context = f"{amount(standing.tokens)} of {amount(standing.window)} tokens" if standing.window else ""
    session = "" if standing.session.endswith(":main:main") else standing.session.removeprefix("agent:")
    parts = [_run(standing), standing.model, context, _cost(standing), session]
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


def _cost(standing: StatusLine) -> str:
    if standing.cost is None:
        return ""
    if standing.unpriced and not standing.cost:
        return "cost unknown"
    digits = 2 if standing.cost >= 1 or not standing.cost else 4
    told = f"${standing.cost:.{digits}f}" if standing.cost >= 0.0001 or not standing.cost else "under $0.0001"
    return told + (" and more" if standing.unpriced else "")


def amount(number: int) -> str:
    """12, 3.4k, 128k, 1M."""
    for unit, size in (("M", 1_000_000), ("k", 1000)):
        if number >= size:
            value = number / size
            return f"{value:.1f}".removesuffix(".0") + unit if value < 10 else f"{value:.0f}{unit}"
    return str(number)
