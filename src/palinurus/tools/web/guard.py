"""Decides which addresses the web tools may reach: public ones, and those that the owner has named.

Address parsers disagree about unusual spellings, and attackers use such disagreement. So there is one strict parser,
and the parts that it yields (scheme, host, port, path) are exactly the parts that are resolved, connected to and sent.
A name is resolved here, once, and every resulting address is checked; if one is not public, all are refused. The client
connects to these addresses and never to the name, so that a name which changes at the next lookup gains nothing.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import quote, urljoin, urlsplit

from msgspec import Struct

from palinurus.domain.errors import AddressRefused, ConfigError, WebError
from palinurus.domain.messages import Origin
from palinurus.domain.tool import ToolOutput

MAX_URL = 8_000
PORTS = {"http": 80, "https": 443}
_SAFE = "/%:@!$&'()*+,;=-._~"
_LABEL = r"(?!-)[a-z0-9_-]{1,63}(?<!-)"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host, best first; none for an unknown name. May raise OSError."""

LOOKUPS = 4  # at the same time: a stalled name server blocks only these threads
MAX_ADDRESSES = 32
LOW_PORTS = frozenset({80, 81, 443})  # below 1024; mail, shells and name servers listen on the others
BAD_PORTS = frozenset({2049, 2375, 2376, 2379, 3306, 5432, 6000, 6379, 11211, 27017, *range(6665, 6670)})
"""Ports of files, containers, databases, displays and chats, some of which read an HTTP request as commands."""

_HINT = "only the owner can allow it, in tools.web.fetch.allowPrivate"
_PRIVATE_NAMES = (
    ".localhost", ".internal", ".local", ".localdomain", ".lan", ".home", ".home.arpa", ".intranet", ".corp"
)  # fmt: skip
_NOT_PUBLIC_4 = {
    IPv4Network(network): kind
    for kind, networks in {
        "this machine": "0.0.0.0/8",
        "private": "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16",
        "a provider's own network": "100.64.0.0/10",
        "loopback": "127.0.0.0/8",
        "a cloud's own service": "168.63.129.16/32",  # Azure's, at an address that looks public
        "link-local, where clouds keep their credentials": "169.254.0.0/16",
        "reserved": "192.0.0.0/24 240.0.0.0/4",
        "documentation": "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24",
        "a relay": "192.88.99.0/24",
        "benchmarks": "198.18.0.0/15",
        "multicast": "224.0.0.0/4",
    }.items()
    for network in networks.split()
}
_PUBLIC_6 = IPv6Network("2000::/3")  # all assigned addresses; loopback, mapped, local and multicast lie elsewhere
_NOT_PUBLIC_6 = {
    IPv6Network(network): kind
    for network, kind in {
        "2001::/23": "reserved, or a tunnel",  # with Teredo
        "2001:db8::/32": "documentation",
        "2002::/16": "a tunnel",  # 6to4: the embedded IPv4 address could be any
        "3fff::/20": "documentation",
    }.items()
}
_NAT64 = IPv6Network("64:ff9b::/96")  # NAT64: judged by the embedded IPv4 address


