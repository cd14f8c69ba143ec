"""The files of a skill, in memory and checked, whether they came from a zip, a folder or a form.

Only what a person can look at is allowed: text, and pictures with a known signature. An executable or an archive inside
an archive could be anything. A bundle is unpacked on all kinds of systems, so a path that only some of them would read
correctly is refused everywhere: names that differ by case alone, names with hidden characters, names of devices.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from palinurus.domain.errors import BadRequest
from palinurus.skills.manifest import read_manifest
from palinurus.skills.pins import MAX_FILE, MAX_FILES, digest_of
from palinurus.skills.skill import SKILL_FILE, SkillManifest

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
_PROGRAMS = (
    b"\x7fELF",
    b"MZ",
    b"\xfe\xed\xfa",
    b"\xce\xfa\xed\xfe",
    b"\xcf\xfa\xed\xfe",
    b"\xca\xfe\xba\xbe",
    b"\0asm",
)
_ARCHIVES = (
    b"PK\x03\x04",
    b"PK\x05\x06",
    b"\x1f\x8b",
    b"BZh",
    b"\xfd7zXZ",
    b"7z\xbc\xaf",
    b"Rar!",
    b"\x28\xb5\x2f\xfd",
)
# What node's localeCompare makes of ASCII: ClawHub sorts by that before it hashes.
_ORDER = {char: weight for weight, char in enumerate(" _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789")}
_TEXT_KINDS = (
    "md mdx txt json json5 yaml yml toml js cjs mjs ts tsx jsx py sh ps1 psm1 psd1 r rb go rs swift kt java cs cpp c h "
    "hpp sql csv tsv ini cfg conf env properties dat xml html css scss sass svg"
)
_TEXTS = frozenset(_TEXT_KINDS.split())


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
            raise BadRequest(
                f"it holds a name with the character U+{ord(char):04X}, which cannot be seen: {_quoted(path)}"
            )
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
        return {"png": "image/png", "gif": "image/gif", "webp": "image/webp", "pdf": "application/pdf"}.get(
            kind, "image/jpeg" if kind in ("jpg", "jpeg") else "application/octet-stream"
        )
    return {"md": "text/markdown", "json": "application/json"}.get(kind, "text/plain")


def _as_node_sorts(path: str) -> tuple[list[tuple[int, str]], list[bool]]:
    """Letters without their case first; of two that differ in nothing else the small one first."""
    return list(_weights(path)), [char.isupper() for char in path]


def _weights(path: str) -> Iterator[tuple[int, str]]:
    for char in path:
        weight = _ORDER.get(char)
        yield (100, char.lower()) if weight is None else (weight, "")
