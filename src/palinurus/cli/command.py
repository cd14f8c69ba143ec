"""Commands made of operations: options, arguments, help and examples come from the function behind the operation.

    runs.add_command(command_of(list_runs, list_text))

A parameter without a default is an argument, one with a default an option; the string beside its type is its help. A
command with a dialogue, or whose options differ from the operation's parameters, is written by hand with
`call_operation`. One that takes long is followed to its report with a bar, by `follow_to_report`.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import typing
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO, Union

import click
import msgspec
from msgspec import Meta

from palinurus.cli.shell import Shell, echo, run_async, with_json
from palinurus.domain.clock import random_id
from palinurus.domain.errors import HolderLost, PalinurusError
from palinurus.operations import operation as marks
from palinurus.operations.scopes import LOCAL
from palinurus.operations.services import Services
from palinurus.operations.table import Feed, Operation, P, R
from palinurus.runtime.home_access import HomeAccess
from palinurus.runtime.logs import Logs

if TYPE_CHECKING:
    from palinurus.config.load import Config

MOST_COMPLETED = 200
T = typing.TypeVar("T")


def call_operation(shell: Shell, operation: Operation[P, R], params: P | None = None, /, **values: Any) -> R:
    """Run an operation with these parameters, or with a record of them, here or in the process that holds the home."""
    asked = operation.params(**values) if params is None else params
    key = random_id()  # made once: when the holder dies, the next one is called with it
    if operation.blocks and not operation.needs_home:
        result: R = operation.handler(services_of(shell), asked, LOCAL, key)
        return result

    if operation.needs_home:
        return with_home(shell, lambda home: home.call(operation, asked, key))

    async def call() -> R:
        return await operation.run(services_of(shell), asked, LOCAL, key)

    return run_async(call())


def with_home(shell: Shell, work: Callable[[HomeAccess], Awaitable[T]]) -> T:
    """Do this with the home open, and wait for it."""

    async def run() -> T:
        async with open_home(shell) as home:
            return await work(home)

    return run_async(run())


def command_of(
    operation: Operation[Any, R] | Feed[Any, R],
    text: Callable[[Shell, R], str],
    *,
    exit_code: Callable[[R], int] = lambda _: 0,
    name: str = "",
    makes_home: bool = False,
) -> click.Command:
    """`text` is what people read of a result; programs get it as JSON. `makes_home`: it may be the first command."""
    hints = typing.get_type_hints(operation.function, include_extras=True)
    sent = list(inspect.signature(operation.function).parameters.values())[1:]
    parameters = [_Parameter(each, hints[each.name]) for each in sent if each.name not in marks.SET_BY_SURFACE]

    @click.pass_obj
    def run(shell: Shell, /, **given: Any) -> int:
        values = {each.name: each.value(given) for each in parameters if each.is_offered}
        if makes_home:
            make_on_first_run(shell)
        params = operation.params(**values)
        if isinstance(operation, Feed):
            with suppress(KeyboardInterrupt):
                run_async(print_feed(shell, operation, params, text))
            return 0
        result = call_operation(shell, operation, params)
        if words := shell.text(result, lambda: text(shell, result)):
            echo(words)
        return exit_code(result)

    command = click.Command(
        name or operation.name.rpartition(".")[2],
        callback=run,
        params=[each.option() for each in parameters if each.is_offered and not each.secret],
        help=re.sub(r"\n\n(?=Examples?:\n)", "\n\n\b\n", inspect.getdoc(operation.function) or ""),  # kept as written
    )
    return with_json(command)


def add_operation(
    group: click.Group, operation: Operation[Any, R], text: Callable[[Shell, R], str], **more: Any
) -> None:
    """Add the command of an operation to a group; `more`: see command_of."""
    group.add_command(command_of(operation, text, **more))


async def print_feed(shell: Shell, feed: Feed[P, R], params: P, text: Callable[[Shell, R], str]) -> None:
    """Print each result of a feed as it comes."""
    async with AsyncExitStack() as opened:
        if feed.needs_home:
            items = (await opened.enter_async_context(open_home(shell))).follow(feed, params)
        else:
            items = feed.run(services_of(shell), params)
        async for item in items:
            echo(msgspec.json.encode(item).decode() if shell.as_json else text(shell, item))


class _Parameter:
    """A parameter of an operation, as the command line offers it."""

    def __init__(self, parameter: inspect.Parameter, hint: Any) -> None:
        self.name = parameter.name
        self._kind, self._notes = _split_notes(hint)
        self._required = parameter.default is inspect.Parameter.empty
        self._default = None if self._required else parameter.default
        self._several = typing.get_origin(self._kind) is tuple
        self.is_offered = marks.Private not in self._notes
        self.secret = _note(self._notes, marks.Secret)

    def value(self, given: dict[str, Any]) -> Any:
        """The value for the operation, with what only this process can find out."""
        if self.secret:
            return read_secret(self.secret.prompt)
        value = given[self.name]
        if marks.LocalPath in self._notes:
            return str(value.absolute())
        if marks.FromStdin in self._notes and value == "-":
            return sys.stdin.read()
        return tuple(value) if self._several else value

    def option(self) -> click.Parameter:
        flag = self.name.rstrip("_").replace("_", "-")
        metavar = _note(self._notes, marks.Metavar)
        shared: dict[str, Any] = {"type": self._type(), "shell_complete": self._completer()}
        if not self._required:  # click takes `default=None` for a value that is given
            shared["default"] = self._default
        if self._required or marks.Positional in self._notes:
            word = metavar.word if metavar else flag.upper()
            shown = (word if self._required else f"[{word}]") + ("..." if self._several else "")
            count = -1 if self._several else 1
            return click.Argument([self.name], nargs=count, metavar=shown, required=self._required, **shared)
        spelling = _note(self._notes, marks.OptionNames)
        names = [*(spelling.options if spelling else (f"--{flag}",)), self.name]
        about = _note(self._notes, str) or ""
        if self._kind is bool:
            return click.Option(names, is_flag=True, default=self._default, help=about)
        shows = bool(self._default) and not self._several
        shown_as = metavar.word if metavar else None
        return click.Option(names, metavar=shown_as, multiple=self._several, show_default=shows, help=about, **shared)

    def _completer(self) -> Callable[[click.Context, click.Parameter, str], list[str]] | None:
        completion = _note(self._notes, marks.Completion)
        return COMPLETERS[completion.of] if completion else None

    def _type(self) -> Any:
        if marks.LocalPath in self._notes:
            return click.Path(exists=True, path_type=Path)
        kind = typing.get_args(self._kind)[0] if self._several else self._kind
        kind, notes = _split_notes(kind)
        if typing.get_origin(kind) is Literal:
            return click.Choice([each for each in typing.get_args(kind) if each])
        bounds = _note(notes, Meta) or _note(self._notes, Meta) or Meta()
        if kind is int:
            low: Any = bounds.ge if bounds.gt is None else bounds.gt + 1
            high: Any = bounds.le
            return int if low is high is None else click.IntRange(low, high)
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
        listed = call_operation(shell, list_sessions, limit=MOST_COMPLETED).sessions
    except PalinurusError:  # a shell has no place for an error message between two keys
        return []
    names = [name for each in listed for name in (each.key, each.label) if name]
    return [name for name in dict.fromkeys(names) if name.lower().startswith(typed.lower())]


def complete_agents(context: click.Context, _: click.Parameter, typed: str) -> list[str]:
    """Ids of agents that begin with what was typed."""
    from palinurus.config.agents import agent_ids

    return _complete_by_config(context, typed, agent_ids)


def complete_channels(context: click.Context, _: click.Parameter, typed: str) -> list[str]:
    """Names of channels that are set up and begin with what was typed."""
    from palinurus.config.section import dig
    from palinurus.dispatch.settings import DEFAULTS

    def names(config: Config) -> list[str]:
        return sorted(set(dig(config.data, ("channels",)) or ()) - {DEFAULTS})

    return _complete_by_config(context, typed, names)


def _complete_by_config(context: click.Context, typed: str, find: Callable[[Config], Iterable[str]]) -> list[str]:
    from palinurus.config.load import load_config

    services = services_of(Shell.of(context.find_root().params))
    try:
        known = find(load_config(services.home, services.env).config)
    except PalinurusError:
        return []
    return [each for each in known if each.startswith(typed.lower())]


COMPLETERS = {"sessions": complete_sessions, "agents": complete_agents, "channels": complete_channels}


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


def _note(notes: list[Any], kind: type[T]) -> T | None:
    """The last of its kind: what stands at the parameter itself comes after what its type says."""
    return next((note for note in reversed(notes) if isinstance(note, kind)), None)


def services_of(shell: Shell) -> Services:
    return Services(home=shell.home, env=os.environ)


def make_on_first_run(shell: Shell) -> bool:
    """A newcomer needs no command before the first one. A home with a past is never touched. Whether one was made."""
    home = shell.home
    if not home.ours or home.workspace_override is not None or home.is_used:
        return False
    from palinurus.operations.config import setup

    report = setup(services_of(shell), complete=False)
    if report.created:
        shell.warn(f"created a new home in {report.home}")
    return bool(report.created)


def open_home(shell: Shell, tell: Callable[[str], None] | None = None, *, verbose: bool = False) -> HomeAccess:
    """`tell` shows one line to the person, where standard error is not the place for it."""
    tell = tell or shell.warn
    logs = Logs(shell.home, os.environ, tell, verbose=verbose)
    context = click.get_current_context(silent=True)
    command = " ".join(context.command_path.split()[:2]) if context else "pal"  # told to others
    return HomeAccess(shell.home, os.environ, command, warn=tell, logs=logs)


BAR_WIDTH = 28


class Bar:
    """One line that is written over. `close` takes it away, so that what comes next begins on a clean line."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._shown = 0
        self._live = self._stream.isatty()

    def show(self, what: str, done: int, total: int) -> None:
        if not self._live:
            return
        import shutil  # most commands draw nothing

        line = bar_line(what, done, total)[: max(20, shutil.get_terminal_size().columns - 1)]
        self._write(f"\r{line}{' ' * (self._shown - len(line))}")
        self._shown = len(line)

    def close(self) -> None:
        if self._shown:
            self._write(f"\r{' ' * self._shown}\r")
            self._shown = 0

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def bar_line(what: str, done: int, total: int) -> str:
    """How far it is, in one line; without a total only a count."""
    if total <= 0:
        return f"{what}: {done:,}"
    share = min(done / total, 1.0)
    filled = int(share * BAR_WIDTH)
    return f"{what} [{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {share:4.0%}  {done:,} of {total:,}"


def follow_to_report(
    shell: Shell, feed: Feed[P, Any], params: P, stage: Callable[[Any], str], *, hint: str = "try again"
) -> Any:
    """What a feed tells last, of items with a `progress` and at the end a `report`; `stage` names what goes on."""

    async def follow(home: HomeAccess) -> Any:
        bar = Bar()
        try:
            async for told in home.follow(feed, params):
                if told.progress is not None and not shell.as_json:
                    bar.show(stage(told.progress), told.progress.done, told.progress.total)
                if told.report is not None:
                    return told.report
        finally:
            bar.close()
        raise HolderLost("the process that holds the home ended before it answered", hint=hint)

    return with_home(shell, follow)
