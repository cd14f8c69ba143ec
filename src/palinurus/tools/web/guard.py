"""Which addresses the web tools may reach: public ones, and what the owner has named.

A name is looked up here, once, and every address that it leads to is judged; one that is not public spoils them all.
Whoever connects is handed these addresses and never the name, so that a name which points elsewhere at the next
look-up gains nothing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from palinurus.domain.errors import AddressRefused, ConfigError, WebError
from palinurus.tools.web.target import host_name

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host, best first; none for a name that leads nowhere. May raise OSError."""

LOOKUPS = 4  # at the same time: a name server that stalls costs these threads and no others
MAX_ADDRESSES = 32
LOW_PORTS = frozenset({80, 81, 443})  # below 1024; mail, shells and name servers listen on the others
BAD_PORTS = frozenset({2049, 2375, 2376, 2379, 3306, 5432, 6000, 6379, 11211, 27017, *range(6665, 6670)})
"""Files, containers, databases, displays and chats, for some of which an HTTP request is a line of commands."""

_HINT = "only the owner can allow it, in tools.web.fetch.allowPrivate"
_PRIVATE_NAMES = ("localhost", "internal", "local", "localdomain", "lan", "home", "home.arpa", "intranet", "corp")
_NOT_PUBLIC_4 = {
    IPv4Network(network): kind
    for network, kind in {
        "0.0.0.0/8": "this machine",
        "10.0.0.0/8": "private",
        "100.64.0.0/10": "a provider's own network",
        "127.0.0.0/8": "loopback",
        "168.63.129.16/32": "a cloud's own service",  # Azure's, at an address that looks public
        "169.254.0.0/16": "link-local, where clouds keep their credentials",
        "172.16.0.0/12": "private",
        "192.0.0.0/24": "reserved",
        "192.0.2.0/24": "documentation",
        "192.88.99.0/24": "a relay",
        "192.168.0.0/16": "private",
        "198.18.0.0/15": "benchmarks",
        "198.51.100.0/24": "documentation",
        "203.0.113.0/24": "documentation",
        "224.0.0.0/4": "multicast",
        "240.0.0.0/4": "reserved",
    }.items()
}
_PUBLIC_6 = IPv6Network("2000::/3")  # all that is given out; loopback, mapped, local and multicast lie elsewhere
_NOT_PUBLIC_6 = {
    IPv6Network(network): kind
    for network, kind in {
        "2001::/23": "reserved, or a tunnel",  # with Teredo
        "2001:db8::/32": "documentation",
        "2002::/16": "a tunnel",  # 6to4: the IPv4 address inside could be any
        "3fff::/20": "documentation",
    }.items()
}
_NAT64 = IPv6Network("64:ff9b::/96")  # how a network without IPv4 reaches it: judged by the address inside


def why_not_public(address: IPv4Address | IPv6Address) -> str:
    """What kind of address it is; empty for a public one.

    The tables are our own because what the standard library calls global has changed from version to version.
    """
    if isinstance(address, IPv4Address):
        kinds = (kind for network, kind in _NOT_PUBLIC_4.items() if address in network)
        return next(kinds, "" if address.is_global else "not public")
    if address in _NAT64:
        return why_not_public(IPv4Address(int(address) & 0xFFFF_FFFF))
    if address not in _PUBLIC_6 or address.scope_id:
        return "not public"
    return next((kind for network, kind in _NOT_PUBLIC_6.items() if address in network), "")


class SystemResolver:
    """Asks the machine's resolver, in threads of its own."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(LOOKUPS, thread_name_prefix="lookup")

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        found = await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
        return [str(sockaddr[0]) for *_, sockaddr in found]


class Guard:
    """Judges hosts. `allow_private` names hosts, or host:port, that are exempt; ConfigError for what is neither."""

    def __init__(self, allow_private: Sequence[str] = (), *, resolver: Resolver | None = None) -> None:
        self._exempt = frozenset(_exemption(entry) for entry in allow_private)
        self._resolve = resolver or SystemResolver()

    async def addresses(self, host: str, port: int) -> tuple[str, ...]:
        """The addresses to connect to, and no others. Raises AddressRefused, or WebError for a name that is unknown."""
        exempt = bool({(host, port), (host, None)} & self._exempt)
        if not exempt:
            _check_port(port)
            _check_name(host)
        found = await self._look_up(host, port)
        if not exempt:
            for each in found:
                _check_address(host, each)
        return tuple(str(each) for each in found)

    async def _look_up(self, host: str, port: int) -> list[IPv4Address | IPv6Address]:
        try:
            return [ip_address(host)]
        except ValueError:
            pass  # a name, then
        try:
            found = [ip_address(each) for each in (await self._resolve(host, port))[:MAX_ADDRESSES]]
        except (OSError, UnicodeError) as error:  # gaierror among them
            raise WebError(f"{host} cannot be looked up: {error}", hint="check the spelling") from None
        except ValueError as error:
            raise AddressRefused(f"{host} leads to something that is no address: {error}") from None
        if not found:
            raise WebError(f"{host} has no address", hint="check the spelling")
        return list(dict.fromkeys(found))


def _check_port(port: int) -> None:
    if port in BAD_PORTS or (port < 1024 and port not in LOW_PORTS):
        raise AddressRefused(f"port {port} is no port of a web server", hint=_HINT)


def _check_name(host: str) -> None:
    for name in _PRIVATE_NAMES:
        if host == name or host.endswith(f".{name}"):
            raise AddressRefused(f"{host} is a name inside the own network", hint=_HINT)


def _check_address(host: str, address: IPv4Address | IPv6Address) -> None:
    if kind := why_not_public(address):
        shown = f"{host} is" if host == str(address) else f"{host} leads to {address}, which is"
        raise AddressRefused(f"{shown} not a public address ({kind})", hint=_HINT)


def _exemption(entry: str) -> tuple[str, int | None]:
    host, port = _parted(entry.strip())
    try:
        return host_name(host), int(port) if port else None
    except ValueError:
        raise ConfigError(
            f"tools.web.fetch.allowPrivate names {entry!r}, which is no host",
            hint='write "host" or "host:port", such as "wiki.lan" or "127.0.0.1:8080"',
        ) from None


def _parted(entry: str) -> tuple[str, str]:
    if entry.startswith("["):
        host, _, port = entry[1:].partition("]")
        return host, port.removeprefix(":")
    if entry.count(":") > 1:
        return entry, ""
    host, _, port = entry.partition(":")
    return host, port
