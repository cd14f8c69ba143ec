"""Which webhooks there are, who may call them, and what becomes of a call."""

import re
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from palinurus.config.agents import ThinkingLevel
from palinurus.config.section import Secret, Section, option
from palinurus.extensions.webhooks.template import has_references, parse_template

WakeMode = Literal["now", "next-heartbeat"]
SchemeName = Literal["palinurus", "github", "slack", "stripe"]
OWN_PATHS = ("wake", "agent")  # they need no mapping
ANY = "*"
LAST = "last"
_OF_WEBHOOKS = re.compile(r"(?:agent:[^:{]*:)?hook:")  # sessions that values of a request may choose
_PATH = re.compile(r"[\w.~-]+(?:/[\w.~-]+)*")


def _check_base(said: str) -> None:
    if not said.startswith("/") or not _PATH.fullmatch(said.strip("/")):
        raise ValueError("should be a path such as /hooks, and not / itself")


class SignatureOptions(Section, frozen=True):
    """Senders sign each request with a secret instead of sending the hook token."""

    secret: Annotated[Secret, option("The secret that the sender shares.")]
    scheme: Annotated[
        SchemeName,
        option("Whose way of signing: HMAC-SHA256 of the body, with a time stamp except for GitHub's."),
    ] = "palinurus"
    header: Annotated[str, option("The header with the signature. Unset: that of the scheme.")] = ""


class WebhookMatch(Section, frozen=True):
    """Which requests a mapping is for."""

    path: Annotated[str, option("The path after hooks.path. Unset: the id of the mapping.")] = ""
    source: Annotated[str, option("Only for payloads whose `source` is this.")] = ""


class WebhookMapping(Section, frozen=True):
    """One webhook: what becomes of a request at its path."""

    foreign: ClassVar = {"": "transform allowUnsafeExternalContent"}

    id: Annotated[str, option("Its name.")] = ""
    match: Annotated[WebhookMatch, option("Which requests are meant.")] = WebhookMatch()
    action: Annotated[
        Literal["agent", "wake"], option("agent: a run in a session of its own; wake: an event for the main session.")
    ] = "agent"
    wake_mode: Annotated[WakeMode, option("For wake: at once, or with the next heartbeat.")] = "now"
    name: Annotated[str, option("What the agent is told it is called. Unset: its path.")] = ""
    agent_id: Annotated[str, option("The agent. Unset: the default agent.")] = ""
    session_key: Annotated[
        str,
        option(
            "The session, such as hook:issues or hook:issue:{{issue.number}}. Unset: a new one for each request.",
            check=parse_template,
        ),
    ] = ""
    message_template: Annotated[
        str, option("For agent: the message, with paths such as {{issue.title}}.", check=parse_template)
    ] = "{{body}}"
    text_template: Annotated[str, option("For wake: the text of the event.", check=parse_template)] = "{{body}}"
    idempotency_template: Annotated[
        str,
        option(
            "What makes a request the same as an earlier one, such as {{id}}. Unset: the header Idempotency-Key"
            " or X-GitHub-Delivery, or the signature.",
            check=parse_template,
        ),
    ] = ""
    model: Annotated[str, option("The model of the run. Unset: the agent's.")] = ""
    thinking: Annotated[ThinkingLevel | None, option("How much it thinks. Unset: as the agent's settings say.")] = None
    timeout_seconds: Annotated[float | None, option("Seconds that the run may take.", gt=0)] = None
    deliver: Annotated[bool, option("Whether the reply is sent to a channel.")] = True
    channel: Annotated[str, option("The channel of the reply; last: where the owner wrote last.")] = LAST
    to: Annotated[str, option("The recipient of the reply, for a named channel.")] = ""
    rate_limit_per_minute: Annotated[int | None, option("As hooks.rateLimitPerMinute.", ge=1)] = None
    signature: Annotated[
        SignatureOptions | None, option("Set: requests are signed, and the hook token is not accepted here.")
    ] = None

    @property
    def path(self) -> str:
        return (self.match.path or self.id).strip("/")

    def __post_init__(self) -> None:
        if not _PATH.fullmatch(self.path):
            raise ValueError("needs an id or a match.path of letters, digits, - . _ ~ and /")
        if self.path in OWN_PATHS:
            raise ValueError(f"cannot have the path {self.path}, which is there without a mapping")
        if (self.channel != LAST) != bool(self.to):
            raise ValueError("needs both a channel and a recipient (to), or neither")
        if has_references(self.session_key) and not _OF_WEBHOOKS.match(self.session_key):
            raise ValueError("has a sessionKey with {{…}} that does not begin with hook:")


