"""Bundles as zip files: read without trusting a word of them, written so that equal bundles are equal bytes.

What a zip says about its sizes is only said: bytes are counted as they come out. Its table of contents is measured
before it is parsed, because that alone can be made to fill the memory. And there must be nothing before, between or
behind its parts: of such a file two programs may see two different archives.
"""

from __future__ import annotations

import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator

from palinurus.domain.errors import BadRequest
from palinurus.skills.registry.bundle import MAX_BYTES, MAX_FILE, MAX_FILES, Bundle, make_bundle, too_large
from palinurus.skills.registry.paths import check_path

MAX_ARCHIVE = 20 * 1024 * 1024
MAX_TABLE = 1024 * 1024
RATIO = 200  # text packs to a tenth; a file that packs to a two-hundredth is there for its size
RATIO_FROM = 256 * 1024
_END = b"PK\x05\x06"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


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
        raise BadRequest("the archive cannot be opened: it is no zip file")
    here, total, size, start, comment = struct.unpack_from("<HHIIH", data, at + 8)
    if total > MAX_FILES * 2 or here != total:
        raise BadRequest(f"the archive is refused: it holds {total:,} or more entries; {MAX_FILES:,} files are allowed")
    if size > MAX_TABLE:
        raise BadRequest(f"the archive is refused: its table of contents has {size:,} bytes; {MAX_TABLE:,} are allowed")
    if start + size != at or at + 22 + comment != len(data) or not data.startswith((b"PK\x03\x04", _END)):
        raise BadRequest("the archive cannot be opened: something stands before, between or behind its parts")


def _members(archive: zipfile.ZipFile) -> Iterator[tuple[str, bytes]]:
    infos = archive.infolist()
    for info in infos:  # all of them, before the first byte is unpacked
        _check_entry(info)
    if sum(info.file_size for info in infos) > MAX_BYTES:
        raise too_large("", alone=False)
    for info in infos:
        if not info.is_dir():
            yield info.filename, _content(archive, info)


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


def _content(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    with archive.open(info) as file:
        data = file.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise too_large(info.filename, alone=True)
    if len(data) > RATIO_FROM and len(data) > RATIO * max(1, info.compress_size):
        raise BadRequest(f"it holds {info.filename[:100]!a}, which unpacks to more than {RATIO} times its size")
    return data
