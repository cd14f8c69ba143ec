"""Interactive sign-in: in a browser on this machine, or on another device with a code.

The browser flow is the one for native programs (RFC 8252 with PKCE, RFC 7636): it ends at a server on 127.0.0.1 that
serves this sign-in only and requires its secret state.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qs, urlencode, urlsplit

from palinurus.domain.clock import Clock
from palinurus.domain.errors import ConfigError, Failure, ProviderError
from palinurus.providers.keys.credential_file import log_in_again
from palinurus.providers.keys.oauth import (
    OAuthClient,
    Tokens,
    error_code,
    positive,
    post_form,
    read_tokens,
    refusal,
    request_tokens,
)

PERSON_SECONDS = 300.0  # for the person to sign in
LONGEST_DEVICE_SECONDS = 1800.0
REQUEST_SECONDS = 5.0
LARGEST_REQUEST = 16 * 1024
PATH = "/callback"
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
SLOWER = 5.0  # seconds, when the server says slow_down
PAGE = "<!doctype html><meta charset=utf-8><title>Palinurus</title><p>{}</p>"
Show = Callable[[str, str], None]
"""Called with the address and, for another device, the code. Must not raise."""
Sleep = Callable[[float], Awaitable[None]]


async def sign_in_with_browser(
    client: OAuthClient, clock: Clock, show: Show, *, seconds: float = PERSON_SECONDS
) -> Tokens:
    """Signs in with a browser. Raises ProviderError if it fails, ConfigError if it is not configured."""
    if not client.authorize_url:
        raise _no_way(client, "authorizeUrl", "a browser")
    verifier, state = secrets.token_urlsafe(64), secrets.token_urlsafe(32)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    async with _redirected(client, state) as (uri, code):
        query = {
            **client.extra,
            "response_type": "code",
            "client_id": client.client_id,
            "redirect_uri": uri,
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        query |= {"scope": " ".join(client.scopes)} if client.scopes else {}
        query |= {"resource": client.resource} if client.resource else {}
        between = "&" if urlsplit(client.authorize_url).query else "?"
        show(f"{client.authorize_url}{between}{urlencode(query)}", "")
        try:
            async with asyncio.timeout(seconds):
                found = await code
        except TimeoutError:
            raise _too_late(client) from None
        fields = {"grant_type": "authorization_code", "code": found, "redirect_uri": uri, "code_verifier": verifier}
        return await request_tokens(client, fields, clock.now_ms())


async def sign_in_with_device(client: OAuthClient, clock: Clock, show: Show, *, sleep: Sleep = asyncio.sleep) -> Tokens:
    """The same with a code that is entered on another device (RFC 8628)."""
    if not client.device_url:
        raise _no_way(client, "deviceUrl", "a code")
    scope = {"scope": " ".join(client.scopes)} if client.scopes else {}
    status, answer = await post_form(client, client.device_url, scope)
    device, person = answer.get("device_code"), answer.get("user_code")
    where = answer.get("verification_uri", answer.get("verification_url"))
    if status != 200 or not all(isinstance(each, str) and each.isprintable() for each in (device, person, where)):
        raise refusal(client, status, answer)
    show(str(where), str(person))
    interval, lasts = positive(answer.get("interval")) or 5.0, positive(answer.get("expires_in")) or PERSON_SECONDS
    ends = clock.now_ms() + min(lasts, LONGEST_DEVICE_SECONDS) * 1000
    while clock.now_ms() < ends:
        await sleep(interval)
        fields = {"grant_type": DEVICE_GRANT, "device_code": str(device)}
        status, answer = await post_form(client, client.token_url, fields)
        code = error_code(answer)
        if code == "slow_down":
            interval += SLOWER
        elif code != "authorization_pending":
            return read_tokens(client, status, answer, clock.now_ms())
    raise _too_late(client)


@asynccontextmanager
async def _redirected(client: OAuthClient, state: str) -> AsyncIterator[tuple[str, asyncio.Future[str]]]:
    """A server that waits for the browser: its address, and a future with the code."""
    code: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(TimeoutError, OSError, ValueError, asyncio.IncompleteReadError):
            async with asyncio.timeout(REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                status, words = _take(head.split(b"\r\n", 1)[0].decode("ascii", "replace"), client, state, code)
                writer.write(_page(status, words))
                await writer.drain()
        writer.close()

    try:
        server = await asyncio.start_server(serve, "127.0.0.1", client.redirect_port, limit=LARGEST_REQUEST)
    except OSError as error:
        said = f"port {client.redirect_port} of 127.0.0.1 cannot be opened: {error.strerror}"
        hint = f"free it, or name another in models.providers.{client.provider}.oauth.redirectPort"
        raise ConfigError(said, hint=hint) from None
    try:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}{PATH}", code
    finally:
        server.close()
        code.cancel()


def _take(line: str, client: OAuthClient, state: str, code: asyncio.Future[str]) -> tuple[int, str]:
    """Handles a request: returns the code, if it is the expected one, and the response."""
    method, _, target = line.partition(" ")
    address = urlsplit(target.partition(" ")[0])
    query = {name: values[0] for name, values in parse_qs(address.query).items()}
    if method != "GET" or address.path != PATH:
        return 404, "There is nothing here."
    if not hmac.compare_digest(query.get("state", "").encode(), state.encode()):
        return 400, "This sign-in was not started here."
    if code.done():
        return 200, "You are signed in already."
    if not query.get("code"):
        code.set_exception(refusal(client, 400, query))
        return 200, "You are not signed in. You can close this window."
    code.set_result(query["code"])
    return 200, "You can close this window and go back to the terminal."


def _page(status: int, words: str) -> bytes:
    body = PAGE.format(words).encode()
    head = (
        f"HTTP/1.1 {status} {'OK' if status == 200 else 'No'}\r\nContent-Type: text/html; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n"
        "Content-Security-Policy: default-src 'none'\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def _no_way(client: OAuthClient, field: str, way: str) -> ConfigError:
    hint = f"set models.providers.{client.provider}.oauth.{field}, or sign in the other way"
    return ConfigError(f"sign-in at {client.provider} with {way} is not configured", hint=hint)


def _too_late(client: OAuthClient) -> ProviderError:
    said = f"the sign-in at {client.provider} was not completed in time"
    return ProviderError(said, kind=Failure.TIMEOUT, hint=log_in_again(client.provider))
