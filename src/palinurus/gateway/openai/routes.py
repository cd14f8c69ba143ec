"""The endpoints by their paths."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from palinurus.gateway.http.documented import JSON, Documented
from palinurus.gateway.openai.chat import PATH as CHAT
from palinurus.gateway.openai.chat import complete
from palinurus.gateway.openai.embeddings import EmbeddingList, embed
from palinurus.gateway.openai.models import Model, ModelList, list_models, show_model
from palinurus.gateway.openai.responses import PATH as RESPONSES
from palinurus.gateway.openai.responses import respond
from palinurus.gateway.openai.shapes import ChatRequest, EmbeddingsRequest, ResponsesRequest
from palinurus.gateway.openai.troubles import Failed, Trouble, answered
from palinurus.gateway.talk.desk import Desk

Served = Callable[[Desk, Request], Awaitable[Response]]
SSE = "text/event-stream"

DOCUMENTED = tuple(
    msgspec.structs.replace(row, fails=Failed)
    for row in (
        Documented("POST", CHAT, "Say something to an agent.", "write", ChatRequest, gives=(JSON, SSE)),
        Documented("POST", RESPONSES, "The same, as a response.", "write", ResponsesRequest, gives=(JSON, SSE)),
        Documented("GET", "/v1/models", "The agents of the house, each as a model.", "read", result=ModelList),
        Documented("GET", "/v1/models/{model:path}", "One of them.", "read", result=Model),
        Documented(
            "POST",
            "/v1/embeddings",
            "Vectors of texts; 501 without an embedder.",
            "write",
            EmbeddingsRequest,
            EmbeddingList,
            statuses=(200, 501),
        ),
    )
)


def routes(desk: Desk) -> list[BaseRoute]:
    chat = complete if desk.endpoints.chat_completions else _off("chatCompletions")
    responses = respond if desk.endpoints.responses else _off("responses")
    return [
        _route(desk, "POST", CHAT, chat),
        _route(desk, "POST", RESPONSES, responses),
        _route(desk, "GET", "/v1/models", list_models),
        _route(desk, "GET", "/v1/models/{model:path}", show_model),
        _route(desk, "POST", "/v1/embeddings", embed),
    ]


def _route(desk: Desk, method: str, path: str, served: Served) -> Route:
    @answered
    async def endpoint(request: Request) -> Response:
        return await served(desk, request)

    return Route(path, endpoint, methods=[method])


def _off(name: str) -> Served:
    async def off(_: Desk, __: Request) -> Response:
        raise Trouble(404, f"this endpoint is switched off: gateway.http.endpoints.{name}.enabled", code="not_found")

    return off
