"""The command `pal`. Each family of commands is a module that is imported only when it is called."""

from __future__ import annotations

import io
import sys

import click

from palinurus.cli.shell import COMMON_OPTIONS, Shell, report_error
from palinurus.domain.errors import BadRequest, PalinurusError
from palinurus.parts import COMMANDS, resolve
from palinurus.runtime.extensions import LOADED


def command_lines() -> dict[str, str]:
    """Every command and its line in the help, of extensions too."""
    lines: dict[str, str] = {}
    for name, (_, line) in COMMANDS.items():
        lines |= {**LOADED.command_lines(before=name), name: line}
    return lines | LOADED.command_lines()


class MainGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(command_lines())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return LOADED.find_command(cmd_name)
        command: click.Command = resolve(COMMANDS[cmd_name][0])
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, which knows of no commands that it has not imported and could suggest none."""
        if args[0] not in command_lines() and not args[0].startswith("-") and not ctx.resilient_parsing:
            import difflib  # only whoever mistypes pays for it

            close = difflib.get_close_matches(args[0].lower(), command_lines(), 1)
            guess = f" Did you mean '{close[0]}'?" if close else ""
            raise click.UsageError(f"No such command '{args[0]}'.{guess}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
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
    sys.exit(code if isinstance(code, int) else 0)
