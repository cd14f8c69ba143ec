"""The answers of a registry over the ClawHub HTTP API as plain data, and its search."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import Annotated, Any

from msgspec import Meta, Struct

from palinurus.extensions.skill_registry.server.store import SkillRecord, VersionRecord

MAX_WORDS = 12
MAX_VERDICTS = 200  # in one request
SOURCE = {"source": "clawhub"}  # OpenClaw leaves out what comes from a source that it does not know
_WORD = re.compile(r"\w+")
Json = dict[str, Any]


class VerdictRequest(Struct, frozen=True, rename="camel"):
    slug: str
    version: str
    owner_handle: str = ""


class VerdictRequests(Struct, frozen=True):
    items: Annotated[tuple[VerdictRequest, ...], Meta(max_length=MAX_VERDICTS)]


def find(records: Iterable[SkillRecord], text: str, limit: int) -> list[Json]:
    return [
        {"score": score, "version": record.latest.version, "ownerHandle": record.owner, "owner": owner(record.owner)}
        | _pick(record, "slug", "display_name", "summary", "updated_at")
        | SOURCE
        for score, record in rank(records, text)[:limit]
    ]


def newest(records: Iterable[SkillRecord], limit: int) -> list[Json]:
    """Those that changed last, as they come: nobody counts what is installed."""
    return [
        {"publisher": owner(record.owner), "official": False, "metrics": _pick(record, "updated_at")}
        | _pick(record, "slug", "display_name", "summary")
        | SOURCE
        for record in islice(records, limit)
    ]


def _pick(record: Struct, *names: str) -> Json:
    """These fields of a record under their names in the API."""
    keys = dict(zip(record.__struct_fields__, record.__struct_encode_fields__, strict=True))
    return {keys[name]: getattr(record, name) for name in names}


def owner(handle: str) -> Json:
    return {"handle": handle, "displayName": handle, "image": None}


def skill(record: SkillRecord) -> Json:
    shown = _pick(record, "slug", "display_name", "summary", "tags", "created_at", "updated_at")
    return {**shown, "stats": {"versions": len(record.versions)}}


def latest(record: SkillRecord) -> Json:
    return {**_pick(record.latest, "version", "created_at", "changelog"), "license": None}


def moderation(record: SkillRecord, **more: Any) -> Json | None:
    if not record.blocked:
        return None
    return {
        "isSuspicious": True,
        "isMalwareBlocked": True,
        "verdict": "malicious",
        "reasonCodes": ("blocked_by_registry",),
        "summary": record.blocked,
        **more,
    }


def version(made: VersionRecord) -> Json:
    return {**_pick(made, "version", "created_at", "changelog"), "changelogSource": "user"}


def verification(record: SkillRecord, made: VersionRecord, base: str, by: str, tag: str) -> Json:
    """`clawhub.skill.verify.v1`: what we know, which is what was published, by whom, and whether it was blocked."""
    page = f"{base}/api/v1/skills/{record.slug}"
    return {
        "schema": "clawhub.skill.verify.v1",
        "ok": not record.blocked,
        "decision": "fail" if record.blocked else "pass",
        "reasons": [record.blocked] if record.blocked else [],
        **_pick(record, "slug", "display_name"),
        **_pick(made, "version", "created_at"),
        "pageUrl": page,
        "publisherHandle": record.owner,
        "publisherDisplayName": record.owner,
        "publisherProfileUrl": None,
        "resolvedFrom": by,
        "tag": tag or None,
        "card": {"available": True, "url": f"{page}/card?version={made.version}"},
        "artifact": {
            "sha256": made.archive_sha256,
            "bytes": made.archive_bytes,
            **_pick(made, "digest", "fingerprint", "files"),
        },
        "provenance": {"source": "upload", "publisher": made.publisher},
        "security": {"status": "blocked" if record.blocked else "unscanned"},
        "signature": {"status": "unsigned"},
    }


def verdict(asked: VerdictRequest, record: SkillRecord | None, base: str) -> Json:
    """Whether a version may be installed, as OpenClaw asks before it does. Nothing is scanned here, and it says so."""
    shown = {"requestedSlug": asked.slug, "requestedVersion": asked.version}
    if asked.owner_handle:
        shown["requestedOwnerHandle"] = asked.owner_handle
    known = record is not None and asked.owner_handle.removeprefix("@").lower() in ("", record.owner)
    made = next((each for each in record.versions if each.version == asked.version), None) if record and known else None
    if record is None or made is None:
        code = "version_not_found" if record and known else "skill_not_found"
        missing = {"slug": None, "version": None, "publisherHandle": None, "security": None}
        error = {"code": code, "message": "Skill not found" if code == "skill_not_found" else "Version not found"}
        return {"ok": False, "decision": "fail", "reasons": [code], **shown, **missing, "error": error}
    page = f"{base}/api/v1/skills/{record.slug}"
    blocked = record.blocked
    says = f"Blocked by this registry: {blocked}" if blocked else f"Published by {record.owner}. Not scanned."
    return {
        "ok": not blocked,
        "decision": "blocked" if blocked else "pass",
        "reasons": ["blocked"] if blocked else [],
        **shown,
        **_pick(record, "slug", "display_name"),
        **_pick(made, "version", "created_at"),
        "publisherHandle": record.owner,
        "publisherDisplayName": record.owner,
        "overview": says,
        "skillUrl": page,
        "securityAuditUrl": f"{page}/verify?version={made.version}",
        "security": {"status": "blocked" if blocked else "unscanned", "passed": not blocked},
    }


def card(record: SkillRecord, made: VersionRecord) -> str:
    rows = "\n".join(f"- `{each.sha256}` {each.path} ({each.size:,} bytes)" for each in made.files)
    return (
        f"# {record.display_name}\n\n{record.summary}\n\n- slug: {record.slug}\n- version: {made.version}\n"
        f"- owner: {record.owner}\n- digest: {made.digest}\n\n## Files\n\n{rows}\n"
    )


def rank(records: Iterable[SkillRecord], text: str) -> list[tuple[float, SkillRecord]]:
    """The best first; a score of 1 is a skill of exactly that name. Small enough to look at each. Pure."""
    words = list(dict.fromkeys(_WORD.findall(text.lower())))[:MAX_WORDS]
    if not words:
        return []
    scored = [(_score(record, words, text.strip().lower()), record) for record in records]
    found = [pair for pair in scored if pair[0] > 0]
    return sorted(found, key=lambda pair: (-pair[0], -pair[1].updated_at, pair[1].slug))


def _score(record: SkillRecord, words: list[str], whole: str) -> float:
    if record.slug == whole:
        return 1.0
    parts = set(_WORD.findall(record.slug))
    title, summary = record.display_name.lower(), record.summary.lower()
    described = set(_WORD.findall(f"{title} {summary}"))
    total = 0.0
    for word in words:
        if word in parts:
            total += 0.9
        elif word in title or word in record.slug:
            total += 0.7
        elif word in described:
            total += 0.5
        elif word in summary or word == record.owner:
            total += 0.3
    return round(total / len(words), 4)
