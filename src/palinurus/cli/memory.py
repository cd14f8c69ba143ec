"""`pal memory`: search what the agent knows, and look after the index behind it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import msgspec

from palinurus.cli import command
from palinurus.cli.command import add_operation, call_operation, make_on_first_run, with_home
from palinurus.cli.shell import LazyGroup, Shell, columns, count_of, echo, run_async, with_shell
from palinurus.domain.errors import PalinurusError
from palinurus.memory.answer import IndexFreshness, MemoryStatus, SearchAnswer, SearchResult, SyncReport, VectorSpace
from palinurus.memory.question import IndexMemory, SearchMemory
from palinurus.operations import memory_collections
from palinurus.operations.memory import (
    export_memory,
    get_memory,
    index_memory,
    list_spaces,
    search_memory,
    show_memory_status,
    watch_memory,
)
from palinurus.operations.memory_collections import CollectionAdded, ListedCollection
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
    parts = [f"{answer.mode} search" + (f" by {answer.backend}" if answer.backend else ""), _state(fresh)]
    if fresh.caught_up:
        parts.append(f"{count_of(fresh.caught_up, 'file')} changed and indexed just now")
    if fresh.vectors != "off" or fresh.embedded:
        share = f" ({fresh.embedded:,} of {fresh.pieces:,})" if fresh.vectors == "partial" else ""
        parts.append(f"vectors {fresh.vectors}{share}")
    if answer.fallback:
        parts.append(f"{answer.provider} instead of {answer.fallback.from_}")
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
    return f"fresh: {count_of(fresh.compared, 'file')} compared"


def report_text(report: SyncReport) -> str:
    done = [f"{count:,} {what}" for what in ("added", "changed", "removed") if (count := getattr(report, what))]
    lines = [f"{count_of(report.compared, 'file')} compared: {', '.join(done) or 'nothing has changed'}."]
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
    times = f" ({status.index_bytes / status.text_bytes:.1f} ×)" if status.text_bytes else ""
    by_source = ", ".join(f"{source} {count:,}" for source, count in sorted(status.sources.items()))
    rows = [
        ("agent", status.agent + ("" if status.enabled else " (switched off)")),
        ("backend", status.backend if status.backend_wanted else ""),
        ("files", f"{status.files:,}" + (f" ({by_source})" if len(status.sources) > 1 else "")),
        ("chunks", f"{status.pieces:,} in {status.passages:,} passages"),
        ("size", f"{_size(status.text_bytes)} of text, {_size(status.index_bytes)} of index{times}"),
        ("vectors", _vectors(status)),
        ("fallback", f"{status.provider} instead of {each.from_}: {each.reason}" if (each := status.fallback) else ""),
        ("watching", "yes" if status.watching else "no; every search checks the files"),
        ("index", status.index_path),
    ]
    lines = [f"{name:<9} {value}" for name, value in rows if value]
    lines += _told(f"not read: {each.path}: {each.reason}" for each in status.skipped)
    if status.backend_reason:
        lines.append(f"problem: {status.backend} serves instead of {status.backend_wanted}: {status.backend_reason}")
    if status.trouble:
        lines.append(f"problem: {status.trouble}")
    how = "every file was read" if status.deep else "by size and time; --deep reads every file"
    if not status.difference_count:
        return "\n".join([*lines, f"The index matches the disk ({how})."])
    lines.append(f"{status.difference_count:,} differences between index and disk ({how}):")
    lines += _told(f"  {each.path}: {each.what}" for each in status.differences)
    lines.append("The next search or `pal memory index` updates them.")
    return "\n".join(lines)


def _vectors(status: MemoryStatus) -> str:
    if not status.embedder:
        return "none; keyword search only"
    told = f"{status.embedded:,} of {status.embedded + status.to_embed:,} in {status.embedder}"
    told += "; a batch makes the others (`pal jobs list`)" if status.by_batch else ""
    return told + (f"; {status.shadow_embedded:,} in {status.shadow}, not in use yet" if status.shadow else "")


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


@click.group(cls=LazyGroup)
def memory() -> None:
    """Search the agent's memory; manage its index."""


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
@with_shell
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
        make_on_first_run(shell)
        return with_home(shell, lambda home: _each_line(shell, home, options))
    if not "".join(query).strip():
        raise click.UsageError("Give a question, or --stdin.")
    make_on_first_run(shell)
    answer = call_operation(shell, search_memory, SearchMemory(" ".join(query), **options))
    shell.show(answer, lambda: answer_text(answer))
    return None


