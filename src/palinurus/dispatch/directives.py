"""Directives: words like `/think high` that change how a message is answered. Pure.

Alone in a message they are kept for the session; inside a message they hold for that message only and are taken out of
it before the model reads it (a model that is named this way is kept in both cases). What is no directive, because its
value makes no sense, stays in the text as it was said; where a message begins with it, `bad_value` says what is wrong.
"""

from __future__ import annotations

import re

from msgspec import Struct

from palinurus.dispatch.queueing import MODES, QueueChange, parse_queue
from palinurus.domain.suggestion import nearest

THINKING = ("off", "minimal", "low", "medium", "high", "xhigh", "adaptive", "max")
VERBOSE = ("off", "on", "full")
USAGE = ("off", "tokens", "cost", "full")
ELEVATED = ("off", "on", "ask", "full")
REASONING = ("off", "on", "stream")
DEFAULT_MODEL = "default"  # goes back to what the config says
_NAMES = {
    "think": "think",
    "thinking": "think",
    "t": "think",
    "verbose": "verbose",
    "v": "verbose",
    "usage": "usage",
    "model": "model",
    "queue": "queue",
    "elevated": "elevated",
    "elev": "elevated",
    "reasoning": "reasoning",
    "reason": "reasoning",
}
_ALLOWED = {"think": THINKING, "verbose": VERBOSE, "usage": USAGE, "elevated": ELEVATED, "reasoning": REASONING}
NAMES = tuple(_NAMES)
_WORD = re.compile(rf"(?<!\S)/(?P<name>{'|'.join(sorted(_NAMES, key=len, reverse=True))})(?=[\s:]|$)", re.IGNORECASE)
_GAP = re.compile(r"[ :]+")
_VALUE = re.compile(r"[ :]+(\S+)")
_MODEL = re.compile(r"[A-Za-z0-9][\w.+-]*(?:/[\w.:+@/-]+)?")


MOST = 100  # words of a message that may be directives; nobody writes more, and the rest of such a text is text


class Directives(Struct, frozen=True):
    """What a message asks for besides its words. None where it says nothing."""

    thinking: str | None = None
    verbose: str | None = None
    usage: str | None = None
    model: str | None = None
    queue: QueueChange | None = None
    elevated: str | None = None
    reasoning: str | None = None
    asked: tuple[str, ...] = ()  # directives without a value: what holds now?

    @property
    def any(self) -> bool:
        return self != Directives()

    @property
    def preferences(self) -> bool:
        """Whether it changes how things are queued, shown or done."""
        return any(value is not None for value in (self.verbose, self.usage, self.queue, self.elevated, self.reasoning))

    @property
    def at_once(self) -> bool:
        """Whether it may be answered beside a run: it changes nothing that a model reads."""
        choices = self.model is not None or self.thinking is not None or bool({"think", "model"} & set(self.asked))
        return self.any and not choices


def parse_directives(text: str, *, models: bool = True) -> tuple[Directives, str]:
    """The directives of a message, and the message without them. Without `models` it names none: `/model x` is text."""
    found: dict[str, str] = {}
    asked: list[str] = []
    kept: list[str] = []
    at, blank, last = 0, True, len(text.rstrip())
    for _ in range(MOST):
        match = _WORD.search(text, at)
        if match is None:
            break
        name = _NAMES[match["name"].lower()]
        value, end = _value(name, text, match.end()) if models or name != "model" else (None, match.end())
        kept.append(text[at : match.start()])
        blank = blank and not kept[-1].strip()
        if value is not None:
            found[name] = value
            end += text[end : end + 1] == " "  # the space before it stays
        elif blank and match.end() >= last:
            asked.append(name)  # nothing but the bare word
            end = len(text)
        else:
            kept.append(text[match.start() : end])
            blank = False
        at = end
    kept.append(text[at:])
    if found == {"model": "status"} and not "".join(kept).strip():
        return Directives(asked=("model",)), ""
    if not found and not asked:
        return Directives(), text
    return _directives(found, tuple(asked)), "".join(kept).strip()


def _value(name: str, text: str, start: int) -> tuple[str | None, int]:
    """The value that stands behind a directive and where it ends; None when what stands there is no value of it."""
    if name == "queue":  # its options are words of their own
        begin = match.end() if (match := _GAP.match(text, start)) else start
        change, end = parse_queue(text, begin)
        return (text[begin:end], end) if change else (None, start)
    match = _VALUE.match(text, start)
    if match is None:
        return None, start
    value = match[1].lower() if name != "model" else match[1]
    allowed = _ALLOWED.get(name)
    good = value in allowed if allowed else bool(_MODEL.fullmatch(value))
    return (value, match.end()) if good else (None, start)


def bad_value(text: str) -> str:
    """What is wrong with the directive that a message begins with; empty when nothing is, or there is none."""
    match = _WORD.match(text)
    if match is None or not (rest := text[match.end() :].strip(" :\t\r\n")):
        return ""
    name = _NAMES[match["name"].lower()]
    if _value(name, text, match.end())[0] is not None:
        return ""
    said, allowed = rest.split(maxsplit=1)[0][:40], (*MODES, "default") if name == "queue" else _ALLOWED.get(name, ())
    near = nearest(said, allowed)
    known = f"it can be {', '.join(allowed)}" if allowed else "a model is named provider/model"
    return f"/{name} cannot be {said!r}: {f'did you mean {near}? ' if near else ''}{known}"


def _directives(found: dict[str, str], asked: tuple[str, ...]) -> Directives:
    return Directives(
        thinking=found.get("think"),
        verbose=found.get("verbose"),
        usage=found.get("usage"),
        model=found.get("model"),
        queue=parse_queue(found["queue"])[0] if "queue" in found else None,
        elevated=found.get("elevated"),
        reasoning=found.get("reasoning"),
        asked=asked,
    )
