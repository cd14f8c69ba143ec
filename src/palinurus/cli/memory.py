"""`pal memory`: search what the agent knows, and look after the index behind it.

A search from a cold shell is to be answered at once, so little is imported here: the ordinary way into the home is
loaded by name, and only when it is taken.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import AsyncIterator
from typing import Any

import click
import msgspec

from palinurus.cli.bar import Bar
from palinurus.cli.memory_text import answer_text, report_text
from palinurus.cli.output import echo
from palinurus.cli.shell import Shell, run_async, with_json
from palinurus.domain.errors import PalinurusError
from palinurus.memory.answer import Answer
from palinurus.memory.asking import IndexMemory, SearchMemory
from palinurus.memory.report import Progress
from palinurus.wiring.side_door import quick_index, quick_search

ORDINARY = "palinurus.cli.memory_asking"
QUICK: dict[str, Any] = {"search": quick_search, "index": quick_index}
COMMAND = "pal memory"  # what one who waits for the home is told of who has it
STAGES = {"scan": "looking at files", "text": "indexing words", "vectors": "making vectors"}
# Name -> where it is. Their modules are imported when they are called.
FURTHER = {
    "collections": "palinurus.cli.memory_collections:collections",
    "eval": "palinurus.cli.memory_eval:evaluate",
    "get": "palinurus.cli.memory_reading:get",
    "status": "palinurus.cli.memory_reading:status",
}


class MemoryGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *FURTHER])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in FURTHER:
            module, _, name = FURTHER[cmd_name].partition(":")
            command: click.Command = getattr(importlib.import_module(module), name)
            return command
        return super().get_command(ctx, cmd_name)


@click.group(cls=MemoryGroup)
def memory() -> None:
    """Search what the agent knows; look after the index."""


of_agent = click.option("--agent", default="", metavar="ID", help="Whose memory. Default: the default agent's.")


@memory.command("search")
@click.argument("query", nargs=-1)
@of_agent
@click.option("--max-results", type=click.IntRange(1, 1000), help="At most so many. Default: as many as fit.")
@click.option("--min-score", type=click.FloatRange(0, 1), help="None below this score.")
@click.option("--budget-tokens", type=click.IntRange(1, 1_000_000), help="Room for the answer, instead of characters.")
@click.option("--source", "sources", multiple=True, metavar="NAME", help="Only memory, sessions or this collection.")
@click.option("--keyword", is_flag=True, help="By words alone, without meaning.")
@click.option("--explain", is_flag=True, help="Show what each part of a score gave.")
@click.option("--stdin", "from_stdin", is_flag=True, help="One question a line from standard input, until it ends.")
@with_json
@click.pass_obj
def search(shell: Shell, /, query: tuple[str, ...], from_stdin: bool, **options: Any) -> int | None:
    """Search memory as the agent does, and say how fresh the answer is.

    With --stdin each line is a question and gets one answer at once; with --json that is one object a line. An empty
    line gets an empty answer.

    \b
    Examples:
      pal memory search where did we moor the boat
      pal memory search "who is Ann?" --explain
      pal memory search rudder --keyword --max-results 3 --json
      pal memory search --stdin --json --budget-tokens 1000 < questions.txt
    """
    if from_stdin:
        if query:
            raise click.UsageError("Either a question or --stdin.")
        return run_async(_each_line(shell, options))
    if not "".join(query).strip():
        raise click.UsageError("What are you looking for?")
    answer = _ask(shell, "search", SearchMemory(" ".join(query), **options))
    shell.show(answer, lambda: answer_text(answer))
    return None


@memory.command("index")
@of_agent
@click.option("--force", is_flag=True, help="Index everything anew. Vectors that are known are kept.")
@with_json
@click.pass_obj
def index(shell: Shell, agent: str, force: bool) -> int:
    """Bring the index up to date: words first, then vectors. Exit code 1 when something could not be indexed.

    Nobody has to: a search finds changed files by itself, and whoever holds the home fills in vectors. It is for those
    who want it done now.

    \b
    Examples:
      pal memory index
      pal memory index --force --agent main
    """
    bar = Bar()

    def progress(done: Progress) -> None:
        bar.show(STAGES.get(done.stage, done.stage), done.done, done.total)

    try:
        report = _ask(shell, "index", IndexMemory(agent, force), progress)
    finally:
        bar.close()
    shell.show(report, lambda: report_text(report))
    return 1 if report.behind or report.trouble or report.embedder_trouble else 0


@memory.command("watch")
@of_agent
@with_json
@click.pass_obj
def watch(shell: Shell, agent: str) -> None:
    """Print what is indexed as files change, until Ctrl-C. With --json one object a line.

    \b
    Examples:
      pal memory watch
      pal memory watch --agent main --json
    """
    run_async(_watch(shell, agent))


async def _watch(shell: Shell, agent: str) -> None:
    async with _ordinary().asking(shell) as desk:
        if not shell.as_json:
            echo("Watching. Ctrl-C ends it.")
        async for item in desk.watch(agent):
            echo(msgspec.json.encode(item).decode() if shell.as_json else report_text(item.report))


async def _each_line(shell: Shell, options: dict[str, Any]) -> int:
    """One answer for each line, written out before the next line is read. A question that fails is told as such."""
    code = 0
    async with _ordinary().asking(shell) as desk:
        async for line in _lines():
            try:
                answer: Answer | None = await desk.search(SearchMemory(line, **options))
                body: Any = answer
            except PalinurusError as error:
                code, answer = error.exit_code, None
                body = {"results": [], "error": {"type": type(error).__name__, **error.fields()}}
                shell.warn(str(error))
            text = msgspec.json.encode(body).decode() if shell.as_json else answer_text(answer) if answer else ""
            sys.stdout.write(text + "\n")
            sys.stdout.flush()
    return code


async def _lines() -> AsyncIterator[str]:
    lines = importlib.import_module("palinurus.cli.lines").Lines("")
    while (line := await lines.next()) is not None:
        yield line


def _ask(shell: Shell, what: str, *arguments: Any) -> Any:
    """One question, one answer: by the side door, if it is open for this one."""
    return run_async(_asked(shell, what, *arguments))


async def _asked(shell: Shell, what: str, *arguments: Any) -> Any:
    answer = await QUICK[what](shell.home, arguments[0], COMMAND) if what in QUICK else None
    return await getattr(_ordinary(), what)(shell, *arguments) if answer is None else answer


def _ordinary() -> Any:
    return importlib.import_module(ORDINARY)
