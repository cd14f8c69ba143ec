"""`POST /hooks/<name>`: authenticated, limited, answered with 202 when the message is stored.

A wrong credential uses up the allowance of its address in the gateway's guard; a right one always passes. Each kind of
refusal is logged once a minute, whoever causes it how often.
"""

from __future__ import annotations

import hmac
import logging
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from palinurus.domain.errors import BadRequest, ConfigError, NotFound, PalinurusError
from palinurus.extensions.webhooks.message import (
    AgentCall,
    WakeCall,
    WebhookCall,
    call_of_mapping,
    submit_call,
    wake_session,
)
from palinurus.extensions.webhooks.settings import OWN_PATHS, WebhookMapping, WebhookSettings
from palinurus.extensions.webhooks.signature import WrongSignature, verify_signature
from palinurus.extensions.webhooks.template import TemplateValues, render_template
from palinurus.gateway.http.app import JSON, RouteDoc, RouteProvider, media_type, parse_json, peer_of, read_body, reply
from palinurus.gateway.http.metrics import RefusalCounts, and_more
from palinurus.gateway.protocol import Refused
from palinurus.gateway.websocket.methods import GatewayContext
from palinurus.operations.access import digest_of
from palinurus.runtime.secret import SHORT

log = logging.getLogger(__name__)

ROUTE = "/{name:path}"
MINUTE_MS = 60_000
TOKEN_HEADERS = ("x-openclaw-token", "x-palinurus-token")
KEY_HEADERS = ("idempotency-key", "x-github-delivery")
CREDENTIALS = frozenset({"authorization", "cookie", "proxy-authorization", *TOKEN_HEADERS})
LONGEST_KEY = 256


class WebhookAccepted(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The message is stored. `missing`: paths of the template that led nowhere."""

    ok: bool
    run_id: str = ""  # empty: the event waits for the next heartbeat
    missing: tuple[str, ...] = ()


class WebhookRateLimits:
    """How many calls each webhook accepted in the current minute."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, int]] = {}  # path -> when its minute began, and how many since

    def count(self, path: str, most: int, now: int) -> None:
        """Raises Refused."""
        began, calls = self._counts.get(path, (now, 0))
        if not 0 <= now - began < MINUTE_MS:
            began, calls = now, 0
        if calls >= most:
            wait = (began + MINUTE_MS - now) / 1000
            raise Refused(429, "RATE_LIMITED", f"this webhook accepts {most} requests a minute", wait)
        self._counts[path] = began, calls + 1


class WebhookReceiver:
    """Serves all webhooks of a gateway, as the config says at the time of each request."""

    def __init__(self, gateway: GatewayContext) -> None:
        self._gateway = gateway
        self._services = gateway.services
        self._limits = WebhookRateLimits()
        self._refusals = RefusalCounts(gateway.services.clock)

    async def receive(self, request: Request) -> Response:
        """Send a message to an agent, or wake it."""
        settings = self._settings()
        path = request.path_params["name"].strip("/")
        mappings = settings.at_path(path)
        known = path if mappings or path in OWN_PATHS else "of an unknown name"
        try:
            return reply(await self._receive(request, settings, path, mappings), 202)
        except (Refused, PalinurusError, WrongSignature) as error:
            if isinstance(error, WrongSignature):
                error = self._gateway.guard.count_guess(peer_of(request), str(error))
            self._log(known, error)
            raise error from None

    async def _receive(
        self, request: Request, settings: WebhookSettings, path: str, mappings: tuple[WebhookMapping, ...]
    ) -> WebhookAccepted:
        signature = mappings[0].signature if mappings else None
        if signature is None:
            self._check_token(request, settings)
            if not mappings and path not in OWN_PATHS:
                raise NotFound(f"there is no webhook {path[:80]!r}", hint="`pal webhooks list` shows those there are")
        body = await read_body(request, most=settings.max_body_bytes)
        signed = ""
        if signature is not None:
            secret = self._services.secret(signature.secret)
            if not secret:
                raise ConfigError(f"the secret of the webhook {path} does not exist", hint="`pal doctor` checks it")
            signed = verify_signature(signature, secret, request.headers, body, self._services.clock.now_ms())
        request.scope["principal"] = f"webhook:{path}"  # for the log
        limits = (each.rate_limit_per_minute for each in mappings if each.rate_limit_per_minute)
        most = next(limits, settings.rate_limit_per_minute)
        self._limits.count(path, most, self._services.clock.now_ms())
        payload = _payload(request, body)
        if path == "wake":
            event = _converted(payload, WakeCall)
            run = await wake_session(self._services, path, event.text, event.mode, self._key(request, path, ""))
            return WebhookAccepted(True, run)
        if path == "agent":
            call = _converted(payload, AgentCall)
            wanted = WebhookCall(path, call, self._key(request, path, call.idempotency_key))
            return WebhookAccepted(True, (await submit_call(self._services, settings, wanted)).id)
        mapping = _matching(mappings, path, payload)
        values = values_of(request, payload, body, self._services.clock.now_ms())
        return await self._submit(request, settings, mapping, values, signed)

    async def _submit(
        self,
        request: Request,
        settings: WebhookSettings,
        mapping: WebhookMapping,
        values: TemplateValues,
        signed: str,
    ) -> WebhookAccepted:
        named = render_template(mapping.idempotency_template, values).text
        # A signature does not cover headers: with them, whoever has seen one request could send it again.
        key = self._key(request, mapping.path, named or signed, headers=not signed)
        if mapping.action == "wake":
            event = render_template(mapping.text_template, values)
            run = await wake_session(self._services, mapping.path, event.text, mapping.wake_mode, key)
            return WebhookAccepted(True, run, event.missing)
        call, rendered = call_of_mapping(mapping, values)
        wanted = WebhookCall(mapping.path, call, key, by_request=False)
        return WebhookAccepted(True, (await submit_call(self._services, settings, wanted)).id, rendered.missing)

    def _settings(self) -> WebhookSettings:
        """Raises NotFound when webhooks were switched off since the start."""
        self._gateway.guard.secret_digest()  # looks whether the config has changed
        settings = self._services.config.section(WebhookSettings)
        if not settings.enabled:
            raise NotFound("webhooks are switched off", hint="hooks.enabled")
        return settings

    def _check_token(self, request: Request, settings: WebhookSettings) -> None:
        token = find_token(self._gateway, settings)
        kind, _, bearer = request.headers.get("authorization", "").partition(" ")
        sent = [bearer.strip() if kind.lower() == "bearer" else "", *map(request.headers.get, TOKEN_HEADERS)]
        tried = [each for each in sent if each]
        if not tried:
            raise Refused(401, "UNAUTHORIZED", "the hook token is missing: send the header Authorization: Bearer …")
        if not token or not any(hmac.compare_digest(digest_of(each), digest_of(token)) for each in tried):
            raise self._gateway.guard.count_guess(peer_of(request), "this is not the hook token")

    def _key(self, request: Request, path: str, named: str, *, headers: bool = True) -> str:
        """What makes the same request again the same run."""
        sent = (request.headers.get(name, "").strip() for name in KEY_HEADERS if headers)
        key = next(filter(None, (named, *sent)), "") or self._gateway.new_id()
        if len(key) > LONGEST_KEY:
            raise BadRequest(f"the idempotency key has {len(key)} characters; the limit is {LONGEST_KEY}")
        return f"webhook:{path}:{key}"

    def _log(self, known: str, error: Refused | PalinurusError) -> None:
        why = str(error)
        kind = f"{known} {error.status if isinstance(error, Refused) else type(error).__name__}"
        if (more := self._refusals.count(kind)) is not None:
            log.warning("the webhook %s refused a request: %s%s", known, why[:200], and_more(more))


def find_token(gateway: GatewayContext, settings: WebhookSettings) -> str:
    """The hook token; empty if there is none. Raises ConfigError when it is the gateway's, too."""
    token = gateway.services.secret(settings.token) or ""
    if token and hmac.compare_digest(digest_of(token), gateway.guard.secret_digest()):
        raise ConfigError(
            "hooks.token is the gateway's token", hint="senders of webhooks must not have it: take another"
        )
    return token


def values_of(request: Request, payload: Any, body: bytes, now_ms: int) -> TemplateValues:
    return TemplateValues(
        payload,
        body.decode("utf-8", "replace"),
        {name: value for name, value in request.headers.items() if name not in CREDENTIALS},
        dict(request.query_params),
        request.url.path,
        datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="seconds"),
    )


