"""Commands made of operations: options, arguments, help and examples come from the function behind the operation.

    runs.add_command(command_of(LIST, list_text))

A parameter without a default is an argument, one with a default an option; the string beside its type is its help. A
command whose words differ from its operation's, or that leads a dialogue, is written by hand and uses `ask`.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union

import click
from msgspec import Meta

from palinurus.cli.entrance import make_on_first_run, open_door
from palinurus.cli.shell import Shell, run_async, with_json
from palinurus.domain.clock import random_id
from palinurus.operations.operation import Metavar, Positional, Private
from palinurus.operations.table import Operation, P, R

IDEMPOTENCY_KEY = "idempotency_key"  # made once per invocation: should the holder die, the next one is asked with it


def ask(shell: Shell, operation: Operation[P, R], params: P) -> R:
    """Have an operation done, here or by the process that holds the home."""

    async def call() -> R:
        async with open_door(shell) as door:
            return await door.call(operation, params)

    return run_async(call())


def command_of(
    operation: Operation[Any, R],
    text: Callable[[Shell, R], str],
    *,
    exit_code: Callable[[R], int] = lambda _: 0,
    name: str = "",
    makes_home: bool = False,
) -> click.Command:
    """`text` is what people read of a result; programs get it as JSON. `makes_home`: it may be the first command."""
    function = operation.function
    if function is None:
        raise TypeError(f"{operation.name} was not made by @operation")
    parameters = [_Parameter(each, hint) for each, hint in _signature(function)]

    @click.pass_obj
    def run(shell: Shell, /, **given: Any) -> int:
        values = {each.name: each.value(given) for each in parameters if each.is_offered or each.is_key}
        if makes_home:
            make_on_first_run(shell)
        result = ask(shell, operation, operation.params(**values))
        if words := shell.text(result, lambda: text(shell, result)):
            click.echo(words)
        return exit_code(result)

    command = click.Command(
        name or operation.name.rpartition(".")[2],
        callback=run,
        params=[each.option() for each in parameters if each.is_offered],
        help=_help(function),
    )
    return with_json(command)


def _signature(function: Callable[..., Any]) -> list[tuple[inspect.Parameter, Any]]:
    hints = typing.get_type_hints(function, include_extras=True)
    return [(each, hints[each.name]) for each in list(inspect.signature(function).parameters.values())[1:]]


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
        kind, notes = _taken_apart(hint)
        self.is_key = self.name == IDEMPOTENCY_KEY
        self.is_offered = not self.is_key and Private not in notes
        self._kind = kind
        self._about = next((note for note in notes if isinstance(note, str)), "")
        self._bounds = next((note for note in notes if isinstance(note, Meta)), Meta())
        self._metavar = next((note.word for note in notes if isinstance(note, Metavar)), "")
        self._required = parameter.default is inspect.Parameter.empty
        self._default = None if self._required else parameter.default
        self._positional = self._required or Positional in notes
        self._several = typing.get_origin(kind) is tuple

    def value(self, given: dict[str, Any]) -> Any:
        if self.is_key:
            return random_id()
        return tuple(given[self.name]) if self._several else given[self.name]

    def option(self) -> click.Parameter:
        flag = self.name.rstrip("_").replace("_", "-")
        if self._positional:
            word = self._metavar or flag.upper()
            metavar = word if self._required else f"[{word}]"
            count = {"nargs": -1, "metavar": f"{metavar}..."} if self._several else {"metavar": metavar}
            return click.Argument(
                [self.name], type=self._type(), required=self._required, default=self._default, **count
            )
        names = [f"--{flag}", self.name]
        if self._kind is bool:
            return click.Option(names, is_flag=True, default=self._default, help=self._about)
        return click.Option(
            names,
            type=self._type(),
            metavar=self._metavar or None,
            default=self._default,
            multiple=self._several,
            show_default=bool(self._default) and not self._several,
            help=self._about,
        )

    def _type(self) -> Any:
        kind = typing.get_args(self._kind)[0] if self._several else self._kind
        kind, notes = _taken_apart(kind)
        if typing.get_origin(kind) is Literal:
            return click.Choice([each for each in typing.get_args(kind) if each])
        bounds = next((note for note in notes if isinstance(note, Meta)), self._bounds)
        if kind is int:
            least = bounds.ge if bounds.gt is None else bounds.gt + 1
            return int if least is bounds.le is None else click.IntRange(_whole(least), _whole(bounds.le))
        if kind is float:
            return click.FloatRange(bounds.ge or bounds.gt, bounds.le, min_open=bounds.gt is not None)
        return str


def _taken_apart(hint: Any) -> tuple[Any, list[Any]]:
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


def _whole(bound: float | None) -> int | None:
    return None if bound is None else int(bound)
