"""What `pal skills search`, `install`, `update`, `verify` and `publish` say to people.

Much of it was written by strangers: it goes through `visible`, so that a terminal shows it and does nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # loaded when one of these is called, and then by whoever calls
    from palinurus.operations.skill_publishing import Prepared
    from palinurus.operations.skill_registry import SearchResult, Update
    from palinurus.operations.skill_verifying import Verified
    from palinurus.skills.registry.arrival import Arrival
    from palinurus.skills.registry.scan import Finding, ScanReport

_WHAT = {
    "hidden": "characters nobody sees",
    "phrase": "sounds like an order to the model",
    "command": "a command to look at",
    "secret": "looks like a secret",
    "blob": "a blob nobody can read",
    "comment": "a comment that is not shown when it is rendered",
}
MAX_ROWS = 20


def visible(text: str, most: int = 160) -> str:
    """One line; what cannot be seen is written out."""
    line = " ".join(text.split())
    shown = "".join(char if char.isprintable() else f"<U+{ord(char):04X}>" for char in line)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def search_text(found: SearchResult) -> str:
    if not found.results:
        return f"Nothing was found at {found.registry}."
    lines = []
    for each in found.results:
        version = f" {visible(each.version, 30)}" if each.version else ""
        owner = f"  @{visible(each.owned_by, 40)}" if each.owned_by else ""
        lines.append(f"{visible(each.slug, 64)}{version}{owner}  {visible(each.summary or each.display_name, 90)}")
    return "\n".join(lines)


def arrival_text(arrival: Arrival, taken: str = "") -> str:
    pin, about = arrival.pin, arrival.about
    rows = {
        "what": visible(about.description, 400),
        "from": f"{pin.registry}{f', published by {visible(pin.owner)}' if pin.owner else ''}",
        "may use": visible(arrival.may_use, 400),
        "programs": ", ".join((*about.requires.bins, *(f"{name}?" for name in about.requires.any_bins))),
        "variables": ", ".join(dict.fromkeys((*about.requires.env, *filter(None, (about.primary_env,))))),
        "installs": "; ".join(f"{each.kind} {each.package or each.url}" for each in about.install),
        "digest": pin.digest,
        "look at": str(arrival.folder),
    }
    lines = [f"{about.name} {pin.version}"]
    lines += [f"  {key:<10} {visible(value, 400)}" for key, value in rows.items() if value]
    lines += _report(arrival.report)
    if arrival.suspicious:
        lines.append(f"  ! the registry itself has doubts: {visible(arrival.suspicious, 300)}")
    if taken:
        lines.append(f"  ! a skill of that name is there already: {visible(taken, 300)}")
    return "\n".join(lines)


def update_text(each: Update) -> str:
    lines = [f"{each.pin.slug}: {visible(each.said, 400)}"]
    if each.changes is not None and each.arrival is not None:
        for what, paths in (
            ("added", each.changes.added),
            ("changed", each.changes.changed),
            ("removed", each.changes.removed),
        ):
            if paths:
                lines.append(f"  {what:<8} {visible(', '.join(paths), 300)}")
        lines += [f"  ! {visible(line, 300)}" for line in each.changes.lines]
        lines += [_hint(found) for found in each.changes.findings[:MAX_ROWS]]
        lines.append(f"  look at  {each.arrival.folder}")
        if each.arrival.suspicious:
            lines.append(f"  ! the registry itself has doubts: {visible(each.arrival.suspicious, 300)}")
    return "\n".join(lines)


def verify_text(found: tuple[Verified, ...]) -> str:
    if not found:
        return "No skill was installed from a registry."
    width = max(len(each.slug) for each in found)
    return "\n".join(
        f"{each.state:<9}  {each.slug:<{width}}  {each.version}{f'  {visible(each.said, 300)}' if each.said else ''}"
        for each in found
    )


def publish_text(prepared: Prepared) -> str:
    about = prepared.publication
    lines = [f"{about.slug}@{about.version} ({about.display_name}) for {prepared.registry}"]
    paths = list(prepared.bundle.files)
    lines += [f"  {path}" for path in paths[:MAX_ROWS]]
    if len(paths) > MAX_ROWS:
        lines.append(f"  … and {len(paths) - MAX_ROWS} more")
    lines += _report(prepared.report)
    return "\n".join(lines)


def _hint(each: Finding) -> str:
    return f"  ? {visible(each.path, 80)}:{each.line}: {_WHAT[each.what]}: {visible(each.text, 120)}"


def _report(report: ScanReport) -> Iterator[str]:
    yield f"  files      {report.files}, {report.bytes:,} bytes"
    if report.scripts:
        yield f"  scripts    {visible(', '.join(report.scripts), 300)}"
    if report.hosts:
        yield f"  addresses  {visible(', '.join(each.host for each in report.hosts), 300)}"
    for each in report.findings[:MAX_ROWS]:
        yield _hint(each)
    more = report.more + max(0, len(report.findings) - MAX_ROWS)
    if more:
        yield f"  ? … and {more} more"
    if report.unsearched:
        yield f"  ? {report.unsearched:,} characters were not searched: it is unusually large"
