"""The walk from the root of a workspace to one path in it, one component at a time.

Nothing here trusts a path that was checked before: descriptors are held instead. `..` goes back to the directory
that was held, a link is read and its target walked by the same rule, and going above the root is an error.

A file with several names (hard links) may have one of them outside the workspace, and the file does not show whose
it is: the same bytes may be a private key in another folder. So it is neither read nor copied unless all its names
are found inside the workspace. Folders that programs fill with links (a package cache fills `.venv` and
`node_modules`, a local clone fills `.git`) are not checked.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from palinurus.domain.errors import NotFound, OutsideWorkspace, WorkspaceError

MAX_LINKS = 16
MAX_COMPONENTS = 128
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
Guard = Callable[[str], None]
"""Called with a real path relative to the root before it is changed; raises to refuse."""

MAX_LOOKS = 20_000
FILLED_BY_PROGRAMS = frozenset({".git", ".venv", "venv", "site-packages", "node_modules"})
OUTSIDE_NAME = "has another name outside the workspace (a hard link), so its content may belong to others"
_Key = tuple[int, int, int, int]
MAX_ROOTS = 64
_COUNTS: dict[Path, dict[_Key, int]] = {}


def anything(_: str) -> None:
    """The guard that refuses nothing."""


class ResolvedPath(NamedTuple):
    """Where a walk ended: an open directory and a name in it that is not a link.

    `name` is empty if it is that directory itself. `stat` is None if the name does not exist.
    """

    directory: int
    name: str
    path: str
    stat: os.stat_result | None


@contextmanager
def steps(root: Path, path: str, *, make_parents: bool = False, guard: Guard = anything) -> Iterator[ResolvedPath]:
    """Walks to `path`, relative to the root or absolute inside it. The descriptor is closed at the end of the block.

    The guard is called for every directory that would be created.
    """
    todo = _components(root, path)
    walk = _HeldDirectory(root, path, guard)
    try:
        yield walk.go(todo, make_parents)
    finally:
        walk.close()


@contextmanager
def path_errors(path: str) -> Iterator[None]:
    """Re-raises system errors with the path."""
    try:
        yield
    except FileNotFoundError as error:
        raise no_file(path) from error
    except OSError as error:
        raise refused(path, error) from error


def no_file(path: str) -> NotFound:
    return NotFound(f"there is no file {path} in the workspace", hint="list the directory to see what is there")


@contextmanager
def opened(name: str, flags: int, directory: int, mode: int = 0) -> Iterator[int]:
    """A descriptor of a name in an open directory, for the length of the block."""
    fd = os.open(name, flags, mode, dir_fd=directory)
    try:
        yield fd
    finally:
        os.close(fd)


def refused(path: str, error: OSError) -> WorkspaceError:
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EEXIST):
        return WorkspaceError(f"{path} was replaced while it was being opened", hint="try again")
    hint = {
        errno.EACCES: "check its owner and mode",
        errno.EPERM: "check its owner and mode",
        errno.ENOSPC: "free some space on the disk",
        errno.EDQUOT: "free some space on the disk",
        errno.EROFS: "the file system is mounted read-only",
    }.get(error.errno or 0, "")
    return WorkspaceError(f"{path} cannot be used: {(error.strerror or str(error)).lower()}", hint=hint)


class _HeldDirectory:
    """The open directories from the root to the current position."""

    def __init__(self, root: Path, path: str, guard: Guard) -> None:
        self.root = root
        self.path = path
        self.guard = guard
        self.names: list[str] = []
        self.fds = [_open_root(root)]
        self.links = 0

    def go(self, todo: list[str], make_parents: bool) -> ResolvedPath:
        """`todo` holds the remaining components, last first."""
        with path_errors(self.path):
            while todo:
                name = todo.pop()
                if name == "..":
                    self._back()
                    continue
                found = self._look(name)
                if found is not None and stat.S_ISLNK(found.st_mode):
                    todo += self._target(name)
                    if len(todo) > MAX_COMPONENTS:
                        raise WorkspaceError(f"{self.path} leads through too many directories")
                elif not todo:
                    return ResolvedPath(self.fds[-1], name, "/".join([*self.names, name]), found)
                else:
                    self._enter(name, found, make_parents)
            return ResolvedPath(self.fds[-1], "", "/".join(self.names) or ".", os.fstat(self.fds[-1]))

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)
        self.fds = []

    def _look(self, name: str) -> os.stat_result | None:
        try:
            return os.stat(name, dir_fd=self.fds[-1], follow_symlinks=False)
        except FileNotFoundError:
            return None

    def _back(self) -> None:
        if not self.names:
            raise outside(self.path)
        self.names.pop()
        os.close(self.fds.pop())

    def _enter(self, name: str, found: os.stat_result | None, make: bool) -> None:
        if found is None:
            if not make:
                raise FileNotFoundError(errno.ENOENT, "no such directory", name)
            self.guard("/".join([*self.names, name]))
            _make(name, self.fds[-1])
        elif not stat.S_ISDIR(found.st_mode):
            raise FileNotFoundError(errno.ENOENT, "not a directory", name)
        self.fds.append(os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=self.fds[-1]))
        self.names.append(name)

    def _target(self, name: str) -> list[str]:
        self.links += 1
        if self.links > MAX_LINKS:
            why = f"{self.path} leads through more than {MAX_LINKS} links"
            raise WorkspaceError(why, hint="look for a loop of links")
        target = os.readlink(name, dir_fd=self.fds[-1])
        if target.startswith("/"):
            target = _inside(self.root, target, self.path)
            while self.names:
                self._back()
        return _split(target)


def give(fd: int, directory: os.stat_result) -> None:
    """Gives what root created to the owner of the directory, so that a sandbox without root can use it."""
    if os.geteuid() == 0 and (directory.st_uid, directory.st_gid) != (0, 0):
        os.fchown(fd, directory.st_uid, directory.st_gid)


def _make(name: str, directory: int) -> None:
    try:
        os.mkdir(name, 0o700, dir_fd=directory)
    except FileExistsError:
        return  # another writer created it first
    with opened(name, _DIRECTORY | os.O_NOFOLLOW, directory) as fd:
        give(fd, os.fstat(directory))


def outside(path: str) -> OutsideWorkspace:
    return OutsideWorkspace(f"{path[:200]!r} leads out of the workspace", hint="name a file inside it")


def _open_root(root: Path) -> int:
    try:
        return os.open(root, _DIRECTORY)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise WorkspaceError(f"there is no workspace at {root}", hint="pal setup makes one") from error
    except OSError as error:
        why = f"the workspace {root} cannot be opened: {error.strerror}"
        raise WorkspaceError(why, hint="check its mode") from error


def _components(root: Path, path: str) -> list[str]:
    try:
        os.fsencode(path)
    except UnicodeEncodeError as error:
        raise outside(path) from error
    if "\0" in path or len(path) > 4096:
        raise outside(path)
    parts = _split(_inside(root, path, path) if path.startswith("/") else path)
    if len(parts) > MAX_COMPONENTS:
        raise WorkspaceError(f"{path[:80]!r}… leads through too many directories")
    return parts


def _split(path: str) -> list[str]:
    """The components, last first."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _inside(root: Path, path: str, named: str) -> str:
    """An absolute path as one from the root; the walk checks its `..`. Raises OutsideWorkspace about `named`."""
    for base in (str(root), os.path.realpath(root)):
        if path == base:
            return ""
        if path.startswith(base.rstrip("/") + "/"):
            return path[len(base.rstrip("/")) + 1 :]
    raise outside(named)


