"""Sign-ins (OAuth 2): who we are at a provider, and the requests that bring tokens.

A client id belongs to whoever registered it, so none of a vendor's own programs is built in: the config names yours.
The table holds addresses that providers publish for everybody's clients. What a server says beside a short error code
is never shown: it may hold a token.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from palinurus.config.load import Loaded, resolve_secret, secret_providers
from palinurus.config.sign_in import OAuthOptions
from palinurus.domain.errors import ConfigError, Failure, ProviderError

SECONDS = 20.0  # for one request
LARGEST_ANSWER = 64 * 1024
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
NO_CLIENT = "this program has no client id there, and does not use another program's"


class OAuthClient(Struct, frozen=True):
    """A client at a provider's sign-in server. Its repr leaves the secret out."""

    provider: str
    client_id: str
    token_url: str
    client_secret: str = ""
    authorize_url: str = ""
    device_url: str = ""
    scopes: tuple[str, ...] = ()
    redirect_port: int = 0  # 0: any
    extra: dict[str, str] = {}  # parameters that this provider wants when a browser is sent there

    def __repr__(self) -> str:
        return f"OAuthClient({self.provider}, {self.client_id})"


KNOWN: dict[str, OAuthClient] = {
    "google": OAuthClient(
        "google",
        "",
        "https://oauth2.googleapis.com/token",
        authorize_url="https://accounts.google.com/o/oauth2/v2/auth",
        scopes=("https://www.googleapis.com/auth/cloud-platform",),
        extra={"access_type": "offline", "prompt": "consent"},
    ),
}


class Tokens(Struct, frozen=True):
    access: str
    refresh: str
    expires_at: int | None  # milliseconds

    def __repr__(self) -> str:
        return f"Tokens(until {self.expires_at})"


def oauth_client(loaded: Loaded, provider: str) -> OAuthClient:
    """Who we are there. Raises ConfigError when nobody has said it."""
    entries = {name.strip().lower(): entry for name, entry in loaded.config.models.providers.items()}
    entry = entries.get(provider)
    said = (entry.oauth if entry else None) or OAuthOptions.model_validate({})
    known = KNOWN.get(provider, OAuthClient(provider, "", ""))
    client = OAuthClient(
        provider,
        said.client_id or known.client_id,
        said.token_url or known.token_url,
        resolve_secret(said.client_secret, loaded.env, secret_providers(loaded)) or "",
        said.authorize_url or known.authorize_url,
        said.device_url or known.device_url,
        known.scopes if said.scopes is None else said.scopes,
        said.redirect_port or 0,
        known.extra,
    )
    place = f"models.providers.{provider}.oauth"
    if not client.client_id:
        raise ConfigError(
            f"nobody can sign in at {provider} here: {NO_CLIENT}",
            hint=f"`pal models auth add {provider}` stores a key instead; or set {place}.clientId to your own",
        )
    if not client.token_url:
        raise ConfigError(f"where {provider} gives tokens is not known", hint=f"set {place}.tokenUrl")
    for name in ("authorize_url", "device_url", "token_url"):
        _check_address(getattr(client, name), f"{place}.{name.partition('_')[0]}Url")
    return client


def _check_address(url: str, place: str) -> None:
    """Tokens go over the network only when nobody on the way can read them."""
    try:
        address = urlsplit(url)
        safe = address.scheme == "https" or (address.scheme == "http" and address.hostname in LOOPBACK_HOSTS)
        whole = bool(address.hostname) and address.port != 0
    except ValueError:
        safe = whole = False
    if url and not (safe and whole):
        raise ConfigError(f"{place} is no address that tokens may be sent to", hint="it has to begin with https://")


async def exchange_code(client: OAuthClient, code: str, verifier: str, redirect_uri: str, now_ms: int) -> Tokens:
    """Tokens for the code with which the browser came back. Raises ProviderError."""
    fields = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect_uri,
        "code_verifier": verifier,
    }
    status, answer = await post_form(client, client.token_url, fields)
    return read_tokens(client, status, answer, now_ms)


async def renew_tokens(client: OAuthClient, refresh: str, now_ms: int) -> Tokens:
    """New tokens; the old refresh token where no new one came. Raises ProviderError."""
    fields = {"grant_type": "refresh_token", "refresh_token": refresh}
    status, answer = await post_form(client, client.token_url, fields)
    return read_tokens(client, status, answer, now_ms, refresh)


def read_tokens(client: OAuthClient, status: int, answer: Mapping[str, Any], now_ms: int, refresh: str = "") -> Tokens:
    access = answer.get("access_token")
    if status != 200 or not _is_token(access):
        raise refusal(client, status, answer)
    newer = answer.get("refresh_token")
    return Tokens(str(access), str(newer) if _is_token(newer) else refresh, _end(answer.get("expires_in"), now_ms))


def _end(seconds: Any, now_ms: int) -> int | None:
    known = isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds < 10**9
    return now_ms + int(seconds * 1000) if known else None


def refusal(client: OAuthClient, status: int, answer: Mapping[str, Any]) -> ProviderError:
    """What the answer of a sign-in server means, without its words."""
    code = error_code(answer)
    why = f" ({code})" if code else f" (HTTP {status})"
    if status == 200 or (400 <= status < 500 and status not in (408, 429)):
        said = f"{client.provider} refused the sign-in{why}"
        return ProviderError(said, kind=Failure.AUTH, hint=log_in_again(client.provider), status=status)
    kind = Failure.RATE_LIMIT if status == 429 else Failure.OVERLOAD
    return ProviderError(f"{client.provider} gives no tokens now{why}", kind=kind, hint="try again", status=status)


def log_in_again(provider: str) -> str:
    return f"log in again: pal models auth login {provider}"


def error_code(answer: Mapping[str, Any]) -> str:
    code = answer.get("error")
    return code if isinstance(code, str) and re.fullmatch(r"[a-z_]{1,40}", code) else ""


async def post_form(client: OAuthClient, url: str, fields: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
    """Status and JSON object of the answer, empty when it is none. Raises ProviderError when there is no answer."""
    import httpx2

    address = urlsplit(url)
    form = {**fields, "client_id": client.client_id}
    form |= {"client_secret": client.client_secret} if client.client_secret else {}
    loopback = address.hostname in LOOPBACK_HOSTS
    try:
        async with (
            httpx2.AsyncClient(timeout=SECONDS, trust_env=not loopback, verify=address.scheme != "http") as http,
            http.stream("POST", url, data=form, headers={"Accept": "application/json"}) as response,
        ):
            body = b""
            async for data in response.aiter_bytes():
                body += data
                if len(body) > LARGEST_ANSWER:
                    break
            return response.status_code, _object(body)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        where = f"{address.scheme}://{address.netloc.rpartition('@')[2]}"
        said = f"no answer from {where}, where {client.provider} signs in: {type(error).__name__}"
        raise ProviderError(said, kind=Failure.NETWORK, hint="check the connection") from None


def _object(body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return {}


def _is_token(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 16_384 and value.isascii() and value.isprintable()
