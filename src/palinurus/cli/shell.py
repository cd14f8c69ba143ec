"""The command `pal`, and what every command shares: the global options, a way into the home, and how things are shown.

Each family of commands is a module that is imported only when it is called.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from msgspec import Struct

from palinurus.config.home import Home, find_home
from palinurus.domain.errors import BadRequest, PalinurusError
from palinurus.parts import COMMANDS, SUBCOMMANDS, resolve
from palinurus.runtime.extensions import LOADED, PLUGIN_INDEX

MOST_OF_HELP = 300  # letters of the first sentence of a command's help

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


def shorten(text: str, most: int) -> str:
    """The text, or its beginning when it has more characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def count_of(number: int, what: str) -> str:
    """`1 file`, `12 files`."""
    return f"1 {what}" if number == 1 else f"{number:,} {what}s"


def moment(milliseconds: int, form: str = "%Y-%m-%d %H:%M") -> str:
    """The local time."""
    return datetime.fromtimestamp(milliseconds / 1000).astimezone().strftime(form)


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows as lines, each column but the last as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join([*map(str.ljust, row[:-1], widths), row[-1]]) for row in rows]


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


class CommandGroup(click.Group):
    """A group whose help has the first sentence of each command as a whole; click cuts it at the width."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(MOST_OF_HELP)) for name, each in commands if each])


class LazyGroup(CommandGroup):
    """A group some of whose commands (SUBCOMMANDS) are imported when they are called; those of extensions as well."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        name = self.name or ""
        return sorted({*super().list_commands(ctx), *SUBCOMMANDS.get(name, ()), *LOADED.command_lines(name)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        where = SUBCOMMANDS.get(self.name or "", {}).get(cmd_name)
        if where is None:
            return super().get_command(ctx, cmd_name) or LOADED.find_command(f"{self.name} {cmd_name}")
        command: click.Command = resolve(where)
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


def with_shell(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function is given the Shell, and its command takes `--json`."""
    return with_json(click.pass_obj(function))


def confirm(command: str, question: str) -> None:
    """Goes on after a yes. Raises BadRequest where there is nobody to ask."""
    if not sys.stdin.isatty():
        raise BadRequest(f"{command} needs a terminal", hint="use --yes")
    click.confirm(question, abort=True, err=True)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    import asyncio  # a fifth of what a quick command takes, and some have no use for it

    return asyncio.run(work)


def report_error(error: PalinurusError, *, as_json: bool) -> None:
    if as_json:
        body = {"ok": False, "error": {"type": type(error).__name__, **error.fields()}}
        echo(msgspec.json.encode(body).decode())
    for line in str(error).splitlines():
        echo(f"pal: {line}", err=True)


def command_lines() -> dict[str, str]:
    """Every command and its line in the help, of extensions too."""
    lines: dict[str, str] = {}
    for name, (_, line) in COMMANDS.items():
        lines |= {**LOADED.command_lines(before=name), name: line}
    return lines | LOADED.command_lines()


def take_plugins(ctx: click.Context) -> None:
    """Before anything is said of commands, or of what else plugins bring."""
    options = {name: ctx.find_root().params.get(name) for name in ("profile", "config", "workspace")}
    with suppress(PalinurusError):  # a config that cannot be read has none: the command itself says so
        home = find_home(os.environ, **options)
        config = home.config_path
        if not (home.root / PLUGIN_INDEX).exists() and not (config.exists() and b"plugins" in config.read_bytes()):
            return
        from palinurus.config.load import load_config

        LOADED.take_plugins(home, load_config(home, os.environ))


class MainGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        take_plugins(ctx)
        return list(command_lines())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            if not any(cmd_name in each.commands for each in LOADED.known):
                take_plugins(ctx)
            return LOADED.find_command(cmd_name)
        command: click.Command = resolve(COMMANDS[cmd_name][0])
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, which knows of no commands that it has not imported and could suggest none."""
        if args[0] not in command_lines():
            take_plugins(ctx)
        if args[0] not in command_lines() and not args[0].startswith("-") and not ctx.resilient_parsing:
            import difflib  # only whoever mistypes pays for it

            close = difflib.get_close_matches(args[0].lower(), command_lines(), 1)
            guess = f" Did you mean '{close[0]}'?" if close else ""
            raise click.UsageError(f"No such command '{args[0]}'.{guess}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        take_plugins(ctx)
        with formatter.section("Commands"):
            formatter.write_dl(list(command_lines().items()))


@click.group(cls=MainGroup, params=list(COMMON_OPTIONS), context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="palinurus", prog_name="pal", message="pal %(version)s")
@click.pass_context
def pal(context: click.Context, /, **options: object) -> None:
    """A home for personal AI agents.

    \b
    Examples:
      pal chat                                talk in this terminal
      pal agent --message "what is on today?" one question, one answer
      pal --workspace ~/.openclaw/workspace chat
    """
    context.obj = Shell.of(options)


@click.command()
@click.argument("shell_name", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell_name: str) -> None:
    """Print the completion script for a shell.

    \b
    Example:
      pal completion bash > ~/.local/share/bash-completion/completions/pal
    """
    from click.shell_completion import get_completion_class

    script = get_completion_class(shell_name)
    if script is not None:
        click.echo(script(context.find_root().command, {}, "pal", "_PAL_COMPLETE").source())


def run() -> None:
    """What the `pal` script calls. Every known error is one line; the exit code says what kind."""
    as_json = "--json" in sys.argv
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # a stray byte costs a character, not the command
    try:
        code = pal.main(prog_name="pal", standalone_mode=False)
    except PalinurusError as error:
        report_error(error, as_json=as_json)
        code = error.exit_code
    except click.ClickException as error:
        if as_json:
            report_error(PalinurusError(error.format_message()), as_json=True)
        else:
            error.show()
        code = error.exit_code
    except UnicodeEncodeError:
        if all(word == word.encode(errors="replace").decode() for word in sys.argv):
            raise
        no_text = BadRequest("an argument contains bytes that are not UTF-8", hint="write it in UTF-8")
        report_error(no_text, as_json=as_json)
        code = no_text.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = 130
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has gone; there is nobody to tell
        code = 1
    finally:
        LOADED.leave_plugins()
    sys.exit(code if isinstance(code, int) else 0)
