"""Authentication of requests: the address they name, the credential they hold, and how many wrong ones are allowed.

Host and Origin are checked first, so that web pages of other sites and forged host names are refused. Then the
credential: a valid one always passes, whoever else is guessing. Wrong ones use up an allowance, on loopback too; when
it is used up the client has to wait. Secrets are long and random, so guessing is noise and not a danger.

A browser logs in with a code: made on this machine, valid once and for a few minutes, kept in memory as a digest. It
then has a secret in its cookie and a key in the page's storage, and needs both: browsers send a cookie to every port of
this machine, but the storage is readable by this page only. Both are sealed with the owner's secret, so a new owner's
secret logs all browsers out. The seal is keyed with the browser's secret and reveals nothing about the other parts.

Browsers send cookies with requests that any page causes. A cookie therefore counts only when the Origin is the very
address that was requested, and only at the WebSocket and at the dashboard's own routes. Programs use tokens.

Who passes is a principal, with the scopes that the server has bound to its credential. The scopes that a client
declares only narrow its own. A credential is looked up for every request and frame, so that a revoked or rotated one is
invalid at once.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct
from starlette.requests import HTTPConnection

from palinurus.dispatch.commands import parse
from palinurus.dispatch.directives import parse_directives
from palinurus.domain.clock import Clock
from palinurus.domain.errors import MissingScope
from palinurus.gateway.auth.protected_config import check_change
from palinurus.gateway.protocol import Refused
from palinurus.operations.access import PairedDevice, Register, digest_of
from palinurus.operations.scopes import SCOPES, Caller, Scope, widened

CONFIGURED = "configured"  # the id of the owner's secret
POWERFUL = frozenset({"approve", "trust"})


class Principal(Struct, frozen=True):
    """An authenticated client."""

    id: str  # of the token; "configured" for the one of the config
    name: str
    scopes: frozenset[Scope]
    proof: str = ""  # digest of the secret: it must match when the secret is looked up again
    device_id: str = ""
    owner: str = ""  # of a browser: digest of the owner's secret that sealed its own

    @property
    def rests_on(self) -> tuple[str, ...]:
        """The ids of the credentials that it needs: it is invalid when one of them is."""
        return (self.id, self.device_id, CONFIGURED) if self.owner else (self.id, self.device_id)

    def may(self, scope: Scope) -> bool:
        """admin is everything, write includes read."""
        return self.caller.may(scope)

    @property
    def caller(self) -> Caller:
        """The same for operations."""
        return Caller(self.id, "gateway", self.scopes, check_change)


def known_scopes(names: Iterable[str]) -> tuple[Scope, ...]:
    """Of OpenClaw's names (operator.read) and ours, those that exist."""
    bare = {name.removeprefix("operator.") for name in names}
    return tuple(scope for scope in SCOPES if scope in bare)


def granted_scopes(held: Iterable[Scope], requested: Iterable[str]) -> tuple[Scope, ...]:
    """The requested scopes that the credential has; all that it has when none is requested."""
    held, named = widened(held), tuple(requested)
    wanted = widened(known_scopes(named)) if named else held
    return tuple(scope for scope in held if scope in wanted)


def check_commands(principal: Principal, text: str) -> None:
    """Raises MissingScope for a command that this principal may not use. Called before a message is submitted.

    Some commands do what otherwise needs a scope of its own: `/approve` answers an approval, `/trust` trusts text from
    outside, `/elevated` lets commands out of the sandbox.
    """
    if principal.may("approvals"):
        return
    command = parse(text)
    elevated = parse_directives(command.rest if command else text)[0].elevated
    if (command is not None and command.name in POWERFUL) or elevated not in (None, "off"):
        raise MissingScope("this command needs the scope approvals", scope="approvals")


log = logging.getLogger(__name__)

GUESSES = 20  # wrong credentials from one peer, and ten times as many from all, within the window
WINDOW_MS = 60_000
PEERS = 1_000  # peers with their own count; all others share one allowance
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
OWNER = Principal("open-door", "whoever is on this machine", frozenset(SCOPES))
DAYS = 30  # that a cookie is valid
CODE_MS = 5 * 60 * 1000  # that a login code is valid
CODE_BYTES = 16
MOST_CODES = 32  # unused ones; the oldest is dropped first


