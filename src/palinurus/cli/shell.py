"""What every command shares: the global options, a way into the home, and how things are shown."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from msgspec import Struct

from palinurus.cli.output import echo
from palinurus.config.home import Home, find_home
from palinurus.domain.errors import PalinurusError

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
