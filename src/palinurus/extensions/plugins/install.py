"""Installs plugins: from a folder, a wheel, or by the name of a distribution. Nothing of a plugin is run for it.

First everything is put into `<home>/plugins/staged/<digest>` and shown; what a person agrees to is moved to
`<home>/plugins/installed/<id>` as it is. A source distribution is refused, because building one runs code. A wheel
comes with what it requires, as wheels too, by pip and its settings.
"""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from contextlib import suppress
from email import message_from_string
from importlib import metadata
from pathlib import Path

from msgspec import Struct

from palinurus.config.atomic import make_directory
from palinurus.config.home import Home
from palinurus.domain.errors import BadRequest, NotFound, Stale
from palinurus.extensions.plugins.find import FoundPlugin, read_plugin
from palinurus.extensions.plugins.index import (
    MOST_BYTES,
    MOST_FILES,
    HealthFile,
    InstalledPlugin,
    Tier,
    change_index,
    digest_of,
    load_index,
    plugins_folder,
)
from palinurus.extensions.plugins.manifest import find_manifest
from palinurus.workspace.walk import walk_tree

GROUP = "palinurus.plugins"  # of entry points
PIP_SECONDS = 600.0
LARGEST_PANEL = 1_000_000  # bytes
MOST_COPIED = 20_000  # files of a folder
_LEFT_OUT = frozenset(
    {"__pycache__", ".git", ".venv", "venv", "node_modules", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9,._-]+\])?(\s*(==|>=|<=|~=|<|>)\s*[A-Za-z0-9.*+!_-]+)*")
_METADATA = re.compile(r"[^/]+\.dist-info/METADATA", re.IGNORECASE)
_MODULE = re.compile(r"\w+(\.\w+)*")
_BUILT = (".tar.gz", ".zip", ".tar.bz2", ".tgz")


class StagedPlugin(Struct, frozen=True):
    """What would be installed."""

    digest: str
    folder: Path  # of the manifest
    root: Path | None
    source: str


def stage_plugin(home: Home, source: str) -> StagedPlugin:
    """Blocks for as long as pip takes. Raises BadRequest and NotFound."""
    staging = plugins_folder(home) / "staged"
    shutil.rmtree(staging, ignore_errors=True)  # of those that nobody has agreed to
    make_directory(staging)
    path = Path(source)
    if path.is_dir():
        _copy_folder(path, staging / "new")
        folder = staging / "new"
    elif source.endswith(".whl") or (not path.exists() and _NAME.fullmatch(source)):
        if (ours := _beside_us(source)) is not None:
            return ours
        _install_wheel(source, staging)
        folder = _plugin_among(staging / "new")
    else:
        known = source.endswith(_BUILT) or "://" in source or path.exists()
        why = "building a source distribution runs code" if known else "there is no such folder or wheel"
        raise BadRequest(f"{source[:200]!r} cannot be installed: {why}", hint="a folder, a wheel, or a name")
    digest = digest_of(staging / "new")
    (staging / "new").rename(staging / digest)
    return StagedPlugin(digest, staging / digest / folder.relative_to(staging / "new"), staging / digest, source)


def install_staged(home: Home, digest: str, source: str, tier: Tier, now_ms: int) -> InstalledPlugin:
    """What was staged and shown. Raises Stale if that is gone, BadRequest for a plugin that is none."""
    staged = plugins_folder(home) / "staged" / digest
    ours = _beside_us(source)
    if ours is not None and ours.digest == digest:
        found = read_plugin(ours.folder, tier)
        record = InstalledPlugin(found.manifest, str(ours.folder), "", digest, tier, source, installed_at=now_ms)
    elif re.fullmatch(r"[0-9a-f]{64}", digest) and staged.is_dir() and digest_of(staged) == digest:
        inside = _plugin_among(staged).relative_to(staged)
        plugin_id = _checked_id(read_plugin(staged / inside, tier).reasons, staged / inside)
        root = plugins_folder(home) / "installed" / plugin_id
        make_directory(root.parent)
        shutil.rmtree(root, ignore_errors=True)
        staged.rename(root)
        found = read_plugin(root / inside, tier)  # again: its manifest may name its folder
        record = InstalledPlugin(
            found.manifest, str(root / inside), str(root), digest, tier, source, installed_at=now_ms
        )
    else:
        raise Stale("what was shown is not there any more", hint="install it again")
    change_index(home, found.id, record)
    HealthFile(home).reset(found.id)
    return record


def remove_plugin(home: Home, plugin_id: str) -> Path | None:
    """Everything of it but its data; where that is. Raises NotFound."""
    record = load_index(home).plugins.get(plugin_id)
    if record is None:
        raise NotFound(
            f"the plugin {plugin_id[:80]} was not installed by pal", hint="take it out of plugins.load.paths instead"
        )
    if record.root:
        shutil.rmtree(record.root, ignore_errors=True)
    change_index(home, plugin_id, None)
    HealthFile(home).reset(plugin_id)
    shutil.rmtree(home.root / "derived" / "plugins", ignore_errors=True)  # made again where it is needed
    data = plugins_folder(home) / "data" / plugin_id
    with suppress(OSError):  # it has something in it, or was never made
        data.rmdir()
    return data if data.is_dir() else None


