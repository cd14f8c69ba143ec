"""What is said over the ClawHub HTTP API, as records: our client reads them, our own registry writes them.

Times are milliseconds. What a registry says and we have no use for is not read.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from palinurus.skills.registry.bundle import FileRecord

API = "api/v1"
Verdict = Literal["clean", "suspicious", "malicious"]


class OwnerShown(Struct, frozen=True, rename="camel"):
    handle: str | None = None
    display_name: str | None = None
    image: str | None = None


class Found(Struct, frozen=True, rename="camel"):
    score: float
    slug: str = ""
    display_name: str = ""
    summary: str | None = None
    version: str | None = None
    updated_at: int | float | None = None
    owner_handle: str | None = None
    owner: OwnerShown | None = None

    @property
    def owned_by(self) -> str:
        return self.owner_handle or (self.owner.handle if self.owner else "") or ""


class SearchAnswer(Struct, frozen=True):
    results: tuple[Found, ...]


class VersionShown(Struct, frozen=True, rename="camel"):
    version: str
    created_at: int | float = 0
    changelog: str = ""
    license: str | None = None


class SkillShown(Struct, frozen=True, rename="camel"):
    slug: str
    display_name: str = ""
    summary: str | None = None
    tags: Any = None
    stats: Any = None
    created_at: int | float = 0
    updated_at: int | float = 0


class ListedShown(SkillShown, frozen=True, rename="camel"):
    latest_version: VersionShown | UnsetType = UNSET


class Moderation(Struct, frozen=True, rename="camel"):
    is_suspicious: bool = False
    is_malware_blocked: bool = False
    verdict: Verdict | None = None
    reason_codes: tuple[str, ...] = ()
    summary: str | None = None


class SkillAnswer(Struct, frozen=True, rename="camel"):
    skill: SkillShown | None
    latest_version: VersionShown | None = None
    owner: OwnerShown | None = None
    moderation: Moderation | None = None


class SkillListAnswer(Struct, frozen=True, rename="camel"):
    items: tuple[ListedShown, ...]
    next_cursor: str | None = None


class VersionDetail(Struct, frozen=True, rename="camel"):
    version: str
    created_at: int | float = 0
    changelog: str = ""
    changelog_source: str | None = None
    license: str | None = None
    files: tuple[FileRecord, ...] | None = None


class VersionOf(Struct, frozen=True, rename="camel"):
    slug: str
    display_name: str = ""


class VersionAnswer(Struct, frozen=True):
    version: VersionDetail | None
    skill: VersionOf | None = None


class VersionItem(Struct, frozen=True, rename="camel"):
    version: str
    created_at: int | float = 0
    changelog: str = ""
    changelog_source: str | None = None


class VersionListAnswer(Struct, frozen=True, rename="camel"):
    items: tuple[VersionItem, ...]
    next_cursor: str | None = None


class VersionNamed(Struct, frozen=True):
    version: str


class ResolveAnswer(Struct, frozen=True, rename="camel"):
    match: VersionNamed | None
    latest_version: VersionNamed | None


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
    user: OwnerShown
