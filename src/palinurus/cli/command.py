"""Commands made of operations: options, arguments, help and examples come from the function behind the operation.

    runs.add_command(command_of(list_runs, list_text))

A parameter without a default is an argument, one with a default an option; the string beside its type is its help. A
command with a dialogue, or whose options differ from the operation's parameters, is written by hand with
`call_operation`.
"""

from __future__ import annotations

import inspect
import os
import sys
import typing
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

import click
import msgspec
from msgspec import Meta

from palinurus.cli.shell import Shell, echo, run_async, with_json
from palinurus.domain.clock import random_id
from palinurus.domain.errors import PalinurusError
from palinurus.operations.operation import (
    SET_BY_SURFACE,
    Completion,
    FromStdin,
    LocalPath,
    Metavar,
    OptionNames,
    Positional,
    Private,
    Secret,
)
from palinurus.operations.scopes import LOCAL
from palinurus.operations.table import Feed, Operation, P, R
from palinurus.runtime.home_access import HomeAccess
from palinurus.runtime.logs import Logs

MOST_COMPLETED = 200


def call_operation(shell: Shell, operation: Operation[P, R], params: P) -> R:
    """Run an operation, here or in the process that holds the home."""
    key = random_id()  # made once: when the holder dies, the next one is called with it
    if not operation.needs_home:
        if operation.blocks:
            result: R = operation.handler(services_of(shell), params, LOCAL, key)
            return result
        return run_async(_awaited(operation, shell, params, key))

    async def call() -> R:
        async with open_home(shell) as home:
            return await home.call(operation, params, key)

    return run_async(call())


async def _awaited(operation: Operation[P, R], shell: Shell, params: P, key: str) -> R:
    return await operation.run(services_of(shell), params, LOCAL, key)


async def follow_feed(shell: Shell, feed: Feed[P, R], params: P) -> AsyncIterator[R]:
    """The results of a feed as they come."""
    if not feed.needs_home:
        async for item in feed.run(services_of(shell), params):
            yield item
        return
    async with open_home(shell) as home:
        async for item in home.follow(feed, params):
            yield item


def command_of(
    operation: Operation[Any, R] | Feed[Any, R],
    text: Callable[[Shell, R], str],
    *,
    exit_code: Callable[[R], int] = lambda _: 0,
    name: str = "",
    makes_home: bool = False,
) -> click.Command:
    """`text` is what people read of a result; programs get it as JSON. `makes_home`: it may be the first command."""
    parameters = [_Parameter(each, hint) for each, hint in _signature(operation.function)]

    @click.pass_obj
    def run(shell: Shell, /, **given: Any) -> int:
        values = {each.name: each.value(given) for each in parameters if each.is_offered}
        if makes_home:
            make_on_first_run(shell)
        params = operation.params(**values)
        if isinstance(operation, Feed):
            with suppress(KeyboardInterrupt):
                run_async(_print_all(shell, operation, params, text))
            return 0
        result = call_operation(shell, operation, params)
        if words := shell.text(result, lambda: text(shell, result)):
            echo(words)
        return exit_code(result)

    command = click.Command(
        name or operation.name.rpartition(".")[2],
        callback=run,
        params=[each.option() for each in parameters if each.is_offered and not each.is_secret],
        help=_help(operation.function),
    )
    return with_json(command)


async def _print_all(shell: Shell, feed: Feed[P, R], params: P, text: Callable[[Shell, R], str]) -> None:
    async for item in follow_feed(shell, feed, params):
        echo(msgspec.json.encode(item).decode() if shell.as_json else text(shell, item))


def _signature(function: Callable[..., Any]) -> list[tuple[inspect.Parameter, Any]]:
    hints = typing.get_type_hints(function, include_extras=True)
    sent = list(inspect.signature(function).parameters.values())[1:]
    return [(each, hints[each.name]) for each in sent if each.name not in SET_BY_SURFACE]


def _help(function: Callable[..., Any]) -> str:
    """The docstring, its examples kept as they are written."""
    words = inspect.getdoc(function) or ""
    for heading in ("\n\nExamples:\n", "\n\nExample:\n"):
        words = words.replace(heading, f"\n\n\b{heading[1:]}")
    return words


