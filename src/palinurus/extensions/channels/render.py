"""The messages of a text on the network of an account."""

from __future__ import annotations

from palinurus.extensions.channels.account import RunningAccount
from palinurus.text.markdown import RenderedPart, TextLimits, render_parts


def render(account: RunningAccount, text: str, opened: str = "") -> list[RenderedPart]:
    """`opened`: the fence inside which the text begins."""
    settings = account.replies
    able = account.channel.capabilities
    size = min(settings.text_chunk_limit or able.limits.size, able.limits.size)
    limits = TextLimits(size, able.limits.unit, able.limits.lines)
    return render_parts(text, able.dialect, limits, settings.chunk_mode, opened=opened)


def first_part(account: RunningAccount, text: str) -> RenderedPart:
    """As much of a text as one message holds."""
    most = account.channel.capabilities.limits.size
    return next(iter(render(account, text[:most])), RenderedPart("…", "…"))
