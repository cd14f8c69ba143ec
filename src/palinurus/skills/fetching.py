"""Do the downloads of an install plan: bounded, checked against the digest, unpacked where nothing gets out.

Everything happens in a folder beside the target, which is put in place as a whole or not at all.
"""

from __future__ import annotations

import hashlib
import shutil
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.parse import urlsplit

from palinurus.domain.errors import BadRequest, PalinurusError, WebError
from palinurus.skills.installing import Download

MAX_BYTES = 256 * 1024 * 1024
MAX_UNPACKED = 1024 * 1024 * 1024
MAX_FILES = 20_000
SECONDS = 60.0  # without a byte

Fetch = Callable[[str, IO[bytes]], None]
"""Writes what is at an address into a file, at most MAX_BYTES of it. Raises WebError."""


def fetch(url: str, into: IO[bytes]) -> None:
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
        raise WebError(f"{url} could not be had: {error}") from None


def install_download(wanted: Download, get: Fetch = fetch) -> Path:
    """The folder that it was put into. Raises WebError or BadRequest, and then nothing is there that was not before."""
    target = Path(wanted.target)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _staged(target) as folder:
        file = folder / ".download"
        with file.open("w+b") as whole:
            get(wanted.url, whole)
            whole.seek(0)
            found = hashlib.file_digest(whole, "sha256").hexdigest()
        if found != wanted.sha256:
            raise BadRequest(
                f"{wanted.url} is not what the skill names: its sha256 is {found}",
                hint="do not use it; tell its author",
            )
        if wanted.archive:
            unpack(file, folder, wanted.strip)
            file.unlink()
        else:
            program = folder / (PurePosixPath(urlsplit(wanted.url).path).name or "program")
            file.rename(program)
            program.chmod(0o755)
    return target


def unpack(archive: Path, folder: Path, strip: int = 0) -> None:
    """Plain files and folders only. Raises BadRequest for anything that would be more."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            _write_all(_zip_members(zipped), folder, strip)
        return
    try:
        with tarfile.open(archive) as tarred:
            _write_all(_tar_members(tarred), folder, strip)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise BadRequest(f"the archive cannot be opened: {error}") from None


Member = tuple[str, int, int, Callable[[], IO[bytes] | None]]  # name, size, mode, how to open it


def _zip_members(zipped: zipfile.ZipFile) -> Iterator[Member]:
    for info in zipped.infolist():
        mode = info.external_attr >> 16
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise BadRequest(f"the archive holds {info.filename[:80]!r}, which is no plain file")
        if not info.is_dir():
            yield info.filename, info.file_size, mode, lambda info=info: zipped.open(info)  # type: ignore[misc]


def _tar_members(tarred: tarfile.TarFile) -> Iterator[Member]:
    for info in tarred:
        if not (info.isreg() or info.isdir()):
            raise BadRequest(f"the archive holds {info.name[:80]!r}, which is no plain file")
        if info.isreg():
            yield info.name, info.size, info.mode, lambda info=info: tarred.extractfile(info)  # type: ignore[misc]


def _write_all(members: Iterator[Member], folder: Path, strip: int) -> None:
    left = MAX_UNPACKED
    for number, (name, _, mode, opened) in enumerate(members):
        if number >= MAX_FILES:
            raise BadRequest(f"the archive holds more than {MAX_FILES:,} files")
        parts = PurePosixPath(name).parts
        if name.startswith("/") or ".." in parts or "\\" in name or "\0" in name:
            raise BadRequest(f"the archive holds {name[:80]!r}, which leads out of its folder")
        if len(parts) <= strip:
            continue
        place = folder.joinpath(*parts[strip:])
        place.parent.mkdir(parents=True, exist_ok=True)
        source = opened()
        if source is not None:
            with source, place.open("xb") as file:
                left -= _copied(source, file, left)
            place.chmod(0o755 if mode & 0o111 else 0o644)


def _copied(source: IO[bytes], file: IO[bytes], most: int) -> int:
    """By what really comes out: what an archive says about its sizes is only said."""
    size = 0
    while piece := source.read(1 << 20):
        size += len(piece)
        if size > most:
            raise BadRequest(f"the archive unpacks to more than {MAX_UNPACKED:,} bytes")
        file.write(piece)
    return size


@contextmanager
def _staged(target: Path) -> Iterator[Path]:
    staged = Path(tempfile.mkdtemp(prefix=".installing-", dir=target.parent))
    try:
        yield staged
        if target.exists():
            raise PalinurusError(f"{target} is there already", hint="remove it to install again")
        staged.rename(target)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