PRESETS = {
    "gmail": WebhookMapping(
        id="gmail",
        name="Gmail",
        session_key="hook:gmail:{{messages[0].id}}",
        message_template="New email from {{messages[0].from}}\nSubject: {{messages[0].subject}}\n"
        "{{messages[0].snippet}}\n{{messages[0].body}}",
    )
}


class WebhookSettings(Section, frozen=True):
    """Webhooks: other programs send messages to agents over HTTP."""

    foreign: ClassVar = {"": "internal gmail transformsDir"}

    enabled: Annotated[bool, option("Whether the gateway serves webhooks. Takes effect when it starts.")] = False
    base: Annotated[str, option("Where they are. Takes effect when the gateway starts.", "path", check=_check_base)] = (
        "/hooks"
    )
    token: Annotated[Secret | None, option("What senders authenticate with. It must not be the gateway's token.")] = (
        None
    )
    max_body_bytes: Annotated[int, option("Bytes of a request's body.", ge=1024, le=16 * 1024 * 1024)] = 256 * 1024
    rate_limit_per_minute: Annotated[int, option("Requests that one webhook accepts in a minute.", ge=1)] = 60
    default_session_key: Annotated[
        str, option("The session of requests that name none. Unset: a new one for each.")
    ] = ""
    allow_request_session_key: Annotated[bool, option("Whether POST /hooks/agent may name the session.")] = False
    allowed_session_key_prefixes: Annotated[
        tuple[str, ...], option("What a session must begin with, such as hook:. Unset: anything.")
    ] = ()
    allowed_agent_ids: Annotated[tuple[str, ...], option("Agents that may be reached, by id; * for every one.")] = (
        ANY,
    )
    presets: Annotated[tuple[Literal["gmail"], ...], option("Mappings that are there by name.")] = ()
    mappings: Annotated[tuple[WebhookMapping, ...], option("Webhooks of your own.")] = ()

    @property
    def all_mappings(self) -> tuple[WebhookMapping, ...]:
        return (*self.mappings, *(PRESETS[name] for name in self.presets))

    def at_path(self, path: str) -> tuple[WebhookMapping, ...]:
        return tuple(each for each in self.all_mappings if each.path == path)

    def secrets(self) -> Iterator[tuple[str, Secret]]:
        """All of them, each with its place in the config."""
        if self.token:
            yield "hooks.token", self.token
        for index, each in enumerate(self.mappings):
            if each.signature is not None:
                yield f"hooks.mappings[{index}].signature.secret", each.signature.secret

    def __post_init__(self) -> None:
        if not self.enabled:
            return
        if not self.token and not self.all_mappings:
            raise ValueError("webhooks need a secret: set hooks.token")
        for each in self.all_mappings:
            if each.signature is None and not self.token:
                raise ValueError(f"the webhook {each.path} has no secret: set hooks.token, or signature in its mapping")
            if each.signature is not None and not each.signature.secret:
                raise ValueError(f"the webhook {each.path} has an empty secret")
            if any(other.signature != each.signature for other in self.at_path(each.path)):
                raise ValueError(f"all mappings of the path {each.path} need the same signature")
            if each.session_key and not has_references(each.session_key):
                self._check_prefix(each.session_key)
        if self.default_session_key:
            self._check_prefix(self.default_session_key)

    def _check_prefix(self, key: str) -> None:
        if not self.allows_session(key):
            raise ValueError(f"the session {key} does not begin as hooks.allowedSessionKeyPrefixes says")

    def allows_session(self, key: str) -> bool:
        """`key` is a whole key, or what follows the agent in one."""
        bare = re.sub(r"^agent:[^:]*:", "", key.strip().lower())
        prefixes = tuple(each.strip().lower() for each in self.allowed_session_key_prefixes)
        return not prefixes or key.strip().lower().startswith(prefixes) or bare.startswith(prefixes)

    def allows_agent(self, agent: str) -> bool:
        return ANY in self.allowed_agent_ids or agent in (each.strip().lower() for each in self.allowed_agent_ids)
