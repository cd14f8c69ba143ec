"""Any server that speaks the OpenAI chat-completions wire: OpenAI, OpenRouter, Ollama, LM Studio, vLLM."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping

from palinurus.domain.clock import Clock
from palinurus.providers.provider import ModelRequest, ReplyEvent
from palinurus.providers.wires.http import IDLE_SECONDS, ModelServer, Post
from palinurus.providers.wires.openai_reply import OpenAIReply
from palinurus.providers.wires.openai_wire import to_openai

WIRE = "openai-completions"  # the name that OpenClaw's transcripts use
UNKNOWN_WINDOW = 32_000


class OpenAIProvider:
    """Streams replies from one base URL. `windows` maps models to context windows; `*` stands for all others.

    Raises ConfigError for a base URL that is none.
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
        auth = {"Authorization": f"Bearer {key}"} if key else {}
        self._server = ModelServer(
            name, base_url, key=key, headers=auth | dict(headers or {}), clock=clock, idle_timeout=idle_timeout
        )
        at_openai = self._server.address.hostname == "api.openai.com"
        self._max_tokens_field = "max_completion_tokens" if at_openai else "max_tokens"

    def context_window(self, model: str) -> int:
        return self._windows.get(model) or self._windows.get("*") or UNKNOWN_WINDOW

    def stream(self, request: ModelRequest) -> AsyncGenerator[ReplyEvent]:
        body = to_openai(request, max_tokens_field=self._max_tokens_field)
        return self._server.stream(Post(request.model, "/chat/completions", body, OpenAIReply), wire=WIRE)

    async def close(self) -> None:
        await self._server.close()
