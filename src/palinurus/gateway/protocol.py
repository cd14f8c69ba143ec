"""The frames of the WebSocket, in OpenClaw's shape: requests, responses and events as JSON objects.

A connection begins with the event `connect.challenge`; the client's first request must be `connect`, and is answered by
`hello-ok`. Events carry a `seq` that counts per connection: after a gap the client requests what it missed.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

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
