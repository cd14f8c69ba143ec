"""What every command shares: the global options, a way into the home, and how things are shown."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from msgspec import Struct

from palinurus.config.home import Home, find_home
from palinurus.domain.errors import PalinurusError
from palinurus.parts import resolve
from palinurus.runtime.extensions import LOADED

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


T = TypeVar("T")

F = TypeVar("F", bound=Callable[..., Any])

COMMON_OPTIONS = (
    click.Option(["--workspace"], type=click.Path(path_type=Path), metavar="DIR", help="Use this workspace."),
    click.Option(["--config"], type=click.Path(path_type=Path), metavar="FILE", help="Read this config file."),
    click.Option(["--profile"], metavar="NAME", help="Use the home ~/.palinurus-NAME."),
    click.Option(["--json", "as_json"], is_flag=True, help="Print JSON for programs."),
    click.Option(["--no-color"], is_flag=True, help="Print without colours."),
)


class Shell(Struct, frozen=True):
    """The options of one invocation."""

    home: Home
    as_json: bool = False
    color: bool = False

    @classmethod
    def of(cls, options: dict[str, Any]) -> Shell:
        home = find_home(
            os.environ, profile=options["profile"], config=options["config"], workspace=options["workspace"]
        )
        plain = options["no_color"] or bool(os.environ.get("NO_COLOR")) or sys.stdout is None or not sys.stdout.isatty()
        return cls(home, bool(options["as_json"]), not plain)

    def show(self, record: Any, text: Callable[[], str]) -> None:
        """The record as JSON for programs, or the text for people."""
        echo(self.text(record, text))

    def text(self, record: Any, text: Callable[[], str]) -> str:
        return msgspec.json.format(msgspec.json.encode(record)).decode() if self.as_json else text()

    def dim(self, text: str) -> str:
        return click.style(text, dim=True) if self.color else text

    def warn(self, text: str) -> None:
        echo(f"pal: {text}", err=True)


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called; those of extensions as well.

    `lazy`: name -> "module:command".
    """

    def __init__(self, *args: Any, lazy: Mapping[str, str] | None = None, **more: Any) -> None:
        super().__init__(*args, **more)
        self._lazy = lazy or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._lazy, *LOADED.command_lines(self.name or "")})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name) or LOADED.find_command(f"{self.name} {cmd_name}")
        command: click.Command = resolve(self._lazy[cmd_name])
        return command


def with_json(command: F) -> F:
    """`--json` behind the command as well as before it: people write it in both places."""

    def note(context: click.Context, _: click.Parameter, value: bool) -> None:
        if value:
            context.obj = msgspec.structs.replace(context.obj, as_json=True)

    option = click.option(
        "--json", is_flag=True, expose_value=False, is_eager=True, callback=note, help="Print JSON for programs."
    )
    return option(command)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    import asyncio  # a fifth of what a quick command takes, and some have no use for it

    return asyncio.run(work)


def report_error(error: PalinurusError, *, as_json: bool) -> None:
    if as_json:
        body = {"ok": False, "error": {"type": type(error).__name__, **error.fields()}}
        echo(msgspec.json.encode(body).decode())
    for line in str(error).splitlines():
        echo(f"pal: {line}", err=True)
