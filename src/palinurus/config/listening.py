"""Where the gateway listens and how it is entered: the config's words and the defaults, joined into one record."""

from __future__ import annotations

import ipaddress
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from palinurus.config.gateway import Endpoint, GatewayOptions
from palinurus.domain.errors import ConfigError

DEFAULT_PORT = 18790
Mode = Literal["token", "password", "none"]


class GatewaySettings(Struct, frozen=True):
    hosts: tuple[str, ...]  # addresses that are listened on; the first one must be free
    port: int
    bind: str
    mode: Mode
    names: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    chat_completions: bool = True
    responses: bool = True
    invoke_allow: tuple[str, ...] = ()
    invoke_deny: tuple[str, ...] = ()
    lan: bool = False  # the network reaches it too, by TLS at a port of its own
    secure_port: int = 0

    @property
    def plain_is_near(self) -> bool:
        """Whether only this machine can reach it without TLS."""
        return all(ipaddress.ip_address(host).is_loopback for host in self.hosts)

    @property
    def is_near(self) -> bool:
        """Whether only this machine can reach it."""
        return self.plain_is_near and not self.lan


def gateway_settings(
    options: GatewayOptions,
    *,
    port: int | None = None,
    bind: str | None = None,
    lan: bool = False,
    secure_port: int | None = None,
) -> GatewaySettings:
    """What the command line says wins. Raises ConfigError for what cannot be started safely.

    `lan`: the plain port is for this machine alone, and the network comes in by TLS at the next one.
    """
    where = "loopback" if lan else bind or options.bind or "loopback"
    endpoints, tools = options.http.endpoints if options.http is not None else None, options.tools
    settings = GatewaySettings(
        hosts=_hosts(where, options.custom_bind_host),
        port=next((each for each in (port, options.port) if each is not None), DEFAULT_PORT),
        bind=where,
        mode=_mode(options),
        names=options.allowed_hosts,
        origins=options.control_ui.allowed_origins if options.control_ui else (),
        chat_completions=_is_on(endpoints.chat_completions if endpoints is not None else None),
        responses=_is_on(endpoints.responses if endpoints is not None else None),
        invoke_allow=tools.allow if tools else (),
        invoke_deny=tools.deny if tools else (),
        lan=lan,
    )
    beside = min(settings.port + 1, 65_535) if settings.port else 0
    settings = replace(settings, secure_port=beside if secure_port is None else secure_port)
    if settings.mode == "none" and not settings.is_near:
        where = "the network" if lan else settings.hosts[0]
        raise ConfigError(
            f"the gateway does not listen at {where} without authentication",
            hint="take gateway.auth.mode none out of the config, or bind to loopback",
        )
    return settings


def _hosts(bind: str, custom: str | None) -> tuple[str, ...]:
    if bind in ("loopback", "auto"):
        return "127.0.0.1", "::1"
    if bind == "lan":
        return ("0.0.0.0",)  # noqa: S104  # asked for, and never without authentication
    if bind != "custom":
        raise ConfigError(f"gateway.bind {bind} is not known here", hint="use loopback, lan or custom")
    try:
        return (str(ipaddress.ip_address((custom or "").strip("[]"))),)
    except ValueError:
        raise ConfigError(
            "gateway.bind custom needs gateway.customBindHost, an address", hint="such as 192.168.1.5"
        ) from None


def _mode(options: GatewayOptions) -> Mode:
    auth = options.auth
    if auth is None or (auth.mode is None and (auth.token is not None or auth.password is None)):
        return "token"
    if auth.mode is None:
        return "password"
    if auth.mode == "trusted-proxy":
        raise ConfigError("gateway.auth.mode trusted-proxy is not known here", hint="use token or password")
    return auth.mode


def _is_on(endpoint: Endpoint | None) -> bool:
    return endpoint is None or endpoint.enabled
