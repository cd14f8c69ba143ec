"""Any server that speaks the Google Gemini wire. The key travels in a header, never in the address."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from urllib.parse import quote, urlsplit

from palinurus.domain.clock import Clock
from palinurus.providers.provider import ModelRequest, ReplyEvent
from palinurus.providers.wires.google_reply import GoogleReply
from palinurus.providers.wires.google_wire import WIRE, to_google
from palinurus.providers.wires.http import IDLE_SECONDS, ModelServer, Post

GEMINI_WINDOW = 1_048_576
UNKNOWN_WINDOW = 32_000


class GoogleProvider:
    """Streams replies from one base URL, given with or without its version.

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
            base_url,
            key=key,
            headers=({"x-goog-api-key": key} if key else {}) | dict(headers or {}),
            clock=clock,
            idle_timeout=idle_timeout,
        )
        self._version = "" if urlsplit(base_url).path.strip("/") else "/v1beta"

    def context_window(self, model: str) -> int:
        usual = GEMINI_WINDOW if model.removeprefix("models/").startswith("gemini") else UNKNOWN_WINDOW
        return self._windows.get(model) or self._windows.get("*") or usual

    def stream(self, request: ModelRequest) -> AsyncGenerator[ReplyEvent]:
        model = quote(request.model.removeprefix("models/"), safe="")
        path = f"{self._version}/models/{model}:streamGenerateContent?alt=sse"
        body = to_google(request, provider=self.name)
        return self._server.stream(Post(request.model, path, body, GoogleReply), wire=WIRE)

    async def close(self) -> None:
        await self._server.close()
