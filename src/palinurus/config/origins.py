"""To whom something is sent: scheme, host and port of an address. A secret is bound to it."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}


def origin_of(address: Any) -> str:
    """Such as `https://host:443`; the text itself when it names no host by itself; empty for what is no text."""
    if not isinstance(address, str):
        return ""
    text = address.strip()
    try:
        parts = urlsplit(text)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return text
    return f"{parts.scheme}://{parts.hostname}:{port}" if parts.hostname and "${" not in text else text
