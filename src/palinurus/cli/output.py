"""The one way out to a terminal. What is shown there was often said by others: it is text, and moves nothing."""

from __future__ import annotations

import re
import sys

import click

# Line ends, tabs and the plain styles that we use ourselves may pass. Everything else that terminals obey (for the
# clipboard, the title, other lines of the screen) or that turns text around is written out.
_OBEYED = re.compile(
    r"(\x1b\[(?:[0-2]|[39][0-7]|22|39)?(?:;(?:[0-2]|[39][0-7]|22|39))*m)"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)


def echo(text: str, *, nl: bool = True, err: bool = False) -> None:
    """Print it, and flush. A file or another program gets it as it is."""
    stream = sys.stderr if err else sys.stdout
    text = text.encode(errors="backslashreplace").decode()  # half a character, as names of files may have it
    click.echo(harmless(text) if stream is not None and stream.isatty() else text, nl=nl, err=err)


def harmless(text: str) -> str:
    """The text with every sign that a terminal would obey written out, as `\\x1b`."""
    return _OBEYED.sub(lambda found: found[1] or _written(found[0]), text)


def _written(char: str) -> str:
    return f"\\x{ord(char):02x}" if ord(char) < 0x100 else f"\\u{ord(char):04x}"
