"""The records of the ClawHub HTTP API as our client reads them, and the names that a registry uses.

Fields that we do not use are not read. Only a name that passes here becomes part of a path.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from palinurus.domain.errors import BadRequest
from palinurus.extensions.skill_registry.bundle import RESERVED, FileRecord

API = "api/v1"
_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_OWNER = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,38}[a-z0-9])?", re.IGNORECASE)
_VERSION = re.compile(
    r"(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})"
    r"(?:-((?:0|[1-9]\d{0,8}|\d*[A-Za-z-][0-9A-Za-z-]*)(?:\.(?:0|[1-9]\d{0,8}|\d*[A-Za-z-][0-9A-Za-z-]*))*))?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_TAG = re.compile(r"[a-z][a-z0-9._-]{0,39}")
MAX_VERSION = 64
VersionKey = tuple[tuple[int, int, int], bool, tuple[tuple[int, int, str], ...]]


class OwnerAnswer(Struct, frozen=True, rename="camel"):
    handle: str | None = None
    display_name: str | None = None
    image: str | None = None


class FoundSkill(Struct, frozen=True, rename="camel"):
    score: float
    slug: str = ""
    display_name: str = ""
    summary: str | None = None
    version: str | None = None
    updated_at: int | float | None = None
    owner_handle: str | None = None
    owner: OwnerAnswer | None = None

    @property
    def owned_by(self) -> str:
        return self.owner_handle or (self.owner.handle if self.owner else "") or ""


class SkillSearchAnswer(Struct, frozen=True):
    results: tuple[FoundSkill, ...]


class VersionInfo(Struct, frozen=True, rename="camel"):
    version: str
    files: tuple[FileRecord, ...] | None = None


class Moderation(Struct, frozen=True, rename="camel"):
    is_suspicious: bool = False
    is_malware_blocked: bool = False
    reason_codes: tuple[str, ...] = ()
    summary: str | None = None


class SkillAnswer(Struct, frozen=True, rename="camel"):
    skill: dict[str, Any] | None
    latest_version: VersionInfo | None = None
    owner: OwnerAnswer | None = None
    moderation: Moderation | None = None


class VersionAnswer(Struct, frozen=True):
    version: VersionInfo | None

    @property
    def files(self) -> tuple[FileRecord, ...]:
        return (self.version.files if self.version else None) or ()


class Publication(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The `payload` of a publishing form."""

    slug: str
    version: str
    display_name: str = ""
    owner_handle: str = ""
    changelog: str = ""
    accept_license_terms: bool = False
    tags: tuple[str, ...] = ()


class PublishAnswer(Struct, frozen=True, rename="camel"):
    ok: bool
    skill_id: str
    version_id: str


class Whoami(Struct, frozen=True):
    user: OwnerAnswer


class WantedSkill(Struct, frozen=True):
    """A skill as a person asks for it."""

    slug: str
    owner: str = ""
    version: str = ""  # empty: the latest


def read_wanted(text: str, version: str = "") -> WantedSkill:
    """`slug`, `slug@1.2.0` or `@owner/slug@1.2.0`. Raises BadRequest."""
    owner, rest = "", text.strip()
    if rest.startswith("@"):
        owner, slash, rest = rest[1:].partition("/")
        if not slash:
            raise BadRequest(f"{text[:80]!r} names no skill", hint="write @owner/slug, or only slug")
        owner = read_owner(owner)
    slug, _, named = rest.partition("@")
    if named and version and named != version:
        raise BadRequest(f"two versions are given: {named[:40]} and {version[:40]}")
    chosen = named or version
    return WantedSkill(read_slug(slug), owner, read_version(chosen) if chosen else "")


def read_slug(text: str) -> str:
    if not _SLUG.fullmatch(text) or text in RESERVED:
        raise BadRequest(f"{text[:80]!r} is not a valid skill name in a registry", hint="small letters, digits and -")
    return text


def read_owner(text: str) -> str:
    if not _OWNER.fullmatch(text):
        raise BadRequest(f"{text[:80]!r} is not a valid owner name", hint="letters, digits, - and _, at most 40")
    return text.lower()


def read_tag(text: str) -> str:
    if not _TAG.fullmatch(text):
        raise BadRequest(f"{text[:40]!r} is not a tag", hint="small letters, digits, . _ and -")
    return text


def read_version(text: str) -> str:
    """The text, if it is a semantic version. Raises BadRequest."""
    version_key(text)
    return text


def version_key(text: str) -> VersionKey:
    """By which semantic versions are ordered; what comes after + does not count. Raises BadRequest."""
    found = _VERSION.fullmatch(text) if len(text) <= MAX_VERSION else None
    if found is None:
        raise BadRequest(f"{text[:40]!r} is not a version", hint="three numbers, such as 1.2.0")
    before = found[4]
    return (int(found[1]), int(found[2]), int(found[3])), before is None, tuple(map(_weight, (before or "").split(".")))


def next_patch(version: str) -> str:
    major, minor, patch = version_key(version)[0]
    return f"{major}.{minor}.{patch + 1}"


def _weight(part: str) -> tuple[int, int, str]:
    """Numbers come before words, as semver.org says."""
    return (0, int(part), "") if part.isdigit() else (1, 0, part)
