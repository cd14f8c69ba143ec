"""Who may publish in a registry: owners and their tokens, of which only digests are kept.

The file is looked at for every request that shows a token, so a revoked one is dead at once, whoever revoked it.
"""

from __future__ import annotations

import hmac
import secrets
from pathlib import Path

import msgspec
from msgspec import Struct

from palinurus.config.atomic import make_directory, write_atomic
from palinurus.domain.errors import NotFound, StorageDamaged
from palinurus.gateway.registry.shelf import held
from palinurus.operations.register import digest_of
from palinurus.skills.registry.names import read_owner

PREFIX = "clh_"  # as ClawHub's begin
MAX_NAME = 80


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


class Tokens:
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
        made = OwnerToken(secrets.token_hex(4), read_owner(owner), digest_of(secret), now_ms, name[:MAX_NAME])
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
                raise NotFound(f"there is no living token {id_[:40]!r}", hint="`pal registry token list` shows them")
            gone = msgspec.structs.replace(found, revoked_at=now_ms)
            self._write(tuple(gone if each is found else each for each in known))
        return gone

    def _write(self, tokens: tuple[OwnerToken, ...]) -> None:
        write_atomic(self._path, msgspec.json.format(msgspec.json.encode(_File(1, tokens))))
