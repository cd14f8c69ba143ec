"""Where the gateway listens, how clients authenticate, and where traces of runs are sent."""

import ipaddress
from typing import Annotated, ClassVar, Literal

from msgspec.structs import replace

from palinurus.config.load import Config
from palinurus.config.section import Secret, Section, option
from palinurus.domain.errors import ConfigError

DEFAULT_PORT = 18790
Mode = Literal["token", "password", "none"]
Names = tuple[str, ...]


class GatewaySettings(Section, frozen=True):
    """Where the gateway listens and who may connect."""

    foreign: ClassVar = {
        "": """mode reload remote tailscale tls nodes push channelHealthCheckMinutes handshakeTimeoutMs trustedProxies
        allowRealIpFallback webchat""",
        "auth": "allowTailscale trustedProxy rateLimit",
        "http": "securityHeaders",
        "http.endpoints.chatCompletions": "maxBodyBytes images files maxUrlParts maxImageParts maxTotalImageBytes",
        "http.endpoints.responses": "maxBodyBytes images files maxUrlParts maxImageParts maxTotalImageBytes",
        "controlUi": "enabled basePath root allowInsecureAuth dangerouslyDisableDeviceAuth",
    }

    hosts: tuple[str, ...] = ()  # addresses to listen on; the first one must be free
    port: Annotated[int, option("The port; 0 takes any.", ge=0, le=65535)] = DEFAULT_PORT
    bind: Annotated[
        Literal["loopback", "lan", "custom", "auto", "tailnet"],
        option(
            "Which addresses are listened on: loopback (auto means it too), lan or custom, which need authentication."
            " The gateway does not start with OpenClaw's tailnet."
        ),
    ] = "loopback"
    mode: Mode = "token"
    names: Annotated[Names, option("Other host names of the gateway, as in the Host header.", "allowedHosts")] = ()
    origins: Annotated[
        Names,
        option("Origins of web pages of other sites that may call the gateway (CORS).", "controlUi.allowedOrigins"),
    ] = ()
    chat_completions: Annotated[
        bool, option("Whether POST /v1/chat/completions is served.", "http.endpoints.chatCompletions.enabled")
    ] = True
    responses: Annotated[bool, option("Whether POST /v1/responses is served.", "http.endpoints.responses.enabled")] = (
        True
    )
    messages: Annotated[bool, option("Whether POST /v1/messages is served.", "http.endpoints.messages.enabled")] = True
    invoke_allow: Annotated[
        Names, option("Tools taken off the built-in deny list of /tools/invoke.", "tools.allow")
    ] = ()
    invoke_deny: Annotated[Names, option("More tools that cannot be called this way.", "tools.deny")] = ()
    lan: bool = False  # the network uses TLS at a separate port
    secure_port: int = 0
    custom_host: Annotated[str, option("The address for bind custom.", "customBindHost")] = ""
    auth_mode: Annotated[
        Literal["token", "password", "none", "trusted-proxy"] | None,
        option(
            "How clients authenticate: token, password, or none, on loopback only. Unset: token; password where"
            " only that is set. The gateway does not start with OpenClaw's trusted-proxy.",
            "auth.mode",
        ),
    ] = None

    @property
    def plain_is_near(self) -> bool:
        """Returns whether only this machine can reach it without TLS."""
        return all(ipaddress.ip_address(host).is_loopback for host in self.hosts)

    @property
    def is_near(self) -> bool:
        """Returns whether only this machine can reach it."""
        return self.plain_is_near and not self.lan


class GatewaySecrets(Section, frozen=True):
    """The credentials of clients, separate from the settings, which are passed around."""

    token: Annotated[
        Secret | None, option("A token with all rights. Unset: one is created and stored in the home.")
    ] = None
    password: Annotated[Secret | None, option("The same, for mode password.")] = None


class OtelOptions(Section, frozen=True):
    """Traces of runs for an OpenTelemetry collector. Needs the extra `otel`."""

    foreign: ClassVar = {"": "protocol metrics logs captureContent flushIntervalMs"}

    enabled: Annotated[
        bool | None, option("Whether traces are sent. Unset: when endpoint or OTEL_EXPORTER_OTLP_ENDPOINT is set.")
    ] = None
    endpoint: Annotated[
        str, option("Address of the collector (OTLP over HTTP). Unset: OTEL_EXPORTER_OTLP_ENDPOINT.")
    ] = ""
    headers: Annotated[dict[str, Secret], option("HTTP headers that are sent with the traces.")] = {}
    service_name: Annotated[str, option("The service name in the traces.")] = "palinurus"
    traces: Annotated[bool, option("Whether traces of runs are sent.")] = True
    sample_rate: Annotated[float, option("The share of runs that is sent.", ge=0, le=1)] = 1.0


def gateway_settings(
    config: Config,
    *,
    port: int | None = None,
    bind: str | None = None,
    lan: bool = False,
    secure_port: int | None = None,
) -> GatewaySettings:
    """The gateway settings; command line options take precedence. Raises ConfigError for an unsafe combination.

    `lan`: the plain port is for this machine only, and the network uses TLS at the next port.
    """
    said = config.section(GatewaySettings)
    where = "loopback" if lan else bind or said.bind
    chosen = said.port if port is None else port
    beside = min(chosen + 1, 65_535) if chosen else 0
    settings = replace(
        said,
        hosts=_hosts(where, said.custom_host),
        port=chosen,
        bind=where,
        mode=_mode(said, config.section(GatewaySecrets)),
        lan=lan,
        secure_port=beside if secure_port is None else secure_port,
    )
    if settings.mode == "none" and not settings.is_near:
        where = "the network" if lan else settings.hosts[0]
        hint = "take gateway.auth.mode none out of the config, or bind to loopback"
        raise ConfigError(f"the gateway does not listen at {where} without authentication", hint=hint)
    return settings


def _hosts(bind: str, custom: str) -> tuple[str, ...]:
    if bind in ("loopback", "auto"):
        return "127.0.0.1", "::1"
    if bind == "lan":
        return ("0.0.0.0",)  # noqa: S104  # asked for, and never without authentication
    if bind != "custom":
        raise ConfigError(f"gateway.bind {bind} is not supported", hint="use loopback, lan or custom")
    try:
        return (str(ipaddress.ip_address(custom.strip("[]"))),)
    except ValueError:
        why = "gateway.bind custom needs gateway.customBindHost, an address"
        raise ConfigError(why, hint="such as 192.168.1.5") from None


def _mode(said: GatewaySettings, secrets: GatewaySecrets) -> Mode:
    if said.auth_mode == "trusted-proxy":
        raise ConfigError("gateway.auth.mode trusted-proxy is not supported", hint="use token or password")
    if said.auth_mode is None:
        return "token" if secrets.token is not None or secrets.password is None else "password"
    return said.auth_mode
