"""The files of a skill, in memory and checked, whether they came from a zip, a folder or a form.

Only what a person can look at is allowed: text, and pictures with a known signature. An executable or an archive inside
an archive could be anything. A bundle is unpacked on all kinds of systems, so a path that only some of them would read
correctly is refused everywhere: names that differ by case alone, names with hidden characters, names of devices.

Bundles from zip files and from folders, and zip files of bundles.

A zip is read without trusting what it says. No entry gives more bytes than the size it declares, and that size is
checked before the first byte is unpacked. Its table of contents is measured before it is parsed, because that alone can
be made to fill the memory. And there must be nothing before, between or behind its parts: of such a file two programs
may see two different archives.

Of a folder is left out what the clawhub command leaves out: names with a dot, node_modules, and what .clawhubignore or
.gitignore name. Of their patterns we read the plain ones; a pattern with a ! is refused rather than misread.
"""

from __future__ import annotations

import fnmatch
import hashlib
import io
import os
import re
import stat
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from palinurus.domain.errors import BadRequest
from palinurus.skills.manifest import read_manifest
from palinurus.skills.pins import CLIENTS, MAX_FILE, MAX_FILES, digest_of, read_plain
from palinurus.skills.skill import SKILL_FILE, SkillManifest
from palinurus.workspace.walk import Skip, walk_tree

MAX_PATH = 240  # bytes
MAX_SEGMENT = 120
MAX_DEPTH = 12
# Records of clients and of version control: a bundle that brings its own would lie about where it came from.
_OURS = frozenset({".clawhub", ".clawdhub", ".git", ".hg", ".svn"})
# Names that an operating system needs for itself.
RESERVED = frozenset({"con", "prn", "aux", "nul", *(f"{name}{n}" for name in ("com", "lpt") for n in range(1, 10))})
_DRIVE = re.compile(r"[A-Za-z]:")
MAX_BYTES = 20 * 1024 * 1024  # of all files
MAX_SKILL_FILE = 256_000  # as the catalog will read it
# The beginnings of what may be there besides text, and of what has a name of its own when it is refused.
_PICTURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"%PDF-")
_PROGRAMS = tuple(b"\x7fELF MZ \xfe\xed\xfa \xce\xfa\xed\xfe \xcf\xfa\xed\xfe \xca\xfe\xba\xbe \0asm".split())
_ARCHIVES = tuple(b"PK\x03\x04 PK\x05\x06 \x1f\x8b BZh \xfd7zXZ 7z\xbc\xaf Rar! \x28\xb5\x2f\xfd".split())
# What node's localeCompare makes of ASCII: ClawHub sorts by that before it hashes.
_ORDER = {char: weight for weight, char in enumerate(" _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789")}
_TEXT_KINDS = """md mdx txt json json5 yaml yml toml js cjs mjs ts tsx jsx py sh ps1 psm1 psd1 r rb go rs swift kt java
cs cpp c h hpp sql csv tsv ini cfg conf env properties dat xml html css scss sass svg"""
_TEXTS = frozenset(_TEXT_KINDS.split())
_TYPES = {"png": "image/png", "gif": "image/gif", "webp": "image/webp", "pdf": "application/pdf"}
_TYPES |= dict.fromkeys(("jpg", "jpeg"), "image/jpeg")


