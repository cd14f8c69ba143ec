"""The records of the shelf as the ClawHub HTTP API tells them."""

from __future__ import annotations

from typing import Any

from palinurus.gateway.registry.shelf import SkillRecord, VersionRecord
from palinurus.skills.registry.wire import (
    Found,
    ListedShown,
    Moderation,
    OwnerShown,
    SkillAnswer,
    SkillShown,
    VersionAnswer,
    VersionDetail,
    VersionItem,
    VersionOf,
    VersionShown,
)


def found(score: float, record: SkillRecord) -> Found:
    return Found(
        score=score,
        slug=record.slug,
        display_name=record.display_name,
        summary=record.summary,
        version=record.latest.version,
        updated_at=record.updated_at,
        owner_handle=record.owner,
        owner=owner(record),
    )


def owner(record: SkillRecord) -> OwnerShown:
    return OwnerShown(record.owner, record.owner)


def skill(record: SkillRecord) -> SkillAnswer:
    return SkillAnswer(
        SkillShown(
            record.slug,
            record.display_name,
            record.summary,
            record.tags,
            {"versions": len(record.versions)},
            record.created_at,
            record.updated_at,
        ),
        latest(record),
        owner(record),
        moderation(record),
    )


def listed(record: SkillRecord) -> ListedShown:
    return ListedShown(
        slug=record.slug,
        display_name=record.display_name,
        summary=record.summary,
        tags=record.tags,
        stats={"versions": len(record.versions)},
        created_at=record.created_at,
        updated_at=record.updated_at,
        latest_version=latest(record),
    )


def latest(record: SkillRecord) -> VersionShown:
    version = record.latest
    return VersionShown(version.version, version.created_at, version.changelog)


def moderation(record: SkillRecord) -> Moderation | None:
    if not record.blocked:
        return None
    return Moderation(
        is_suspicious=True,
        is_malware_blocked=True,
        verdict="malicious",
        reason_codes=("blocked_by_registry",),
        summary=record.blocked,
    )


def version(record: SkillRecord, made: VersionRecord) -> VersionAnswer:
    detail = VersionDetail(made.version, made.created_at, made.changelog, "user", None, made.files)
    return VersionAnswer(detail, VersionOf(record.slug, record.display_name))


def item(made: VersionRecord) -> VersionItem:
    return VersionItem(made.version, made.created_at, made.changelog, "user")


def install(record: SkillRecord, base: str) -> dict[str, Any]:
    version = record.latest.version
    url = f"{base}/api/v1/download?slug={record.slug}&version={version}"
    return {
        "ok": True,
        "slug": record.slug,
        "installKind": "archive",
        "archive": {"version": version, "downloadUrl": url},
    }


def verification(record: SkillRecord, made: VersionRecord, base: str, by: str, tag: str) -> dict[str, Any]:
    """`clawhub.skill.verify.v1`: what we know, which is what was published, by whom, and whether it was blocked."""
    return {
        "schema": "clawhub.skill.verify.v1",
        "ok": not record.blocked,
        "decision": "fail" if record.blocked else "pass",
        "reasons": [record.blocked] if record.blocked else [],
        "slug": record.slug,
        "displayName": record.display_name,
        "pageUrl": f"{base}/api/v1/skills/{record.slug}",
        "publisherHandle": record.owner,
        "publisherDisplayName": record.owner,
        "publisherProfileUrl": None,
        "version": made.version,
        "resolvedFrom": by,
        "tag": tag or None,
        "createdAt": made.created_at,
        "card": {"available": True, "url": f"{base}/api/v1/skills/{record.slug}/card?version={made.version}"},
        "artifact": {
            "sha256": made.archive_sha256,
            "bytes": made.archive_bytes,
            "digest": made.digest,
            "fingerprint": made.fingerprint,
            "files": made.files,
        },
        "provenance": {"source": "upload", "publisher": made.publisher},
        "security": {"status": "blocked" if record.blocked else "unscanned"},
        "signature": {"status": "unsigned"},
    }


def card(record: SkillRecord, made: VersionRecord) -> str:
    rows = "\n".join(f"- `{each.sha256}` {each.path} ({each.size:,} bytes)" for each in made.files)
    return (
        f"# {record.display_name}\n\n{record.summary}\n\n- slug: {record.slug}\n- version: {made.version}\n"
        f"- owner: {record.owner}\n- digest: {made.digest}\n\n## Files\n\n{rows}\n"
    )
