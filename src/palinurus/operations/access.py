"""The register of those who may come in: tokens and paired devices, made, renewed and taken away by the owner.

One process holds a home, so what is in memory here is the truth; every change is on the disk before it is told. The
gateway asks the register for every request, and is told at once of a credential that has died.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from palinurus.domain.clock import Clock, NewId
from palinurus.domain.errors import BadRequest, NotFound, QueueFull
from palinurus.operations.scopes import SCOPES, Scope
from palinurus.storage.database import Database
from palinurus.storage.transaction import Transaction, declare_queries, decoded, encoded

declare_queries("access", __file__)


class AccessToken(Struct, frozen=True, rename="camel", omit_defaults=True):
    id: str
    name: str
    digest: str
    scopes: tuple[Scope, ...]
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None
    last_used_at: int | None = None
    device_id: str = ""  # of a token that belongs to a device
    seal: str = ""  # of a browser's: over the owner's secret by which it was let in; see gateway/auth/guard.py
    audience: str = ""  # of a program's that was let in by OAuth: the one address where it counts


class PairedDevice(Struct, frozen=True, rename="camel", omit_defaults=True):
    id: str
    public_key: str
    name: str
    scopes: tuple[Scope, ...]  # asked for, until it is approved; then granted
    status: Literal["waiting", "paired", "revoked"]
    asked_at: int
    code: str = ""  # shown on both sides, to compare
    paired_at: int | None = None
    platform: str = ""
    # A browser has no key, only a cookie; a program has tokens for one audience.
    kind: Literal["device", "browser", "program"] = "device"


class AccessStore:
    """Keeps tokens and devices, each listed in the order in which it came. When a write returns it is on the disk.

    Of a token only the digest is there.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def tokens(self) -> list[AccessToken]:
        rows = await self._database.read(lambda tx: tx.all("access.tokens"))
        return [decoded(row, AccessToken, "the row of a token") for (row,) in rows]

    async def put_token(self, token: AccessToken) -> None:
        """Add it, or replace the one with its id. Raises BadRequest when another token has its digest."""

        def work(tx: Transaction) -> None:
            if tx.value("access.token_with_digest", digest=token.digest) not in (None, token.id):
                raise BadRequest(f"token {token.id!r} has the secret of another", hint="make a new one")
            tx.run("access.put_token", id=token.id, digest=token.digest, row=encoded(token))

        await self._database.write(work)

    async def devices(self) -> list[PairedDevice]:
        rows = await self._database.read(lambda tx: tx.all("access.devices"))
        return [decoded(row, PairedDevice, "the row of a device") for (row,) in rows]

    async def put_device(self, device: PairedDevice) -> None:
        """Add it, or replace the one with its id."""
        await self._database.write(lambda tx: tx.run("access.put_device", id=device.id, row=encoded(device)))


DAY_MS = 86_400_000

TOUCH_MS = 60_000  # how exact `last_used_at` is

WAITING_DEVICES = 50

WAITS_MS = DAY_MS  # after which a device that nobody approved is forgotten

LONGEST_NAME = 80


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