class WebAddress(Struct, frozen=True):
    """A web address. `host` is a lower-case ASCII name, or a literal address without brackets."""

    scheme: str
    host: str
    port: int
    path: str  # with the query, percent-encoded

    @property
    def authority(self) -> str:
        """Returns host and port as in the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"

    def join(self, location: str) -> WebAddress:
        """Returns the address that a redirect leads to. Raises AddressRefused."""
        try:
            return parse_address(urljoin(self.url, location.strip()))
        except ValueError:
            raise AddressRefused(f"{location[:200]!r} is not a web address") from None


def parse_address(url: str) -> WebAddress:
    """Parses an address. Raises AddressRefused for an invalid or unusual one."""
    url = url.strip()
    if len(url) > MAX_URL:
        raise AddressRefused(f"the address has {len(url):,} characters; {MAX_URL:,} are allowed")
    if "\\" in url or any(ord(each) < 32 or ord(each) == 127 for each in url):
        raise AddressRefused("the address holds a backslash or a control character", hint="write it without")
    try:
        parts = urlsplit(url)
    except ValueError:  # an unmatched bracket, or a character that normalises to a delimiter
        raise AddressRefused(f"{_shown(url)!r} is not a web address") from None
    if parts.scheme not in PORTS:
        raise AddressRefused(f"{_shown(url)!r} is not a web address", hint="it begins with http:// or https://")
    if "@" in parts.netloc:
        raise AddressRefused("the address holds a user name or a password", hint="web_fetch sends no credentials")
    try:
        host, port = host_name(parts.hostname or ""), PORTS[parts.scheme] if parts.port is None else parts.port
    except ValueError:
        host, port = "", 0
    if not port:  # the HTTP library would treat a port 0 as missing
        raise AddressRefused(f"{_shown(url)!r} is not a web address: its host or port is malformed")
    query = f"?{quote(parts.query, safe=_SAFE + '?')}" if parts.query else ""
    return WebAddress(parts.scheme, host, port, quote(parts.path or "/", safe=_SAFE) + query)


def host_name(host: str) -> str:
    """Returns the one spelling of a host that is used from here on. Raises ValueError for an invalid or unusual one.

    Numbers that only some parsers read as an address (`2130706433`, `0x7f.1`, `0177.0.0.1`, `127.1`) are no hosts.
    """
    if "%" in host:  # a zone of this machine, or a disguise
        raise ValueError(host)
    if ":" in host:
        return str(IPv6Address(host))
    if not host.isascii():
        import idna

        # IDNAError is a ValueError; full-width digits become digits.
        host = idna.encode(host, uts46=True).decode("ascii")
    name = host.lower().removesuffix(".")
    if len(name) > 253 or not _NAME.fullmatch(name):
        raise ValueError(host)
    return str(IPv4Address(name)) if _NUMBER.fullmatch(name.rpartition(".")[2]) else name


def _shown(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"[:200]  # the part before the @ may be a password


def why_not_public(address: IPv4Address | IPv6Address) -> str:
    """Returns the kind of a non-public address; empty for a public one.

    We keep our own tables, because the standard library's idea of global changed between versions.
    """
    if isinstance(address, IPv4Address):
        kinds = (kind for network, kind in _NOT_PUBLIC_4.items() if address in network)
        return next(kinds, "" if address.is_global else "not public")
    if address in _NAT64:
        return why_not_public(IPv4Address(int(address) & 0xFFFF_FFFF))
    if address not in _PUBLIC_6 or address.scope_id:
        return "not public"
    return next((kind for network, kind in _NOT_PUBLIC_6.items() if address in network), "")


def system_resolver() -> Resolver:
    """Resolves names with the machine's resolver, in its own threads."""
    threads = ThreadPoolExecutor(LOOKUPS, thread_name_prefix="lookup")

    async def resolve(host: str, port: int) -> Sequence[str]:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(threads, partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM))
        return [str(sockaddr[0]) for *_, sockaddr in found]

    return resolve


class AddressGuard:
    """Checks hosts. `allow_private` names exempt hosts, or host:port; raises ConfigError for an invalid entry."""

    def __init__(self, allow_private: Sequence[str] = (), *, resolver: Resolver | None = None) -> None:
        self._exempt = frozenset(_exemption(entry) for entry in allow_private)
        self._resolve = resolver or system_resolver()

    async def addresses(self, host: str, port: int) -> tuple[str, ...]:
        """Returns the addresses to connect to. Raises AddressRefused, or WebError for an unknown name."""
        exempt = bool({(host, port), (host, None)} & self._exempt)
        if not exempt and (port in BAD_PORTS or (port < 1024 and port not in LOW_PORTS)):
            raise AddressRefused(f"port {port} is not a web server port", hint=_HINT)
        if not exempt and f".{host}".endswith(_PRIVATE_NAMES):
            raise AddressRefused(f"{host} is a name of the local network", hint=_HINT)
        found = await self._look_up(host, port)
        for each in found:
            if not exempt and (kind := why_not_public(each)):
                shown = f"{host} is" if host == str(each) else f"{host} resolves to {each}, which is"
                raise AddressRefused(f"{shown} not a public address ({kind})", hint=_HINT)
        return tuple(map(str, found))

    async def _look_up(self, host: str, port: int) -> list[IPv4Address | IPv6Address]:
        try:
            return [ip_address(host)]
        except ValueError:
            pass  # not a literal address: a name
        try:
            found = [ip_address(each) for each in (await self._resolve(host, port))[:MAX_ADDRESSES]]
        except (OSError, UnicodeError) as error:  # including gaierror
            raise WebError(f"{host} cannot be looked up: {error}", hint="check the spelling") from None
        except ValueError as error:
            raise AddressRefused(f"{host} resolves to an invalid address: {error}") from None
        if not found:
            raise WebError(f"{host} has no address", hint="check the spelling")
        return list(dict.fromkeys(found))


def _exemption(entry: str) -> tuple[str, int | None]:
    host, port = _parted(entry.strip())
    try:
        return host_name(host), int(port) if port else None
    except ValueError:
        hint = 'write "host" or "host:port", such as "wiki.lan" or "127.0.0.1:8080"'
        raise ConfigError(f"tools.web.fetch.allowPrivate names {entry!r}, which is not a host", hint=hint) from None


def _parted(entry: str) -> tuple[str, str]:
    if entry.startswith("["):
        host, _, port = entry[1:].partition("]")
        return host, port.removeprefix(":")
    host, _, port = entry.partition(":")
    return (host, port) if ":" not in port else (entry, "")


def outside_output(text: str, host: str, *, is_error: bool = False) -> ToolOutput:
    """Returns a result of the web tools. All their text is from outside."""
    return ToolOutput(text, is_error=is_error, origin=Origin.OUTSIDE, sources=(f"host:{host}",) if host else ())