@memory.command("index")
@of_agent
@click.option("--force", is_flag=True, help="Index everything again. Known vectors are reused.")
@with_shell
def index(shell: Shell, agent: str, force: bool) -> int:
    """Update the index: words first, then vectors. Exit code 1 when something could not be indexed.

    This is optional: a search finds changed files by itself, and the process that holds the home adds vectors. Use it
    to have the index complete now.

    \b
    Examples:
      pal memory index
      pal memory index --force --agent main
    """
    make_on_first_run(shell)
    asked, hint = IndexMemory(agent, force), "run it again; it continues from there"
    report: SyncReport = command.follow_to_report(
        shell, index_memory, asked, lambda done: STAGES.get(done.stage, done.stage), hint=hint
    )
    shell.show(report, lambda: report_text(report))
    return 1 if report.behind or report.trouble or report.embedder_trouble else 0


@memory.command("export")
@click.option(
    "--sqlite", "to", required=True, metavar="FILE", help="The new database.", type=click.Path(path_type=Path)
)
@of_agent
@with_shell
def export(shell: Shell, to: Path, agent: str) -> None:
    """Write the index as an SQLite database of the form that OpenClaw's documents describe.

    Its tables are files, chunks, embedding_cache, chunks_fts and, with vectors, chunks_vec.

    \b
    Examples:
      pal memory export --sqlite memory.sqlite
    """
    done = call_operation(shell, export_memory, to=str(to.absolute()), agent=agent)
    shell.show(done, lambda: f"{done.files:,} files, {done.chunks:,} chunks and {done.vectors:,} vectors: {done.path}")


@memory.command("watch")
@of_agent
@with_shell
def watch(shell: Shell, agent: str) -> None:
    """Print what is indexed as files change, until Ctrl-C. With --json one object per line.

    \b
    Examples:
      pal memory watch
      pal memory watch --agent main --json
    """
    make_on_first_run(shell)
    if not shell.as_json:
        echo("Watching. Ctrl-C ends it.")
    asked = watch_memory.params(agent)
    run_async(command.print_feed(shell, watch_memory, asked, lambda _, change: report_text(change.report)))


async def _each_line(shell: Shell, home: HomeAccess, options: dict[str, Any]) -> int:
    """One answer for each line, written out before the next line is read. A question that fails is told as such."""
    from palinurus.cli.stdio import InputLines

    code, lines = 0, InputLines("")
    while (line := await lines.next()) is not None:
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


add_operation(memory, get_memory, lambda _, found: found.text, exit_code=lambda found: 0 if found.lines else 1)

add_operation(
    memory,
    show_memory_status,
    lambda _, found: status_text(found),
    exit_code=lambda found: 1 if found.difference_count or found.trouble or found.backend_reason else 0,
    makes_home=True,
)


def _spaces_text(_: Shell, spaces: tuple[VectorSpace, ...]) -> str:
    rows = [(each.state, f"{each.embedded:,} of {each.pieces:,}", each.id) for each in spaces]
    return "\n".join(columns(rows)) if rows else "There are no vectors yet."


add_operation(memory, list_spaces, _spaces_text)


@memory.group()
def collections() -> None:
    """Add, list and remove folders that memory searches in addition to the workspace."""


def _collections_text(_: Shell, listed: tuple[ListedCollection, ...]) -> str:
    if not listed:
        return "There are no collections. `pal memory collections add FOLDER` adds one."
    rows = [(each.name, each.mask, each.path + ("" if each.there else "  (does not exist)")) for each in listed]
    return "\n".join(columns(rows))


def _added_text(_: Shell, added: CollectionAdded) -> str:
    found = added.collection
    return f"{found.name} is searched from now on: {found.path} ({found.mask}), in {added.where}."


add_operation(collections, memory_collections.list_collections, _collections_text)
add_operation(collections, memory_collections.add_collection, _added_text, makes_home=True)
add_operation(collections, memory_collections.remove_collection, lambda _, gone: f"{gone.name} is no longer searched.")
