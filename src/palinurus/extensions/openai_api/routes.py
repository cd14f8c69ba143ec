"""The routes and their scopes, and the two small endpoints: agents as models, and embeddings.

Embeddings come from the embedder of memory search.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Literal

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from palinurus.domain.errors import EmbedderError, NotOffered, PalinurusError
from palinurus.extensions.openai_api.anthropic import MESSAGES, MessagesRequest, answer_messages
from palinurus.extensions.openai_api.endpoints import (
    CHAT,
    RESPONSES,
    TEXT,
    complete,
    complete_text,
    respond,
    show_response,
)
from palinurus.extensions.openai_api.errors import (
    ApiError,
    ErrorBody,
    MessagesErrorBody,
    anthropic_body,
    error_response,
    openai_body,
)
from palinurus.extensions.openai_api.messages import (
    ChatRequest,
    CompletionRequest,
    EmbeddingsRequest,
    ResponsesRequest,
)
from palinurus.extensions.openai_api.run import agent_named, header, model_names
from palinurus.gateway.auth.guard import Principal, known_scopes
from palinurus.gateway.http.app import JSON, RouteDoc, RouteProvider, authenticate, read_json, reply
from palinurus.gateway.protocol import Refused
from palinurus.gateway.websocket.methods import GatewayContext
from palinurus.memory.embedder import Embedder
from palinurus.operations.scopes import Scope
from palinurus.text.tokens import estimate_tokens

Served = Callable[[GatewayContext, Request], Awaitable[Response]]
SSE = "text/event-stream"
MOST_TEXTS = 256
MOST_EMBEDDED = 200_000  # characters of all texts together


class Embedding(Struct, frozen=True):
    index: int
    embedding: list[float] | str  # base64 of little-endian float32 for encoding_format base64
    object: Literal["embedding"] = "embedding"


class EmbeddingUsage(Struct, frozen=True):
    """Estimated: the embedder does not count tokens."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(Struct, frozen=True):
    data: tuple[Embedding, ...]
    model: str
    usage: EmbeddingUsage
    object: Literal["list"] = "list"


async def embed(gateway: GatewayContext, request: Request) -> Response:
    wanted = await read_json(request, EmbeddingsRequest)
    texts = _texts(wanted)
    embedder = _embedder(gateway, wanted.model)
    if wanted.dimensions not in (None, embedder.space.dimensions):
        raise ApiError(400, f"vectors here have {embedder.space.dimensions} dimensions", param="dimensions")
    try:
        vectors = await embedder.embed(texts)
    except EmbedderError as error:
        raise ApiError(503, str(error), code="unavailable") from None
    tokens = sum(map(estimate_tokens, texts))
    as_text = wanted.encoding_format == "base64"
    end = 4 * embedder.space.dimensions  # token states may stand behind
    data = tuple(Embedding(at, _shown(vector[:end], as_text=as_text)) for at, vector in enumerate(vectors))
    return reply(EmbeddingList(data, embedder.space.model, EmbeddingUsage(tokens, tokens)))


def _texts(wanted: EmbeddingsRequest) -> list[str]:
    texts = [wanted.input] if isinstance(wanted.input, str) else wanted.input
    if any(isinstance(text, int | list) for text in texts):
        message = (
            "input holds token ids, which are not read here: send texts (LangChain: check_embedding_ctx_length=False)"
        )
        raise ApiError(400, message, param="input")
    if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        raise ApiError(400, "input must be a text or a list of texts, none of them empty", param="input")
    if len(texts) > MOST_TEXTS or sum(map(len, texts)) > MOST_EMBEDDED:
        raise ApiError(400, f"at most {MOST_TEXTS} texts of {MOST_EMBEDDED:,} characters together", param="input")
    return [str(text) for text in texts]


def _embedder(gateway: GatewayContext, model: str) -> Embedder:
    """That of the agent with this name, else that of the default agent."""
    agent, embedder = gateway.services.agents.default, None
    with suppress(ApiError):  # clients send the name of an OpenAI model here
        agent = agent_named(model, gateway.services.agents)
    with suppress(NotOffered):
        embedder = gateway.services.memory(agent).builtin.serving
    if embedder is None:
        message = "embeddings are not served: no embedder is configured"
        raise ApiError(501, message, code="not_implemented", retry=False)
    return embedder


