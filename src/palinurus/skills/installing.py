"""What would have to be run so that a skill finds its programs: exact commands, for a person to read first.

A skill's author wrote the specs, so nothing of them reaches a shell, and every word that goes into a command has the
shape of what it should be: a package's name cannot be an option. Nothing is run here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from msgspec import Struct

from palinurus.config.offering import SkillsSettings
from palinurus.skills.skill import Install, Kind, Skill

_SHAPES: dict[Kind, re.Pattern[str]] = {
    "brew": re.compile(r"[A-Za-z0-9][A-Za-z0-9@._+-]*(?:/[A-Za-z0-9][A-Za-z0-9@._+-]*){0,2}"),
    "apt": re.compile(r"[a-z0-9][a-z0-9+.-]+"),
    "node": re.compile(r"(?:@[a-z0-9~][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*(?:@[A-Za-z0-9][A-Za-z0-9._-]*)?"),
    "go": re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]*(?:/[A-Za-z0-9_.~-]+)+(?:@[A-Za-z0-9][A-Za-z0-9._-]*)?"),
    "uv": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[A-Za-z0-9,._-]+\])?(?:==[A-Za-z0-9.+!-]+)?"),
}
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ARCHIVES = (".tar.gz", ".tgz", ".tar.bz2", ".zip")
_NODE = {
    "npm": ("npm", "install", "-g", "--ignore-scripts"),
    "pnpm": ("pnpm", "add", "-g", "--ignore-scripts"),
    "yarn": ("yarn", "global", "add", "--ignore-scripts"),
    "bun": ("bun", "add", "-g", "--ignore-scripts"),
}
_ORDER: tuple[Kind, ...] = ("uv", "node", "go", "download", "apt")


class Download(Struct, frozen=True, rename="camel", omit_defaults=True):
    url: str
    sha256: str
    target: str  # absolute, below the home's tools
    archive: bool = False
    strip: int = 0


class Step(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One thing to do: a command, or a download that we do ourselves."""

    label: str
    kind: Kind
    bins: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()
    download: Download | None = None


class Plan(Struct, frozen=True, rename="camel", omit_defaults=True):
    skill: str
    steps: tuple[Step, ...] = ()
    missing: tuple[str, ...] = ()  # programs for which there is no way
    refused: tuple[str, ...] = ()  # ways that are not taken, each with its reason


class Ways(Struct, frozen=True):
    """What can install something here."""

    platform: str
    has: Callable[[str], bool]
    tools: str  # the home's folder for programs
    root: bool = False  # whether we may write to the system


def install_plan(skill: Skill, missing: Sequence[str], settings: SkillsSettings, ways: Ways) -> Plan:
    """The first way that works for each missing program, in order of preference. Pure."""
    refused: list[str] = []
    steps: list[Step] = []
    left = list(dict.fromkeys(missing))
    for spec in _preferred(skill.about.install, settings):
        brings = [name for name in left if name in spec.bins] if spec.bins else list(left)
        if not brings or (spec.os and ways.platform not in spec.os):
            continue
        made = _step(skill, spec, settings, ways)
        if isinstance(made, str):
            refused.append(made)
        else:
            steps.append(made)
            left = [name for name in left if name not in brings]
    return Plan(skill.name, tuple(steps), tuple(left), tuple(refused))


def _preferred(specs: Sequence[Install], settings: SkillsSettings) -> Iterator[Install]:
    order: tuple[Kind, ...] = ("brew", *_ORDER) if settings.prefer_brew else (*_ORDER, "brew")
    for kind in order:
        yield from (spec for spec in specs if spec.kind == kind)


def _step(skill: Skill, spec: Install, settings: SkillsSettings, ways: Ways) -> Step | str:
    label = spec.label or f"install {spec.package or PurePosixPath(urlsplit(spec.url).path).name} ({spec.kind})"
    if spec.kind == "download":
        found = _download(skill, spec, ways)
        return found if isinstance(found, str) else Step(label, "download", spec.bins, download=found)
    if not _SHAPES[spec.kind].fullmatch(spec.package):
        return f"{spec.kind}: {spec.package[:80]!r} is not the name of a package"
    argv = _command(spec, settings, ways)
    program = next(word for word in argv if word != "sudo")
    if not ways.has(program):
        return f"{spec.kind}: there is no {program} here"
    return Step(label, spec.kind, spec.bins, argv)


def _command(spec: Install, settings: SkillsSettings, ways: Ways) -> tuple[str, ...]:
    match spec.kind:
        case "brew":
            return ("brew", "install", spec.package)
        case "apt":
            plain = ("apt-get", "install", "-y", "--no-install-recommends", spec.package)
            return plain if ways.root else ("sudo", *plain)
        case "node":
            return (*_NODE[settings.node_manager], spec.package)
        case "go":
            return ("go", "install", spec.package if "@" in spec.package else f"{spec.package}@latest")
        case _:
            return ("uv", "tool", "install", spec.package)


def _download(skill: Skill, spec: Install, ways: Ways) -> Download | str:
    address = urlsplit(spec.url)
    name = PurePosixPath(address.path).name
    if address.scheme != "https" or not address.hostname or address.username is not None:
        return f"download: {spec.url[:120]!r} is no plain https address"
    if not _SHA256.fullmatch(spec.sha256):
        return f"download: {spec.url[:200]} has no sha256 to check it by; get it by hand"
    archive = spec.extract or bool(spec.archive) or name.endswith(_ARCHIVES)
    if archive and not f".{spec.archive or name}".endswith(_ARCHIVES):
        return f"download: {(spec.archive or name)[:60]!r} is no archive that can be opened"
    folder = os.path.normpath(os.path.join(ways.tools, _folder(skill.key), spec.target_dir))  # noqa: PTH118
    if not f"{folder}/".startswith(f"{os.path.normpath(ways.tools)}/{_folder(skill.key)}/"):
        return f"download: its target {spec.target_dir[:60]!r} leads out of the skill's folder"
    return Download(spec.url, spec.sha256, folder, archive, spec.strip_components)


def _folder(key: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", key).strip("-")[:64] or "skill"
