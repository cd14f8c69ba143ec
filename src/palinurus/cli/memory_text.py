"""Memory for people: answers, reports and states as lines of text. Pure, and cheap to import."""

from __future__ import annotations

import re
from collections.abc import Iterable

from palinurus.memory.answer import Answer, Freshness, Result
from palinurus.memory.report import MemoryStatus, SyncReport

MOST_LISTED = 20
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def answer_text(answer: Answer) -> str:
    lines = [line for result in answer.results for line in result_lines(result)]
    if not answer.results:
        lines.append(answer.refused or "Nothing was found.")
    if answer.left_out:
        lines.append(f"{answer.left_out:,} more did not fit; --max-results and --budget-tokens say how much may.")
    lines.append(freshness_line(answer))
    return "\n".join(lines)


def result_lines(result: Result) -> list[str]:
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


def freshness_line(answer: Answer) -> str:
    """How far the answer can be trusted, in one line."""
    fresh = answer.freshness
    parts = [f"{answer.mode} search", _state(fresh)]
    if fresh.caught_up:
        parts.append(f"{_files(fresh.caught_up)} changed and read just now")
    if fresh.vectors != "off" or fresh.embedded:
        share = f" ({fresh.embedded:,} of {fresh.pieces:,})" if fresh.vectors == "partial" else ""
        parts.append(f"vectors {fresh.vectors}{share}")
    if answer.took_ms:
        parts.append(f"{answer.took_ms:.0f} ms")
    line = ", ".join(parts)
    return f"({line}: {fresh.why})" if fresh.why else f"({line})"


def _state(fresh: Freshness) -> str:
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
    lines = [f"{_files(report.compared)} compared: {', '.join(done) or 'nothing had changed'}."]
    if report.pieces:
        lines.append(f"{report.pieces:,} pieces indexed.")
    if report.embedded or report.cached:
        lines.append(f"{report.embedded:,} vectors made, {report.cached:,} known already.")
    lines += _told(f"not read: {each.path}: {each.reason}" for each in report.skipped)
    lines += _told(f"behind: {path}" for path in report.behind)
    if report.trouble:
        lines.append(f"The index is in trouble: {report.trouble}")
    if report.embedder_trouble:
        lines.append(f"The embedder is in trouble: {report.embedder_trouble} (words are indexed all the same)")
    if report.took_ms:
        lines.append(f"Took {report.took_ms / 1000:.2f} s.")
    return "\n".join(lines)


def status_text(status: MemoryStatus) -> str:
    rows = [
        ("agent", status.agent + ("" if status.enabled else " (switched off)")),
        ("files", f"{status.files:,}" + _by_source(status)),
        ("pieces", f"{status.pieces:,} in {status.passages:,} passages"),
        ("size", f"{_size(status.text_bytes)} of text, {_size(status.index_bytes)} of index{_times(status)}"),
        ("vectors", _vectors(status)),
        ("watching", "yes" if status.watching else "no; every search looks for itself"),
        ("index", status.index_path),
    ]
    lines = [f"{name:<9} {value}" for name, value in rows if value]
    lines += _told(f"not read: {each.path}: {each.reason}" for each in status.skipped)
    if status.trouble:
        lines.append(f"trouble: {status.trouble}")
    how = "every file was read" if status.deep else "by size and time; --deep reads every file"
    if not status.difference_count:
        return "\n".join([*lines, f"The index and the disk say the same ({how})."])
    lines.append(f"{status.difference_count:,} differences between index and disk ({how}):")
    lines += _told(f"  {each.path}: {each.what}" for each in status.differences)
    lines.append("The next search or `pal memory index` takes them up.")
    return "\n".join(lines)


def _by_source(status: MemoryStatus) -> str:
    told = ", ".join(f"{source} {count:,}" for source, count in sorted(status.sources.items()))
    return f" ({told})" if len(status.sources) > 1 else ""


def _vectors(status: MemoryStatus) -> str:
    if not status.embedder:
        return "none; search goes by words alone"
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