class ServerAddress(Struct, frozen=True):
    """The names of the gateway in a Host header, and the web pages that may call it."""

    hosts: frozenset[str]  # lower case, as in the Host header
    origins: frozenset[str]
    any_address_at: int = 0  # a port where any bare address is a valid name too: no DNS can forge one
    secure_at: int = 0  # the same for the TLS port
    others: frozenset[str] = frozenset()  # those of the origins that the config names: pages of other sites

    def check(self, headers: Mapping[str, str]) -> None:
        """Raises Refused for a wrong Host or Origin."""
        host = headers.get("host", "").lower()
        plain, secure = self._is_address(host, self.any_address_at), self._is_address(host, self.secure_at)
        if host not in self.hosts and not plain and not secure:
            raise Refused(421, "WRONG_HOST", f"this gateway does not have the name {host[:80]!r}")
        origin = headers.get("origin", "").lower()
        own = {f"http://{host}"} if plain else {f"https://{host}"} if secure else set()
        if origin and origin not in self.origins | own:
            raise Refused(403, "WRONG_ORIGIN", f"pages of {origin[:80]!r} may not use this gateway")
        if not origin and _is_embedded(headers):
            raise Refused(403, "WRONG_ORIGIN", "pages of other sites may not load anything from this gateway")

    def allowed_origin(self, headers: Mapping[str, str]) -> str:
        """The Origin as it was sent, if the config allows its pages to read our answers; else nothing."""
        origin = headers.get("origin", "")
        return origin if origin.lower() in self.others else ""

    def is_own(self, headers: Mapping[str, str], *, tls: bool) -> bool:
        """Whether the sending page came from the requested address. Behind a TLS proxy its Origin says https."""
        host, origin = headers.get("host", "").lower(), headers.get("origin", "").lower()
        if tls or origin != f"http://{host}":
            return origin == f"https://{host}" and (tls or origin in self.origins)
        return True

    def _is_address(self, host: str, at: int) -> bool:
        address, _, port = host.rpartition(":")
        return bool(at) and port == str(at) and is_address(address.removeprefix("[").removesuffix("]"))


def is_address(name: str) -> bool:
    """Whether it is an IP address."""
    try:
        return bool(ipaddress.ip_address(name))
    except ValueError:
        return False


def _is_embedded(headers: Mapping[str, str]) -> bool:
    """Whether a page of another site loads this as an image or script, which sends no Origin.

    A person who follows a link from another site is let through.
    """
    from_elsewhere = headers.get("sec-fetch-site", "").lower() in ("cross-site", "same-site")
    is_link = headers.get("sec-fetch-mode", "").lower() == "navigate" and headers.get("sec-fetch-dest") == "document"
    return from_elsewhere and not is_link


def server_address(
    port: int,
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    *,
    any_address: bool = False,
    secure_port: int = 0,
    secure_hosts: Iterable[str] = (),
) -> ServerAddress:
    """The address of a gateway at this port: the loopback names, and `hosts` with and without the port.

    Pages of those names may call it, over TLS too, because there may be a proxy. The secure port accepts any bare
    address and `secure_hosts`.
    """
    near = {_with_port(name, port) for name in LOOPBACK}
    far = {form for name in hosts for form in (name.lower(), _with_port(name.lower(), port))}
    if port == 80:  # browsers leave it out
        near |= set(LOOPBACK)
    secure = {_with_port(name.lower(), secure_port) for name in (*secure_hosts, "localhost") if secure_port}
    own = {f"http://{host}" for host in near | far} | {f"https://{host}" for host in far | secure}
    others = frozenset(origin.lower().rstrip("/") for origin in origins)
    return ServerAddress(frozenset(near | far | secure), others | own, port * any_address, secure_port, others)


def _with_port(host: str, port: int) -> str:
    """A bare IPv6 address gets its brackets; a name that has a port keeps it."""
    if host.count(":") > 1 and not host.startswith("["):
        host = f"[{host}]"
    named = host.rpartition(":")[2]
    return host if ":" in host and named.isdigit() else f"{host}:{port}"