class Paths:
    """The paths of one bundle, added one after the other. Raises BadRequest at the first that cannot stand."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, bool]] = {}  # as a careless file system sees it -> as written, whether a file

    def add(self, path: str) -> None:
        check_path(path)
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            place, is_file = "/".join(parts[:depth]), depth == len(parts)
            seen, was_file = known = self._known.setdefault(_folded(place), new := (place, is_file))
            if seen != place:
                raise BadRequest(f"it holds {_quoted(seen)} and {_quoted(place)}, which are one file on many systems")
            if known is new or not (is_file or was_file):
                continue
            if is_file and was_file:
                raise BadRequest(f"it holds {_quoted(place)} twice")
            raise BadRequest(f"{_quoted(place)} is a file and a folder")


def check_path(path: str) -> None:
    """Raises BadRequest. A path that passes is relative, plain and stays where it is put."""
    for char in path:
        category = unicodedata.category(char)
        if category in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp"):
            what = f"a name with the character U+{ord(char):04X}"
            raise BadRequest(f"it holds {what}, which cannot be seen: {_quoted(path)}")
    if not path:
        raise BadRequest("it holds a file without a name")
    if path.startswith(("/", "~")) or _DRIVE.match(path):
        raise BadRequest(f"it holds {_quoted(path)}, which is an absolute path")
    if "\\" in path or ":" in path:
        raise BadRequest(f"it holds {_quoted(path)}: \\ and : mean something else on other systems")
    if len(path.encode()) > MAX_PATH:
        raise BadRequest(f"it holds a path of {len(path.encode()):,} bytes; {MAX_PATH} are allowed")
    parts = path.split("/")
    if len(parts) > MAX_DEPTH:
        raise BadRequest(f"it holds {_quoted(path)}, more than {MAX_DEPTH} folders deep")
    for part in parts:
        _check_segment(part, path)


def _check_segment(part: str, path: str) -> None:
    if part in ("", ".", ".."):
        raise BadRequest(f"it holds {_quoted(path)}, which leads out of its folder or nowhere")
    if len(part.encode()) > MAX_SEGMENT:
        raise BadRequest(f"it holds a name of {len(part.encode()):,} bytes; {MAX_SEGMENT} are allowed")
    if part.lower() in _OURS:
        raise BadRequest(f"it holds {_quoted(path)}: {part} is written by programs here and not by a bundle")
    if part[-1] in " ." or part[0] == " " or part.partition(".")[0].lower() in RESERVED:
        raise BadRequest(f"it holds {_quoted(path)}, a name that some systems cannot have")


def _folded(path: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", path).casefold())


def _quoted(path: str) -> str:
    return ascii(path[:100])


class FileRecord(Struct, frozen=True, rename="camel", omit_defaults=True):
    path: str
    size: int
    sha256: str
    content_type: str | None = None


class Bundle(Struct, frozen=True):
    files: Mapping[str, bytes]  # by path, in order

    def manifest(self, slug: str) -> SkillManifest:
        """A skill that names itself nowhere is called like its folder, which is its slug."""
        return read_manifest(self.files[SKILL_FILE], slug)

    def records(self) -> tuple[FileRecord, ...]:
        return tuple(
            FileRecord(path, len(data), hashlib.sha256(data).hexdigest(), _content_type(path, data))
            for path, data in self.files.items()
        )

    @property
    def digest(self) -> str:
        return digest_of({each.path: each.sha256 for each in self.records()})

    @property
    def fingerprint(self) -> str:
        """As the clawhub command computes it: of text files only, and of none with a dot before its name."""
        return fingerprint_of({each.path: each.sha256 for each in self.records() if self._counts(each.path)})

    def _counts(self, path: str) -> bool:
        name = path.rsplit("/", 1)[-1]
        if any(part.startswith(".") for part in path.split("/")):
            return False
        stem, dot, kind = name.rpartition(".")
        return kind.lower() in _TEXTS if stem and dot else is_text(self.files[path])


def make_bundle(files: Iterable[tuple[str, bytes]], default_name: str = "") -> Bundle:
    """Raises BadRequest for anything that may not be in a skill, whoever sends it."""
    paths, accepted = Paths(), dict[str, bytes]()
    left = MAX_BYTES
    for path, data in files:
        paths.add(path)
        if len(accepted) >= MAX_FILES:
            raise BadRequest(f"it holds more than {MAX_FILES:,} files")
        left -= len(data)
        if len(data) > MAX_FILE or left < 0:
            raise too_large(path, len(data) > MAX_FILE)
        if why := _unwanted(data):
            raise BadRequest(f"it holds {path[:100]}, which is {why}", hint="a skill is made of text and pictures")
        accepted[path] = data
    _check_manifest(accepted, default_name)
    return Bundle(dict(sorted(accepted.items())))


def too_large(path: str, alone: bool) -> BadRequest:
    if alone:
        return BadRequest(f"it holds {path[:100]!r}, which is larger than {MAX_FILE:,} bytes")
    return BadRequest(f"it unpacks to more than {MAX_BYTES:,} bytes")


def fingerprint_of(files: Mapping[str, str]) -> str:
    lines = [f"{path}:{files[path]}" for path in sorted(files, key=_as_node_sorts)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def is_text(data: bytes) -> bool:
    if b"\0" in data:
        return False
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _unwanted(data: bytes) -> str:
    """What it is, if that may not be there."""
    if is_text(data) or data.startswith(_PICTURES) or (data[:4] == b"RIFF" and data[8:12] == b"WEBP"):
        return ""
    if data.startswith(_PROGRAMS) or data[2:4] == b"\r\n":  # the second is compiled Python
        return "a program for a machine"
    if data.startswith(_ARCHIVES) or data[257:262] == b"ustar":
        return "an archive"
    return "neither UTF-8 text nor a picture"


def _check_manifest(files: Mapping[str, bytes], default_name: str) -> None:
    if SKILL_FILE not in files:
        near = next((path for path in files if path.lower().endswith("skill.md")), "")
        raise BadRequest(f"it has no {SKILL_FILE}{f', only {near}' if near else ''}")
    if len(files[SKILL_FILE]) > MAX_SKILL_FILE:
        raise BadRequest(f"its {SKILL_FILE} is larger than {MAX_SKILL_FILE:,} bytes")
    try:
        read_manifest(files[SKILL_FILE], default_name)
    except BadRequest as error:
        raise BadRequest(f"its {SKILL_FILE} cannot be used: {error.message}") from None


def _content_type(path: str, data: bytes) -> str:
    kind = path.rpartition(".")[2].lower()
    if not is_text(data):
        return _TYPES.get(kind, "application/octet-stream")
    return {"md": "text/markdown", "json": "application/json"}.get(kind, "text/plain")


def _as_node_sorts(path: str) -> tuple[list[tuple[int, str]], list[bool]]:
    """Letters without their case first; of two that differ in nothing else the small one first."""
    return list(_weights(path)), [char.isupper() for char in path]


def _weights(path: str) -> Iterator[tuple[int, str]]:
    for char in path:
        weight = _ORDER.get(char)
        yield (100, char.lower()) if weight is None else (weight, "")


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
