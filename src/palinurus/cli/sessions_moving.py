"""`pal sessions export` and `import`: one conversation in a file, there and back."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import BinaryIO

import click

from palinurus.cli.derived import ask
from palinurus.cli.entrance import make_on_first_run, open_door
from palinurus.cli.output import echo
from palinurus.cli.shell import Shell, run_async, with_json
from palinurus.domain.errors import BadRequest, StorageError
from palinurus.operations.export import write_lines
from palinurus.operations.session_export import Format, export_session
from palinurus.operations.session_import import ImportedSession, import_session


@click.command("export")
@click.argument("key", metavar="KEY|ID")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="A file that is not there yet.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "json", "markdown"]),
    default="jsonl",
    show_default=True,
    help="jsonl is what `import` and OpenClaw read.",
)
@click.pass_obj
def export_command(shell: Shell, key: str, out: Path | None, form: Format) -> None:
    """Write a conversation to standard output or into a file.

    \b
    Examples:
      pal sessions export agent:main:main --out main.jsonl
      pal sessions export agent:main:main --format markdown | less
    """
    if out is not None and os.path.lexists(out):
        raise BadRequest(f"{out} is there already", hint="name another file, or move it away")
    if out is None:
        if not sys.stdout.isatty():
            run_async(_write(shell, key, form, sys.stdout.buffer))
            return
        shown = io.BytesIO()
        run_async(_write(shell, key, form, shown))
        echo(shown.getvalue().decode(errors="replace"), nl=False)
        return
    beside = out.with_name(f".{out.name[:100]}.{os.urandom(6).hex()}.tmp")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            run_async(_write(shell, key, form, file))
        beside.rename(out)
    except OSError as error:
        raise StorageError(f"{out} cannot be written: {error.strerror or error}") from None
    finally:
        beside.unlink(missing_ok=True)


async def _write(shell: Shell, key: str, form: Format, file: BinaryIO) -> None:
    async with open_door(shell) as door:
        if form == "jsonl":
            async for lines in door.follow(write_lines, write_lines.params(key)):
                file.write(lines.text.encode())
        else:
            file.write((await door.call(export_session, export_session.params(key, form))).content.encode())
    file.flush()


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--key", default="", help="Under which it shall stand here. Default: as it stood.")
@click.option("--agent", default="", help="Whose it shall be. Default: as it was.")
@with_json
@click.pass_obj
def import_command(shell: Shell, file: Path, key: str, agent: str) -> None:
    """Bring a conversation in that was exported, or a transcript of OpenClaw. Doing it twice changes nothing.

    \b
    Examples:
      pal sessions import main.jsonl
      pal sessions import old.jsonl --key agent:main:explicit:old
    """
    make_on_first_run(shell)
    done = ask(shell, import_session, import_session.params(str(file.absolute()), key, agent))
    shell.show(done, lambda: _text(done))


def _text(done: ImportedSession) -> str:
    found = done.session
    what = {"new": "is here now", "grown": "has grown here", "same": "is here already", "left": "was left"}
    lines = [f"{found.key} {what[found.outcome]}: {sum(found.entries.values()):,} entries."]
    lines += [f"note: {found.note}"] if found.note else []
    lines += [f"skipped: line {each.line}: {each.reason}" for each in done.skipped[:20]]
    return "\n".join(lines)
