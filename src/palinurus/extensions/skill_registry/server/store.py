"""What a registry holds, as plain files in a folder, and who may publish there.

    DIR/skills/<slug>/skill.json       who owns it, its versions and their files, its tags
    DIR/skills/<slug>/<version>.zip    one version; written once and never changed
    DIR/tokens.json                    owners and their tokens, of which only digests are kept

A version counts once skill.json names it, and its zip is on the disk by then. Everything is looked up on the disk each
time, so another process may change things too, and a revoked token is dead at once; those who change something hold a
lock.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palinurus.config.atomic import make_directory, storage_errors, write_atomic
from palinurus.domain.errors import NotFound, PalinurusError, StorageDamaged
from palinurus.extensions.skill_registry import protocol
from palinurus.extensions.skill_registry.bundle import Bundle, FileRecord, read_zip, write_zip
from palinurus.extensions.skill_registry.quarantine import held
from palinurus.operations.access import digest_of

LATEST = "latest"
MAX_VERSIONS = 500
MAX_CHANGELOG = 20_000
MAX_TITLE = 120
PREFIX = "clh_"  # as ClawHub's begin
MAX_NAME = 80


class Conflict(PalinurusError):
    """The request contradicts what is stored."""


class NotYours(PalinurusError):
    """It belongs to another owner."""


class VersionRecord(Struct, frozen=True, rename="camel"):
    version: str
    created_at: int
    changelog: str
    publisher: str
    files: tuple[FileRecord, ...]
    digest: str
    fingerprint: str  # by which the clawhub command knows what it has
    archive_sha256: str
    archive_bytes: int


class SkillRecord(Struct, frozen=True, rename="camel", omit_defaults=True):
    slug: str
    display_name: str
    summary: str
    owner: str
    created_at: int
    updated_at: int
    versions: tuple[VersionRecord, ...]  # in the order in which they came
    tags: dict[str, str]
    deleted: bool = False
    blocked: str = ""  # why nobody may install it

    def version(self, text: str = "", tag: str = "") -> VersionRecord:
        """The one of that name, the one with that tag, or the latest. Raises NotFound."""
        wanted = text or self.tags.get(tag or LATEST, "")
        found = next((each for each in self.versions if each.version == wanted), None)
        if found is None:
            raise NotFound("Version not found")
        return found

    @property
    def latest(self) -> VersionRecord:
        return self.version()


class RegistryStore:
    """Safe to use from several threads and processes. Raises StorageError when the folder cannot be used."""

    def __init__(self, folder: Path) -> None:
        self._lock = folder / ".lock"
        self._skills = folder / "skills"
        self._known: dict[str, tuple[tuple[int, int, int], SkillRecord]] = {}

    def open(self) -> None:
        make_directory(self._skills)

    def get(self, slug: str) -> SkillRecord:
        """Raises NotFound, also for one that was deleted."""
        found = self._read(slug)
        if found is None or found.deleted:
            raise NotFound("Skill not found")
        return found

    def all(self) -> list[SkillRecord]:
        """Those that are offered, the newest first."""
        with storage_errors(self._skills):
            names = os.listdir(self._skills)  # noqa: PTH208  names are all that is needed
        found = [record for name in names if (record := self._read(name)) is not None]
        offered = (each for each in found if not each.deleted and not each.blocked)
        return sorted(offered, key=lambda each: (-each.updated_at, each.slug))

    def archive(self, record: SkillRecord, version: VersionRecord) -> bytes:
        """The zip, and only if it is what was published. Raises StorageDamaged."""
        path = self._zip(record.slug, version.version)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise StorageDamaged(f"{path} cannot be read: {error.strerror}") from None
        if hashlib.sha256(data).hexdigest() != version.archive_sha256:
            raise StorageDamaged(f"{path} is not what was published")
        return data

    def file(self, record: SkillRecord, version: VersionRecord, path: str) -> bytes:
        """Raises NotFound."""
        if not any(each.path == path for each in version.files):
            raise NotFound("File not found")
        return read_zip(self.archive(record, version), record.slug).files[path]

    def publish(self, publication: protocol.Publication, bundle: Bundle, publisher: str, now_ms: int) -> VersionRecord:
        """Raises NotYours, Conflict or BadRequest."""
        slug, version = protocol.read_slug(publication.slug), protocol.read_version(publication.version)
        tags = tuple(map(protocol.read_tag, publication.tags[:10])) or (LATEST,)
        if publication.owner_handle and protocol.read_owner(publication.owner_handle) != publisher:
            raise NotYours(f"this token publishes for {publisher}, not for {publication.owner_handle}")
        archive = write_zip(bundle)
        with held(self._lock):
            before = self._read(slug)
            if before is not None:
                _check_may(before, version, publisher)
            made = VersionRecord(
                version=version,
                created_at=now_ms,
                changelog=publication.changelog[:MAX_CHANGELOG],
                publisher=publisher,
                files=bundle.records(),
                digest=bundle.digest,
                fingerprint=bundle.fingerprint,
                archive_sha256=hashlib.sha256(archive).hexdigest(),
                archive_bytes=len(archive),
            )
            make_directory(self._skills / slug)
            write_atomic(self._zip(slug, version), archive)
            self._write(_with(before, made, publication, bundle, tags))
        return made

    def set_deleted(self, slug: str, publisher: str, deleted: bool) -> None:
        """Put away, or brought back, by its owner. The files stay and the name stays taken."""
        with held(self._lock):
            record = self._read(slug)
            if record is None:
                raise NotFound("Skill not found")
            _check_owner(record, publisher)
            self._write(replace(record, deleted=deleted))

    def set_blocked(self, slug: str, reason: str) -> None:
        with held(self._lock):
            self._write(replace(self.get(slug), blocked=reason))

    def _read(self, slug: str) -> SkillRecord | None:
        try:
            path = self._skills / protocol.read_slug(slug) / "skill.json"
            seen = path.stat()
        except (PalinurusError, OSError):
            return None
        mark = (seen.st_mtime_ns, seen.st_ino, seen.st_size)
        known = self._known.get(slug)
        if known is None or known[0] != mark:
            try:
                known = (mark, msgspec.json.decode(path.read_bytes(), type=SkillRecord))
            except (OSError, msgspec.DecodeError) as error:
                raise StorageDamaged(f"{path} cannot be read: {error}") from None
            self._known[slug] = known
        return known[1]

    def _write(self, record: SkillRecord) -> None:
        data = msgspec.json.format(msgspec.json.encode(record))
        write_atomic(self._skills / record.slug / "skill.json", data)

    def _zip(self, slug: str, version: str) -> Path:
        return self._skills / slug / f"{version}.zip"


def _check_owner(record: SkillRecord, publisher: str) -> None:
    if record.owner != publisher:
        raise NotYours(f"{record.slug} belongs to {record.owner}")


def _check_may(before: SkillRecord, version: str, publisher: str) -> None:
    _check_owner(before, publisher)
    if any(each.version == version for each in before.versions):
        raise Conflict(f"{before.slug}@{version} was published already; a version never changes")
    if len(before.versions) >= MAX_VERSIONS:
        raise Conflict(f"{before.slug} has {MAX_VERSIONS} versions already")


def _with(
    before: SkillRecord | None,
    made: VersionRecord,
    publication: protocol.Publication,
    bundle: Bundle,
    tags: tuple[str, ...],
) -> SkillRecord:
    """The skill with one version more. `latest` goes up and never down."""
    about = bundle.manifest(publication.slug)
    title = " ".join(publication.display_name.split())[:MAX_TITLE] or about.name
    known = before or SkillRecord(
        publication.slug, title, about.description, made.publisher, made.created_at, made.created_at, (), {}
    )
    had = known.tags.get(LATEST)
    moved = {tag: made.version for tag in tags if tag != LATEST}
    if had is None or protocol.version_key(made.version) > protocol.version_key(had):
        moved[LATEST] = made.version
        known = replace(known, display_name=title, summary=about.description)
    versions, tagged = (*known.versions, made), {**known.tags, **moved}
    return replace(known, updated_at=made.created_at, versions=versions, tags=tagged, deleted=False)


class OwnerToken(Struct, frozen=True, rename="camel"):
    id: str
    owner: str
    digest: str
    created_at: int
    name: str = ""
    revoked_at: int | None = None


class _File(Struct, frozen=True):
    version: int
    tokens: tuple[OwnerToken, ...]


class OwnerTokens:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "tokens.json"

    def all(self) -> tuple[OwnerToken, ...]:
        """Raises StorageDamaged."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_File).tokens
        except FileNotFoundError:
            return ()
        except (OSError, msgspec.DecodeError) as error:
            raise StorageDamaged(f"{self._path} cannot be read: {error}") from None

    def owner_of(self, secret: str) -> str:
        """Empty when nobody has that token."""
        digest = digest_of(secret)
        alive = [each for each in self.all() if each.revoked_at is None]
        return next((each.owner for each in alive if hmac.compare_digest(each.digest, digest)), "")

    def create(self, owner: str, name: str, now_ms: int) -> tuple[OwnerToken, str]:
        """The token and its secret, which is not kept. Raises BadRequest for what cannot be an owner's name."""
        secret = PREFIX + secrets.token_urlsafe(32)
        made = OwnerToken(secrets.token_hex(4), protocol.read_owner(owner), digest_of(secret), now_ms, name[:MAX_NAME])
        make_directory(self._folder)
        with held(self._folder / ".lock"):
            self._write((*self.all(), made))
        return made, secret

    def revoke(self, id_: str, now_ms: int) -> OwnerToken:
        """Raises NotFound."""
        with held(self._folder / ".lock"):
            known = self.all()
            found = next((each for each in known if each.id == id_ and each.revoked_at is None), None)
            if found is None:
                raise NotFound(f"there is no valid token {id_[:40]!r}", hint="`pal registry token list` shows them")
            gone = replace(found, revoked_at=now_ms)
            self._write(tuple(gone if each is found else each for each in known))
        return gone

    def _write(self, tokens: tuple[OwnerToken, ...]) -> None:
        write_atomic(self._path, msgspec.json.format(msgspec.json.encode(_File(1, tokens))))
