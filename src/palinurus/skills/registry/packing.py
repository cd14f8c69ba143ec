"""A folder as a bundle: what would be published, and what is installed.

Left out is what the clawhub command leaves out: names with a dot, node_modules, and what .clawhubignore or .gitignore
name. Of their patterns we read the plain ones; a pattern with a ! is refused rather than misread.
"""

from __future__ import annotations

import fnmatch
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from palinurus.domain.errors import BadRequest
from palinurus.skills.registry.bundle import MAX_FILE, MAX_FILES, Bundle, make_bundle, too_large

_IGNORE = (".clawhubignore", ".clawdhubignore", ".gitignore")
_SKIPPED = frozenset({"node_modules", "__pycache__"})
_GENERATED = "skill-card.md"  # a registry makes it

Leaves = Callable[[str, bool], bool]


def pack(folder: Path) -> Bundle:
    """What would be published. Raises BadRequest for what may not be in a skill."""
    leaves = _ignored(folder)
    return make_bundle(_files(folder, leaves), folder.resolve().name)


def installed(folder: Path) -> Bundle:
    """What is there, all of it but the records of clients. Raises BadRequest."""
    return make_bundle(_files(folder, lambda path, _: path in (".clawhub", ".clawdhub")), folder.name)


def _files(folder: Path, leaves: Leaves, inner: str = "") -> Iterator[tuple[str, bytes]]:
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        raise BadRequest(f"{folder} cannot be looked into: {error.strerror}") from None
    if len(entries) > 4 * MAX_FILES:
        raise BadRequest(f"{folder} holds more than {4 * MAX_FILES:,} files")
    for entry in entries:
        path = f"{inner}/{entry.name}" if inner else entry.name
        is_folder = entry.is_dir(follow_symlinks=False)
        if leaves(path, is_folder):
            continue
        if is_folder:
            yield from _files(Path(entry.path), leaves, path)
        else:
            yield path, _content(entry.path, path)


def _content(place: str, path: str) -> bytes:
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        raise BadRequest(f"{path} is a link or cannot be read", hint="a skill is made of plain files") from None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise BadRequest(f"{path} is no plain file")
        data = file.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise too_large(path, alone=True)
    return data


def _ignored(folder: Path) -> Leaves:
    patterns = [pattern for name in _IGNORE for pattern in _patterns(folder / name)]

    def leaves(path: str, is_folder: bool) -> bool:
        name = path.rsplit("/", 1)[-1]
        if name.startswith(".") or name in _SKIPPED or path.lower() == _GENERATED:
            return True
        return any(_matches(pattern, path, name, is_folder) for pattern in patterns)

    return leaves


def _patterns(file: Path) -> Sequence[str]:
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ()
    found = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if any(pattern.startswith("!") for pattern in found):
        raise BadRequest(f"{file.name} takes something back with !, which is not understood here")
    return found


def _matches(pattern: str, path: str, name: str, is_folder: bool) -> bool:
    if pattern.endswith("/"):
        if not is_folder:
            return False
        pattern = pattern.rstrip("/")
    rooted = "/" in pattern
    pattern = pattern.removeprefix("/").removeprefix("**/")
    return fnmatch.fnmatchcase(path, pattern) if rooted else fnmatch.fnmatchcase(name, pattern)
