"""Bundles from zip files and from folders, and zip files of bundles.

A zip is read without trusting what it says. No entry gives more bytes than the size it declares, and that size is
checked before the first byte is unpacked. Its table of contents is measured before it is parsed, because that alone can
be made to fill the memory. And there must be nothing before, between or behind its parts: of such a file two programs
may see two different archives.

Of a folder is left out what the clawhub command leaves out: names with a dot, node_modules, and what .clawhubignore or
.gitignore name. Of their patterns we read the plain ones; a pattern with a ! is refused rather than misread.
"""

from __future__ import annotations

import fnmatch
import io
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from palinurus.domain.errors import BadRequest
from palinurus.extensions.skill_registry.bundle import MAX_BYTES, Bundle, check_path, make_bundle, too_large
from palinurus.skills.pins import CLIENTS, MAX_FILE, MAX_FILES, read_plain
from palinurus.workspace.walk import Skip, walk_tree

MAX_ARCHIVE = 20 * 1024 * 1024
MAX_TABLE = 1024 * 1024
RATIO = 200  # text packs to a tenth; a file that packs to a two-hundredth is there for its size
RATIO_FROM = 256 * 1024
_END = b"PK\x05\x06"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_IGNORE = (".clawhubignore", ".clawdhubignore", ".gitignore")
_SKIPPED = frozenset({"node_modules", "__pycache__"})
_GENERATED = "skill-card.md"  # a registry makes it


def read_zip(data: bytes, default_name: str = "") -> Bundle:
    """Raises BadRequest with the reason; nothing was written anywhere then, and never is here."""
    if len(data) > MAX_ARCHIVE:
        raise BadRequest(f"the archive is larger than {MAX_ARCHIVE:,} bytes")
    _check_table(data)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return make_bundle(_members(archive), default_name)
    except (zipfile.BadZipFile, zlib.error, EOFError, struct.error, ValueError, RuntimeError, OSError) as error:
        raise BadRequest(f"the archive cannot be opened: {error}") from None
    except BadRequest as error:
        raise BadRequest(f"the archive is refused: {error.message}", hint=error.hint) from None


def write_zip(bundle: Bundle) -> bytes:
    """Equal bundles give equal bytes: no times, no modes, a fixed order."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path, data in sorted(bundle.files.items()):
            info = zipfile.ZipInfo(path, _EPOCH)
            info.compress_type, info.create_system = zipfile.ZIP_DEFLATED, 3
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(info, data)
    return whole.getvalue()


def _check_table(data: bytes) -> None:
    """By the record at the end, before anything is parsed."""
    at = data.rfind(_END, max(0, len(data) - 65_557))
    if at < 0 or len(data) < at + 22:
        raise BadRequest("the archive cannot be opened: it is not a zip file")
    here, total, size, start, comment = struct.unpack_from("<HHIIH", data, at + 8)
    if total > MAX_FILES * 2 or here != total:
        raise BadRequest(f"the archive is refused: it holds {total:,} or more entries; {MAX_FILES:,} files are allowed")
    if size > MAX_TABLE:
        raise BadRequest(f"the archive is refused: its table of contents has {size:,} bytes; {MAX_TABLE:,} are allowed")
    if start + size != at or at + 22 + comment != len(data) or not data.startswith((b"PK\x03\x04", _END)):
        raise BadRequest("the archive cannot be opened: there is data before, between or behind its parts")


def _members(archive: zipfile.ZipFile) -> Iterator[tuple[str, bytes]]:
    infos = archive.infolist()
    for info in infos:  # all of them, before the first byte is unpacked
        _check_entry(info)
    if sum(info.file_size for info in infos) > MAX_BYTES:
        raise too_large("", alone=False)
    for info in infos:
        if not info.is_dir():
            yield info.filename, archive.read(info)  # at most the size that was checked; zipfile raises for less


def _check_entry(info: zipfile.ZipInfo) -> None:
    name = info.orig_filename  # with what zipfile would cut off or turn around
    shown = ascii(name[:100])
    if "\0" in name:
        raise BadRequest(f"it holds {shown}, a name with a control character")
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind == stat.S_IFLNK:
        raise BadRequest(f"it holds {shown}, which is a link")
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise BadRequest(f"it holds {shown}, which is a device or no plain file")
    check_path(name.removesuffix("/") if info.is_dir() else name)
    if info.flag_bits & 0x1:
        raise BadRequest(f"it holds {shown}, which is encrypted")
    if info.compress_type not in _METHODS:
        raise BadRequest(f"it holds {shown}, packed in a way that is not used for skills")
    if info.file_size > MAX_FILE:
        raise too_large(name, alone=True)
    if info.file_size > RATIO_FROM and info.file_size > RATIO * max(1, info.compress_size):
        raise BadRequest(f"it holds {shown}, which unpacks to more than {RATIO} times its size")


def pack(folder: Path) -> Bundle:
    """What would be published. Raises BadRequest for what may not be in a skill."""
    return make_bundle(_files(folder, _ignored(folder)), folder.resolve().name)


def installed(folder: Path) -> Bundle:
    """What is there, all of it but the records of clients. Raises BadRequest."""
    return make_bundle(_files(folder, lambda path, _: path in CLIENTS), folder.name)


def _files(folder: Path, skip: Skip) -> Iterator[tuple[str, bytes]]:
    def refuse(path: str, error: OSError) -> None:
        raise BadRequest(f"{folder / path} cannot be read: {error.strerror}") from None

    for path, entry in walk_tree(folder, skip=skip, on_error=refuse, max_entries=4 * MAX_FILES):
        if entry.is_dir(follow_symlinks=False):
            continue
        if entry.is_symlink():
            raise BadRequest(f"{path} is a link", hint="a skill is made of plain files")
        data = read_plain(entry.path)
        if data is None:
            raise BadRequest(
                f"{path} is not a plain file that can be read, or larger than {MAX_FILE:,} bytes",
                hint="a skill is made of plain files",
            )
        yield path, data


def _ignored(folder: Path) -> Skip:
    patterns = [pattern for name in _IGNORE for pattern in _patterns(folder / name)]

    def skip(path: str, entry: os.DirEntry[str]) -> bool:
        if entry.name.startswith(".") or entry.name in _SKIPPED or path.lower() == _GENERATED:
            return True
        is_folder = entry.is_dir(follow_symlinks=False)
        return any(_matches(pattern, path, entry.name, is_folder) for pattern in patterns)

    return skip


def _patterns(file: Path) -> Sequence[str]:
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ()
    found = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if any(pattern.startswith("!") for pattern in found):
        raise BadRequest(f"{file.name} has a pattern with !, which is not supported")
    return found


def _matches(pattern: str, path: str, name: str, is_folder: bool) -> bool:
    if pattern.endswith("/"):
        if not is_folder:
            return False
        pattern = pattern.rstrip("/")
    rooted = "/" in pattern
    pattern = pattern.removeprefix("/").removeprefix("**/")
    return fnmatch.fnmatchcase(path, pattern) if rooted else fnmatch.fnmatchcase(name, pattern)
