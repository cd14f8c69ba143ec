"""The authorization server for MCP clients (OAuth 2.1): registration, the owner's consent, tokens.

Nothing is stored until the owner has consented, so whoever asks costs nothing: a client id is the client's own
metadata, checked again each time it is used, and the page for the consent gets the request in its address. A consent
makes a code, which is valid once and for a minute. The code becomes a program in the register of the gateway, with a
token of an hour for one audience and one to renew it. Both are stored as digests, and `pal devices revoke` ends them.
All clients are public: PKCE (S256) is required, and a renewal replaces both tokens. Whoever presents a code or a
renewal token a second time ends the program's access, because one of the two was a thief.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections import OrderedDict
from typing import Annotated, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import msgspec
from msgspec import Meta, Struct

from palinurus.domain.clock import Clock, NewId
from palinurus.domain.errors import PalinurusError
from palinurus.operations.access import PairedDevice, Register, digest_of
from palinurus.operations.scopes import Scope

OFFERED: tuple[Scope, ...] = ("read", "write", "approvals")  # admin is never given to a program this way
USUAL: tuple[Scope, ...] = ("read", "write")
ACCESS_SECONDS = 3600
RENEWAL_DAYS = 30.0
CODE_MS = 60_000
MOST_CODES = 32
MOST_USED = 1_024  # codes and renewal tokens that are remembered, to notice when one comes again
MOST_ADDRESSES = 8
LONGEST_ADDRESS = 1_024
LONGEST_ID = 6_000
LONGEST_NAME = 60
LOOPBACK = ("127.0.0.1", "localhost", "::1")
# Schemes that a browser or a system runs or opens by itself. Apps have schemes of their own, such as cursor.
_NO_APPS = frozenset(
    {
        *("about", "blob", "chrome", "content", "data", "file", "filesystem", "ftp", "intent", "jar", "javascript"),
        *("mailto", "ms-msdt", "res", "resource", "search-ms", "shell", "sms", "tel", "vbscript", "view-source"),
        *("ws", "wss"),
    }
)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{1,40}")
_ADDRESS = re.compile(r"[!-~]+")  # printable ASCII without spaces
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")


class OAuthError(PalinurusError):
    """A refusal in the words of OAuth. `status` is that of the answer."""

    def __init__(self, error: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.error = error
        self.status = status


class ClientMetadata(Struct, frozen=True):
    """What a client says of itself when it registers; other fields are ignored, as RFC 7591 wants it."""

    redirect_uris: Annotated[tuple[str, ...], Meta(min_length=1, max_length=MOST_ADDRESSES)]
    client_name: str = ""
    grant_types: tuple[str, ...] = ("authorization_code",)
    response_types: tuple[str, ...] = ("code",)


class RegisteredClient(Struct, frozen=True, array_like=True):
    """A client id is this, encoded."""

    name: str
    redirect_uris: tuple[str, ...]


class AuthorizationRequest(Struct, frozen=True):
    """A valid request for a code."""

    client_id: str
    client: RegisteredClient
    redirect_uri: str
    challenge: str
    scopes: tuple[Scope, ...]
    resource: str
    state: str = ""


class _Code(Struct, frozen=True):
    request: AuthorizationRequest
    scopes: tuple[Scope, ...]
    until: int


class TokenAnswer(Struct, frozen=True):
    access_token: str
    refresh_token: str
    scope: str
    token_type: str = "Bearer"  # noqa: S105  no secret: the word of the standard
    expires_in: int = ACCESS_SECONDS


def register_client(sent: ClientMetadata) -> dict[str, Any]:
    """The answer to a registration. Raises OAuthError."""
    for address in sent.redirect_uris:
        check_redirect(address)
    if "authorization_code" not in sent.grant_types or "code" not in sent.response_types:
        raise OAuthError("invalid_client_metadata", "this server knows the authorization code grant only")
    name = plain_name(sent.client_name) or "a program without a name"
    return {
        "client_id": encode_client(RegisteredClient(name, sent.redirect_uris)),
        "client_name": name,
        "redirect_uris": sent.redirect_uris,
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "scope": " ".join(OFFERED),
    }


def encode_client(client: RegisteredClient) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(client)).decode().rstrip("=")


def read_client(client_id: str) -> RegisteredClient:
    """What is in a client id. Anybody can make one, so it is checked like a registration. Raises OAuthError."""
    refused = OAuthError("invalid_client", "this client id is not known here: let the program register", 401)
    if len(client_id) > LONGEST_ID:
        raise refused
    try:
        padded = client_id.encode("ascii") + b"=" * (-len(client_id) % 4)
        client = msgspec.json.decode(base64.b64decode(padded, b"-_", validate=True), type=RegisteredClient)
    except (ValueError, binascii.Error, msgspec.MsgspecError, RecursionError):
        raise refused from None
    known = 0 < len(client.redirect_uris) <= MOST_ADDRESSES and all(map(is_redirect, client.redirect_uris))
    if not known or not client.name or client.name != plain_name(client.name):
        raise refused
    return client


def plain_name(text: str) -> str:
    """A name as it is shown to the owner: one line of printable text."""
    return " ".join("".join(each if each.isprintable() else " " for each in text[:400]).split())[:LONGEST_NAME].strip()


def check_redirect(address: str) -> None:
    """Raises OAuthError unless a code may be sent there: https, loopback, or the scheme of an app."""
    if not is_redirect(address):
        raise OAuthError("invalid_redirect_uri", "a redirect address is https, http on loopback, or an app's own")


def is_redirect(address: str) -> bool:
    if len(address) > LONGEST_ADDRESS or not _ADDRESS.fullmatch(address) or set(address) & set('\\#"<>`{}'):
        return False
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    if "@" in parts.netloc or not _SCHEME.fullmatch(parts.scheme):
        return False
    if parts.scheme == "http":
        return host in LOOPBACK
    if parts.scheme == "https":
        return bool(host)
    return parts.scheme not in _NO_APPS and address.startswith((f"{parts.scheme}:/", f"{parts.scheme}://"))


def _is_registered(client: RegisteredClient, address: str) -> bool:
    """Compared letter by letter; only the port of a loopback address may be another (RFC 8252)."""
    return address in client.redirect_uris or any(
        _portless(address) == _portless(known) != "" for known in client.redirect_uris
    )


def _portless(address: str) -> str:
    parts = urlsplit(address)
    if parts.scheme != "http" or parts.hostname not in LOOPBACK:
        return ""
    return f"{parts.hostname} {parts.path} {parts.query}"


def with_answer(address: str, **answer: str) -> str:
    """The redirect address with an answer in its query."""
    return f"{address}{'&' if urlsplit(address).query else '?'}{urlencode(answer, quote_via=quote)}"


class AuthorizationServer:
    """Turns consents into codes, codes into tokens, and tokens into newer ones."""

    def __init__(self, register: Register, clock: Clock, new_id: NewId) -> None:
        self._register = register
        self._clock = clock
        self._new_id = new_id
        self._codes: OrderedDict[str, _Code] = OrderedDict()  # by digest
        self._used: OrderedDict[str, str] = OrderedDict()  # digest of what was used -> the program

    def read_request(self, query: str, resource: str) -> AuthorizationRequest:
        """A request for a code, from the query of its address. Raises OAuthError: its `error` is `invalid_client` or
        `invalid_redirect_uri` when nothing of the request may be believed, and else one for the client."""
        sent = _fields(query)
        client = read_client(sent.get("client_id", ""))
        address = sent.get("redirect_uri", "") or (client.redirect_uris[0] if len(client.redirect_uris) == 1 else "")
        if not is_redirect(address) or not _is_registered(client, address):
            raise OAuthError("invalid_redirect_uri", "the program did not register the address that it names")
        request = AuthorizationRequest(
            sent["client_id"], client, address, sent.get("code_challenge", ""),
            _scopes(sent.get("scope", "")), sent.get("resource", "") or resource, sent.get("state", ""),
        )  # fmt: skip
        if sent.get("response_type") != "code":
            raise RefusedRequest(request, "unsupported_response_type", "response_type must be code")
        if sent.get("code_challenge_method") != "S256" or not _CHALLENGE.fullmatch(request.challenge):
            raise RefusedRequest(request, "invalid_request", "PKCE with S256 is required")
        if not request.scopes:
            raise RefusedRequest(request, "invalid_scope", f"scopes are {', '.join(OFFERED)}")
        if not same_resource(request.resource, resource):
            raise RefusedRequest(request, "invalid_target", f"tokens are for {resource} only")
        return msgspec.structs.replace(request, resource=resource)

    def consent(self, request: AuthorizationRequest, scopes: tuple[Scope, ...]) -> str:
        """The owner says yes: a code for the client."""
        now = self._clock.now_ms()
        for digest in [each for each, code in self._codes.items() if code.until <= now]:
            del self._codes[digest]
        while len(self._codes) >= MOST_CODES:
            self._codes.popitem(last=False)
        code = secrets.token_urlsafe(32)
        self._codes[digest_of(code)] = _Code(request, scopes, now + CODE_MS)
        return code

    async def exchange(self, body: str, resource: str) -> TokenAnswer:
        """The answer of the token endpoint. Raises OAuthError."""
        sent = _fields(body)
        match sent.get("grant_type"):
            case "authorization_code":
                return await self._first_tokens(sent, resource)
            case "refresh_token":
                return await self._renew(sent, resource)
        raise OAuthError("unsupported_grant_type", "grants are authorization_code and refresh_token")

    async def revoke(self, body: str, resource: str) -> None:
        """Ends the access of the program that has this token. Says nothing about a token that is unknown."""
        sent = _fields(body)
        token = self._register.holder_of(sent.get("token", ""))
        if token is not None and token.audience in (resource, _renewal_of(resource)):
            device = self._register.device(token.device_id)
            if device is not None and device.public_key == _client_digest(sent.get("client_id", "")):
                await self._register.revoke_device(device.id)

    async def _first_tokens(self, sent: dict[str, str], resource: str) -> TokenAnswer:
        digest = digest_of(sent.get("code", ""))
        code = self._codes.pop(digest, None)  # one try, also a wrong one
        if code is None:
            await self._end_if_used(digest)
        now = self._clock.now_ms()
        request = code.request if code is not None and code.until > now else None
        verifier = sent.get("code_verifier", "")
        if (
            code is None
            or request is None
            or request.resource != resource
            or request.client_id != sent.get("client_id")
            or request.redirect_uri != sent.get("redirect_uri", request.redirect_uri)
            or not same_resource(sent.get("resource", "") or resource, resource)
            or not _VERIFIER.fullmatch(verifier)
            or not hmac.compare_digest(_challenge_of(verifier), request.challenge)
        ):
            raise OAuthError("invalid_grant", "this code is not valid (any more)")
        id_ = self._new_id()
        self._remember(digest, id_)
        program = PairedDevice(
            id_, _client_digest(request.client_id), request.client.name, code.scopes, "paired", now, id_[:8], now,
            _host_of(request.redirect_uri), "program",
        )  # fmt: skip
        return await self._tokens(await self._register.pair(program), resource)

    async def _renew(self, sent: dict[str, str], resource: str) -> TokenAnswer:
        secret = sent.get("refresh_token", "")
        token = self._register.holder_of(secret)
        if token is None or token.digest in self._used:  # the second: renewed at this very moment
            await self._end_if_used(digest_of(secret))
            token = None
        device = self._register.device(token.device_id) if token is not None else None
        if (
            token is None
            or device is None
            or token.audience != _renewal_of(resource)
            or device.public_key != _client_digest(sent.get("client_id", ""))
            or not same_resource(sent.get("resource", "") or resource, resource)
        ):
            raise OAuthError("invalid_grant", "this token cannot be renewed (any more)")
        if (wanted := sent.get("scope", "").split()) and not set(wanted) <= set(device.scopes):
            raise OAuthError("invalid_scope", "more than the owner has allowed")
        self._remember(token.digest, device.id)
        try:
            return await self._tokens(device, resource)
        except BaseException:  # it was not used up: the program may try again
            self._used.pop(token.digest, None)
            raise

    async def _tokens(self, device: PairedDevice, resource: str) -> TokenAnswer:
        name, renewal_of = f"program {device.id[:16]}", _renewal_of(resource)
        access = await self._register.give_token(device, name, resource, ACCESS_SECONDS / 86_400)
        # Last: until this is stored, the older one renews.
        renewal = await self._register.give_token(device, f"{name}: renewal", renewal_of, RENEWAL_DAYS)
        return TokenAnswer(access, renewal, " ".join(device.scopes))

    def _remember(self, digest: str, device_id: str) -> None:
        self._used[digest] = device_id
        while len(self._used) > MOST_USED:
            self._used.popitem(last=False)

    async def _end_if_used(self, digest: str) -> None:
        """What comes a second time was stolen: by whoever comes now, or by whoever came first."""
        if device_id := self._used.pop(digest, ""):
            await self._register.revoke_device(device_id)


class RefusedRequest(OAuthError):
    """A refusal that the client is told at its own address, which was checked before."""

    def __init__(self, request: AuthorizationRequest, error: str, message: str) -> None:
        super().__init__(error, message)
        self.request = request


def same_resource(one: str, other: str) -> bool:
    """Whether two addresses mean the same server: the case of the host, and a slash at the end, do not count."""
    return _canonical(one) == _canonical(other)


def _canonical(address: str) -> str:
    scheme, _, rest = address.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme.lower()}://{host.lower()}{slash}{path}".rstrip("/")


def _fields(text: str) -> dict[str, str]:
    """Form fields. Raises OAuthError for one that is there twice: two readers could each take another."""
    try:
        pairs = parse_qsl(text.removeprefix("?"), keep_blank_values=True, max_num_fields=64, errors="strict")
    except (ValueError, UnicodeDecodeError):
        raise OAuthError("invalid_request", "these are not form fields") from None
    names = [name for name, _ in pairs if name != "resource"]
    if len(names) != len(set(names)):
        raise OAuthError("invalid_request", "a parameter is there twice")
    return dict(reversed(pairs))


def _scopes(text: str) -> tuple[Scope, ...]:
    """The scopes that are asked for, as far as they are given to programs; those that are usual when none is named."""
    named = set(text.split())
    return tuple(scope for scope in OFFERED if scope in named) if named else USUAL


def _client_digest(client_id: str) -> str:
    return f"client:{digest_of(client_id)}"


def _renewal_of(resource: str) -> str:
    return f"renewal of {resource}"


def _challenge_of(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


def _host_of(address: str) -> str:
    parts = urlsplit(address)
    return (parts.hostname or parts.scheme)[:60]
