"""Lines of IRC as records, after RFC 2812 and its later habits. Pure."""

from __future__ import annotations

import re

from msgspec import Struct

_FORMATTING = re.compile(r"\x03(\d{1,2}(,\d{1,2})?)?|\x04([0-9a-fA-F]{6})?|[\x00-\x1f\x7f]")
_FOLDED = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ[]\\^", "abcdefghijklmnopqrstuvwxyz{}|~")


class IrcLine(Struct, frozen=True):
    command: str
    params: tuple[str, ...] = ()
    prefix: str = ""  # of whom it is from: a server, or nick!user@host

    @property
    def nick(self) -> str:
        return self.prefix.partition("!")[0]

    @property
    def last(self) -> str:
        return self.params[-1] if self.params else ""


def parse_line(data: bytes) -> IrcLine:
    """Never raises. What makes no sense has an empty command."""
    text = data.decode("utf-8", "replace").strip("\r\n")
    if text.startswith("@"):  # tags, which we did not ask for
        text = text.partition(" ")[2].lstrip(" ")
    prefix = ""
    if text.startswith(":"):
        prefix, _, text = text[1:].partition(" ")
    head, mark, trailing = text.partition(" :")
    words = head.split()
    params = (*words[1:], trailing) if mark else tuple(words[1:])
    return IrcLine(words[0].upper() if words else "", params, prefix)


def fold(name: str) -> str:
    """A nick or a channel in the one spelling by which networks compare it."""
    return name.translate(_FOLDED)


def plain(text: str) -> str:
    """Without colours, bold and other control characters, which also begin and end commands."""
    return _FORMATTING.sub("", text)


def shown(text: str) -> str | None:
    """What a person reads of a message; None: nothing, because it is from program to program (CTCP)."""
    if not text.startswith("\x01"):
        return plain(text)
    kind, _, rest = text.strip("\x01").partition(" ")
    return f"* {plain(rest)}" if kind == "ACTION" else None


def one_line(text: str) -> str:
    """What can be sent as one message: a line break would begin another command."""
    return plain(" ".join(text.split()))


def names(text: str, nick: str) -> bool:
    """Whether a text speaks to a nick."""
    return re.search(rf"(?<![\w\[\]\\^{{}}|-]){re.escape(fold(nick))}(?![\w\[\]\\^{{}}|-])", fold(text)) is not None
