"""Sign-ins (OAuth 2): our client at a provider, the requests for tokens, and their renewal.

A client id belongs to the party that registered it, so none of a vendor's own programs is built in: the config names
yours. The table holds addresses that providers publish for all clients. Of a server's error only a short code is shown:
the rest may hold a token.

A sign-in that is about to expire is renewed before it is used. A provider may revoke the old refresh token when it
issues a new one, so a renewal that is done twice, or not stored, loses the sign-in. So a renewal is never cancelled,
turns of one process share it, and a lock beside the file excludes other processes.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from palinurus.config.load import LoadedConfig, resolve_secret, secret_providers
from palinurus.domain.clock import Clock
from palinurus.domain.errors import ConfigError, Failure, PalinurusError, ProviderError, StorageError
from palinurus.providers.keys.credential_file import Credential, CredentialFile, log_in_again, open_lock, profiles_of
from palinurus.providers.provider import LOOPBACK_HOSTS
from palinurus.providers.settings import ModelsOptions, OAuthOptions

SECONDS = 20.0  # for one request
LARGEST_ANSWER = 64 * 1024


NO_CLIENT = "palinurus has no client id of its own there"


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
    extra: dict[str, str] = {}  # parameters that this provider requires for the browser
    resource: str = ""  # the address that the tokens are for (RFC 8707), where one server signs in for several

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
    )
}


class Tokens(Struct, frozen=True):
    access: str
    refresh: str
    expires_at: int | None  # milliseconds

    def __repr__(self) -> str:
        return f"Tokens(until {self.expires_at})"


def oauth_client(loaded: LoadedConfig, provider: str) -> OAuthClient:
    """The OAuth client for a provider. Raises ConfigError if none is configured."""
    entry = loaded.config.section(ModelsOptions).by_name.get(provider)
    options = (entry.oauth if entry else None) or OAuthOptions()
    said = {name: value for name, value in asdict(options).items() if value not in (None, "")}
    said["client_secret"] = resolve_secret(options.client_secret, loaded.env, secret_providers(loaded)) or ""
    client = replace(KNOWN.get(provider, OAuthClient(provider, "", "")), **said)
    place = f"models.providers.{provider}.oauth"
    if not client.client_id:
        hint = f"`pal models auth add {provider}` stores a key instead; or set {place}.clientId to your own"
        raise ConfigError(f"sign-in at {provider} is not possible: {NO_CLIENT}", hint=hint)
    if not client.token_url:
        raise ConfigError(f"the token URL of {provider} is not known", hint=f"set {place}.tokenUrl")
    for name in ("authorize_url", "device_url", "token_url"):
        _check_address(getattr(client, name), f"{place}.{name.partition('_')[0]}Url")
    return client


def _check_address(url: str, place: str) -> None:
    """Raises ConfigError unless the address is encrypted or local."""
    try:
        address = urlsplit(url)
        safe = address.scheme == "https" or (address.scheme == "http" and address.hostname in LOOPBACK_HOSTS)
        whole = bool(address.hostname) and address.port != 0
    except ValueError:
        safe = whole = False
    if url and not (safe and whole):
        raise ConfigError(f"{place} is not a secure address", hint="use https://")


async def request_tokens(client: OAuthClient, fields: Mapping[str, str], now_ms: int) -> Tokens:
    """New tokens; the refresh token in `fields` if there is no new one. Raises ProviderError."""
    status, answer = await post_form(client, client.token_url, fields)
    return read_tokens(client, status, answer, now_ms, fields.get("refresh_token", ""))


def read_tokens(client: OAuthClient, status: int, answer: Mapping[str, Any], now_ms: int, refresh: str = "") -> Tokens:
    access = answer.get("access_token")
    if status != 200 or not _is_token(access):
        raise refusal(client, status, answer)
    newer, lasts = answer.get("refresh_token"), positive(answer.get("expires_in"))
    until = now_ms + int(lasts * 1000) if lasts < 10**9 else None
    return Tokens(str(access), str(newer) if _is_token(newer) else refresh, until if lasts else None)


def positive(value: object) -> float:
    """A number of seconds in an answer; 0 if there is none."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else 0


def refusal(client: OAuthClient, status: int, answer: Mapping[str, Any]) -> ProviderError:
    """The error for a sign-in server's answer, without its text."""
    code = error_code(answer)
    why = f" ({code})" if code else f" (HTTP {status})"
    if status == 200 or (400 <= status < 500 and status not in (408, 429)):
        said = f"{client.provider} refused the sign-in{why}"
        return ProviderError(said, kind=Failure.AUTH, hint=log_in_again(client.provider), status=status)
    kind = Failure.RATE_LIMIT if status == 429 else Failure.OVERLOAD
    return ProviderError(f"{client.provider} could not issue a token{why}", kind=kind, hint="try again", status=status)


def error_code(answer: Mapping[str, Any]) -> str:
    code = answer.get("error")
    return code if isinstance(code, str) and re.fullmatch(r"[a-z_]{1,40}", code) else ""


