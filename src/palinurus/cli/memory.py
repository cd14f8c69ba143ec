"""`pal memory`: search what the agent knows, and look after the index behind it."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import click
import msgspec

from palinurus.cli.command import command_of, make_on_first_run, open_home
from palinurus.cli.progress import Bar
from palinurus.cli.shell import LazyGroup, Shell, echo, run_async, with_json
from palinurus.domain.errors import HolderLost, PalinurusError
from palinurus.memory.answer import (
    IndexFreshness,
    MemoryStatus,
    OnProgress,
    Progress,
    SearchAnswer,
    SearchResult,
    SyncReport,
)
from palinurus.memory.question import IndexMemory, SearchMemory
from palinurus.operations.memory import get_memory, index_memory, search_memory, show_memory_status, watch_memory
from palinurus.parts import SUBCOMMANDS
from palinurus.runtime.home_access import HomeAccess

MOST_LISTED = 20

_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def answer_text(answer: SearchAnswer) -> str:
    lines = [line for result in answer.results for line in result_lines(result)]
    if not answer.results:
        lines.append(answer.refused or "Nothing was found.")
    if answer.left_out:
        lines.append(f"{answer.left_out:,} more did not fit; raise --max-results or --budget-tokens to see them.")
    lines.append(freshness_line(answer))
    return "\n".join(lines)


def result_lines(result: SearchResult) -> list[str]:
    place = f"{result.path}#L{result.start_line}"
    if result.end_line != result.start_line:
        place += f"-L{result.end_line}"
    lines = [f"{_plain(place)}  {result.score:.2f}"]
    lines += [f"  {_plain(line)}" for line in result.snippet.splitlines()]
    lines += [
        f"    {factor.name:<12} {factor.value:8.3f} × {factor.weight:5.2f} = {factor.added:+.3f}"
        for factor in result.factors
    ]
    return [*lines, ""]


def _plain(text: str) -> str:
    """Without what a terminal would obey: a note may hold words from outside, and a file may have any name."""
    return _CONTROL.sub("\ufffd", text)


def freshness_line(answer: SearchAnswer) -> str:
    """How far the answer can be trusted, in one line."""
    fresh = answer.freshness
    parts = [f"{answer.mode} search", _state(fresh)]
    if fresh.caught_up:
        parts.append(f"{_files(fresh.caught_up)} changed and indexed just now")
    if fresh.vectors != "off" or fresh.embedded:
        share = f" ({fresh.embedded:,} of {fresh.pieces:,})" if fresh.vectors == "partial" else ""
        parts.append(f"vectors {fresh.vectors}{share}")
    if answer.took_ms:
        parts.append(f"{answer.took_ms:.0f} ms")
    line = ", ".join(parts)
    return f"({line}: {fresh.why})" if fresh.why else f"({line})"


def _state(fresh: IndexFreshness) -> str:
    if fresh.state == "stale":
        named = ", ".join(fresh.behind[:3])
        more = f" and {fresh.behind_count - 3:,} more" if fresh.behind_count > 3 else ""
        return f"stale: {named}{more} changed and not in it" if named else "stale"
    if fresh.state == "unswept":
        return "not compared with the disk"
    return f"fresh: {_files(fresh.compared)} compared"


def report_text(report: SyncReport) -> str:
    done = [
        f"{count:,} {what}"
        for count, what in ((report.added, "added"), (report.changed, "changed"), (report.removed, "removed"))
        if count
    ]
    lines = [f"{_files(report.compared)} compared: {', '.join(done) or 'nothing has changed'}."]
    if report.pieces:
        lines.append(f"{report.pieces:,} chunks indexed.")
    if report.embedded or report.cached:
        lines.append(f"{report.embedded:,} vectors made, {report.cached:,} known already.")
    lines += _told(f"not read: {each.path}: {each.reason}" for each in report.skipped)
    lines += _told(f"behind: {path}" for path in report.behind)
    if report.trouble:
        lines.append(f"The index has a problem: {report.trouble}")
    if report.embedder_trouble:
        lines.append(f"The embedder has a problem: {report.embedder_trouble} (keywords are indexed anyway)")
    if report.took_ms:
        lines.append(f"Took {report.took_ms / 1000:.2f} s.")
    return "\n".join(lines)


def status_text(status: MemoryStatus) -> str:
    rows = [
        ("agent", status.agent + ("" if status.enabled else " (switched off)")),
        ("files", f"{status.files:,}" + _by_source(status)),
        ("chunks", f"{status.pieces:,} in {status.passages:,} passages"),
        ("size", f"{_size(status.text_bytes)} of text, {_size(status.index_bytes)} of index{_times(status)}"),
        ("vectors", _vectors(status)),
        ("watching", "yes" if status.watching else "no; every search checks the files"),
        ("index", status.index_path),
    ]
    lines = [f"{name:<9} {value}" for name, value in rows if value]
    lines += _told(f"not read: {each.path}: {each.reason}" for each in status.skipped)
    if status.trouble:
        lines.append(f"trouble: {status.trouble}")
    how = "every file was read" if status.deep else "by size and time; --deep reads every file"
    if not status.difference_count:
        return "\n".join([*lines, f"The index matches the disk ({how})."])
    lines.append(f"{status.difference_count:,} differences between index and disk ({how}):")
    lines += _told(f"  {each.path}: {each.what}" for each in status.differences)
    lines.append("The next search or `pal memory index` updates them.")
    return "\n".join(lines)


def _by_source(status: MemoryStatus) -> str:
    told = ", ".join(f"{source} {count:,}" for source, count in sorted(status.sources.items()))
    return f" ({told})" if len(status.sources) > 1 else ""


def _vectors(status: MemoryStatus) -> str:
    if not status.embedder:
        return "none; keyword search only"
    told = f"{status.embedded:,} of {status.embedded + status.to_embed:,} in {status.embedder}"
    return told + (f"; {status.shadow_embedded:,} in {status.shadow}, not in use yet" if status.shadow else "")


def _times(status: MemoryStatus) -> str:
    return f" ({status.index_bytes / status.text_bytes:.1f} ×)" if status.text_bytes else ""


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count:,} files"


def _size(count: int) -> str:
    for unit, size in (("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def _told(lines: Iterable[str]) -> list[str]:
    """The first of many."""
    listed = list(lines)
    more = [f"… and {len(listed) - MOST_LISTED:,} more"] if len(listed) > MOST_LISTED else []
    return [*listed[:MOST_LISTED], *more]


STAGES = {"scan": "looking at files", "text": "indexing words", "vectors": "making vectors"}


@click.group(
    cls=LazyGroup,
    lazy=SUBCOMMANDS["memory"],
)
def memory() -> None:
    """Search the agent's memory; manage its index."""


