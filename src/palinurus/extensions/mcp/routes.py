"""The routes of MCP: the endpoint itself, and the authorization server for its clients."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from palinurus.domain.errors import BadRequest
from palinurus.extensions.mcp.authorization import (
    OFFERED,
    AuthorizationRequest,
    AuthorizationServer,
    ClientMetadata,
    OAuthError,
    RefusedRequest,
    TokenAnswer,
    register_client,
    with_answer,
)
from palinurus.extensions.mcp.endpoint import PATH, RESOURCE_METADATA, McpEndpoint, base_of, resource_of
from palinurus.gateway.auth.guard import cookie_of, is_own_page
from palinurus.gateway.http.app import (
    JSON,
    RouteDoc,
    RouteProvider,
    bearer_of,
    media_type,
    peer_of,
    read_body,
    read_json,
    reply,
)
from palinurus.gateway.protocol import Refused
from palinurus.gateway.websocket.methods import GatewayContext
from palinurus.operations.scopes import Scope

SERVER_METADATA = "/.well-known/oauth-authorization-server"
AUTHORIZE, CONSENT = f"{PATH}/authorize", f"{PATH}/consent"
REGISTER, TOKEN, REVOKE = f"{PATH}/register", f"{PATH}/token", f"{PATH}/revoke"
MOST = 16 * 1024  # bytes of a body; the sender is not authenticated yet
SECONDS = 10.0
FORM = "application/x-www-form-urlencoded"
STATIC = Path(__file__).parent / "static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)


class ResourceMetadata(Struct, frozen=True):
    """RFC 9728."""

    resource: str
    authorization_servers: tuple[str, ...]
    scopes_supported: tuple[str, ...] = OFFERED
    bearer_methods_supported: tuple[str, ...] = ("header",)
    resource_name: str = "Palinurus"


class ServerMetadata(Struct, frozen=True):
    """RFC 8414."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    registration_endpoint: str
    revocation_endpoint: str
    scopes_supported: tuple[str, ...] = OFFERED
    response_types_supported: tuple[str, ...] = ("code",)
    grant_types_supported: tuple[str, ...] = ("authorization_code", "refresh_token")
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("none",)
    revocation_endpoint_auth_methods_supported: tuple[str, ...] = ("none",)
    code_challenge_methods_supported: tuple[str, ...] = ("S256",)
    authorization_response_iss_parameter_supported: bool = True


class ConsentRequest(Struct, frozen=True):
    """What the page of the consent sends. Without `allow` it asks what the request is about."""

    query: str
    key: str = ""
    allow: bool | None = None
    scopes: tuple[str, ...] = ()


class ConsentAnswer(Struct, frozen=True, rename="camel", omit_defaults=True):
    redirect: str = ""
    name: str = ""
    redirect_uri: str = ""
    scopes: tuple[Scope, ...] = ()


class OAuthProblem(Struct, frozen=True):
    """RFC 6749 and RFC 7591."""

    error: str
    error_description: str


class RpcProblem(Struct, frozen=True):
    """An error of JSON-RPC that belongs to no request."""

    error: dict[str, Any]
    id: str | int | None = None
    jsonrpc: str = "2.0"


class McpAuthorization:
    """The authorization server as routes."""

    def __init__(self, gateway: GatewayContext) -> None:
        self._guard = gateway.guard
        self._server = AuthorizationServer(gateway.guard.register, gateway.services.clock, gateway.new_id)

    async def resource(self, request: Request) -> Response:
        return reply(ResourceMetadata(resource_of(request), (base_of(request),)))

    async def metadata(self, request: Request) -> Response:
        at = base_of(request)
        return reply(ServerMetadata(at, f"{at}{AUTHORIZE}", f"{at}{TOKEN}", f"{at}{REGISTER}", f"{at}{REVOKE}"))

    async def register(self, request: Request) -> Response:
        try:
            sent: ClientMetadata = await read_json(request, ClientMetadata, most=MOST, seconds=SECONDS)
            return reply(register_client(sent), 201)
        except BadRequest as error:
            return _refusal(OAuthError("invalid_client_metadata", str(error)))
        except OAuthError as error:
            return _refusal(error)

    async def token(self, request: Request) -> Response:
        try:
            return reply(await self._server.exchange(await _form(request), resource_of(request)))
        except OAuthError as error:
            if error.error == "invalid_grant":
                refused = self._guard.count_guess(peer_of(request), str(error))
                if refused.retry_after is not None:
                    raise refused from None
            return _refusal(error)

    async def revoke(self, request: Request) -> Response:
        try:
            await self._server.revoke(await _form(request), resource_of(request))
        except OAuthError as error:
            return _refusal(error)
        return reply({})

    async def consent(self, request: Request) -> Response:
        """What a program asks for, and the owner's answer. Only for the page of the consent, and only for an owner."""
        if not is_own_page(request, self._guard.address):
            raise Refused(403, "WRONG_ORIGIN", "only the gateway's own page may request this")
        sent: ConsentRequest = await read_json(request, ConsentRequest, most=MOST, seconds=SECONDS)
        self._owner(request, sent.key)
        try:
            asked = self._server.read_request(sent.query, resource_of(request))
        except RefusedRequest as error:
            return reply(ConsentAnswer(_redirect(error.request, request, error=error.error)))
        except OAuthError as error:
            raise BadRequest(str(error), hint="start again in the program") from None
        if sent.allow is None:
            return reply(ConsentAnswer("", asked.client.name, asked.redirect_uri, asked.scopes))
        scopes = tuple(scope for scope in asked.scopes if scope in sent.scopes)
        if not sent.allow or not scopes:
            return reply(ConsentAnswer(_redirect(asked, request, error="access_denied")))
        return reply(ConsentAnswer(_redirect(asked, request, code=self._server.consent(asked, scopes))))

    def _owner(self, request: Request, key: str) -> None:
        """Raises Refused and MissingScope unless the owner asks: by the dashboard's login, or by the owner's token."""
        secret, peer = bearer_of(request), peer_of(request)
        if secret:
            principal = self._guard.identify((secret,), peer)
        else:
            principal = self._guard.identify_browser(cookie_of(request, self._guard.address), key, peer)
        principal.caller.need("admin", "letting a program in")


