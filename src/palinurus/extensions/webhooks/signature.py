"""Signatures of requests: HMAC-SHA256 of the raw body under a shared secret, as four products send them.

A signature proves who sent a body and, where it covers a time, when. What a header says besides is not covered.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from msgspec import Struct

from palinurus.extensions.webhooks.settings import SignatureOptions
from palinurus.gateway.protocol import Refused

WINDOW_SECONDS = 300  # how old a signed request may be, and how far a clock may be off
MOST_PARTS = 16  # of a header: Stripe sends one signature for each of its secrets


class SignatureScheme(Struct, frozen=True):
    """A header of `name=value` parts; `{time}` in `prefix` stands for the time stamp, and the body follows it."""

    header: str
    name: str  # of the parts that are signatures
    prefix: str = ""
    time_header: str = ""  # empty: the part `t` is the time


SCHEMES = {
    "palinurus": SignatureScheme("x-palinurus-signature", "v1", "{time}."),
    "stripe": SignatureScheme("stripe-signature", "v1", "{time}."),
    "slack": SignatureScheme("x-slack-signature", "v0", "v0:{time}:", "x-slack-request-timestamp"),
    "github": SignatureScheme("x-hub-signature-256", "sha256"),
}


class WrongSignature(Exception):
    """It counts as a guess."""


def signature_header(options: SignatureOptions) -> str:
    return options.header.lower() or SCHEMES[options.scheme].header


def verify_signature(
    options: SignatureOptions, secret: str, headers: Mapping[str, str], body: bytes, now_ms: int
) -> str:
    """The signature, in hexadecimal. Raises WrongSignature, and Refused for a missing or old one."""
    scheme, name = SCHEMES[options.scheme], signature_header(options)
    said = headers.get(name, "")
    if not said:
        raise Refused(401, "UNAUTHORIZED", f"the request is not signed: the header {name} is missing")
    parts = [tuple(part.strip().split("=", 1)) for part in said.split(",", MOST_PARTS)[:MOST_PARTS]]
    time = ""
    if scheme.prefix:
        times = [part[1] for part in parts if part[0] == "t" and len(part) == 2]
        time = headers.get(scheme.time_header, "") if scheme.time_header else next(iter(times), "")
        if not time.isascii() or not time.isdigit() or len(time) > 12:
            raise WrongSignature(f"the header {scheme.time_header or name} has no time stamp in seconds")
    right = sign(scheme.prefix.replace("{time}", time), secret, body)
    sent = [part[1].lower() for part in parts if part[0] == scheme.name and len(part) == 2]
    if not any(hmac.compare_digest(each.encode("utf-8", "replace"), right.encode()) for each in sent):
        raise WrongSignature("the signature is wrong")
    if time and abs(now_ms / 1000 - int(time)) > WINDOW_SECONDS:
        raise Refused(401, "UNAUTHORIZED", f"the request was not signed within the last {WINDOW_SECONDS} seconds")
    return right


def sign(prefix: str, secret: str, body: bytes) -> str:
    return hmac.new(secret.encode(), prefix.encode() + body, "sha256").hexdigest()