@asynccontextmanager
async def opened_memory(shell: Shell) -> AsyncIterator[HomeAccess]:
    """Several questions may be asked; the home stays open in between."""
    make_on_first_run(shell)
    async with open_home(shell) as home:
        yield home


of_agent = click.option("--agent", default="", metavar="ID", help="Whose memory. Default: the default agent's.")


@memory.command("search")
@click.argument("query", nargs=-1)
@of_agent
@click.option("--max-results", type=click.IntRange(1, 1000), help="Maximum number of results. Default: as many as fit.")
@click.option("--min-score", type=click.FloatRange(0, 1), help="Minimum score.")
@click.option("--budget-tokens", type=click.IntRange(1, 1_000_000), help="Limit the answer to this many tokens.")
@click.option("--source", "sources", multiple=True, metavar="NAME", help="Only memory, sessions or this collection.")
@click.option("--keyword", is_flag=True, help="Keywords only, no embeddings.")
@click.option("--explain", is_flag=True, help="Show the parts of each score.")
@click.option("--stdin", "from_stdin", is_flag=True, help="Read one question per line from standard input.")
@with_json
@click.pass_obj
def search(shell: Shell, /, query: tuple[str, ...], from_stdin: bool, **options: Any) -> int | None:
    """Search memory as the agent does, and show how up to date the index is.

    With --stdin each line is a question and is answered at once; with --json each answer is one object per line. An
    empty line gets an empty answer.

    \b
    Examples:
      pal memory search where did we moor the boat
      pal memory search "who is Ann?" --explain
      pal memory search rudder --keyword --max-results 3 --json
      pal memory search --stdin --json --budget-tokens 1000 < questions.txt
    """
    if from_stdin:
        if query:
            raise click.UsageError("Give a question or --stdin, not both.")
        return run_async(_each_line(shell, options))
    if not "".join(query).strip():
        raise click.UsageError("Give a question, or --stdin.")
    answer = run_async(_search(shell, SearchMemory(" ".join(query), **options)))
    shell.show(answer, lambda: answer_text(answer))
    return None