def _redirect(asked: AuthorizationRequest, request: Request, **answer: str) -> str:
    state = {"state": asked.state} if asked.state else {}
    return with_answer(asked.redirect_uri, **answer, **state, iss=base_of(request))


async def _form(request: Request) -> str:
    """Raises OAuthError, and Refused for a body that is too large or too slow."""
    if media_type(request) != FORM:
        raise OAuthError("invalid_request", f"the body must be {FORM}")
    try:
        return (await read_body(request, most=MOST, seconds=SECONDS)).decode("ascii")
    except UnicodeDecodeError:
        raise OAuthError("invalid_request", "these are not form fields") from None


def _refusal(error: OAuthError) -> Response:
    return reply(OAuthProblem(error.error, str(error)), error.status)


def _page(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def page(_: Request) -> Response:
        body = await asyncio.to_thread((STATIC / name).read_bytes)
        return Response(body, headers={"content-security-policy": POLICY}, media_type=kind)

    return page


def routes(gateway: GatewayContext) -> list[BaseRoute]:
    server, endpoint = McpAuthorization(gateway), McpEndpoint(gateway)
    return [
        Route(PATH, endpoint, methods=["GET", "POST", "DELETE"]),
        Route(RESOURCE_METADATA, server.resource),
        Route(f"{RESOURCE_METADATA}{PATH}", server.resource),
        Route(SERVER_METADATA, server.metadata),
        Route(REGISTER, server.register, methods=["POST"]),
        Route(TOKEN, server.token, methods=["POST"]),
        Route(REVOKE, server.revoke, methods=["POST"]),
        Route(AUTHORIZE, _page("consent.html", "text/html; charset=utf-8")),
        Route(f"{CONSENT}.js", _page("consent.js", "text/javascript; charset=utf-8")),
        Route(f"{CONSENT}.css", _page("consent.css", "text/css; charset=utf-8")),
        Route(CONSENT, server.consent, methods=["POST"]),
    ]


_MCP = "MCP over streamable HTTP."
_SSE = (JSON, "text/event-stream")
ROUTES = RouteProvider(
    routes,
    (
        RouteDoc("POST", PATH, _MCP, "read", body=dict[str, Any], gives=_SSE, statuses=(200, 202), fails=RpcProblem),
        RouteDoc("GET", PATH, "Its stream of events.", "read", gives=("text/event-stream",), fails=RpcProblem),
        RouteDoc("DELETE", PATH, "End its session.", "read", gives=(), fails=RpcProblem),
        RouteDoc("GET", RESOURCE_METADATA, "Where tokens for /mcp come from.", None, result=ResourceMetadata),
        RouteDoc("GET", f"{RESOURCE_METADATA}{PATH}", "The same.", None, result=ResourceMetadata),
        RouteDoc("GET", SERVER_METADATA, "The authorization server for /mcp.", None, result=ServerMetadata),
        RouteDoc(
            "POST", REGISTER, "Register an OAuth client.", None,
            body=ClientMetadata, result=dict[str, Any], statuses=(201,), fails=OAuthProblem,
        ),
        RouteDoc(
            "POST", TOKEN, "Tokens for a code or an older token; form fields.", None,
            result=TokenAnswer, fails=OAuthProblem,
        ),
        RouteDoc(
            "POST", REVOKE, "End the access of an OAuth client; form fields.", None,
            result=dict[str, Any], fails=OAuthProblem,
        ),
        RouteDoc("GET", AUTHORIZE, "The page of the owner's consent.", None, gives=("text/html",)),
        RouteDoc("GET", f"{CONSENT}.js", "A part of it.", None, gives=("text/javascript",)),
        RouteDoc("GET", f"{CONSENT}.css", "A part of it.", None, gives=("text/css",)),
        RouteDoc("POST", CONSENT, "The consent; for that page.", None, body=ConsentRequest, result=ConsentAnswer),
    ),
)  # fmt: skip