class LoginCodes:
    """Codes by which a browser logs in the first time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._unused: dict[str, tuple[tuple[Scope, ...], int]] = {}  # digest -> scopes and end, oldest first

    def make(self, scopes: tuple[Scope, ...]) -> tuple[str, int]:
        """A new code, and until when it is valid."""
        self._drop_old()
        while len(self._unused) >= MOST_CODES:
            del self._unused[next(iter(self._unused))]
        code, until = secrets.token_urlsafe(CODE_BYTES), self._clock.now_ms() + CODE_MS
        self._unused[digest_of(code)] = scopes, until
        return code, until

    def take(self, code: str) -> tuple[Scope, ...]:
        """The scopes that it gives, once; nothing for a code that is unknown, used or too old."""
        self._drop_old()
        return self._unused.pop(digest_of(code), ((), 0))[0]

    def clear(self) -> None:
        self._unused.clear()

    def _drop_old(self) -> None:
        now = self._clock.now_ms()
        self._unused = {digest: code for digest, code in self._unused.items() if code[1] > now}


class Guard:
    def __init__(
        self,
        register: Register,
        address: ServerAddress,
        configured: Callable[[], str],
        clock: Clock,
        *,
        no_auth: bool = False,
    ) -> None:
        self.address = address
        self.register = register
        self.no_auth = no_auth  # mode none: every client of the gateway is the owner
        self._configured = configured  # called for every credential: a rotated secret is invalid at once
        self._last = ""  # digest of the configured secret at the last look
        self._guesses = Guesses(clock)
        self._clock = clock
        self.codes = LoginCodes(clock)
        self.on_revoked: list[Callable[[str], None]] = []  # called with the id of a credential that was just revoked
        register.on_revoked.append(self._announce_revoked)

    def identify(self, secrets_: Sequence[str], peer: str) -> Principal:
        """Returns the owner of one of these secrets. If none is valid, it counts as one guess. Raises Refused."""
        return self._identify(secrets_, peer, self._find)

    def identify_browser(self, secret: str, key: str, peer: str) -> Principal:
        """Returns the owner of the browser with this secret in its cookie and this key in its page. Raises Refused."""
        return self._identify((secret,), peer, lambda sent: self._find_browser(sent, key))

    def identify_for(self, audience: str, secret: str, peer: str) -> Principal:
        """The same where tokens count too that are for this audience alone. Raises Refused."""
        return self._identify((secret,), peer, lambda sent: self._find(sent) or self._find_for(audience, sent))

    def _identify(self, sent: Sequence[str], peer: str, find: Callable[[str], Principal | None]) -> Principal:
        if self.no_auth:
            return OWNER
        tried = [secret for secret in sent if secret]
        found = next((each for each in map(find, tried) if each is not None), None)
        if found is not None:
            return found
        if not tried:
            raise Refused(401, "UNAUTHORIZED", "a credential is needed", details={"code": "AUTH_TOKEN_MISSING"})
        raise self.count_guess(peer, "this credential is not known here")

    def count_guess(self, peer: str, message: str) -> Refused:
        """The error to raise for a wrong secret."""
        if wait := self._guesses.count(peer):
            details = {"code": "AUTH_RATE_LIMITED"}
            return Refused(429, "RATE_LIMITED", "too many wrong credentials", wait, details)
        return Refused(401, "UNAUTHORIZED", message, details={"code": "AUTH_TOKEN_MISMATCH"})

    async def add_browser(self, id_: str, name: str, scopes: tuple[Scope, ...], days: float) -> tuple[str, str]:
        """Log a browser in: the secret for its cookie, and the key for its page."""
        now, key = self._clock.now_ms(), secrets.token_urlsafe(32)
        browser = PairedDevice(id_, "", name, scopes, "paired", now, id_[:8], now, "browser", "browser")
        return await self.register.let_in(browser, days, lambda secret: _seal(secret, self.secret_digest(), key)), key

    async def remove_browser(self, secret: str) -> None:
        """Logs out the browser with this secret, if there is one. The key is not needed: logging out harms no one."""
        token = self.register.holder_of(secret)
        if token is not None and token.seal:
            await self.register.revoke_device(token.device_id)

    def is_valid(self, principal: Principal) -> bool:
        """Whether a credential that was identified earlier is still valid."""
        if self.no_auth:
            return principal.id == OWNER.id
        if principal.device_id:
            device = self.register.device(principal.device_id)
            if device is None or device.status != "paired":
                return False
        if principal.owner and principal.owner != self.secret_digest():
            return False
        if principal.id == CONFIGURED:
            return principal.proof == self.secret_digest()
        return self.register.is_good(principal.id, principal.proof)

    def secret_digest(self) -> str:
        """The digest of the configured secret as it is now. When it has changed, the old one is revoked."""
        configured = self._configured()
        digest = digest_of(configured) if configured else ""
        if digest != self._last:
            before, self._last = self._last, digest
            if before:
                log.info("the gateway's configured secret has changed; the old one is no longer valid")
                self._announce_revoked(CONFIGURED)
        return digest

    def _find(self, secret: str) -> Principal | None:
        digest = digest_of(secret)
        if hmac.compare_digest(digest, self.secret_digest()):
            return Principal(CONFIGURED, "the configured token", frozenset(SCOPES), digest)
        token = self.register.holder_of(secret)
        if token is None or token.seal or token.audience:
            return None
        return Principal(token.id, token.name, frozenset(token.scopes), digest, token.device_id)

    def _find_for(self, audience: str, secret: str) -> Principal | None:
        token = self.register.holder_of(secret)
        if token is None or not audience or token.audience != audience:
            return None
        return Principal(token.id, token.name, frozenset(token.scopes), token.digest, token.device_id)

    def _find_browser(self, secret: str, key: str) -> Principal | None:
        token = self.register.holder_of(secret)
        owner = self.secret_digest()
        if token is None or not owner or not hmac.compare_digest(token.seal, _seal(secret, owner, key)):
            return None
        scopes = frozenset(token.scopes)
        return Principal(token.id, token.name, scopes, digest_of(secret), token.device_id, owner)

    def _announce_revoked(self, credential: str) -> None:
        if credential == CONFIGURED:
            self.codes.clear()
        for callback in self.on_revoked:
            callback(credential)


def _seal(secret: str, owner: str, key: str) -> str:
    """`owner` is a digest already."""
    return hmac.new(secret.encode("utf-8", "surrogatepass"), (owner + digest_of(key)).encode(), "sha256").hexdigest()


class Guesses:
    """Counts wrong credentials. Counting takes equally long for every peer; the log has one line per window."""

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
                log.warning("%d wrong credentials within a minute", self._all)
            self._began, self._all, self._by_peer = now, 0, {}
        self._all += 1
        if self._all == 1:
            log.warning("a wrong credential from %s", peer or "an unknown address")
        if peer not in self._by_peer and len(self._by_peer) >= PEERS:
            peer = ""
        self._by_peer[peer] = self._by_peer.get(peer, 0) + 1
        if self._by_peer[peer] > GUESSES or self._all > 10 * GUESSES:
            return (self._began + WINDOW_MS - now) / 1000
        return 0.0


def is_own_page(connection: HTTPConnection, address: ServerAddress) -> bool:
    """Whether a page of this gateway sends the request. Stricter than the check of Host and Origin before."""
    return address.is_own(connection.headers, tls=connection.url.scheme in ("https", "wss"))


def cookie_of(connection: HTTPConnection, address: ServerAddress) -> str:
    """The secret in the cookie, where a cookie counts; else nothing."""
    if not is_own_page(connection, address):
        return ""
    return connection.cookies.get(cookie_name(connection.headers["origin"]), "")


def cookie_name(origin: str) -> str:
    """Cookies ignore ports, so two gateways on one host need different names."""
    scheme, _, host = origin.lower().partition("://")
    port = host.rpartition(":")[2]
    name = f"pal-{port}" if port.isdigit() else "pal"
    # Browsers accept this prefix only from a secure page of this host.
    return f"__Host-{name}" if scheme == "https" else name


def set_cookie(origin: str, secret: str) -> str:
    """The header that sets the cookie; without a secret, that removes it."""
    max_age = DAYS * 86_400 if secret else 0
    secure = "; Secure" if origin.lower().startswith("https:") else ""
    return f"{cookie_name(origin)}={secret}; Max-Age={max_age}; Path=/; HttpOnly; SameSite=Strict{secure}"