@memory.command("index")
@of_agent
@click.option("--force", is_flag=True, help="Index everything again. Known vectors are reused.")
@with_json
@click.pass_obj
def index(shell: Shell, agent: str, force: bool) -> int:
    """Update the index: words first, then vectors. Exit code 1 when something could not be indexed.

    This is optional: a search finds changed files by itself, and the process that holds the home adds vectors. Use it
    to have the index complete now.

    \b
    Examples:
      pal memory index
      pal memory index --force --agent main
    """
    bar = Bar()

    def progress(done: Progress) -> None:
        bar.show(STAGES.get(done.stage, done.stage), done.done, done.total)

    try:
        report = run_async(_index(shell, IndexMemory(agent, force), progress))
    finally:
        bar.close()
    shell.show(report, lambda: report_text(report))
    return 1 if report.behind or report.trouble or report.embedder_trouble else 0


@memory.command("watch")
@of_agent
@with_json
@click.pass_obj
def watch(shell: Shell, agent: str) -> None:
    """Print what is indexed as files change, until Ctrl-C. With --json one object per line.

    \b
    Examples:
      pal memory watch
      pal memory watch --agent main --json
    """
    run_async(_watch(shell, agent))


async def _watch(shell: Shell, agent: str) -> None:
    async with opened_memory(shell) as home:
        if not shell.as_json:
            echo("Watching. Ctrl-C ends it.")
        async for item in home.follow(watch_memory, watch_memory.params(agent)):
            echo(msgspec.json.encode(item).decode() if shell.as_json else report_text(item.report))


async def _each_line(shell: Shell, options: dict[str, Any]) -> int:
    """One answer for each line, written out before the next line is read. A question that fails is told as such."""
    code = 0
    async with opened_memory(shell) as home:
        async for line in _lines():
            try:
                answer: SearchAnswer | None = await home.call(search_memory, SearchMemory(line, **options))
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
    from palinurus.cli.input_lines import InputLines

    lines = InputLines("")
    while (line := await lines.next()) is not None:
        yield line


async def _search(shell: Shell, asked: SearchMemory) -> SearchAnswer:
    async with opened_memory(shell) as home:
        return await home.call(search_memory, asked)


async def _index(shell: Shell, asked: IndexMemory, progress: OnProgress) -> SyncReport:
    """Raises HolderLost when the one who indexes goes away; what it had indexed stays."""
    async with opened_memory(shell) as home:
        async for item in home.follow(index_memory, asked):
            if item.progress is not None:
                progress(item.progress)
            if item.report is not None:
                return item.report
    raise HolderLost("the process that indexed ended before it was done", hint="run it again; it continues from there")


memory.add_command(command_of(get_memory, lambda _, found: found.text, exit_code=lambda found: 0 if found.lines else 1))

memory.add_command(
    command_of(
        show_memory_status,
        lambda _, found: status_text(found),
        exit_code=lambda found: 1 if found.difference_count or found.trouble else 0,
        makes_home=True,
    )
)
