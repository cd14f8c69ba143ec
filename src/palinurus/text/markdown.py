"""Markdown for chat networks: rendered in the dialect of each, and cut into messages within its limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from palinurus.text.dialects import WRITERS
from palinurus.text.document import read_markdown
from palinurus.text.message_parts import LinePacker, PackingRules

Dialect = Literal["plain", "telegram", "discord", "slack", "whatsapp", "html"]
BreakMode = Literal["length", "newline"]  # `newline`: a new message at every blank line between paragraphs


class TextLimits(Struct, frozen=True):
    """How long one message may be, as the network counts."""

    size: int
    unit: Literal["characters", "utf16", "bytes"] = "characters"
    lines: int = 0  # 0: as many as fit


class RenderedPart(Struct, frozen=True):
    """One message: in the dialect, and without markup."""

    text: str
    plain: str


def render_parts(
    markdown: str, dialect: Dialect, limits: TextLimits, mode: BreakMode = "length", *, opened: str = ""
) -> list[RenderedPart]:
    """The messages of a text. A text of white space only has none.

    `opened` is the line of the code fence inside which the text begins: a block of a text that is still being written.
    """
    if not markdown.strip():
        return []
    rules = PackingRules(limits.size, _MEASURES[limits.unit], limits.lines, mode == "newline")
    writers = [WRITERS[name] for name in dict.fromkeys((dialect, "plain"))]
    messages = LinePacker(writers, rules).pack(read_markdown(markdown, opened))
    return [RenderedPart(message[0], message[-1]) for message in messages if message[-1].strip()]


def _utf16_units(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def _bytes(text: str) -> int:
    return len(text.encode())


_MEASURES: dict[str, Callable[[str], int]] = {"characters": len, "utf16": _utf16_units, "bytes": _bytes}
