"""The cookie of a browser that has come in: when it counts, what it is called, how it is set.

A browser sends its cookies with whatever a page anywhere makes it ask, so a cookie counts only where the browser itself
says that one of our own pages asks: by an Origin that is the very address that was asked. It is good at the WebSocket
and at the page's own routes, and nowhere else; programs have tokens.
"""

from __future__ import annotations

from starlette.requests import HTTPConnection

from palinurus.gateway.door.guard import Place

DAYS = 30


def is_own_page(connection: HTTPConnection, place: Place) -> bool:
    """Whether a page of ours asks. Host and Origin were checked before; this one is stricter."""
    return place.is_own(connection.headers, tls=connection.url.scheme in ("https", "wss"))


def cookie_of(connection: HTTPConnection, place: Place) -> str:
    """The secret in the cookie, where it counts; else nothing."""
    if not is_own_page(connection, place):
        return ""
    return connection.cookies.get(cookie_name(connection.headers["origin"]), "")


def cookie_name(origin: str) -> str:
    """Cookies know no ports: two gateways at one address would overwrite each other's."""
    scheme, _, host = origin.lower().partition("://")
    port = host.rpartition(":")[2]
    name = f"pal-{port}" if port.isdigit() else "pal"
    return f"__Host-{name}" if scheme == "https" else name  # which browsers take from a secure page of this host only


def set_cookie(origin: str, secret: str) -> str:
    """The header that gives it to the browser; without a secret, that takes it away."""
    lives = DAYS * 86_400 if secret else 0
    secure = "; Secure" if origin.lower().startswith("https:") else ""
    return f"{cookie_name(origin)}={secret}; Max-Age={lives}; Path=/; HttpOnly; SameSite=Strict{secure}"
