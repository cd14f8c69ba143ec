"""Any server that speaks the Anthropic Messages wire."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping

from palinurus.domain.clock import Clock
from palinurus.providers.provider import ModelRequest, ReplyEvent
from palinurus.providers.wires.anthropic_reply import AnthropicReply
from palinurus.providers.wires.anthropic_wire import WIRE, to_anthropic
from palinurus.providers.wires.http import IDLE_SECONDS, ModelServer, Post

VERSION = "2023-06-01"
OAUTH_BETA = "oauth-2025-04-20"
OAUTH_PREFIX = "sk-ant-oat"
CLAUDE_WINDOW = 200_000  # the least that a Claude model has
UNKNOWN_WINDOW = 32_000


class AnthropicProvider:
    """Streams replies from one base URL, given with or without `/v1`.

    `windows` maps models to context windows; `*` stands for all others. Raises ConfigError for a base URL that is none.
    """

    wire = WIRE

    def __init__(
        self,
        name: str,
        base_url: str,
        api_key: str | None,
        *,
        windows: Mapping[str, int],
        clock: Clock,
        headers: Mapping[str, str] | None = None,
        idle_timeout: float = IDLE_SECONDS,
    ) -> None:
        self.name = name
        self._windows = windows
        key = (api_key or "").strip()
        self._server = ModelServer(
            name,
            base_url.rstrip("/").removesuffix("/v1"),
            key=key,
            headers={"anthropic-version": VERSION} | _auth(key) | dict(headers or {}),
            clock=clock,
            idle_timeout=idle_timeout,
        )

    def context_window(self, model: str) -> int:
        usual = CLAUDE_WINDOW if model.startswith("claude") else UNKNOWN_WINDOW
        return self._windows.get(model) or self._windows.get("*") or usual

    def stream(self, request: ModelRequest) -> AsyncGenerator[ReplyEvent]:
        body = to_anthropic(request, provider=self.name)
        return self._server.stream(Post(request.model, "/v1/messages", body, AnthropicReply), wire=WIRE)

    async def close(self) -> None:
        await self._server.close()


def _auth(key: str) -> dict[str, str]:
    if key.startswith(OAUTH_PREFIX):
        return {"Authorization": f"Bearer {key}", "anthropic-beta": OAUTH_BETA}
    return {"x-api-key": key} if key else {}
