"""From a request to a message: its text, its session, where the reply goes. Then it is submitted like any other.

The text is text from outside (promise 18): whoever holds the secret of a webhook may speak to an agent, and not for its
owner. Nobody is there to approve a tool call.
"""

from __future__ import annotations

import hashlib
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from palinurus.config.agents import ThinkingLevel
from palinurus.dispatch.contacts import last_place
from palinurus.dispatch.routing import routing_table
from palinurus.dispatch.runs import Run
from palinurus.domain.envelope import Delivery, Inbound
from palinurus.domain.errors import BadRequest, NotOffered
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin, harmless
from palinurus.domain.tool import Restriction
from palinurus.extensions.webhooks.settings import LAST, WakeMode, WebhookMapping, WebhookSettings
from palinurus.extensions.webhooks.template import RenderedTemplate, TemplateValues, render_template
from palinurus.gateway.protocol import Refused
from palinurus.operations.services import Services
from palinurus.operations.table import Operation
from palinurus.runtime.extensions import LOADED

CHANNEL = "webhook"
HEARTBEAT_WAKE = "heartbeat.wake"  # the operation that stores an event for the next heartbeat
LONGEST_NAME = 80
RESERVED = ("subagent", "cron", "acp", "boot")  # sessions that belong to runs of their own
NO_COMMANDS = Restriction("webhook", "a command would see what is private to the owner", deny=("exec", "process"))
Seconds = Annotated[float, Meta(gt=0, le=1_000_000)]


class WakeCall(Struct, frozen=True, rename="camel"):
    """The body of POST /hooks/wake."""

    text: Annotated[str, Meta(min_length=1)]
    mode: WakeMode = "now"


class AgentCall(Struct, frozen=True, rename="camel"):
    """The body of POST /hooks/agent, and what becomes of a request by a mapping."""

    message: Annotated[str, Meta(min_length=1)]
    name: str = "agent"
    agent_id: str = ""
    session_key: str = ""
    model: str = ""
    thinking: ThinkingLevel | None = None
    timeout_seconds: Seconds | None = None
    deliver: bool = True
    channel: str = LAST
    to: str = ""
    idempotency_key: str = ""


class WebhookCall(Struct, frozen=True):
    """An authenticated call, ready to be submitted."""

    source: str  # the path of the webhook
    call: AgentCall
    idempotency_key: str
    by_request: bool = True  # whether the sender, and not the config, chose session and recipient


def call_of_mapping(mapping: WebhookMapping, values: TemplateValues) -> tuple[AgentCall, RenderedTemplate]:
    """What a mapping for the action agent makes of a request."""
    rendered = render_template(mapping.message_template, values)
    call = AgentCall(
        rendered.text,
        mapping.name or mapping.path,
        mapping.agent_id,
        render_template(mapping.session_key, values, _key_part).text,
        mapping.model,
        mapping.thinking,
        mapping.timeout_seconds,
        mapping.deliver,
        mapping.channel,
        mapping.to,
    )
    return call, rendered


def _key_part(value: str) -> str:
    """A value as part of a session key, whose form the mapping decides."""
    return "".join(char if char.isalnum() or char in "-_.@" else "-" for char in value)[:200]


def choose_session(services: Services, settings: WebhookSettings, wanted: WebhookCall) -> SessionKey:
    """Raises Refused for an agent or a session that the config does not allow, NotFound for an unknown agent."""
    call = wanted.call
    if call.session_key and wanted.by_request and not settings.allow_request_session_key:
        why = "a request may not name the session: hooks.allowRequestSessionKey is off"
        raise Refused(403, "FORBIDDEN", why)
    agent = call.agent_id.strip().lower() or services.agents.default
    fresh = hashlib.sha256(wanted.idempotency_key.encode("utf-8", "replace")).hexdigest()[:32]
    named = call.session_key or settings.default_session_key or f"hook:{fresh}"
    key = SessionKey.parse(named if named.lower().startswith("agent:") else f"agent:{agent}:{named}")
    if call.agent_id and key.agent != agent:
        raise BadRequest(
            f"the session {str(key)[:80]!r} does not belong to the agent {agent!r}", hint="send one of both"
        )
    if not settings.allows_agent(key.agent):
        raise Refused(403, "FORBIDDEN", f"webhooks may not reach the agent {key.agent[:80]!r}: hooks.allowedAgentIds")
    if not settings.allows_session(str(key)):
        why = f"webhooks may not use the session {str(key)[:80]!r}: hooks.allowedSessionKeyPrefixes"
        raise Refused(403, "FORBIDDEN", why)
    if key.kind in RESERVED:
        raise BadRequest(f"sessions of the kind {key.kind} accept no messages here", hint="name another session")
    return key