def read_panel(found: FoundPlugin, file: str) -> str:
    """The HTML of a page. Raises BadRequest, also if the plugin's files have changed."""
    if found.digest and found.root is not None and digest_of(found.root) != found.digest:
        raise BadRequest(f"the files of {found.id} have changed", hint=f"pal plugins update {found.id}")
    path = (found.folder / file).resolve()
    if not path.is_relative_to(found.folder.resolve()) or not path.is_file() or path.stat().st_size > LARGEST_PANEL:
        raise BadRequest(f"{found.id} has no file {file} of at most {LARGEST_PANEL:,} bytes")
    return path.read_text(encoding="utf-8", errors="replace")


def _checked_id(reasons: Iterable[str], folder: Path) -> str:
    for why in reasons:
        raise BadRequest(why)
    return read_plugin(folder, "global").id


def _copy_folder(source: Path, target: Path) -> None:
    if find_manifest(source) is None:
        raise BadRequest(f"{source} has no manifest", hint="`pal plugins new NAME` writes one")
    target.mkdir(mode=0o700)
    entries = walk_tree(
        str(source), skip=lambda _, entry: entry.name in _LEFT_OUT, on_error=_refuse, max_entries=MOST_COPIED
    )
    for count, (path, entry) in enumerate(entries):
        if count == MOST_COPIED:
            raise BadRequest(f"{source} has more than {MOST_COPIED:,} files")
        if entry.is_symlink():
            raise BadRequest(f"it has a link: {path}")
        place = target / path
        if entry.is_dir(follow_symlinks=False):
            place.mkdir(parents=True, exist_ok=True)
        elif entry.is_file(follow_symlinks=False):
            place.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as read, place.open("wb") as written:
                shutil.copyfileobj(read, written)


def _refuse(path: str, error: OSError) -> None:
    raise BadRequest(f"{path} cannot be read: {(error.strerror or str(error)).lower()}")


def _install_wheel(what: str, staging: Path) -> None:
    """Into `new`, with what it requires: wheels only, so nothing is built and nothing is run."""
    if what.endswith(".whl") and not Path(what).is_file():
        raise BadRequest(f"there is no wheel {what}")
    extras = match[0] if (match := re.search(r"\[[^]]*\]", what)) and not what.endswith(".whl") else ""
    _pip(what, "download", "--no-deps", "--dest", str(staging / "wheel"), what)
    (wheel,) = (staging / "wheel").iterdir()
    _check_wheel(wheel)
    _pip(what, "install", "--no-compile", "--target", str(staging / "new"), f"{wheel}{extras}")
    for cache in list((staging / "new").rglob("__pycache__")):  # no digest counts these, and Python would run them
        shutil.rmtree(cache)


def _check_wheel(wheel: Path) -> None:
    """Raises BadRequest for one that would fill the disk, and for one that names an address which pip would build."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            entries = archive.infolist()
            if len(entries) > MOST_FILES or sum(each.file_size for each in entries) > MOST_BYTES:
                raise BadRequest(f"{wheel.name} is larger than {MOST_FILES:,} files or {MOST_BYTES:,} bytes")
            about = [each for each in entries if _METADATA.fullmatch(each.filename)]
            texts = [archive.read(each).decode(errors="replace") for each in about]
    except (zipfile.BadZipFile, OSError) as error:
        raise BadRequest(f"{wheel.name} is no wheel: {error}") from None
    # By the parser that pip uses: a field may go on in the next line.
    for needed in (each for text in texts for each in message_from_string(text).get_all("Requires-Dist", ())):
        if "@" in needed.partition(";")[0]:
            raise BadRequest(
                f"{wheel.name} requires {needed.strip()[:200]}, and building what stands there would run code",
                hint="its author should name a version instead of an address",
            )


def _pip(what: str, *words: str) -> None:
    """Blocks. Raises BadRequest."""
    command = [
        sys.executable, "-m", "pip", words[0], "--quiet", "--disable-pip-version-check", "--no-input",
        "--only-binary", ":all:", *words[1:],
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PIP_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise BadRequest(f"pip did not {words[0]} {what} within {PIP_SECONDS:g} s") from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        why = next((line for line in reversed(said) if "ERROR" in line), said[-1] if said else "pip failed")
        raise BadRequest(f"pip cannot install {what}: {why.removeprefix('ERROR: ')}", hint="only wheels are installed")


def _plugin_among(root: Path) -> Path:
    """The folder of the manifest: the root itself, or the package that an entry point names: first of the distribution
    that was asked for, which pip marks as REQUESTED."""
    if find_manifest(root) is not None:
        return root
    points = sorted(
        root.glob("*.dist-info/entry_points.txt"), key=lambda each: not (each.parent / "REQUESTED").exists()
    )
    found = [
        root / Path(*module.split("."))
        for each in points
        for module in _entry_modules(each.read_text(errors="replace"))
    ]
    for each in found:
        if find_manifest(each) is not None:
            return each
    raise BadRequest(f"it is not a plugin: no entry point of {GROUP} names a package with a manifest")


def _entry_modules(text: str) -> list[str]:
    points = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    with suppress(configparser.Error):
        points.read_string(text)
    values = points[GROUP].values() if points.has_section(GROUP) else ()
    modules = [value.partition(":")[0].strip() for value in values]
    return [each for each in modules if _MODULE.fullmatch(each)]  # no path that leads out


def _beside_us(name: str) -> StagedPlugin | None:
    """A distribution that somebody has installed beside Palinurus already."""
    try:
        found = metadata.distribution(name)
    except (metadata.PackageNotFoundError, ValueError):
        return None
    for module in _entry_modules(found.read_text("entry_points.txt") or ""):
        folder = Path(str(found.locate_file(Path(*module.split(".")))))
        if find_manifest(folder) is not None:
            return StagedPlugin(digest_of(folder), folder, None, name)
    return None