class _Parameter:
    """A parameter of an operation, as the command line offers it."""

    def __init__(self, parameter: inspect.Parameter, hint: Any) -> None:
        self.name = parameter.name
        kind, notes = _split_notes(hint)
        self.is_offered = Private not in notes
        self._kind = kind
        self._notes = notes
        self._about = _note(notes, str) or ""
        self._required = parameter.default is inspect.Parameter.empty
        self._default = None if self._required else parameter.default
        self._positional = self._required or Positional in notes
        self._several = typing.get_origin(kind) is tuple

    @property
    def is_secret(self) -> bool:
        return _note(self._notes, Secret) is not None

    def value(self, given: dict[str, Any]) -> Any:
        """The value for the operation, with what only this process can find out."""
        if secret := _note(self._notes, Secret):
            return read_secret(secret.prompt)
        value = given[self.name]
        if LocalPath in self._notes:
            return str(value.absolute())
        if FromStdin in self._notes and value == "-":
            return sys.stdin.read()
        return tuple(value) if self._several else value

    def option(self) -> click.Parameter:
        flag = self.name.rstrip("_").replace("_", "-")
        metavar = _note(self._notes, Metavar)
        if self._positional:
            word = metavar.word if metavar else flag.upper()
            shown = word if self._required else f"[{word}]"
            count = {"nargs": -1, "metavar": f"{shown}..."} if self._several else {"metavar": shown}
            return click.Argument(
                [self.name],
                type=self._type(),
                required=self._required,
                default=self._default,
                shell_complete=self._completer(),
                **count,
            )
        spelling = _note(self._notes, OptionNames)
        names = [*(spelling.options if spelling else (f"--{flag}",)), self.name]
        if self._kind is bool:
            return click.Option(names, is_flag=True, default=self._default, help=self._about)
        return click.Option(
            names,
            type=self._type(),
            metavar=metavar.word if metavar else None,
            default=self._default,
            multiple=self._several,
            show_default=bool(self._default) and not self._several,
            help=self._about,
            shell_complete=self._completer(),
        )

    def _completer(self) -> Callable[[click.Context, click.Parameter, str], list[str]] | None:
        completion = _note(self._notes, Completion)
        return (
            complete_sessions if completion and completion.of == "sessions" else complete_agents if completion else None
        )

    def _type(self) -> Any:
        if LocalPath in self._notes:
            return click.Path(exists=True, path_type=Path)
        kind = typing.get_args(self._kind)[0] if self._several else self._kind
        kind, notes = _split_notes(kind)
        if typing.get_origin(kind) is Literal:
            return click.Choice([each for each in typing.get_args(kind) if each])
        bounds = _note(notes, Meta) or _note(self._notes, Meta) or Meta()
        if kind is int:
            least = bounds.ge if bounds.gt is None else bounds.gt + 1
            return int if least is bounds.le is None else click.IntRange(_whole(least), _whole(bounds.le))
        if kind is float:
            return click.FloatRange(bounds.ge or bounds.gt, bounds.le, min_open=bounds.gt is not None)
        return str


def read_secret(prompt: str) -> str:
    """From a prompt without echo or from standard input; never from the command line, which others can see."""
    if sys.stdin.isatty():
        return str(click.prompt(prompt, hide_input=True, err=True))
    return sys.stdin.readline()


def complete_sessions(context: click.Context, _: click.Parameter, typed: str) -> list[str]:
    """Keys and names of sessions that begin with what was typed."""
    from palinurus.operations.sessions import list_sessions

    shell = Shell.of(context.find_root().params)
    if not shell.home.is_used:
        return []
    try:
        listed = call_operation(shell, list_sessions, list_sessions.params(limit=MOST_COMPLETED)).sessions
    except PalinurusError:  # a shell has no place for an error message between two keys
        return []
    names = [name for each in listed for name in (each.key, each.label) if name]
    return [name for name in dict.fromkeys(names) if name.lower().startswith(typed.lower())]


def complete_agents(context: click.Context, _: click.Parameter, typed: str) -> list[str]:
    """Ids of agents that begin with what was typed."""
    from palinurus.config.agents import agent_ids
    from palinurus.config.load import load_config

    services = services_of(Shell.of(context.find_root().params))
    try:
        known = agent_ids(load_config(services.home, services.env).config)
    except PalinurusError:
        return []
    return [each for each in known if each.startswith(typed.lower())]


def _split_notes(hint: Any) -> tuple[Any, list[Any]]:
    """The type without None and without what stands beside it, and what does."""
    notes: list[Any] = []
    while True:
        if typing.get_origin(hint) is Annotated:
            hint, *more = typing.get_args(hint)
            notes += more
        elif typing.get_origin(hint) in (Union, UnionType):
            hint = next(each for each in typing.get_args(hint) if each is not NoneType)
        else:
            return hint, notes


T = typing.TypeVar("T")


def _note(notes: list[Any], kind: type[T]) -> T | None:
    """The last of its kind: what stands at the parameter itself comes after what its type says."""
    return next((note for note in reversed(notes) if isinstance(note, kind)), None)


def _whole(bound: float | None) -> int | None:
    return None if bound is None else int(bound)


if TYPE_CHECKING:
    from palinurus.operations.services import Services


def services_of(shell: Shell) -> Services:
    from palinurus.operations.services import Services

    return Services(home=shell.home, env=os.environ)


def make_on_first_run(shell: Shell) -> bool:
    """A newcomer needs no command before the first one. A home with a past is never touched. Whether one was made."""
    home = shell.home
    if not home.ours or home.workspace_override is not None or home.is_used:
        return False
    from palinurus.operations.config import setup

    services = services_of(shell)
    report = setup(services, complete=False)
    if report.created:
        shell.warn(f"created a new home in {report.home}")
    return bool(report.created)


def open_home(shell: Shell, tell: Callable[[str], None] | None = None, *, verbose: bool = False) -> HomeAccess:
    """`tell` shows one line to the person, where standard error is not the place for it."""
    tell = tell or shell.warn
    logs = Logs(shell.home, os.environ, tell, verbose=verbose)
    return HomeAccess(shell.home, os.environ, _command(), warn=tell, logs=logs)


def _command() -> str:
    """What others are told that this process does: pal and its command, without options."""
    context = click.get_current_context(silent=True)
    return " ".join(context.command_path.split()[:2]) if context else "pal"
