"""The command `pal`. Each family of commands is a module that is imported only when it is called."""

from __future__ import annotations

import importlib
import io
import sys

import click

from palinurus.cli.shell import COMMON_OPTIONS, Shell, report_error
from palinurus.domain.errors import BadRequest, PalinurusError

# Name -> where it is, and the line that `pal --help` shows without importing it.
COMMANDS: dict[str, tuple[str, str]] = {
    "chat": ("palinurus.cli.chat:chat", "Talk with the agent in this terminal."),
    "up": ("palinurus.cli.up:up", "Start everything: the gateway, its page, and a chat in this terminal."),
    "dashboard": ("palinurus.cli.dashboard:dashboard", "Open the page in a browser."),
    "agent": ("palinurus.cli.agent:agent", "Send one message and print the reply."),
    "sessions": ("palinurus.cli.sessions:sessions", "List, show and search conversations."),
    "memory": ("palinurus.cli.memory:memory", "Search what the agent knows; look after the index."),
    "workspace": (
        "palinurus.cli.workspace:workspace",
        "Show what changed in the agent's files; put old versions back.",
    ),
    "context": ("palinurus.cli.status:context", "Show what the prompt is made of and what it costs."),
    "status": ("palinurus.cli.status:status", "Show how things stand."),
    "models": ("palinurus.cli.models:models", "Choose models, store keys, test them."),
    "tools": ("palinurus.cli.tools:tools", "Show which tools there are and who may use them."),
    "skills": ("palinurus.cli.skills:skills", "Show which skills there are, what they need and what they may do."),
    "registry": ("palinurus.cli.registry:registry", "Host a registry of skills; look after who may publish there."),
    "gateway": ("palinurus.cli.gateway:gateway", "Serve the home by HTTP and WebSocket; look after who may come in."),
    "devices": ("palinurus.cli.devices:devices", "Approve and revoke devices that speak to the gateway."),
    "mcp": ("palinurus.cli.mcp:mcp", "Test the MCP servers that bring more tools; be one for other agents."),
    "approvals": ("palinurus.cli.approvals:approvals", "Decide about what waits; look after what is allowed."),
    "sandbox": ("palinurus.cli.sandbox:sandbox", "Show where commands run, and try the walls."),
    "audit": ("palinurus.cli.audit:audit", "Show what tools have done, and check the record."),
    "delivery": ("palinurus.cli.delivery:delivery", "Show what is on its way to people; send again or drop it."),
    "runs": ("palinurus.cli.runs:runs", "Show what runs did and how long it took."),
    "usage": ("palinurus.cli.usage:usage", "Show what models used and cost."),
    "logs": ("palinurus.cli.logs:logs", "Show what pal did."),
    "migrate": ("palinurus.cli.migrate:migrate", "Bring another home over, such as OpenClaw's."),
    "export": ("palinurus.cli.export:export", "Carry the home away: as a tree for OpenClaw, or as one file."),
    "ingest": ("palinurus.cli.ingest:ingest", "Make a wiki of what a home knows: people, projects, decisions."),
    "backup": ("palinurus.cli.backup:backup", "Make, verify and restore backups of the home."),
    "forget": ("palinurus.cli.forget:forget", "Take words or a whole conversation out of everything that holds them."),
    "doctor": ("palinurus.cli.doctor:doctor", "Look for what is wrong and say what to do."),
    "onboard": ("palinurus.cli.onboard:onboard", "Set up a model: paste a key or use a local server."),
    "configure": ("palinurus.cli.onboard:onboard", "The same, under the name that OpenClaw has for it."),
    "config": ("palinurus.cli.config:config", "Read and change the config."),
    "setup": ("palinurus.cli.setup:setup", "Make a home and a workspace."),
    "completion": ("palinurus.cli.completion:completion", "Print the completion script for a shell."),
}


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, which knows of no commands that it has not imported and could suggest none."""
        if args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            import difflib  # only whoever mistypes pays for it

            close = difflib.get_close_matches(args[0].lower(), COMMANDS, 1)
            guess = f" Did you mean '{close[0]}'?" if close else ""
            raise click.UsageError(f"No such command '{args[0]}'.{guess}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=LazyGroup, params=list(COMMON_OPTIONS), context_settings={"help_option_names": ["-h", "--help"]})
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
        no_text = BadRequest("an argument is no text: it holds bytes that are not UTF-8", hint="write it in UTF-8")
        report_error(no_text, as_json=as_json)
        code = no_text.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = 130
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has gone; there is nobody to tell
        code = 1
    sys.exit(code if isinstance(code, int) else 0)