def leads_out(root: Path, path: str, found: os.stat_result) -> bool:
    """Whether a file at `path` below the root has names outside it. Costs nothing for a file with one name.

    If the tree is too large to search, the names count as outside.
    """
    if found.st_nlink < 2 or FILLED_BY_PROGRAMS & set(path.split("/")):
        return False
    # From the last walk through the tree. A new or removed name changes the file's ctime, and with it the key.
    counts, key = _COUNTS.get(root, {}), _key(found)
    if key not in counts:
        if len(_COUNTS) >= MAX_ROOTS:
            _COUNTS.clear()
        counts = _COUNTS[root] = {key: 0, **_count_names(root)}
    return counts[key] < found.st_nlink


def _count_names(root: Path) -> Counter[_Key]:
    """The number of names inside a root of each file with several."""
    counts: Counter[_Key] = Counter()
    looks = MAX_LOOKS
    for _, folders, files, fd in os.fwalk(root.resolve(), follow_symlinks=False):
        folders[:] = [name for name in folders if name not in FILLED_BY_PROGRAMS]
        seen = [found for name in files if (found := look_up(name, fd)) is not None]
        counts.update(_key(found) for found in seen if stat.S_ISREG(found.st_mode) and found.st_nlink > 1)
        looks -= len(files) + len(folders)
        if looks < 0:
            break
    return counts


def look_up(name: str, directory: int) -> os.stat_result | None:
    """The stat of a name in an open directory, links not followed; None if missing."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return None


def _key(found: os.stat_result) -> _Key:
    return found.st_dev, found.st_ino, found.st_nlink, found.st_ctime_ns
