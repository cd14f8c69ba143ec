"""Installs the programs that a skill needs: first a plan of exact commands for a person, then the commands.

A skill's author wrote the specs, so nothing of them reaches a shell, and every word of a command is checked against a
pattern: a package name cannot be an option. Downloads are bounded, checked against their digest and unpacked in a
folder beside the target, which is then renamed as a whole.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from palinurus.config.home import Home
from palinurus.domain.errors import BadRequest, PalinurusError, WebError
from palinurus.skills.settings import SkillsSettings
from palinurus.skills.skill import Install, Kind, Skill
from palinurus.skills.skills import Skills, find_state

_SHAPES: dict[Kind, re.Pattern[str]] = {
    "brew": re.compile(r"[A-Za-z0-9][A-Za-z0-9@._+-]*(?:/[A-Za-z0-9][A-Za-z0-9@._+-]*){0,2}"),
    "apt": re.compile(r"[a-z0-9][a-z0-9+.-]+"),
    "node": re.compile(r"(?:@[a-z0-9~][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*(?:@[A-Za-z0-9][A-Za-z0-9._-]*)?"),
    "go": re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]*(?:/[A-Za-z0-9_.~-]+)+(?:@[A-Za-z0-9][A-Za-z0-9._-]*)?"),
    "uv": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[A-Za-z0-9,._-]+\])?(?:==[A-Za-z0-9.+!-]+)?"),
}
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ARCHIVES = (".tar.gz", ".tgz", ".tar.bz2", ".zip")
_COMMANDS = {  # by kind, and by the manager of node packages
    "brew": ("brew", "install"),
    "apt": ("apt-get", "install", "-y", "--no-install-recommends"),
    "go": ("go", "install"),
    "uv": ("uv", "tool", "install"),
    "npm": ("npm", "install", "-g", "--ignore-scripts"),
    "pnpm": ("pnpm", "add", "-g", "--ignore-scripts"),
    "yarn": ("yarn", "global", "add", "--ignore-scripts"),
    "bun": ("bun", "add", "-g", "--ignore-scripts"),
}
_ORDER: tuple[Kind, ...] = ("uv", "node", "go", "download", "apt")
MAX_BYTES = 256 * 1024 * 1024
MAX_UNPACKED = 1024 * 1024 * 1024
MAX_FILES = 20_000
SECONDS = 60.0  # without a byte
INSTALL_SECONDS = 1_800.0
Run = Callable[[Sequence[str], float], int]
"""Runs a command with the person's terminal and returns its exit code. Raises TimeoutExpired or OSError."""
Fetch = Callable[[str, IO[bytes]], None]
"""Writes the content of an address into a file, at most MAX_BYTES of it. Raises WebError."""
Member = tuple[str, int, int, Callable[[], IO[bytes] | None]]  # name, size, mode, function that opens it


class Download(Struct, frozen=True, rename="camel", omit_defaults=True):
    url: str
    sha256: str
    target: str  # absolute, below the home's tools
    archive: bool = False
    strip: int = 0