class Register:
    def __init__(self, store: AccessStore, clock: Clock, new_id: NewId) -> None:
        self._store = store
        self._clock = clock
        self._new_id = new_id
        self._tokens: dict[str, AccessToken] = {}  # by digest
        self._devices: dict[str, PairedDevice] = {}
        self._used: set[str] = set()  # digests whose `last_used_at` is not on the disk yet
        self._loaded = False
        self._changing = asyncio.Lock()
        self.on_revoked: list[Callable[[str], None]] = []  # told the id of a token or device that has just died

    async def load(self) -> None:
        """Read what is stored, once."""
        async with self._changing:
            if not self._loaded:
                self._tokens = {token.digest: token for token in await self._store.tokens()}
                self._devices = {device.id: device for device in await self._store.devices()}
                self._loaded = True

    # Asked for every request: memory only.

    def holder_of(self, secret: str) -> AccessToken | None:
        """The living token with this secret."""
        token = self._tokens.get(digest_of(secret))
        if token is None or not self._is_alive(token):
            return None
        now = self._clock.now_ms()
        if now - (token.last_used_at or 0) > TOUCH_MS:
            token = msgspec.structs.replace(token, last_used_at=now)
            self._tokens[token.digest] = token
            self._used.add(token.digest)
        return token

    def is_good(self, token_id: str, digest: str) -> bool:
        token = self._tokens.get(digest)
        return token is not None and token.id == token_id and self._is_alive(token)

    def device(self, device_id: str) -> PairedDevice | None:
        return self._devices.get(device_id)

    def tokens(self) -> list[AccessToken]:
        """Newest first."""
        return sorted(self._tokens.values(), key=lambda token: -token.created_at)

    def devices(self) -> list[PairedDevice]:
        """Those that wait first, then the newest."""
        waiting = {device.id for device in self._waiting()}
        kept = [device for device in self._devices.values() if device.status != "waiting" or device.id in waiting]
        kept = [device for device in kept if device.kind == "device" or self._tokens_of(device.id)]  # else it is over
        return sorted(kept, key=lambda device: (device.status != "waiting", -device.asked_at))

    def _is_alive(self, token: AccessToken) -> bool:
        return token.revoked_at is None and (token.expires_at is None or token.expires_at > self._clock.now_ms())

    def _waiting(self) -> list[PairedDevice]:
        since = self._clock.now_ms() - WAITS_MS
        return [each for each in self._devices.values() if each.status == "waiting" and each.asked_at > since]

    # Tokens.

    async def make_token(
        self, name: str, scopes: Iterable[Scope], *, days: float | None = None
    ) -> tuple[AccessToken, str]:
        """A new token, and its secret, which is told this once."""
        wanted = _known(scopes)
        if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
            raise BadRequest("a token needs a name", hint=f"1 to {LONGEST_NAME} letters")
        if days is not None and not 0 < days <= 36_500:
            raise BadRequest("a token needs a number of days", hint="more than 0, at most 36500")
        async with self._changing:
            if any(token.name == name and self._is_alive(token) for token in self._tokens.values()):
                raise BadRequest(f"there is a token {name!r} already", hint="rotate it, or choose another name")
            now = self._clock.now_ms()
            expires = None if days is None else now + round(days * DAY_MS)
            return await self._keep(AccessToken(self._new_id(), name, "", wanted, now, expires))

    async def rotate_token(self, which: str) -> tuple[AccessToken, str]:
        """A new secret for the same token. The old one is dead when this returns."""
        async with self._changing:
            token = self._find_token(which)
            if not self._is_alive(token):
                raise BadRequest(f"the token {token.name!r} is no longer valid", hint="make a new one")
            if token.seal:
                raise BadRequest("the secret of a browser is its own", hint="revoke it, and log in again")
            kept = await self._keep(token)
            del self._tokens[token.digest]
        self._died(token.id)
        return kept

    async def revoke_token(self, which: str) -> AccessToken:
        async with self._changing:
            revoked = await self._revoke(self._find_token(which))
        self._died(revoked.id)
        return revoked

    async def flush(self) -> None:
        """Put on the disk when tokens were last used."""
        async with self._changing:
            used, self._used = self._used, set()
            for token in [self._tokens[digest] for digest in used if digest in self._tokens]:
                await self._store.put_token(token)

    async def _keep(self, token: AccessToken, seal: Callable[[str], str] = lambda _: "") -> tuple[AccessToken, str]:
        secret = f"pal_{secrets.token_urlsafe(32)}"
        kept = msgspec.structs.replace(token, digest=digest_of(secret), seal=seal(secret))
        await self._store.put_token(kept)
        self._tokens[kept.digest] = kept
        return kept, secret

    async def _revoke(self, token: AccessToken) -> AccessToken:
        revoked = msgspec.structs.replace(token, revoked_at=token.revoked_at or self._clock.now_ms())
        self._tokens[revoked.digest] = revoked  # dead even if the disk should fail now
        await self._store.put_token(revoked)
        return revoked

    def _find_token(self, which: str) -> AccessToken:
        named = [token for token in self._tokens.values() if token.name == which]
        by_id = [token for token in self._tokens.values() if token.id == which]
        alive = [token for token in named if self._is_alive(token)]
        found = by_id or alive or sorted(named, key=lambda token: -token.created_at)[:1]
        if not found:
            raise NotFound(f"there is no token {which!r}", hint="`pal gateway token list` shows them")
        return found[0]

    # Devices.

    async def ask_to_pair(self, device: PairedDevice) -> PairedDevice:
        """Keep it until somebody approves it. One that asks again keeps its place."""
        async with self._changing:
            known = self._devices.get(device.id)
            if known is not None and known.status == "waiting" and known in self._waiting():
                return known
            if len(self._waiting()) >= WAITING_DEVICES:
                raise QueueFull(f"{WAITING_DEVICES} devices wait to be approved", hint="`pal devices list` shows them")
            return await self._put(device)

    async def pair(self, device: PairedDevice) -> PairedDevice:
        """Let it in from now on, with the scopes that the record names."""
        async with self._changing:
            return await self._pair(device, device.scopes)

    async def approve_device(self, which: str, scopes: Sequence[Scope] = ()) -> PairedDevice:
        """Pair one that waits, with the scopes it asked for or others; or give a paired one others."""
        async with self._changing:
            device = self._find_device(which)
            if device.status == "waiting" and device not in self._waiting():
                raise NotFound(f"the device {which!r} asked too long ago", hint="let it ask again")
            return await self._pair(device, _known(scopes) if scopes else device.scopes)

    async def revoke_device(self, which: str) -> PairedDevice:
        """It and its tokens are dead when this returns."""
        async with self._changing:
            device = self._find_device(which)
            revoked = msgspec.structs.replace(device, status="revoked")
            self._devices[device.id] = revoked
            tokens = self._tokens_of(device.id)
            for token in tokens:
                await self._revoke(token)
            await self._put(revoked)
        for dead in (device.id, *(token.id for token in tokens)):
            self._died(dead)
        return revoked

    async def device_token(self, device: PairedDevice) -> str:
        """A secret for a device that has none yet; empty when it was told one before."""
        async with self._changing:
            self._check_paired(device)
            if self._tokens_of(device.id):
                return ""
            name, now = f"device {device.id[:16]}", self._clock.now_ms()
            _, secret = await self._keep(AccessToken(self._new_id(), name, "", device.scopes, now, device_id=device.id))
            return secret

    async def let_in(self, browser: PairedDevice, days: float, seal: Callable[[str], str]) -> str:
        """Keep a browser, and give the secret of its cookie, which is told this once. `seal` closes over the secret."""
        async with self._changing:
            now = self._clock.now_ms()
            name, expires = f"browser {browser.id[:16]}", now + round(days * DAY_MS)
            await self._put(msgspec.structs.replace(browser, status="paired", paired_at=now))
            token = AccessToken(self._new_id(), name, "", browser.scopes, now, expires, device_id=browser.id)
            _, secret = await self._keep(token, seal)
            return secret

    async def give_token(self, device: PairedDevice, name: str, audience: str, days: float) -> str:
        """The secret of a token of a program for one audience, told this once. Its earlier one of that name is dead."""
        async with self._changing:
            current = self._check_paired(device)
            mine = (token for token in self._tokens.values() if token.device_id == device.id)
            before = [token for token in mine if token.name == name and token.revoked_at is None]
            now = self._clock.now_ms()
            made = AccessToken(
                before[0].id if before else self._new_id(),
                name, "", current.scopes, now, now + round(days * DAY_MS), device_id=device.id, audience=audience,
            )  # fmt: skip
            _, secret = await self._keep(made)
            for token in before:
                self._tokens.pop(token.digest, None)
            return secret

    def _check_paired(self, device: PairedDevice) -> PairedDevice:
        """As it is now: it may have been revoked while this waited. Raises NotFound."""
        current = self._devices.get(device.id)
        if current is None or current.status != "paired":
            raise NotFound(f"the {device.kind} {device.name!r} no longer has access", hint="it must ask again")
        return current

    async def _pair(self, device: PairedDevice, scopes: tuple[Scope, ...]) -> PairedDevice:
        now = self._clock.now_ms()
        for token in self._tokens_of(device.id):
            changed = msgspec.structs.replace(token, scopes=scopes)
            await self._store.put_token(changed)
            self._tokens[token.digest] = changed
        return await self._put(msgspec.structs.replace(device, status="paired", scopes=scopes, paired_at=now))

    async def _put(self, device: PairedDevice) -> PairedDevice:
        await self._store.put_device(device)
        self._devices[device.id] = device
        return device

    def _tokens_of(self, device_id: str) -> list[AccessToken]:
        return [token for token in self._tokens.values() if token.device_id == device_id and self._is_alive(token)]

    def _find_device(self, which: str) -> PairedDevice:
        found = [each for each in self._devices.values() if which and (each.id.startswith(which) or each.code == which)]
        if len(found) != 1:
            many = f"{len(found)} devices are called {which!r}" if found else f"there is no device {which!r}"
            raise NotFound(many, hint="`pal devices list` shows them; the beginning of an id is enough")
        return found[0]

    def _died(self, which: str) -> None:
        for told in self.on_revoked:
            told(which)


def _known(scopes: Iterable[Scope]) -> tuple[Scope, ...]:
    named = set(scopes)
    wanted = tuple(scope for scope in SCOPES if scope in named)
    if not wanted or named - set(SCOPES):
        raise BadRequest("which scopes?", hint=f"one or more of {', '.join(SCOPES)}")
    return wanted
