"""How to sign in at a provider (OAuth 2), as the config says it."""

from __future__ import annotations

from pydantic import Field

from palinurus.config.section import Secret, Section


class OAuthOptions(Section):
    """Ours. What is left out is taken from the built-in table, where the provider is in it."""

    client_id: str | None = Field(None, description="The id under which you have registered a client there.")
    client_secret: Secret | None = Field(None, description="Its secret, where the provider gives one: text or ${NAME}.")
    authorize_url: str | None = Field(None, description="Where a browser is sent to sign in.")
    device_url: str | None = Field(None, description="Where a code for another device is asked for.")
    token_url: str | None = Field(None, description="Where tokens are given and renewed.")
    scopes: tuple[str, ...] | None = Field(None, description="What the sign-in may be used for.")
    redirect_port: int | None = Field(
        None, ge=1, le=65535, description="The port on 127.0.0.1 to which the browser comes back. Default any free one."
    )
