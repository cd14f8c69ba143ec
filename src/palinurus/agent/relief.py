"""What the loop asks when a conversation grows too long for its window."""

from __future__ import annotations

from typing import Protocol

from palinurus.providers.provider import ModelRequest


class Relief(Protocol):
    """Makes room in the window."""

    async def before(self, request: ModelRequest) -> ModelRequest | str | None:
        """Asked before each call: a smaller request to send instead, None to send it as it is.

        Words say why it cannot be sent at all.
        """

    async def after(self, request: ModelRequest) -> ModelRequest | str | None:
        """Asked when the provider has refused it as too long: a smaller one; None or words when there is none."""


class NoRelief:
    """Implements Relief: sends everything as it is."""

    async def before(self, request: ModelRequest) -> None:
        return None

    async def after(self, request: ModelRequest) -> None:
        return None