async def post_form(client: OAuthClient, url: str, fields: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
    """Status and JSON object of the answer, empty if it is not JSON. Raises ProviderError if there is no answer."""
    import httpx2

    address = urlsplit(url)
    form = {**fields, "client_id": client.client_id}
    form |= {"client_secret": client.client_secret} if client.client_secret else {}
    form |= {"resource": client.resource} if client.resource else {}
    loopback = address.hostname in LOOPBACK_HOSTS
    body = b""
    try:
        async with (
            httpx2.AsyncClient(timeout=SECONDS, trust_env=not loopback, verify=address.scheme != "http") as http,
            http.stream("POST", url, data=form, headers={"Accept": "application/json"}) as response,
        ):
            async for data in response.aiter_bytes():
                body += data
                if len(body) > LARGEST_ANSWER:
                    break
            return response.status_code, msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return response.status_code, {}
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        where = f"{address.scheme}://{address.netloc.rpartition('@')[2]}"
        said = f"no answer from {where}, where {client.provider} signs in: {type(error).__name__}"
        raise ProviderError(said, kind=Failure.NETWORK, hint="check the connection") from None


def _is_token(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 16_384 and value.isascii() and value.isprintable()


AHEAD_MS = 120_000  # before it expires
LOOK_SECONDS = 0.05  # between two attempts to get the lock
LOCK_SECONDS = SECONDS * 2  # no renewal holds it longer
log = logging.getLogger(__name__)


class Renewals(Struct, eq=False):
    clock: Clock
    client_of: Callable[[str], OAuthClient]  # raises ConfigError if sign-in is not configured
    passphrase: Callable[[], str]
    on_change: Callable[[], None]  # called after a file was changed
    running: dict[tuple[Path, str], asyncio.Task[Credential]] = {}

    async def renew(self, credential: Credential, refused: str = "") -> Credential:
        """The usable credential. Raises ProviderError if its sign-in has expired and cannot be renewed.

        `refused` is an access token that the provider rejected before its expiry.
        """
        if credential.file is None or not (self._due(credential) or (refused and credential.refresh)):
            return credential
        place = (credential.file, credential.id)
        task = self.running.get(place)
        if task is None:
            task = self.running[place] = asyncio.create_task(self._renewed(credential, credential.file, refused))
            task.add_done_callback(lambda _: self.running.pop(place, None))
        try:
            return await asyncio.shield(task)
        except PalinurusError as error:
            if not refused and not self._ended(credential):
                return credential  # it is still valid for a short time
            if isinstance(error, ProviderError):
                raise
            raise ProviderError(error.message, kind=Failure.AUTH, hint=error.hint) from None

    async def close(self) -> None:
        """Waits for the renewals in progress: each has a time limit."""
        if self.running:
            await asyncio.wait(list(self.running.values()))

    async def _renewed(self, credential: Credential, path: Path, refused: str) -> Credential:
        file = CredentialFile(path, self.passphrase())
        async with _held(path):
            current = await asyncio.to_thread(_stored, file, credential)
            if current.secret != refused and not self._due(current):
                return current  # another process has renewed it
            fields = {"grant_type": "refresh_token", "refresh_token": current.refresh}
            tokens = await request_tokens(self.client_of(current.provider), fields, self.clock.now_ms())
            try:
                await asyncio.to_thread(file.add, current.id, profile_of(current.provider, tokens))
            except StorageError as error:  # they are valid until they expire; then a new sign-in is needed
                log.warning("the renewed sign-in %s could not be stored: %s", current.id, error)
        self.on_change()
        return replace(current, secret=tokens.access, refresh=tokens.refresh, expires_at=tokens.expires_at)

    def _due(self, credential: Credential) -> bool:
        ends = credential.expires_at
        return bool(credential.refresh) and ends is not None and ends - AHEAD_MS <= self.clock.now_ms()

    def _ended(self, credential: Credential) -> bool:
        return credential.expires_at is not None and credential.expires_at <= self.clock.now_ms()


def profile_of(provider: str, tokens: Tokens) -> dict[str, object]:
    """The profile for the credentials file, in OpenClaw's form."""
    until = {"expires": tokens.expires_at} if tokens.expires_at is not None else {}
    return {"type": "oauth", "provider": provider, "access": tokens.access, "refresh": tokens.refresh, **until}


def _stored(file: CredentialFile, credential: Credential) -> Credential:
    """The profile in the file now. Raises ProviderError if it is no longer there."""
    profile = profiles_of(file.read()).get(credential.id, {})
    access, refresh, expires = (profile.get(name) for name in ("access", "refresh", "expires"))
    if not isinstance(access, str) or not isinstance(refresh, str):
        said = f"the sign-in {credential.id} was removed from {file.path}"
        raise ProviderError(said, kind=Failure.AUTH, hint=log_in_again(credential.provider))
    until = int(expires) if isinstance(expires, int | float) and expires > 0 else None
    return replace(credential, secret=access, refresh=refresh, expires_at=until)


@asynccontextmanager
async def _held(path: Path) -> AsyncIterator[None]:
    """Holds the lock against other renewals of this file. Raises ConfigError if the lock does not become free."""
    lock = open_lock(path, ".renewal.lock")
    try:
        try:
            async with asyncio.timeout(LOCK_SECONDS):
                while not _is_locked(lock):  # noqa: ASYNC110  # another process has it, and tells nobody
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            said = f"another process has been renewing the sign-ins of {path} for too long"
            raise ConfigError(said, hint="try again") from None
        yield
    finally:
        os.close(lock)


def _is_locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