class InstallStep(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One step: a command, or a download that we do ourselves."""

    label: str
    kind: Kind
    bins: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()
    download: Download | None = None


class InstallPlan(Struct, frozen=True, rename="camel", omit_defaults=True):
    skill: str
    steps: tuple[InstallStep, ...] = ()
    missing: tuple[str, ...] = ()  # programs that cannot be installed
    refused: tuple[str, ...] = ()  # methods that are not used, each with its reason


class Ways(Struct, frozen=True):
    """The install methods that this machine has."""

    platform: str
    has: Callable[[str], bool]
    tools: str  # the home's folder for programs
    root: bool = False  # whether we may write to the system


def install_plan(skill: Skill, missing: Sequence[str], settings: SkillsSettings, ways: Ways) -> InstallPlan:
    """Returns the first usable method for each missing program, in order of preference. Pure."""
    refused: list[str] = []
    steps: list[InstallStep] = []
    left = list(dict.fromkeys(missing))
    order: tuple[Kind, ...] = ("brew", *_ORDER) if settings.prefer_brew else (*_ORDER, "brew")
    for spec in sorted(skill.about.install, key=lambda spec: order.index(spec.kind)):
        brings = [name for name in left if name in spec.bins] if spec.bins else list(left)
        if not brings or (spec.os and ways.platform not in spec.os):
            continue
        try:
            steps.append(_step(skill, spec, settings, ways))
            left = [name for name in left if name not in brings]
        except BadRequest as error:
            refused.append(f"{spec.kind}: {error.message}")
    return InstallPlan(skill.name, tuple(steps), tuple(left), tuple(refused))


def _step(skill: Skill, spec: Install, settings: SkillsSettings, ways: Ways) -> InstallStep:
    """Raises BadRequest with the reason why it cannot be used."""
    label = spec.label or f"install {spec.package or PurePosixPath(_parts(spec.url).path).name} ({spec.kind})"
    if spec.kind == "download":
        return InstallStep(label, "download", spec.bins, download=_download(skill, spec, ways))
    if not _SHAPES[spec.kind].fullmatch(spec.package):
        raise BadRequest(f"{spec.package[:80]!r} is not the name of a package")
    command = _COMMANDS[settings.node_manager if spec.kind == "node" else spec.kind]
    if not ways.has(command[0]):
        raise BadRequest(f"there is no {command[0]} here")
    first = ("sudo",) if spec.kind == "apt" and not ways.root else ()
    version = "@latest" if spec.kind == "go" and "@" not in spec.package else ""
    return InstallStep(label, spec.kind, spec.bins, (*first, *command, f"{spec.package}{version}"))


def _parts(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:
        raise BadRequest(f"{url[:120]!r} is not an address: {error}") from None


def _download(skill: Skill, spec: Install, ways: Ways) -> Download:
    address = _parts(spec.url)
    name = PurePosixPath(address.path).name
    if address.scheme != "https" or not address.hostname or address.username is not None:
        raise BadRequest(f"{spec.url[:120]!r} is not a plain https address")
    if not _SHA256.fullmatch(spec.sha256):
        raise BadRequest(f"{spec.url[:200]} has no sha256 to check it by; get it by hand")
    archive = spec.extract or bool(spec.archive) or name.endswith(_ARCHIVES)
    if archive and not f".{spec.archive or name}".endswith(_ARCHIVES):
        raise BadRequest(f"{(spec.archive or name)[:60]!r} is not an archive that can be opened")
    own = re.sub(r"[^A-Za-z0-9_-]+", "-", skill.key).strip("-")[:64] or "skill"
    folder = os.path.normpath(os.path.join(ways.tools, own, spec.target_dir))  # noqa: PTH118
    if not f"{folder}/".startswith(f"{os.path.normpath(ways.tools)}/{own}/"):
        raise BadRequest(f"its target {spec.target_dir[:60]!r} leads out of the skill's folder")
    return Download(spec.url, spec.sha256, folder, archive, spec.strip_components)


def download(url: str, into: IO[bytes]) -> None:
    import httpx2

    size = 0
    try:
        with httpx2.stream("GET", url, follow_redirects=True, timeout=SECONDS) as answer:
            answer.raise_for_status()
            if answer.url.scheme != "https":
                raise WebError(f"{url} was redirected to an address without TLS")
            for piece in answer.iter_bytes():
                size += len(piece)
                if size > MAX_BYTES:
                    raise WebError(f"{url} has more than {MAX_BYTES:,} bytes")
                into.write(piece)
    except httpx2.HTTPError as error:
        raise WebError(f"{url} could not be downloaded: {error}") from None


def install_download(wanted: Download, get: Fetch = download) -> Path:
    """Downloads and unpacks. Returns the folder. Raises WebError or BadRequest, and then leaves nothing behind."""
    target = Path(wanted.target)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _staged(target) as folder:
        file = folder / ".download"
        with file.open("w+b") as whole:
            get(wanted.url, whole)
            whole.seek(0)
            found = hashlib.file_digest(whole, "sha256").hexdigest()
        if found != wanted.sha256:
            why = f"{wanted.url} is not what the skill names: its sha256 is {found}"
            raise BadRequest(why, hint="do not use it; tell its author")
        if wanted.archive:
            unpack(file, folder, wanted.strip)
            file.unlink()
        else:
            program = folder / (PurePosixPath(urlsplit(wanted.url).path).name or "program")
            file.rename(program)
            program.chmod(0o755)
    return target


def unpack(archive: Path, folder: Path, strip: int = 0) -> None:
    """Unpacks regular files and folders only. Raises BadRequest for anything else."""
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                _write_all(_zip_members(zipped), folder, strip)
        else:
            with tarfile.open(archive) as tarred:
                _write_all(_tar_members(tarred), folder, strip)
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise BadRequest(f"the archive cannot be opened: {error}") from None


def _zip_members(zipped: zipfile.ZipFile) -> Iterator[Member]:
    for info in zipped.infolist():
        mode = info.external_attr >> 16
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise BadRequest(f"the archive holds {info.filename[:80]!r}, which is not a plain file")
        if not info.is_dir():
            yield info.filename, info.file_size, mode, partial(zipped.open, info)


def _tar_members(tarred: tarfile.TarFile) -> Iterator[Member]:
    for info in tarred:
        if not (info.isreg() or info.isdir()):
            raise BadRequest(f"the archive holds {info.name[:80]!r}, which is not a plain file")
        if info.isreg():
            yield info.name, info.size, info.mode, partial(tarred.extractfile, info)


def _write_all(members: Iterator[Member], folder: Path, strip: int) -> None:
    left = MAX_UNPACKED
    for number, (name, size, mode, opened) in enumerate(members):
        left -= size  # neither tarfile nor zipfile gives more bytes than the entry declares
        if number >= MAX_FILES:
            raise BadRequest(f"the archive holds more than {MAX_FILES:,} files")
        if left < 0:
            raise BadRequest(f"the archive unpacks to more than {MAX_UNPACKED:,} bytes")
        parts = PurePosixPath(name).parts
        if name.startswith("/") or ".." in parts or "\\" in name or "\0" in name:
            raise BadRequest(f"the archive holds {name[:80]!r}, which leads out of its folder")
        source = opened() if len(parts) > strip else None
        if source is None:
            continue
        place = folder.joinpath(*parts[strip:])
        place.parent.mkdir(parents=True, exist_ok=True)
        with source, place.open("xb") as file:
            shutil.copyfileobj(source, file)
        place.chmod(0o755 if mode & 0o111 else 0o644)


@contextmanager
def _staged(target: Path) -> Iterator[Path]:
    staged = Path(tempfile.mkdtemp(prefix=".installing-", dir=target.parent))
    try:
        yield staged
        if target.exists():
            raise PalinurusError(f"{target} already exists", hint="remove it to install again")
        staged.rename(target)
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def plan_for(skills: Skills, name: str, home: Home) -> InstallPlan:
    """Returns what would be run to install the skill's programs. Raises NotFound."""
    state = find_state(skills, name)
    missing = (*state.verdict.missing.bins, *_one_of(state.skill, state.verdict.missing.any_bins))
    ways = Ways(sys.platform, skills.has_program, str(home.root / "tools"), root=os.geteuid() == 0)
    return install_plan(state.skill, missing, skills.settings, ways)


def do_step(step: InstallStep, *, run: Run | None = None, get: Fetch = download) -> None:
    """Runs one step of a plan that a person has approved. Raises PalinurusError if it fails."""
    if step.download is not None:
        install_download(step.download, get)
        return
    try:
        code = (run or _run)(step.argv, INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        raise PalinurusError(f"{step.argv[0]} took longer than {INSTALL_SECONDS:.0f} seconds and was ended") from None
    except OSError as error:
        raise PalinurusError(f"{step.argv[0]} could not be run: {error.strerror}") from None
    if code:
        raise PalinurusError(f"{' '.join(step.argv)} ended with code {code}", hint="see its output above")


def _one_of(skill: Skill, names: Sequence[str]) -> Sequence[str]:
    """Returns the first program that a spec provides, of several alternatives."""
    brought = [name for name in names if any(name in spec.bins for spec in skill.about.install)]
    return brought[:1] or names[:1]


def _run(argv: Sequence[str], seconds: float) -> int:
    return subprocess.run(argv, check=False, timeout=seconds).returncode  # no shell, and shown to the person before
