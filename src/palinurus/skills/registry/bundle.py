"""What a skill consists of: its files, in memory, checked. It comes out of a zip, a folder or a form and is the same.

Nothing that cannot be looked at by a person gets in: text, and pictures that say what they are. A program for a machine
or an archive inside an archive could be anything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from palinurus.domain.errors import BadRequest
from palinurus.skills.manifest import read_manifest
from palinurus.skills.registry.paths import Paths
from palinurus.skills.skill import SKILL_FILE, Manifest

MAX_FILES = 1_000
MAX_FILE = 5 * 1024 * 1024
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


class FileRecord(Struct, frozen=True, rename="camel", omit_defaults=True):
    path: str
    size: int
    sha256: str
    content_type: str | None = None


class Bundle(Struct, frozen=True):
    files: Mapping[str, bytes]  # by path, in order

    def manifest(self, slug: str) -> Manifest:
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
    paths, kept = Paths(), dict[str, bytes]()
    left = MAX_BYTES
    for path, data in files:
        paths.add(path)
        if len(kept) >= MAX_FILES:
            raise BadRequest(f"it holds more than {MAX_FILES:,} files")
        left -= len(data)
        if len(data) > MAX_FILE or left < 0:
            raise too_large(path, len(data) > MAX_FILE)
        if why := _unwanted(data):
            raise BadRequest(f"it holds {path[:100]}, which is {why}", hint="a skill is made of text and pictures")
        kept[path] = data
    _check_manifest(kept, default_name)
    return Bundle(dict(sorted(kept.items())))


def too_large(path: str, alone: bool) -> BadRequest:
    if alone:
        return BadRequest(f"it holds {path[:100]!r}, which is larger than {MAX_FILE:,} bytes")
    return BadRequest(f"it unpacks to more than {MAX_BYTES:,} bytes")


def digest_of(files: Mapping[str, str]) -> str:
    """One digest for paths with the sha256 of what is there."""
    whole = hashlib.sha256()
    for path, digest in sorted(files.items()):
        whole.update(f"{path}\0{digest}\n".encode("utf-8", "surrogateescape"))
    return f"sha256:{whole.hexdigest()}"


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
