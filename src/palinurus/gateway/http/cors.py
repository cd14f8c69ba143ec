"""What a browser needs before a page of another site may call us: for origins of gateway.controlUi.allowedOrigins.

Before a request with a token a browser sends one of its own (a preflight), without any credential, and reads from the
answer what the page may send. The page's request follows, and is checked like any other. Cookies are not allowed: they
count only for our own pages, and a token in a header says more.
"""

from __future__ import annotations

import re

from starlette.datastructures import Headers

METHODS = b"GET, POST, DELETE"
SHOWN = b"retry-after, x-request-id, x-should-retry, request-id"  # headers that a page may read besides the usual ones
SECONDS = b"600"  # that a browser may remember the answer
MOST_NAMES = 64  # of headers; clients of OpenAI send about a dozen
_NAME = re.compile(r"[A-Za-z0-9-]{1,64}")
Raw = list[tuple[bytes, bytes]]


def is_preflight(method: str, headers: Headers) -> bool:
    return method == "OPTIONS" and "access-control-request-method" in headers


def allow_origin(origin: str) -> Raw:
    """The headers by which a browser shows the answer to its page."""
    named = origin.encode("latin-1")
    return [
        (b"access-control-allow-origin", named),
        (b"access-control-expose-headers", SHOWN),
        (b"vary", b"Origin"),
    ]


def allow_request(headers: Headers) -> Raw:
    """What the page may send: any header that it asks for. A header grants nothing; the token in it does."""
    asked = headers.get("access-control-request-headers", "")[:4_096].split(",")[:MOST_NAMES]
    names = [name.strip() for name in asked if _NAME.fullmatch(name.strip())]
    answer = [
        (b"access-control-allow-methods", METHODS),
        (b"access-control-allow-headers", ", ".join(names).encode()),
        (b"access-control-max-age", SECONDS),
    ]
    if headers.get("access-control-request-private-network") == "true":  # a public page that calls this machine
        answer.append((b"access-control-allow-private-network", b"true"))
    return answer
