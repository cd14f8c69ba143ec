"""Markdown for chat networks: rendered in the dialect of each, and cut into messages within its limits."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

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
    markdown: str, dialect: Dialect, limits: TextLimits, mode: BreakMode = "length"
) -> list[RenderedPart]:
    """The messages of a text. A text of white space only has none."""
    raise NotImplementedError
