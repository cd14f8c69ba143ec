"""What an update would change, for the person who decides: files, what it needs, what it may do, whom it talks to."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from palinurus.skills.capabilities import restriction_of, told
from palinurus.skills.registry.arrival import Arrival
from palinurus.skills.registry.lock import Pin
from palinurus.skills.registry.scan import Finding, ScanReport
from palinurus.skills.skill import Manifest, Skill


class Changes(Struct, frozen=True, rename="camel"):
    before: str  # version
    after: str
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    lines: tuple[str, ...]  # what else is different, one sentence each
    findings: tuple[Finding, ...] = ()  # hints of the scan that were not there before

    @property
    def none(self) -> bool:
        return not (self.added or self.removed or self.changed)


def compare(old: Pin, about: Manifest | None, report: ScanReport | None, arrival: Arrival) -> Changes:
    """`about` and `report` are those of what is installed; None when it cannot be read any more."""
    new = arrival.pin.files
    lines = list(_owner(old, arrival.pin))
    if about is not None:
        lines += _manifest(about, arrival)
    if report is not None:
        lines += _scan(report, arrival.report)
    return Changes(
        before=old.version,
        after=arrival.pin.version,
        added=tuple(path for path in new if path not in old.files),
        removed=tuple(path for path in old.files if path not in new),
        changed=tuple(path for path, digest in new.items() if old.files.get(path, digest) != digest),
        lines=tuple(lines),
        findings=tuple(_new_findings(report, arrival.report)),
    )


def _owner(old: Pin, new: Pin) -> Iterator[str]:
    if old.owner.lower() != new.owner.lower():
        yield f"it belongs to {new.owner or 'nobody'} now; it was {old.owner or 'nobody'}'s"
    if old.registry != new.registry:
        yield f"it comes from {new.registry} now; it came from {old.registry}"


def _manifest(old: Manifest, arrival: Arrival) -> Iterator[str]:
    new = arrival.about
    before = told(restriction_of(Skill(old, str(arrival.folder), "managed", "", arrival.pin.registry), ""))
    after = told(restriction_of(Skill(new, str(arrival.folder), "managed", "", arrival.pin.registry), ""))
    if before != after:
        yield f"it may use: {after} (before: {before})"
    if old.name != new.name:
        yield f"it is called {new.name} now (before: {old.name})"
    if old.description != new.description:
        yield "its description is another one"
    for what, was, now in (
        ("programs", (*old.requires.bins, *old.requires.any_bins), (*new.requires.bins, *new.requires.any_bins)),
        ("variables", old.requires.env, new.requires.env),
        ("parts of the config", old.requires.config, new.requires.config),
        ("installs", _installs(old), _installs(new)),
    ):
        if more := [each for each in now if each not in was]:
            yield f"it asks for more {what}: {', '.join(more[:10])}"


def _installs(about: Manifest) -> tuple[str, ...]:
    return tuple(f"{each.kind} {each.package or each.url}" for each in about.install)


def _scan(old: ScanReport, new: ScanReport) -> Iterator[str]:
    if scripts := [path for path in new.scripts if path not in old.scripts]:
        yield f"new scripts: {', '.join(scripts[:10])}"
    known = {each.host for each in old.hosts}
    if hosts := [each.host for each in new.hosts if each.host not in known]:
        yield f"new addresses: {', '.join(hosts[:10])}"


def _new_findings(old: ScanReport | None, new: ScanReport) -> Iterator[Finding]:
    seen = {(each.what, each.path, each.text) for each in (old.findings if old else ())}
    yield from (each for each in new.findings if (each.what, each.path, each.text) not in seen)