async def submit_call(services: Services, settings: WebhookSettings, wanted: WebhookCall) -> Run:
    """When this returns, the message is stored. Raises Refused and PalinurusErrors."""
    call, key = wanted.call, choose_session(services, settings, wanted)
    if call.to and key.is_private and wanted.by_request:
        raise Refused(403, "FORBIDDEN", "a request may not choose who gets the reply of the owner's own session")
    message = _inbound(wanted.source, call.name, call.message, wanted.idempotency_key, key)
    place = await _place(services, key.agent, call.channel, call.to) if call.deliver else None
    chosen = {"model": call.model, "thinking": call.thinking or "", "timeout_seconds": call.timeout_seconds}
    return await services.dispatcher.submit(replace(message, reply_to=place, **chosen))


async def wake_session(services: Services, source: str, text: str, mode: WakeMode, idempotency_key: str) -> str:
    """An event for the main session of the default agent: a run now, whose id is returned, or with the next heartbeat.

    When this returns, it is stored. Raises NotOffered when there is no heartbeat, and what submitting raises.
    """
    if not text.strip():
        raise BadRequest("the event is empty", hint="write a message")
    key = SessionKey.main(services.agents.default)
    if mode == "next-heartbeat":
        operation = LOADED.find_operation(HEARTBEAT_WAKE)
        if not isinstance(operation, Operation):
            raise NotOffered("there is no heartbeat that could take the event", hint="send it with mode now")
        said, sources = shown_text(source, text), (_source(source),)
        await operation(services, idempotency_key=idempotency_key, text=said, mode=mode, sources=sources)
        return ""
    message = _inbound(source, source, text, idempotency_key, key)
    place = await _place(services, key.agent)
    return (await services.dispatcher.submit(replace(message, reply_to=place))).id


def _inbound(source: str, name: str, text: str, idempotency_key: str, key: SessionKey) -> Inbound:
    if not text.strip():
        raise BadRequest("the message is empty", hint="the template found nothing in what was sent")
    return Inbound(
        shown_text(name, text),
        idempotency_key,
        session_key=str(key),
        channel=CHANNEL,
        sender=_source(source),
        origin=Origin.OUTSIDE,
        sources=(_source(source),),
        attended=False,
        restrictions=(NO_COMMANDS,) if key.is_private else (),
        plain=True,
    )


def _source(path: str) -> str:
    return f"{CHANNEL}:{path}"


def shown_text(name: str, text: str) -> str:
    """What the agent reads. The name may be the sender's, too."""
    shown = " ".join(harmless(name).replace("]", "").split())[:LONGEST_NAME]
    return f"[Webhook {shown}: sent by a program, not by your user; nobody can approve tool calls]\n{harmless(text)}"


async def _place(services: Services, agent: str, channel: str = LAST, to: str = "") -> Delivery | None:
    """Where the reply is sent; None: it stays in the session."""
    if (channel != LAST) != bool(to):
        raise BadRequest("a reply needs both a channel and a recipient, or neither", hint="send `channel` and `to`")
    if to:
        return Delivery(channel, to)
    last = await last_place(services.sessions, routing_table(services.config), agent)
    return last if last is not None and services.deliveries.has_sender(last.channel) else None
