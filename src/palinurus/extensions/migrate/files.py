"""Find an OpenClaw home under each of the names it has had, and read its files safely: plain files only, no links, no
pipes that block, and a limit for the size of a line and of an unpacked stream.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO

from palinurus.config.home import PROFILE_NAME, env_value, expand_user
from palinurus.domain.errors import NotFound
from palinurus.extensions.migrate.report import Losses

BUFFER = 256 * 1024
FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_plain(path: Path) -> io.BufferedReader:
    """Raises OSError, also for what is not a regular file."""
    descriptor = os.open(path, FLAGS)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("it is not a regular file")
    return io.BufferedReader(io.FileIO(descriptor), BUFFER)


@contextmanager
def new_file(target: Path, *, replace: bool = False) -> Iterator[BinaryIO]:
    """A file that appears at `target` when the block has ended without an error. Raises OSError.

    Without `replace` a file that appeared there meanwhile is an error.
    """
    beside = temporary_name(target)
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb", BUFFER) as file:
            yield file
        if replace:
            beside.replace(target)
        else:
            os.link(beside, target, follow_symlinks=False)
    finally:
        beside.unlink(missing_ok=True)


def temporary_name(target: Path) -> Path:
    return target.with_name(f".{target.name[:100]}.{os.urandom(6).hex()}.tmp")


def read_whole(path: Path, shown: str, losses: Losses, limit: int) -> bytes | None:
    """The content; None when there is no such file, or when it cannot be read, which is a loss."""
    try:
        with open_plain(path) as file:
            data = file.read(limit + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        why = f"it cannot be read: {error_text(error)}"
    else:
        if len(data) <= limit:
            return data
        why = f"it is larger than {limit >> 20} MB"
    losses.add(shown, 0, why)
    return None


def listing(folder: Path, shown: str, losses: Losses) -> list[os.DirEntry[str]]:
    """The entries of a folder, by name. A missing folder is empty; a link is not a folder. Names that are no text are
    left out, because they can be neither shown nor stored."""
    try:
        if folder.is_symlink():
            losses.add(shown, 0, "it is a link, which is not followed")
            return []
        with os.scandir(folder) as found:
            named = [entry for entry in found if entry.name == os.fsencode(entry.name).decode(errors="replace")]
            return sorted(named, key=lambda entry: entry.name)
    except OSError as error:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            losses.add(shown, 0, f"the folder cannot be read: {error_text(error)}")
        return []


def folders(folder: Path, shown: str, losses: Losses) -> list[str]:
    return [entry.name for entry in listing(folder, shown, losses) if entry.is_dir(follow_symlinks=False)]


def walk(folder: Path, shown: str, losses: Losses) -> Iterator[tuple[str, os.stat_result]]:
    """Every regular file below a folder, by its path in it. Other things than files and folders are losses."""
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


def shown_path(path: Path, root: Path) -> str:
    """The path for people: relative to the home if it is inside."""
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def error_text(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


NAMES = ("openclaw", "moltbot", "clawdbot", "clawdis")  # the newest first
CONFIGS = tuple(f"{name}.json" for name in NAMES)
_SIGNS = (*CONFIGS, "agents", "sessions", "state", "workspace")


def find_openclaw(env: Mapping[str, str], user_home: Path, given: Path | None = None) -> Path:
    """The state folder: `given`, or the one that OpenClaw itself would use. Raises NotFound.

    `given` may also be the folder that holds `.openclaw`.
    """
    if given is not None:
        return _named_home(expand_user(str(given), user_home).absolute())
    if found := next(filter(Path.is_dir, _candidates(env, user_home)), None):
        return found
    raise NotFound("there is no OpenClaw home here", hint="name its folder: pal migrate openclaw DIR")


def is_export_file(path: Path) -> bool:
    """Whether it is a home in one file, as `pal export` writes it, by its name."""
    return path.suffix == ".pal" and path.is_file()


def moved_path(path: Path, root: Path) -> Path | None:
    """Where a path is now that was below a state folder (`.openclaw`, `.openclaw-work`, `.clawdbot`), which is `root`
    now; None when it was not."""
    for index, part in enumerate(path.parts):
        if any(part == f".{known}" or part.startswith(f".{known}-") for known in NAMES):
            return root.joinpath(*path.parts[index + 1 :])
    return None


def config_of(root: Path) -> Path | None:
    return next((path for name in CONFIGS if (path := root / name).is_file()), None)


def _named_home(folder: Path) -> Path:
    if not folder.is_dir():
        raise NotFound(f"there is no folder {folder}", hint="an OpenClaw home is a folder such as ~/.openclaw")
    if any((folder / sign).exists() for sign in _SIGNS):
        return folder
    for inside in (folder / f".{name}" for name in NAMES):
        if inside.is_dir():
            return inside
    raise NotFound(f"{folder} is not an OpenClaw home", hint=f"one has {CONFIGS[0]} or a folder agents")


def _candidates(env: Mapping[str, str], user_home: Path) -> list[Path]:
    def named(what: str) -> list[Path]:
        texts = filter(None, (env_value(env, f"{name.upper()}_{what}") for name in NAMES))
        return [expand_user(text, user_home).absolute() for text in texts]

    found, homes = named("STATE_DIR"), [*reversed(named("HOME")), user_home]
    profile = env_value(env, "OPENCLAW_PROFILE")
    for folder in homes:
        if PROFILE_NAME.fullmatch(profile) and profile != "default":
            found.append(folder / f".openclaw-{profile}")
        found += [folder / f".{name}" for name in NAMES]
    return found


MAX_LINE = 32 * 1024 * 1024
MAX_WINDOW = 128 * 1024 * 1024  # of memory for a compressed file
BLANK = b" \t\r\n"
BOM = b"\xef\xbb\xbf"
SMALL, RATIO = 256 * 1024 * 1024, 1000  # a compressed file may unpack to this size, or by this factor if more
Line = tuple[int, bytes]


def file_lines(path: Path, shown: str, losses: Losses) -> Iterator[Line]:
    """Number and text of each line that is not blank. Never raises: what cannot be read is a loss."""
    try:
        with open_plain(path) as file:
            if path.name.endswith(".zst"):
                yield from zstd_lines(file, path.stat().st_size, shown, losses)
            else:
                yield from stream_lines(file, shown, losses)
    except FileNotFoundError:
        losses.add(shown, 0, "the file is not there")
    except OSError as error:
        losses.add(shown, 0, f"it cannot be read: {error_text(error)}")


def stream_lines(stream: BinaryIO, shown: str, losses: Losses, limit: int = MAX_LINE) -> Iterator[Line]:
    for number, line in enumerate(iter(partial(stream.readline, limit + 1), b""), start=1):
        if len(line) > limit and not line.endswith(b"\n"):
            while (piece := stream.readline(BUFFER)) and not piece.endswith(b"\n"):
                pass
            losses.add(shown, number, f"the line is longer than {limit >> 20} MB")
            continue
        text = line.strip(BLANK)
        if text := text.removeprefix(BOM) if number == 1 else text:
            yield number, text


def zstd_lines(packed: BinaryIO, size: int, shown: str, losses: Losses) -> Iterator[Line]:
    """The same for zstd. A file that ends too early is a loss; the lines before the damage are returned."""
    import zstandard

    reader = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).stream_reader(packed, read_across_frames=True)
    bounded = _LimitedReader(reader, max(SMALL, size * RATIO))
    number = 0
    try:
        for number, line in stream_lines(io.BufferedReader(bounded, BUFFER), shown, losses):
            yield number, line
    except zstandard.ZstdError as error:
        losses.add(shown, number + 1, f"from here on the compressed data is damaged: {error}")
    except (MemoryError, EOFError) as error:
        losses.add(shown, number + 1, f"from here on it cannot be unpacked: {error or 'too little memory'}")


class _LimitedReader(io.RawIOBase):
    """A stream that raises EOFError when it returns more than it may."""

    def __init__(self, stream: BinaryIO, most: int) -> None:
        self._stream = stream
        self._left = most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        data = self._stream.read(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            raise EOFError("it unpacks to more than the allowed size")
        buffer[: len(data)] = data
        return len(data)