def _shown(vector: bytes, *, as_text: bool) -> list[float] | str:
    if as_text:
        return base64.b64encode(vector).decode()
    return list(struct.unpack(f"<{len(vector) // 4}f", vector))


class ApiModel(Struct, frozen=True):
    id: str
    created: int
    object: Literal["model"] = "model"
    owned_by: str = "palinurus"


class ApiModelList(Struct, frozen=True):
    data: tuple[ApiModel, ...]
    object: Literal["list"] = "list"


async def list_models(gateway: GatewayContext, request: Request) -> Response:
    names = model_names(gateway.services.agents.ids)
    return reply(ApiModelList(tuple(_model(gateway, name) for name in names)))


async def show_model(gateway: GatewayContext, request: Request) -> Response:
    name: str = request.path_params["model"]
    if not name:  # some clients end the address of the list with a slash
        return await list_models(gateway, request)
    agent_named(name, gateway.services.agents)
    return reply(_model(gateway, name))


def _model(gateway: GatewayContext, name: str) -> ApiModel:
    return ApiModel(name, gateway.started_at // 1000)


ENDPOINTS: dict[RouteDoc, Served] = {
    RouteDoc("POST", CHAT, "Send a message to an agent.", "write", ChatRequest, gives=(JSON, SSE)): complete,
    RouteDoc("POST", TEXT, "The same, as text alone.", "write", CompletionRequest, gives=(JSON, SSE)): complete_text,
    RouteDoc("POST", RESPONSES, "The same, as a response.", "write", ResponsesRequest, gives=(JSON, SSE)): respond,
    RouteDoc("GET", f"{RESPONSES}/{{response}}", "A response again.", "read", result=dict[str, Any]): show_response,
    RouteDoc(
        "POST", MESSAGES, "The same, in Anthropic's format.", "write", MessagesRequest, gives=(JSON, SSE)
    ): answer_messages,
    RouteDoc("GET", "/v1/models", "The agents, each as a model.", "read", result=ApiModelList): list_models,
    RouteDoc("GET", "/v1/models/{model:path}", "One of them.", "read", result=ApiModel): show_model,
    RouteDoc(
        "POST", "/v1/embeddings", "Vectors of texts; 501 without an embedder.", "write",
        EmbeddingsRequest, EmbeddingList, statuses=(200, 501),
    ): embed,
}  # fmt: skip


def routes(gateway: GatewayContext) -> list[BaseRoute]:
    off = {CHAT: "" if gateway.endpoints.chat_completions else "chatCompletions"}
    off[TEXT] = off[CHAT]
    off[RESPONSES] = "" if gateway.endpoints.responses else "responses"
    off[f"{RESPONSES}/{{response}}"] = off[RESPONSES]
    off[MESSAGES] = "" if gateway.endpoints.messages else "messages"
    return [_route(gateway, row, served, off.get(row.path, "")) for row, served in ENDPOINTS.items()]


_FAILS = {MESSAGES: MessagesErrorBody}  # all others: OpenAI's
ROUTES = RouteProvider(
    routes, tuple(msgspec.structs.replace(row, fails=_FAILS.get(row.path, ErrorBody)) for row in ENDPOINTS)
)


def _route(gateway: GatewayContext, row: RouteDoc, served: Served, off: str) -> Route:
    shape = anthropic_body if row.path == MESSAGES else openai_body

    async def endpoint(request: Request) -> Response:
        try:
            _check_on(off)
            authorize(gateway, request, row.scope or "admin")
            return await served(gateway, request)
        except (ApiError, Refused, PalinurusError) as error:
            return error_response(error, body=shape)

    return Route(row.path, endpoint, methods=[row.method])


def _check_on(off: str) -> None:
    """Raises ApiError. `off` is the config's name of an endpoint that is not served."""
    if off:
        message = f"this endpoint is switched off: gateway.http.endpoints.{off}.enabled"
        raise ApiError(404, message, code="not_found")


def authorize(gateway: GatewayContext, request: Request, scope: Scope) -> None:
    """Scopes that a client declares only narrow its own. Raises Refused and MissingScope."""
    principal = authenticate(gateway, request, scope)
    if declared := header(request.headers, "scopes"):
        names = [name.strip() for name in declared.replace(",", " ").split()]
        narrowed = Principal(principal.id, principal.name, frozenset(known_scopes(names)))
        if not narrowed.may(scope):
            raise Refused(403, "FORBIDDEN", f"this needs the scope {scope}, which the request does not declare")
