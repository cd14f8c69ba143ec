"""Where a request goes, taken apart once: scheme, host, port, path. What is odd about an address is refused here.

Address parsers disagree about odd spellings, and guards are broken by such disagreement. So there is one parser, it
is strict, and the parts that it yields are the very parts that are looked up, connected to and sent.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from msgspec import Struct

from palinurus.domain.errors import AddressRefused

MAX_URL = 8_000
PORTS = {"http": 80, "https": 443}
_SAFE = "/%:@!$&'()*+,;=-._~"
_LABEL = r"(?!-)[a-z0-9_-]{1,63}(?<!-)"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


class Target(Struct, frozen=True):
    """A web address. `host` is a lower-case ASCII name, or a literal address without brackets."""

    scheme: str
    host: str
    port: int
    path: str  # with the query, percent-encoded

    @property
    def authority(self) -> str:
        """As the Host header has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"

    def join(self, location: str) -> Target:
        """Where a redirect leads. Raises AddressRefused."""
        try:
            return parse_target(urljoin(self.url, location.strip()))
        except ValueError:
            raise AddressRefused(f"{location[:200]!r} is no web address") from None


def parse_target(url: str) -> Target:
    """Take an address apart. Raises AddressRefused for what is none, or is one that nobody spells honestly."""
    url = url.strip()
    if len(url) > MAX_URL:
        raise AddressRefused(f"the address has {len(url):,} characters; {MAX_URL:,} are allowed")
    if "\\" in url or any(ord(each) < 32 or ord(each) == 127 for each in url):
        raise AddressRefused("the address holds a backslash or a control character", hint="write it without")
    parts = _split(url)
    if parts.scheme not in PORTS:
        raise AddressRefused(f"{_shown(url)!r} is no web address", hint="it begins with http:// or https://")
    if "@" in parts.netloc:
        raise AddressRefused("the address holds a user name or a password", hint="web_fetch sends no credentials")
    try:
        host, port = host_name(parts.hostname or ""), _port(parts)
    except ValueError:
        raise AddressRefused(f"{_shown(url)!r} is no web address: its host or port is malformed") from None
    return Target(parts.scheme, host, port, _path(parts))


def host_name(host: str) -> str:
    """The one spelling of a host that is used from here on. Raises ValueError for what is none, or is an odd one.

    Numbers that only some parsers take for an address (`2130706433`, `0x7f.1`, `0177.0.0.1`, `127.1`) are no hosts.
    """
    if "%" in host:  # a zone of this machine, or a disguise
        raise ValueError(host)
    if ":" in host:
        return str(IPv6Address(host))
    name = _ascii(host).lower().removesuffix(".")
    if len(name) > 253 or not _NAME.fullmatch(name):
        raise ValueError(host)
    return str(IPv4Address(name)) if _NUMBER.fullmatch(name.rpartition(".")[2]) else name


def _ascii(host: str) -> str:
    if host.isascii():
        return host
    import idna

    return idna.encode(host, uts46=True).decode("ascii")  # IDNAError is a ValueError; full-width digits become digits


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:  # half a bracket, a character that normalises to a delimiter
        raise AddressRefused(f"{_shown(url)!r} is no web address") from None


def _port(parts: SplitResult) -> int:
    if parts.port == 0:  # the HTTP library would take it for none
        raise ValueError(parts.netloc)
    return parts.port or PORTS[parts.scheme]


def _path(parts: SplitResult) -> str:
    path = quote(parts.path or "/", safe=_SAFE)
    return f"{path}?{quote(parts.query, safe=_SAFE + '?')}" if parts.query else path


def _shown(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"[:200]  # what stands before the @ may be a password
