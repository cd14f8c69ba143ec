"""What a registry calls things: slugs, owners, versions. Only what passes here becomes part of a path."""

from __future__ import annotations

import re
from functools import total_ordering

from msgspec import Struct

from palinurus.domain.errors import BadRequest
from palinurus.skills.registry.paths import RESERVED

_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_OWNER = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,38}[a-z0-9])?", re.IGNORECASE)
_VERSION = re.compile(
    r"(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})"
    r"(?:-((?:0|[1-9]\d{0,8}|\d*[A-Za-z-][0-9A-Za-z-]*)(?:\.(?:0|[1-9]\d{0,8}|\d*[A-Za-z-][0-9A-Za-z-]*))*))?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_TAG = re.compile(r"[a-z][a-z0-9._-]{0,39}")
MAX_VERSION = 64


class Wanted(Struct, frozen=True):
    """A skill as a person asks for it."""

    slug: str
    owner: str = ""
    version: str = ""  # empty: the latest


def read_wanted(text: str, version: str = "") -> Wanted:
    """`slug`, `slug@1.2.0` or `@owner/slug@1.2.0`. Raises BadRequest."""
    owner, rest = "", text.strip()
    if rest.startswith("@"):
        owner, slash, rest = rest[1:].partition("/")
        if not slash:
            raise BadRequest(f"{text[:80]!r} names no skill", hint="write @owner/slug, or only slug")
        owner = read_owner(owner)
    slug, _, said = rest.partition("@")
    if said and version and said != version:
        raise BadRequest(f"two versions were asked for: {said[:40]} and {version[:40]}")
    chosen = said or version
    return Wanted(read_slug(slug), owner, read_version(chosen) if chosen else "")


def read_slug(text: str) -> str:
    if not _SLUG.fullmatch(text) or text in RESERVED:
        raise BadRequest(f"{text[:80]!r} is no skill's name in a registry", hint="small letters, digits and -")
    return text


def read_owner(text: str) -> str:
    if not _OWNER.fullmatch(text):
        raise BadRequest(f"{text[:80]!r} is no owner's name", hint="letters, digits, - and _, at most 40")
    return text.lower()


def read_tag(text: str) -> str:
    if not _TAG.fullmatch(text):
        raise BadRequest(f"{text[:40]!r} is no tag", hint="small letters, digits, . _ and -")
    return text


def read_version(text: str) -> str:
    return str(Version.read(text))


@total_ordering
class Version:
    """A semantic version; what comes after + is kept and does not count."""

    def __init__(self, text: str, found: re.Match[str]) -> None:
        self._text = text
        numbers = tuple(int(each) for each in found.group(1, 2, 3))
        before = found[4]
        self._key = (numbers, before is None, tuple(map(_weight, before.split("."))) if before else ())

    @classmethod
    def read(cls, text: str) -> Version:
        """Raises BadRequest."""
        found = _VERSION.fullmatch(text) if len(text) <= MAX_VERSION else None
        if found is None:
            raise BadRequest(f"{text[:40]!r} is no version", hint="three numbers, such as 1.2.0")
        return cls(text, found)

    def next_patch(self) -> str:
        major, minor, patch = self._key[0]
        return f"{major}.{minor}.{patch + 1}"

    def __str__(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._key == other._key

    def __lt__(self, other: Version) -> bool:
        return self._key < other._key

    def __hash__(self) -> int:
        return hash(self._key)


def _weight(part: str) -> tuple[int, int, str]:
    """Numbers come before words, as semver.org says."""
    return (0, int(part), "") if part.isdigit() else (1, 0, part)
