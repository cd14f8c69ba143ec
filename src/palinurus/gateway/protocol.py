"""The frames of the WebSocket, in OpenClaw's shape: requests, responses and events as JSON objects.

A connection begins with the event `connect.challenge`; the client's first request must be `connect`, and is answered by
`hello-ok`. Events carry a `seq` that counts per connection: after a gap the client requests what it missed.

A refusal or an error has one shape in a response frame, and one as a problem of HTTP (RFC 9457).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from palinurus.domain import errors
from palinurus.domain.errors import MissingScope, PalinurusError

PROTOCOL = 4
OLDEST_PROTOCOL = 3
MAX_FRAME = 25 * 1024 * 1024
MAX_FIRST_FRAME = 64 * 1024
MAX_BUFFERED = 50 * 1024 * 1024
TICK_MS = 15_000
CONNECT_SECONDS = 10.0

NOTHING = msgspec.Raw(b"{}")


class RequestFrame(Struct, frozen=True, tag_field="type", tag="req"):
    id: str
    method: str
    params: msgspec.Raw = NOTHING
    idempotency_key: str | None = field(name="idempotencyKey", default=None)  # OpenClaw's clients: among the parameters


class ErrorShape(Struct, frozen=True, rename="camel", omit_defaults=True):
    """`code` is for programs: INVALID_REQUEST, UNAUTHORIZED, FORBIDDEN, NOT_FOUND, UNAVAILABLE, …"""

    code: str
    message: str
    details: dict[str, Any] | None = None
    retryable: bool = False
    retry_after_ms: int | None = None


class ResponseFrame(Struct, frozen=True, tag_field="type", tag="res", omit_defaults=True):
    id: str
    ok: bool
    payload: Any = UNSET
    error: ErrorShape | UnsetType = UNSET


class EventFrame(Struct, frozen=True, tag_field="type", tag="event", omit_defaults=True):
    event: str
    payload: Any
    seq: int | UnsetType = UNSET


class Client(Struct, frozen=True, rename="camel", omit_defaults=True):
    id: str = ""
    version: str = ""
    platform: str = ""
    mode: str = ""
    display_name: str = ""
    instance_id: str = ""
    device_family: str = ""


class ClientAuth(Struct, frozen=True, rename="camel", omit_defaults=True):
    token: str = ""
    password: str = ""
    device_token: str = ""
    bootstrap_token: str = ""


class Device(Struct, frozen=True, rename="camel"):
    """Proof that the client holds the key of a device: an Ed25519 signature over `access.signed_text`."""

    id: str
    public_key: str  # base64url of the raw key
    signature: str
    signed_at: int
    nonce: str = ""


class Connect(Struct, frozen=True, rename="camel", omit_defaults=True):
    min_protocol: int = OLDEST_PROTOCOL
    max_protocol: int = PROTOCOL
    client: Client = Client()
    role: str = "operator"
    scopes: tuple[str, ...] = ()
    caps: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    permissions: dict[str, Any] = {}
    auth: ClientAuth = ClientAuth()
    locale: str = ""
    user_agent: str = ""
    device: Device | None = None


class ServerInfo(Struct, frozen=True, rename="camel"):
    version: str
    conn_id: str


class Features(Struct, frozen=True):
    methods: tuple[str, ...]
    events: tuple[str, ...]
    capabilities: tuple[str, ...] = ()


class GrantedAccess(Struct, frozen=True, rename="camel", omit_defaults=True):
    role: str
    scopes: tuple[str, ...]
    device_token: str = ""


class Limits(Struct, frozen=True, rename="camel"):
    max_payload: int = MAX_FRAME
    max_buffered_bytes: int = MAX_BUFFERED
    tick_interval_ms: int = TICK_MS


class HelloOk(Struct, frozen=True):
    protocol: int
    server: ServerInfo
    features: Features
    snapshot: dict[str, Any]
    auth: GrantedAccess
    policy: Limits = Limits()
    type: Literal["hello-ok"] = "hello-ok"


class Refused(Exception):
    """A refused request or client, with its HTTP status and a code for programs."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        retry_after: float | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.retry_after = retry_after
        self.details = details


# The first match decides. HTTP status, code for programs, whether trying again may help.
SHAPES: tuple[tuple[type[PalinurusError], int, str, bool], ...] = (
    (errors.UnknownOperation, 404, "UNKNOWN_METHOD", False),
    (errors.Stale, 409, "INVALID_REQUEST", False),
    (errors.BadRequest, 400, "INVALID_REQUEST", False),
    (MissingScope, 403, "FORBIDDEN", False),
    (errors.NotOffered, 501, "UNAVAILABLE", False),
    (errors.NotFound, 404, "NOT_FOUND", False),
    (errors.ConfigError, 409, "INVALID_CONFIG", False),
    (errors.QueueFull, 429, "QUEUE_FULL", True),
    (errors.WaitTimeout, 504, "TIMEOUT", True),
    (errors.WorkspaceError, 409, "WORKSPACE", False),
    (errors.StorageError, 507, "STORAGE", True),
    (errors.HomeHeld, 503, "UNAVAILABLE", True),
    (errors.ProviderError, 502, "PROVIDER", True),
    (PalinurusError, 500, "FAILED", False),
)


# Errors that a program may have to distinguish within one code.
DETAILS: dict[type[PalinurusError], str] = {
    errors.Stale: "STALE",
    errors.NotConfirmed: "NOT_CONFIRMED",
    errors.NotOffered: "NOT_IMPLEMENTED",
    MissingScope: "MISSING_SCOPE",
}


def _shape(error: PalinurusError) -> tuple[int, str, bool]:
    return next((status, code, again) for kind, status, code, again in SHAPES if isinstance(error, kind))


def error_shape(error: PalinurusError | Refused) -> ErrorShape:
    if isinstance(error, Refused):
        wait = None if error.retry_after is None else round(error.retry_after * 1000)
        return ErrorShape(error.code, error.message, error.details, retryable=wait is not None, retry_after_ms=wait)
    _, code, again = _shape(error)
    details = {"code": DETAILS.get(type(error), ""), "hint": error.hint}
    if isinstance(error, MissingScope):
        details["missingScope"] = f"operator.{error.scope}"
    return ErrorShape(code, error.message, {name: value for name, value in details.items() if value} or None, again)


class Problem(Struct, frozen=True, omit_defaults=True):
    """An error as in RFC 9457."""

    type: str
    title: str
    status: int
    code: str
    detail: str = ""


def problem(error: PalinurusError | Refused) -> Problem:
    if isinstance(error, Refused):
        return Problem("about:blank", error.message, error.status, error.code)
    status, code, _ = _shape(error)
    return Problem("about:blank", error.message, status, code, error.hint)
