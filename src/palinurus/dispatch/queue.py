"""What happens to messages that arrive while their session is busy: modes, limits, and who is dropped. Pure.

steer      the running turn reads them after the tool call it is in; the calls behind it are skipped
followup   each is a turn of its own, in its order
collect    those that wait become one turn
interrupt  the running turn is stopped for the newest
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

Mode = Literal["steer", "followup", "collect", "interrupt"]

Drop = Literal["summarize", "old", "new"]

MODES: tuple[Mode, ...] = ("steer", "followup", "collect", "interrupt")

MOST_LISTED = 50  # of dropped messages

DROPS: tuple[Drop, ...] = ("summarize", "old", "new")

# Names of older releases of OpenClaw.
OLD_MODES: Mapping[str, Mode] = {"steer-backlog": "steer", "steer+backlog": "steer", "queue": "steer"}

_WORD = re.compile(r"\S+")

_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m)?")

_COUNT = re.compile(r"[0-9]{1,9}")

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, None: 0.001}


class QueueSettings(Struct, frozen=True):
    mode: Mode = "steer"
    debounce: float = 0.5  # seconds that `collect` waits for more
    cap: int = 20
    drop: Drop = "summarize"


class QueueChange(Struct, frozen=True, omit_defaults=True):
    """The change by `/queue`. None leaves a setting unchanged; `clear` resets to the config's."""

    mode: Mode | None = None
    debounce: float | None = None
    cap: int | None = None
    drop: Drop | None = None
    clear: bool = False


def parse_mode(word: str) -> Mode | None:
    word = word.lower()
    return next((mode for mode in MODES if mode == word), OLD_MODES.get(word))


def parse_queue(text: str, start: int = 0) -> tuple[QueueChange | None, int]:
    """Parses `collect debounce:0.5s cap:25 drop:old`; returns the change and its end in the text."""
    values: dict[str, object] = {}
    end = start
    for match in _WORD.finditer(text, start):
        word = match[0].lower()
        name, _, value = word.partition(":")
        if word in ("default", "reset") and not values:
            return QueueChange(clear=True), match.end()
        if (mode := parse_mode(word)) and "mode" not in values:
            values["mode"] = mode
        elif name == "debounce" and (duration := _DURATION.fullmatch(value)):
            values["debounce"] = float(duration[1]) * _UNITS[duration[2]]
        elif name == "cap" and _COUNT.fullmatch(value) and int(value) >= 1:
            values["cap"] = int(value)
        elif name == "drop" and value in DROPS:
            values["drop"] = value
        else:
            break
        end = match.end()
    return (QueueChange(**values), end) if values else (None, start)  # type: ignore[arg-type]


def overflow_note(dropped: Sequence[str]) -> str:
    """The note to the model about dropped messages: the first line of each."""
    shown = [text.strip().splitlines()[0][:160] if text.strip() else "(empty)" for text in dropped[-MOST_LISTED:]]
    lines = "\n".join(f"- {line}" for line in shown)
    newest = f" (the newest {MOST_LISTED})" if len(dropped) > MOST_LISTED else ""
    told = f"{len(dropped)} earlier messages arrived faster than they could be answered and were left out{newest}"
    return f"{told}:\n{lines}"
