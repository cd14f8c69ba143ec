"""The guard at the gateway's door: where a request comes from, who it is, and how often somebody may guess.

Host and Origin are checked first: a web page elsewhere, or a name that was made to point here, gets no further. Then
the credential: a valid one always passes, whoever else is guessing; wrong ones use up an allowance, loopback included,
and are told to wait when it is gone. Secrets are long and random, so guessing is noise and not a danger.

A browser's secret is good in its cookie only, and together with a key that its page keeps: browsers send a cookie to
every port of this machine, but show what a page keeps to that page alone. Both are sealed with the owner's secret: when
that one changes, all browsers are out. The seal is keyed with the browser's secret, so it tells nothing about the rest.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from palinurus.domain.clock import Clock
from palinurus.gateway.door.access import CONFIGURED, Principal
from palinurus.operations.access import PairedDevice
from palinurus.operations.register import Register, digest_of
from palinurus.operations.scopes import SCOPES, Scope

log = logging.getLogger(__name__)

GUESSES = 20  # wrong credentials from one peer, and ten times as many from all, within the window
WINDOW_MS = 60_000
PEERS = 1_000  # that are remembered; beyond them all share one allowance
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
OWNER = Principal("open-door", "whoever is on this machine", frozenset(SCOPES))


class Refused(Exception):
    """Somebody does not come in. `status` as HTTP tells it; `code` for programs."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        retry_after: float | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.retry_after = retry_after
        self.details = details


class Place(Struct, frozen=True):
    """Under which names the gateway is called, and which web pages may speak to it."""

    hosts: frozenset[str]  # lower case, as in the Host header
    origins: frozenset[str]
    any_address_at: int = 0  # a port: the gateway is also called by any bare address there, which no DNS can forge
    secure_at: int = 0  # the same, for the port where TLS is spoken

    def check(self, headers: Mapping[str, str]) -> None:
        """Raises Refused for a wrong Host or Origin."""
        host = headers.get("host", "").lower()
        plain, secure = self._is_address(host, self.any_address_at), self._is_address(host, self.secure_at)
        if host not in self.hosts and not plain and not secure:
            raise Refused(421, "WRONG_HOST", f"this gateway is not called {host[:80]!r}")
        origin = headers.get("origin", "").lower()
        own = {f"http://{host}"} if plain else {f"https://{host}"} if secure else set()
        if origin and origin not in self.origins | own:
            raise Refused(403, "WRONG_ORIGIN", f"pages of {origin[:80]!r} may not speak to this gateway")
        if not origin and _is_drawn_in(headers):
            raise Refused(403, "WRONG_ORIGIN", "pages of other sites may not draw anything from this gateway")

    def is_own(self, headers: Mapping[str, str], *, tls: bool) -> bool:
        """Whether a page asks that came from the very address it asks. Behind a proxy that speaks TLS it says https."""
        host, origin = headers.get("host", "").lower(), headers.get("origin", "").lower()
        if tls or origin != f"http://{host}":
            return origin == f"https://{host}" and (tls or origin in self.origins)
        return True

    def _is_address(self, host: str, at: int) -> bool:
        address, _, port = host.rpartition(":")
        if not at or port != str(at):
            return False
        try:
            return bool(ipaddress.ip_address(address.removeprefix("[").removesuffix("]")))
        except ValueError:
            return False


def _is_drawn_in(headers: Mapping[str, str]) -> bool:
    """Whether a page elsewhere has a browser fetch this, as a picture or script: then there is no Origin to see.

    A person who follows a link comes from elsewhere too, and is welcome.
    """
    from_elsewhere = headers.get("sec-fetch-site", "").lower() in ("cross-site", "same-site")
    is_visit = headers.get("sec-fetch-mode", "").lower() == "navigate" and headers.get("sec-fetch-dest") == "document"
    return from_elsewhere and not is_visit


def place_of(
    port: int,
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    *,
    any_address: bool = False,
    secure_port: int = 0,
    secure_hosts: Iterable[str] = (),
) -> Place:
    """A gateway at this port, called by the loopback names and by `hosts`: exactly so, and with the port behind it.

    Pages of those names may speak to it, also over TLS: a proxy may stand before us. At the secure port it is called by
    any address, and by `secure_hosts`.
    """
    near = {_with_port(name, port) for name in LOOPBACK}
    far = {form for name in hosts for form in (name.lower(), _with_port(name.lower(), port))}
    if port == 80:  # browsers leave it out
        near |= set(LOOPBACK)
    secure = {_with_port(name.lower(), secure_port) for name in (*secure_hosts, "localhost") if secure_port}
    own = {f"http://{host}" for host in near | far} | {f"https://{host}" for host in far | secure}
    pages = frozenset(own | {origin.lower() for origin in origins})
    return Place(frozenset(near | far | secure), pages, port * any_address, secure_port)


def _with_port(host: str, port: int) -> str:
    """A bare IPv6 address gets its brackets; a name that has a port keeps it."""
    if host.count(":") > 1 and not host.startswith("["):
        host = f"[{host}]"
    named = host.rpartition(":")[2]
    return host if ":" in host and named.isdigit() else f"{host}:{port}"


