"""The walk from the root of a workspace to one place in it, a component at a time.

Nothing here trusts a path that was checked before: what is held is descriptors. `..` goes back to the directory that
was held, a link is read and its target walked by the same rule, and going above the root is an error.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from palinurus.domain.errors import NotFound, OutsideWorkspace, WorkspaceError

MAX_LINKS = 16
MAX_COMPONENTS = 128
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

Guard = Callable[[str], None]
"""Is told where something really lies, relative to the root, before it is touched; raises to refuse."""


def anything(_: str) -> None:
    """The guard that refuses nothing."""


class Place(NamedTuple):
    """Where a walk ended: an open directory and a name in it that is no link.

    `name` is empty when the place is that directory itself. `stat` is None when there is nothing under the name.
    """

    directory: int
    name: str
    path: str
    stat: os.stat_result | None


@contextmanager
def steps(root: Path, path: str, *, make_parents: bool = False, guard: Guard = anything) -> Iterator[Place]:
    """Walk to `path`, relative to the root or absolute inside it. The descriptor is closed at the end of the block.

    The guard is asked about every directory that would be made on the way.
    """
    todo = _components(root, path)
    walk = _Held(root, path, guard)
    try:
        yield walk.go(todo, make_parents)
    finally:
        walk.close()


@contextmanager
def told(path: str) -> Iterator[None]:
    """Says which file it was, when the system refuses."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFound(
            f"there is no file {path} in the workspace", hint="list the directory to see what is there"
        ) from error
    except OSError as error:
        raise refused(path, error) from error


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


class _Held:
    """The directories from the root to where the walk stands, all open."""

    def __init__(self, root: Path, path: str, guard: Guard) -> None:
        self.root = root
        self.asked = path
        self.guard = guard
        self.names: list[str] = []
        self.fds = [_open_root(root)]
        self.links = 0

    def go(self, todo: list[str], make_parents: bool) -> Place:
        """`todo` is the rest of the way, last component first."""
        with told(self.asked):
            while todo:
                name = todo.pop()
                if name == "..":
                    self._back()
                    continue
                found = self._look(name)
                if found is not None and stat.S_ISLNK(found.st_mode):
                    todo += self._target(name)
                    if len(todo) > MAX_COMPONENTS:
                        raise WorkspaceError(f"{self.asked} leads through too many directories")
                elif not todo:
                    return Place(self.fds[-1], name, "/".join([*self.names, name]), found)
                else:
                    self._enter(name, found, make_parents)
            return Place(self.fds[-1], "", "/".join(self.names) or ".", os.fstat(self.fds[-1]))

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
            raise outside(self.asked)
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
            raise WorkspaceError(
                f"{self.asked} leads through more than {MAX_LINKS} links", hint="look for a loop of links"
            )
        target = os.readlink(name, dir_fd=self.fds[-1])
        if target.startswith("/"):
            inside = _inside(self.root, target)
            if inside is None:
                raise outside(self.asked)
            while self.names:
                self._back()
            target = inside
        return _split(target)


def give(fd: int, directory: os.stat_result) -> None:
    """What root makes belongs to whom the directory belongs: a sandbox that has dropped root must be able to use it."""
    if os.geteuid() == 0 and (directory.st_uid, directory.st_gid) != (0, 0):
        os.fchown(fd, directory.st_uid, directory.st_gid)


def _make(name: str, directory: int) -> None:
    try:
        os.mkdir(name, 0o700, dir_fd=directory)
    except FileExistsError:
        return  # another writer made it first: as good
    fd = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
    try:
        give(fd, os.fstat(directory))
    finally:
        os.close(fd)


def outside(path: str) -> OutsideWorkspace:
    return OutsideWorkspace(f"{path[:200]!r} leads out of the workspace", hint="name a file inside it")


def _open_root(root: Path) -> int:
    try:
        return os.open(root, _DIRECTORY)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise WorkspaceError(f"there is no workspace at {root}", hint="pal setup makes one") from error
    except OSError as error:
        raise WorkspaceError(
            f"the workspace {root} cannot be opened: {error.strerror}", hint="check its mode"
        ) from error


def _components(root: Path, path: str) -> list[str]:
    try:
        os.fsencode(path)
    except UnicodeEncodeError as error:
        raise outside(path) from error
    if "\0" in path or len(path) > 4096:
        raise outside(path)
    if path.startswith("/"):
        inside = _inside(root, path)
        if inside is None:
            raise outside(path)
        path = inside
    parts = _split(path)
    if len(parts) > MAX_COMPONENTS:
        raise WorkspaceError(f"{path[:80]!r}… leads through too many directories")
    return parts


def _split(path: str) -> list[str]:
    """The components, last first."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _inside(root: Path, path: str) -> str | None:
    """An absolute path as one from the root, if it begins with the root; its `..` are judged by the walk."""
    for base in (str(root), os.path.realpath(root)):
        if path == base:
            return ""
        if path.startswith(base.rstrip("/") + "/"):
            return path[len(base.rstrip("/")) + 1 :]
    return None