def _payload(request: Request, body: bytes) -> Any:
    kind = media_type(request)
    if kind == JSON or kind.endswith("+json"):
        return parse_json(body, Any)
    if kind == "text/plain":
        return None
    raise Refused(415, "WRONG_TYPE", "the body must be application/json or text/plain")


def _converted(payload: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(payload, kind)
    except msgspec.ValidationError as error:
        raise BadRequest(f"the body: {error}") from None


def _matching(mappings: tuple[WebhookMapping, ...], path: str, payload: Any) -> WebhookMapping:
    source = payload.get("source") if isinstance(payload, dict) else None
    found = next((each for each in mappings if each.match.source in ("", source)), None)
    if found is None:
        raise NotFound(f"no mapping of the webhook {path} is for this source")
    return found


def make_routes(gateway: GatewayContext) -> list[BaseRoute]:
    """None when webhooks are off. Raises ConfigError when a secret does not exist, or is the gateway's."""
    settings = gateway.services.config.section(WebhookSettings)
    if not settings.enabled:
        return []
    find_token(gateway, settings)
    for place, value in settings.secrets():
        if not (secret := gateway.services.secret(value)):
            raise ConfigError(f"{place} names a secret that does not exist", hint="set it, or take the webhook out")
        if len(secret) < SHORT:
            log.warning("%s has less than %d characters and could be guessed", place, SHORT)
    receiver = WebhookReceiver(gateway)
    return [Route(f"{settings.base.rstrip('/')}{ROUTE}", receiver.receive, methods=["POST"])]


ROUTES = RouteProvider(
    make_routes,
    (
        RouteDoc(
            "POST",
            f"/hooks{ROUTE}",
            "A webhook: send a message to an agent, or wake it. Needs the hook token or a signature.",
            None,
            body=dict[str, Any],
            result=WebhookAccepted,
            statuses=(202,),
        ),
    ),
)
