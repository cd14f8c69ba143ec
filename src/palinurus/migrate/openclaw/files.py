"""Careful opens in a tree that somebody else made: plain files only, links are not followed, pipes cannot hang us."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from palinurus.migrate.report import Losses

BUFFER = 256 * 1024
FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_plain(path: Path) -> BinaryIO:
    """Raises OSError; also for what is no regular file."""
    descriptor = os.open(path, FLAGS)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("it is no regular file")
    return os.fdopen(descriptor, "rb", BUFFER)


def read_whole(path: Path, shown: str, losses: Losses, limit: int) -> bytes | None:
    """The content; None when there is no such file, or when it cannot be read, which is then told."""
    try:
        with open_plain(path) as file:
            data = file.read(limit + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        losses.add(shown, 0, f"it cannot be read: {why(error)}")
        return None
    if len(data) > limit:
        losses.add(shown, 0, f"it is larger than {limit >> 20} MB")
        return None
    return data


def listing(folder: Path, shown: str, losses: Losses) -> list[os.DirEntry[str]]:
    """What is in a folder, by name. A folder that is not there is empty; a link is no folder."""
    try:
        if folder.is_symlink():
            losses.add(shown, 0, "it is a link, which is not followed")
            return []
        with os.scandir(folder) as found:
            return sorted((entry for entry in found if _printable(entry.name)), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        losses.add(shown, 0, f"the folder cannot be read: {why(error)}")
        return []


def folders(folder: Path, shown: str, losses: Losses) -> list[str]:
    return [entry.name for entry in listing(folder, shown, losses) if entry.is_dir(follow_symlinks=False)]


def walk(folder: Path, shown: str, losses: Losses) -> Iterator[tuple[str, os.stat_result]]:
    """Every regular file below a folder, by its path in it. What is neither file nor folder is told."""
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        below = []
        for entry in listing(folder / inside, f"{shown}/{inside}".rstrip("/"), losses):
            path = f"{inside}/{entry.name}" if inside else entry.name
            if entry.is_dir(follow_symlinks=False):
                below.append(path)
            elif entry.is_file(follow_symlinks=False):
                yield path, entry.stat(follow_symlinks=False)
            else:
                what = "a link, which is not followed" if entry.is_symlink() else "no regular file"
                losses.add(f"{shown}/{path}", 0, f"it is {what}")
        waiting += reversed(below)


def why(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _printable(name: str) -> bool:
    """Names that are no text cannot be told or stored; nobody has been seen to use any."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