class Guard:
    def __init__(
        self,
        register: Register,
        place: Place,
        configured: Callable[[], str],
        clock: Clock,
        *,
        open_door: bool = False,
    ) -> None:
        self.place = place
        self.register = register
        self.open_door = open_door  # mode none: whoever reaches us is the owner
        self._configured = configured  # asked for every credential: a rotated secret is dead at once
        self._last = ""  # digest of the configured secret when it was last looked at
        self._guesses = Guesses(clock)
        self._clock = clock
        self.on_revoked: list[Callable[[str], None]] = []  # told the id of a credential that has just died
        register.on_revoked.append(self._died)

    def principal(self, secret: str, peer: str) -> Principal:
        """Who holds this secret. Raises Refused; a wrong one counts against the peer."""
        return self.identify((secret,), peer)

    def identify(self, given: Sequence[str], peer: str) -> Principal:
        """Who holds one of these. When nobody does, it is one guess, however many were sent."""
        return self._identify(given, peer, self._known)

    def browser(self, secret: str, key: str, peer: str) -> Principal:
        """Whose browser has this secret in its cookie and this key in its page. Raises Refused like the others."""
        return self._identify((secret,), peer, lambda given: self._known_browser(given, key))

    def _identify(self, tried: Sequence[str], peer: str, known: Callable[[str], Principal | None]) -> Principal:
        if self.open_door:
            return OWNER
        given = [secret for secret in tried if secret]
        found = next((each for each in map(known, given) if each is not None), None)
        if found is not None:
            return found
        if not given:  # no guess: nothing was tried
            raise Refused(401, "UNAUTHORIZED", "a credential is needed", details={"code": "AUTH_TOKEN_MISSING"})
        raise self.guessed(peer, "this credential is not known here")

    def guessed(self, peer: str, message: str) -> Refused:
        """Somebody tried a secret that is none: what to raise."""
        if wait := self._guesses.count(peer):
            details = {"code": "AUTH_RATE_LIMITED"}
            return Refused(429, "RATE_LIMITED", "too many wrong credentials", wait, details)
        return Refused(401, "UNAUTHORIZED", message, details={"code": "AUTH_TOKEN_MISMATCH"})

    async def let_in(self, id_: str, name: str, scopes: tuple[Scope, ...], days: float) -> tuple[str, str]:
        """A browser from now on: the secret for its cookie, and the key for its page."""
        now, key = self._clock.now_ms(), secrets.token_urlsafe(32)
        browser = PairedDevice(id_, "", name, scopes, "paired", now, id_[:8], now, "browser", "browser")
        return await self.register.let_in(browser, days, lambda secret: _seal(secret, self.look(), key)), key

    async def let_out(self, secret: str) -> None:
        """The browser with this secret is out, if there is one. The key is not asked for: nobody gains by this."""
        token = self.register.holder_of(secret)
        if token is not None and token.seal:
            await self.register.revoke_device(token.device_id)

    def still(self, principal: Principal) -> bool:
        """Whether a credential that came in earlier is still good."""
        if self.open_door:
            return principal.id == OWNER.id
        if principal.device_id:
            device = self.register.device(principal.device_id)
            if device is None or device.status != "paired":
                return False
        if principal.owner and principal.owner != self.look():
            return False
        if principal.id == CONFIGURED:
            return principal.proof == self.look()
        return self.register.is_good(principal.id, principal.proof)

    def look(self) -> str:
        """The digest of the configured secret as it is now. When it has changed, the old one dies."""
        configured = self._configured()
        digest = digest_of(configured) if configured else ""
        if digest != self._last:
            before, self._last = self._last, digest
            if before:
                log.info("the gateway's configured secret has changed; the old one is dead")
                self._died(CONFIGURED)
        return digest

    def _known(self, secret: str) -> Principal | None:
        digest = digest_of(secret)
        if hmac.compare_digest(digest, self.look()):
            return Principal(CONFIGURED, "the configured token", frozenset(SCOPES), digest)
        token = self.register.holder_of(secret)
        if token is None or token.seal:
            return None
        return Principal(token.id, token.name, frozenset(token.scopes), digest, token.device_id)

    def _known_browser(self, secret: str, key: str) -> Principal | None:
        token = self.register.holder_of(secret)
        owner = self.look()
        if token is None or not owner or not hmac.compare_digest(token.seal, _seal(secret, owner, key)):
            return None
        scopes = frozenset(token.scopes)
        return Principal(token.id, token.name, scopes, digest_of(secret), token.device_id, owner)

    def _died(self, credential: str) -> None:
        for told in self.on_revoked:
            told(credential)


def _seal(secret: str, owner: str, key: str) -> str:
    """`owner` is a digest already."""
    return hmac.new(secret.encode("utf-8", "surrogatepass"), (owner + digest_of(key)).encode(), "sha256").hexdigest()


class Guesses:
    """Wrong credentials of late. Counting costs the same whoever guesses, and is told once a window."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = 0
        self._all = 0
        self._by_peer: dict[str, int] = {}

    def count(self, peer: str) -> float:
        """Seconds to wait, when the allowance is used up; else 0."""
        now = self._clock.now_ms()
        if not 0 <= now - self._began < WINDOW_MS:
            if self._all > 1:
                log.warning("%d wrong credentials came to the gateway within a minute", self._all)
            self._began, self._all, self._by_peer = now, 0, {}
        self._all += 1
        if self._all == 1:
            log.warning("a wrong credential came to the gateway from %s", peer or "somewhere")
        if peer not in self._by_peer and len(self._by_peer) >= PEERS:
            peer = ""
        self._by_peer[peer] = self._by_peer.get(peer, 0) + 1
        if self._by_peer[peer] > GUESSES or self._all > 10 * GUESSES:
            return (self._began + WINDOW_MS - now) / 1000
        return 0.0
