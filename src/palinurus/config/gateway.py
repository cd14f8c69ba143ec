"""What a config may say about the gateway: where it listens, who may come in, which endpoints there are."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from palinurus.config.section import Secret, Section, names


class GatewayAuth(Section):
    foreign = names("allowTailscale trustedProxy rateLimit")

    mode: Literal["token", "password", "none", "trusted-proxy"] | None = Field(
        None,
        description="How clients prove who they are: token (default), password, or none, on loopback only. The gateway"
        " does not start with OpenClaw's trusted-proxy.",
    )
    token: Secret | None = Field(
        None, description="A token that may do everything. Unset: one is made and kept in the home."
    )
    password: Secret | None = Field(None, description="The same, for mode password.")


class Endpoint(Section):
    foreign = names("maxBodyBytes images files maxUrlParts maxImageParts maxTotalImageBytes")

    enabled: bool = Field(True, description="Whether it is served.")


class Endpoints(Section):
    chat_completions: Endpoint | None = Field(None, description="POST /v1/chat/completions. Default on.")
    responses: Endpoint | None = Field(None, description="POST /v1/responses. Default on.")


class HttpOptions(Section):
    foreign = names("securityHeaders")

    endpoints: Endpoints | None = Field(None, description="Which endpoints are served.")


class InvokeOptions(Section):
    """Which tools /tools/invoke reaches beyond or short of its own list."""

    allow: tuple[str, ...] = Field((), description="Tools taken off the built-in deny list.")
    deny: tuple[str, ...] = Field((), description="More tools that are never reached this way.")


class ControlUi(Section):
    foreign = names("enabled basePath root allowInsecureAuth dangerouslyDisableDeviceAuth")

    allowed_origins: tuple[str, ...] = Field((), description="Origins of web pages that may speak to the gateway.")


class GatewayOptions(Section):
    foreign = names(
        """mode reload remote tailscale tls nodes push channelHealthCheckMinutes handshakeTimeoutMs trustedProxies
        allowRealIpFallback webchat"""
    )

    port: int | None = Field(None, ge=0, le=65535, description="The port. Default 18790; 0 takes any.")
    bind: Literal["loopback", "lan", "custom", "auto", "tailnet"] | None = Field(
        None,
        description="Which addresses are listened on: loopback (default; auto means it too), lan or custom, which need"
        " authentication. The gateway does not start with OpenClaw's tailnet.",
    )
    custom_bind_host: str | None = Field(None, description="The address for bind custom.")
    allowed_hosts: tuple[str, ...] = Field(
        (), description="Further names under which the gateway is called, as in the Host header. Ours."
    )
    auth: GatewayAuth | None = Field(None, description="How clients prove who they are.")
    http: HttpOptions | None = Field(None, description="Which HTTP endpoints are served.")
    tools: InvokeOptions | None = Field(None, description="What /tools/invoke reaches.")
    control_ui: ControlUi | None = Field(None, description="Web pages that may speak to the gateway.")
