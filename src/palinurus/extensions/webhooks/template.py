"""Templates of webhooks: text with `{{paths}}` into what was sent. No expressions, no code.

A template is parsed once and filled in one pass. A value is inserted as it is and never read as a template, so nothing
that a sender writes can name another value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.config.section import dig

MOST_OF_A_VALUE = 16_000  # characters
MOST_TEXT = 64_000  # characters of all
CUT = "… [cut]"
_PATH = re.compile(r"[\w$-]+(?:\.[\w$-]+|\[\d{1,6}\])*")
_STEP = re.compile(r"\[(\d+)\]|([\w$-]+)")


class TemplateReference(Struct, frozen=True):
    path: str  # as it is written
    steps: tuple[str | int, ...]


class TemplateValues(Struct, frozen=True):
    """What paths lead into: the payload, or one of the others by its name."""

    payload: Any
    body: str = ""  # the payload as text
    headers: Mapping[str, str] = {}  # lower case; without credentials
    query: Mapping[str, str] = {}
    path: str = ""
    now: str = ""

    def find(self, steps: tuple[str | int, ...]) -> Any:
        """The value; None if there is none. `body` is a key of the payload first."""
        first = steps[0]
        if first in ("payload", "headers", "query", "path", "now"):
            return dig({first: getattr(self, str(first))}, steps)
        found = dig(self.payload, steps)
        return self.body if found is None and steps == ("body",) else found


class RenderedTemplate(Struct, frozen=True):
    text: str
    missing: tuple[str, ...] = ()  # paths that lead nowhere; they are filled with nothing


@lru_cache(maxsize=256)
def parse_template(text: str) -> tuple[str | TemplateReference, ...]:
    """Raises ValueError for what is no template."""
    first, *pieces = text.split("{{")
    parts: list[str | TemplateReference] = [first]
    for piece in pieces:
        inside, mark, rest = piece.partition("}}")
        path = inside.strip()
        if not mark:
            raise ValueError("has a {{ without its }}")
        if not _PATH.fullmatch(path):
            raise ValueError(f"has {{{{{path[:40]}}}}}, which is not a path such as {{{{issue.labels[0].name}}}}")
        steps = tuple(int(index) if index else name for index, name in _STEP.findall(path))
        parts += [TemplateReference(path, steps), rest]
    return tuple(part for part in parts if part)


def has_references(text: str) -> bool:
    return any(isinstance(part, TemplateReference) for part in parse_template(text))


def render_template(text: str, values: TemplateValues, clean: Callable[[str], str] = str) -> RenderedTemplate:
    """`clean` is applied to each value. Raises ValueError for what is no template."""
    pieces: list[str] = []
    missing: dict[str, None] = {}
    left = MOST_TEXT
    for part in parse_template(text):
        if isinstance(part, str):
            piece = part
        elif (found := values.find(part.steps)) is None:
            missing[part.path] = None
            continue
        else:
            piece = clean(_shortened(_text(found), MOST_OF_A_VALUE))
        pieces.append(_shortened(piece, left))
        left -= len(piece)
        if left < 0:
            break
    return RenderedTemplate("".join(pieces), tuple(missing))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: max(most, 0)] + CUT
