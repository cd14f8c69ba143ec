"""What comes in from a door and what goes out again, whatever network carried it."""

from __future__ import annotations

from msgspec import Struct

from palinurus.domain.messages import Image, Origin


class Inbound(Struct, frozen=True, omit_defaults=True):
    """One message on its way to an agent. `idempotency_key` makes sending it twice harmless."""

    text: str
    idempotency_key: str
    images: tuple[Image, ...] = ()
    session_key: str = ""  # when the sender says where; else bindings decide
    agent: str = ""
    channel: str = "cli"
    sender: str = "owner"
    origin: Origin = Origin.OWNER


class Delivery(Struct, frozen=True, omit_defaults=True):
    """Where replies of a session go: the last place its owner spoke from."""

    channel: str
    to: str = ""
    account: str = ""
    thread: str = ""
