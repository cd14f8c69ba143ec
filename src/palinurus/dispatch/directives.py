"""Directives: words like `/think high` that change how a message is answered. Pure.

Alone in a message they are stored for the session; inside a message they hold for that message only and are removed
from it before the model reads it (a model named this way is stored in both cases). A directive with an invalid value
stays in the text; if a message begins with it, `bad_value` says what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.dispatch.queue import DROPS, MODES, QueueChange, QueueSettings, parse_mode, parse_queue
from palinurus.domain.events import RunResult
from palinurus.domain.messages import Usage
from palinurus.providers.provider import ModelRef
from palinurus.sessions.session import Preferences
from palinurus.text.words import nearest

THINKING = ("off", "minimal", "low", "medium", "high", "xhigh", "adaptive", "max")

VERBOSE = ("off", "on", "full")

USAGE = ("off", "tokens", "cost", "full")

ELEVATED = ("off", "on", "ask", "full")

REASONING = ("off", "on", "stream")

DEFAULT_MODEL = "default"  # resets to the config

_ALLOWED = {"think": THINKING, "verbose": VERBOSE, "usage": USAGE, "elevated": ELEVATED, "reasoning": REASONING}
_OTHER_NAMES = {"thinking": "think", "t": "think", "v": "verbose", "elev": "elevated", "reason": "reasoning"}
_NAMES = {name: name for name in (*_ALLOWED, "model", "queue")} | _OTHER_NAMES

NAMES = tuple(_NAMES)

_WORD = re.compile(rf"(?<!\S)/(?P<name>{'|'.join(sorted(_NAMES, key=len, reverse=True))})(?=[\s:]|$)", re.IGNORECASE)

_GAP = re.compile(r"[ :]+")

_VALUE = re.compile(r"[ :]+(\S+)")

_MODEL = re.compile(r"[A-Za-z0-9][\w.+-]*(?:/[\w.:+@/-]+)?")

MOST = 100  # maximum words of a message that may be directives


class Directives(Struct, frozen=True):
    """The directives of a message. None: not given."""

    thinking: str | None = None
    verbose: str | None = None
    usage: str | None = None
    model: str | None = None
    queue: QueueChange | None = None
    elevated: str | None = None
    reasoning: str | None = None
    asked: tuple[str, ...] = ()  # directives without a value: show the current one

    @property
    def any(self) -> bool:
        return self != Directives()

    @property
    def preferences(self) -> bool:
        """Whether it changes queue, display or elevated settings."""
        return any(value is not None for value in (self.verbose, self.usage, self.queue, self.elevated, self.reasoning))

    @property
    def at_once(self) -> bool:
        """Whether it may be answered during a run: it changes nothing that a model reads."""
        choices = self.model is not None or self.thinking is not None or bool({"think", "model"} & set(self.asked))
        return self.any and not choices


def parse_directives(text: str, *, models: bool = True) -> tuple[Directives, str]:
    """The directives of a message, and the message without them. Without `models` none is recognised: `/model x` is
    text.
    """
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
            asked.append(name)  # only the bare word
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
    queue, _ = parse_queue(found.pop("queue", ""))
    directives = Directives(thinking=found.pop("think", None), queue=queue, asked=tuple(asked), **found)
    return directives, "".join(kept).strip()


def _value(name: str, text: str, start: int) -> tuple[str | None, int]:
    """The value after a directive and its end; None if there is no valid value."""
    if name == "queue":  # its options are separate words
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
    """What is wrong with the directive at the start of a message; empty if it is valid or there is none."""
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


def preferred(settings: QueueSettings, preferences: Preferences) -> QueueSettings:
    """The queue settings of a session: its own if set, else the config's."""
    milliseconds = preferences.queue_debounce_ms
    return QueueSettings(
        parse_mode(preferences.queue_mode) or settings.mode,
        settings.debounce if milliseconds is None else milliseconds / 1000,
        preferences.queue_cap or settings.cap,
        next((drop for drop in DROPS if drop == preferences.queue_drop), settings.drop),
    )


def changed_preferences(before: Preferences, directives: Directives) -> Preferences:
    values: dict[str, Any] = {
        "verbose_level": directives.verbose,
        "response_usage": directives.usage,
        "elevated_level": directives.elevated,
        "reasoning_level": directives.reasoning,
    }
    if queue := directives.queue:
        values |= {"queue_mode": queue.mode, "queue_cap": queue.cap, "queue_drop": queue.drop}
        values["queue_debounce_ms"] = None if queue.debounce is None else round(queue.debounce * 1000)
        if queue.clear:
            before = msgspec.structs.replace(
                before, queue_mode="", queue_debounce_ms=None, queue_cap=None, queue_drop=""
            )
    return msgspec.structs.replace(before, **{name: value for name, value in values.items() if value is not None})


def describe(preferences: Preferences, settings: QueueSettings) -> str:
    queue = preferred(settings, preferences)
    return (
        f"queue {queue.mode} (waits {queue.debounce:g} s, at most {queue.cap}, then drop:{queue.drop}), "
        f"verbose {preferences.verbose_level or 'off'}, usage {preferences.response_usage or 'off'}, "
        f"reasoning {preferences.reasoning_level or 'off'}, "
        f"elevated {preferences.elevated_level or 'as the config says'}"
    )


def usage_line(shown: str, result: RunResult, cost: Callable[[str, str, Usage], float | None]) -> str:
    """The line below a reply for `/usage`; empty if it is off."""
    if shown not in ("tokens", "cost", "full") or result.status != "ok":
        return ""
    ref = ModelRef.parse(result.model)
    usage, price = result.usage, cost(ref.provider, ref.model, result.usage)
    tokens = f"{usage.input + usage.cache_read + usage.cache_write:,} in, {usage.output:,} out"
    money = "price unknown" if price is None else f"${price:.4f}"
    cached = f", {usage.cache_read:,} from the cache" if usage.cache_read else ""
    return {"tokens": tokens, "cost": money, "full": f"{tokens}{cached}, {money}, {result.model}"}[shown]
