"""Logins at MCP servers that want one (OAuth): found, made by a person, stored, and renewed while they are used.

A login is a profile in `<home>/credentials/mcp.json`, a credentials file like those for providers: mode 0600, sealed
when there is a passphrase. It counts only for the address at which it was made. Where the server's tokens come from is
found by the package; the rest is done as for providers.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from palinurus.config.home import Home
from palinurus.domain.clock import Clock
from palinurus.domain.errors import BadRequest, PalinurusError, ProviderError
from palinurus.extensions.mcp.connection import load_package
from palinurus.extensions.mcp.settings import ServerSettings
from palinurus.extensions.mcp.transport import IDENTITY, LOOPBACK, bound_answer
from palinurus.providers.keys.credential_file import Credential, CredentialFile, check_profile_id, profiles_of
from palinurus.providers.keys.oauth import OAuthClient, Renewals, Tokens, profile_of
from palinurus.providers.keys.sign_in import PATH, Show, sign_in_with_browser

if TYPE_CHECKING:
    import httpx2

FILE = "credentials/mcp.json"
PROVIDER = "mcp"
SECONDS = 20.0  # for one request
ACCEPT = {"Accept": "application/json, text/event-stream"}


class StoredLogin(Struct, frozen=True):
    """What is stored of a login besides its tokens."""

    url: str
    client_id: str
    token_url: str
    client_secret: str = ""
    resource: str = ""

    def client(self, name: str) -> OAuthClient:
        return OAuthClient(_named(name), self.client_id, self.token_url, self.client_secret, resource=self.resource)


class ServerLogins:
    """All logins of a home. Reading and renewing them is safe in several processes at once."""

    def __init__(self, home: Home, clock: Clock, passphrase: Callable[[], str]) -> None:
        self._path = home.root / FILE
        self._passphrase = passphrase
        self._seen: tuple[int, int] = (0, 0)  # of the file on the disk: time of change and size
        self._profiles: dict[str, dict[str, Any]] = {}
        self._renewals = Renewals(clock, self._client_of, passphrase, lambda: None)

    async def token(self, settings: ServerSettings, refused: str = "") -> str:
        """A token for the server; empty without a login. One that was refused is renewed. Raises PalinurusError."""
        await asyncio.to_thread(self._read)
        id_ = f"{PROVIDER}:{settings.name}"
        profile = self._profiles.get(id_)
        if profile is None or _login_of(profile).url != settings.url:
            return ""
        credential = Credential(
            id_,
            settings.name,
            "oauth",
            profile.get("access", ""),
            "file",
            profile.get("expires"),
            profile.get("refresh", ""),
            self._path,
        )
        try:
            return (await self._renewals.renew(credential, refused)).secret
        except PalinurusError as error:
            raise BadRequest(f"its login has ended: {error.message}", hint=log_in_hint(settings.name)) from None

    def keep(self, name: str, login: StoredLogin, tokens: Tokens) -> bool:
        """Returns whether there was one. Blocks."""
        profile = profile_of(PROVIDER, tokens) | {PROVIDER: msgspec.to_builtins(login)}
        return self._file().add(check_profile_id(f"{PROVIDER}:{name}"), profile)

    def remove(self, name: str) -> None:
        """Raises NotFound. Blocks."""
        self._file().remove(f"{PROVIDER}:{name}")

    async def close(self) -> None:
        await self._renewals.close()

    def auth(self, settings: ServerSettings) -> httpx2.Auth:
        """Adds the token to requests. A server that refuses it twice, or wants one that is not there, is an error."""
        import httpx2

        token = self.token

        class LoginAuth(httpx2.Auth):
            async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
                secret = await token(settings)
                if secret:
                    request.headers["Authorization"] = f"Bearer {secret}"
                response = yield request
                newer = await token(settings, refused=secret) if secret and response.status_code == 401 else secret
                if newer != secret:
                    request.headers["Authorization"] = f"Bearer {newer}"
                    response = yield request
                if response.status_code == 401:
                    why = "it refuses its login" if secret else "it wants a login"
                    raise BadRequest(why, hint=log_in_hint(settings.name))

        return LoginAuth()

    def _client_of(self, name: str) -> OAuthClient:
        return _login_of(self._profiles[f"{PROVIDER}:{name}"]).client(name)

    def _file(self) -> CredentialFile:
        return CredentialFile(self._path, self._passphrase())

    def _read(self) -> None:
        try:
            stat = self._path.stat()
        except FileNotFoundError:
            self._profiles = {}
            return
        if (seen := (stat.st_mtime_ns, stat.st_size)) != self._seen:
            self._profiles, self._seen = profiles_of(self._file().read()), seen


def log_in_hint(name: str) -> str:
    return f"log in: pal mcp login {name}"


def _named(name: str) -> str:
    return f"the MCP server {name}"


def _login_of(profile: dict[str, Any]) -> StoredLogin:
    """Raises BadRequest for a profile that somebody has changed."""
    try:
        return msgspec.convert(profile.get(PROVIDER), StoredLogin)
    except msgspec.ValidationError:
        raise BadRequest(f"{FILE} holds a login that cannot be read", hint="log in again: pal mcp login") from None


Ask = Callable[[str, dict[str, Any] | None], Awaitable["httpx2.Response"]]


async def log_in(settings: ServerSettings, logins: ServerLogins, clock: Clock, show: Show) -> None:
    """Waits until a person has logged in, and stores the login. Raises PalinurusError."""
    import httpx2

    await load_package("mcp.client.auth")
    from mcp.client.auth.exceptions import OAuthFlowError

    if not settings.url:
        raise BadRequest(f"{settings.name} is a program on this machine", hint="only servers with a url have logins")
    is_near = urlsplit(settings.url).hostname in LOOPBACK
    async with httpx2.AsyncClient(
        timeout=SECONDS, trust_env=not is_near, headers=IDENTITY, event_hooks={"response": [bound_answer]}
    ) as http:

        async def ask(url: str, body: dict[str, Any] | None) -> httpx2.Response:
            check_address(url, settings.url)
            return await (http.get(url) if body is None else http.post(url, json=body, headers=ACCEPT))

        try:
            client = await _find_client(settings, ask)
            tokens = await sign_in_with_browser(client, clock, show)
        except (OAuthFlowError, httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL) as error:
            words = " ".join(str(error).split())[:300] or type(error).__name__
            raise BadRequest(f"{settings.name} cannot be logged in to: {words}") from None
        except ProviderError as error:
            raise BadRequest(error.message, hint=log_in_hint(settings.name)) from None
    login = StoredLogin(settings.url, client.client_id, client.token_url, client.client_secret, client.resource)
    await asyncio.to_thread(logins.keep, settings.name, login, tokens)


async def _find_client(settings: ServerSettings, ask: Ask) -> OAuthClient:
    """Where tokens for the server come from, and a client that was registered there for this login."""
    from mcp.client.auth import utils

    response = await ask(settings.url, {"jsonrpc": "2.0", "id": 1, "method": "ping"})
    if response.status_code != 401:
        raise BadRequest(f"{settings.name} does not ask for a login (HTTP {response.status_code})")
    resource, issuer, scopes = await _find_resource(settings, response, ask)
    metadata = None
    for url in utils.build_oauth_authorization_server_metadata_discovery_urls(issuer, settings.url):
        ok, metadata = await utils.handle_auth_metadata_response(await ask(url, None))
        if metadata is not None or not ok:
            break
    if metadata is None:
        raise BadRequest(f"{settings.name} does not say where to log in")
    for endpoint in (metadata.token_endpoint, metadata.authorization_endpoint):
        check_address(str(endpoint), settings.url)
    if issuer:
        utils.validate_metadata_issuer(metadata, issuer)
    if "S256" not in (metadata.code_challenge_methods_supported or ()):
        raise BadRequest(f"{settings.name} cannot protect a login by PKCE (S256)")
    if metadata.registration_endpoint is None:
        raise BadRequest(f"{settings.name} registers no clients by itself", hint="use a token in its headers")
    port = _free_port()
    said = {
        "client_name": "Palinurus",
        "redirect_uris": [f"http://127.0.0.1:{port}{PATH}"],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }
    registered = await utils.handle_registration_response(await ask(str(metadata.registration_endpoint), said))
    if registered.token_endpoint_auth_method not in (None, "none", "client_secret_post"):
        raise BadRequest(f"{settings.name} wants a way to log in that pal does not know")
    return OAuthClient(
        _named(settings.name),
        registered.client_id or "",
        str(metadata.token_endpoint),
        registered.client_secret or "",
        str(metadata.authorization_endpoint),
        scopes=tuple(scopes),
        redirect_port=port,
        resource=resource,
    )


async def _find_resource(settings: ServerSettings, response: Any, ask: Ask) -> tuple[str, str | None, list[str]]:
    """The address that tokens are for, the server that gives them, and which scopes to ask for."""
    from mcp.client.auth import utils
    from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url

    own = resource_url_from_server_url(settings.url)
    told = utils.extract_resource_metadata_from_www_auth(response)
    for url in utils.build_protected_resource_metadata_discovery_urls(told, settings.url):
        found = await utils.handle_protected_resource_response(await ask(url, None))
        if found is not None:
            if not check_resource_allowed(requested_resource=own, configured_resource=str(found.resource)):
                raise BadRequest(f"{settings.name} says that its tokens are for another server, {found.resource}")
            scope = utils.get_client_metadata_scopes(utils.extract_scope_from_www_auth(response), found)
            return str(found.resource), str(found.authorization_servers[0]), (scope or "").split()
    return own, None, []


def check_address(url: str, server: str) -> None:
    """Raises BadRequest unless it is encrypted, or both it and the server are on this machine."""
    address = urlsplit(url)
    near = address.hostname in LOOPBACK and urlsplit(server).hostname in LOOPBACK
    if address.scheme != "https" and not (address.scheme == "http" and near):
        raise BadRequest(f"{url[:200]!r} is not a secure address for a login", hint="it must begin with https://")


def _free_port() -> int:
    """Registered with the server before anybody listens there."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
