"""Webhooks as people ask for them: which there are, what a template makes of a payload, and what is wrong with them."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Struct

from palinurus.config.home import Home
from palinurus.config.load import LoadedConfig, resolve_secret, secret_providers
from palinurus.domain.errors import BadRequest, ConfigError, NotFound
from palinurus.extensions.webhooks.message import WebhookCall, call_of_mapping, choose_session, shown_text
from palinurus.extensions.webhooks.settings import OWN_PATHS, WebhookMapping, WebhookSettings
from palinurus.extensions.webhooks.signature import signature_header
from palinurus.extensions.webhooks.template import TemplateValues, render_template
from palinurus.gateway.http.app import parse_json
from palinurus.gateway.protocol import Refused
from palinurus.gateway.settings import GatewaySettings
from palinurus.operations.operation import operation
from palinurus.operations.services import Services
from palinurus.runtime.checks.check import Check, bad, ok, warning
from palinurus.runtime.secret import SHORT, TokenFile, named_secret

BEARER = "bearer token"


class WebhookInfo(Struct, frozen=True, rename="camel"):
    path: str  # with hooks.path
    action: str  # agent | wake
    auth: str  # how senders authenticate
    agent: str = ""  # empty: the default agent, or the one that the request names
    session: str = ""  # empty: a new one for each request
    source: str = ""  # only payloads of this source


class WebhookList(Struct, frozen=True, rename="camel"):
    enabled: bool
    webhooks: tuple[WebhookInfo, ...]


class WebhookPreview(Struct, frozen=True, rename="camel"):
    """What an agent would get."""

    action: str
    agent: str
    session: str
    text: str
    missing: tuple[str, ...] = ()


@operation("webhooks.list", scope="read")
async def list_webhooks(services: Services) -> WebhookList:
    """List the webhooks and how senders authenticate.

    Examples:
      pal webhooks list
      pal webhooks list --json
    """
    settings = services.config.section(WebhookSettings)
    base = settings.base.rstrip("/")
    own = [WebhookInfo(f"{base}/{path}", path, BEARER) for path in OWN_PATHS if settings.token]
    return WebhookList(settings.enabled, (*own, *(_info(base, each) for each in settings.all_mappings)))


def _info(base: str, mapping: WebhookMapping) -> WebhookInfo:
    signature = mapping.signature
    auth = f"signature in {signature_header(signature)}" if signature else BEARER
    session = "main" if mapping.action == "wake" else mapping.session_key
    return WebhookInfo(f"{base}/{mapping.path}", mapping.action, auth, mapping.agent_id, session, mapping.match.source)


@operation("webhooks.test", scope="read")
async def render_webhook(
    services: Services,
    name: Annotated[str, "The webhook: its path, or its id."],
    data: Annotated[str, "What a sender would send: JSON, or any text."],
) -> WebhookPreview:
    """Show what an agent would get of a request, without a run."""
    settings = services.config.section(WebhookSettings)
    known = settings.all_mappings
    wanted = name.strip("/").removeprefix(f"{settings.base.strip('/')}/")
    mapping = next((each for each in known if wanted in (each.id, each.path)), None)
    if mapping is None:
        raise NotFound(
            f"there is no webhook {name[:80]!r}", hint=f"there are: {', '.join(each.path for each in known)}"
        )
    values = TemplateValues(_payload(data), data, path=f"{settings.base.rstrip('/')}/{mapping.path}")
    if mapping.action == "wake":
        event = render_template(mapping.text_template, values)
        text = shown_text(mapping.path, event.text)
        return WebhookPreview("wake", services.agents.default, "main", text, event.missing)
    call, rendered = call_of_mapping(mapping, values)
    try:
        key = choose_session(services, settings, WebhookCall(mapping.path, call, "test", by_request=False))
    except Refused as error:
        raise BadRequest(error.message) from None
    session = str(key) if call.session_key or settings.default_session_key else ""
    return WebhookPreview("agent", key.agent, session, shown_text(call.name, call.message), rendered.missing)


def _payload(data: str) -> Any:
    return parse_json(data.encode(), Any) if data.lstrip()[:1] in ("{", "[") else None


def check_webhooks(home: Home, loaded: LoadedConfig | None) -> list[Check]:
    settings = loaded.config.section(WebhookSettings) if loaded is not None else WebhookSettings()
    if loaded is None or not settings.enabled:
        return []
    found = [_check_secret(loaded, place, value) for place, value in settings.secrets()]
    token = resolve_secret(settings.token, loaded.env, secret_providers(loaded)) if not any(found) else None
    if token and token in _gateway_tokens(home, loaded):
        found.append(
            bad("webhooks", "hooks.token is the gateway's token", home.config_path, "take another for hooks.token")
        )
    if settings.allow_request_session_key and not settings.allowed_session_key_prefixes:
        todo = "set hooks.allowedSessionKeyPrefixes, for example to hook:"
        found.append(warning("webhooks", "requests may name any session", home.config_path, todo))
    problems = [each for each in found if each is not None]
    return problems or [ok("webhooks", f"served under {settings.base}, mappings: {len(settings.all_mappings)}")]


def _check_secret(loaded: LoadedConfig, place: str, value: Any) -> Check | None:
    try:
        secret = resolve_secret(value, loaded.env, secret_providers(loaded))
    except ConfigError as error:
        return bad("webhooks", f"{place}: {error.message}", "", error.hint)
    if not secret:
        return bad("webhooks", f"{place} names a secret that does not exist", "", "set it: the gateway does not start")
    if len(secret) < SHORT:
        todo = "take a longer one, for example from `openssl rand -hex 32`"
        return warning("webhooks", f"{place} has less than {SHORT} characters and could be guessed", "", todo)
    return None


def _gateway_tokens(home: Home, loaded: LoadedConfig) -> tuple[str, ...]:
    mode = loaded.config.section(GatewaySettings).auth_mode
    try:
        named, _ = named_secret(loaded, loaded.env, "password" if mode == "password" else "token")
    except ConfigError:  # reported when the gateway starts
        named = ""
    return tuple(filter(None, (named, TokenFile(home.root).read())))
