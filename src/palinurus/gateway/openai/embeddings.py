"""POST /v1/embeddings: vectors of the embedder that memory is searched with."""

from __future__ import annotations

import base64
import struct
from typing import Literal

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from palinurus.context.budget import estimate_tokens
from palinurus.domain.errors import EmbedderError, NotOffered
from palinurus.gateway.http.app import read_json, reply
from palinurus.gateway.openai.entry import let_in
from palinurus.gateway.openai.place import agent_named
from palinurus.gateway.openai.shapes import EmbeddingsRequest
from palinurus.gateway.openai.troubles import Trouble
from palinurus.gateway.talk.desk import Desk
from palinurus.memory.embedder import Embedder

MOST_TEXTS = 256
MOST_CHARACTERS = 200_000  # of all texts together


class Embedding(Struct, frozen=True):
    index: int
    embedding: list[float] | str  # base64 of little-endian float32, when that was asked for
    object: Literal["embedding"] = "embedding"


class EmbeddingUsage(Struct, frozen=True):
    """Estimated: the embedder does not count."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(Struct, frozen=True):
    data: tuple[Embedding, ...]
    model: str
    usage: EmbeddingUsage
    object: Literal["list"] = "list"


async def embed(desk: Desk, request: Request) -> Response:
    let_in(desk, request, "write")
    asked = await read_json(request, EmbeddingsRequest)
    texts = _texts(asked)
    embedder = _embedder(desk, asked.model)
    if asked.dimensions not in (None, embedder.space.dimensions):
        raise Trouble(400, f"vectors here have {embedder.space.dimensions} dimensions", param="dimensions")
    try:
        vectors = await embedder.embed(texts)
    except EmbedderError as error:
        raise Trouble(503, str(error), code="unavailable") from None
    tokens = sum(map(estimate_tokens, texts))
    as_text = asked.encoding_format == "base64"
    data = tuple(Embedding(at, _shown(vector, as_text=as_text)) for at, vector in enumerate(vectors))
    return reply(EmbeddingList(data, embedder.space.model, EmbeddingUsage(tokens, tokens)))


def _texts(asked: EmbeddingsRequest) -> list[str]:
    texts = [asked.input] if isinstance(asked.input, str) else asked.input
    if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        raise Trouble(400, "input is a text or a list of texts, none of them empty and none as tokens", param="input")
    if len(texts) > MOST_TEXTS or sum(map(len, texts)) > MOST_CHARACTERS:
        raise Trouble(400, f"at most {MOST_TEXTS} texts of {MOST_CHARACTERS:,} characters together", param="input")
    return [str(text) for text in texts]


def _embedder(desk: Desk, model: str) -> Embedder:
    """The one of the agent that is asked for, or of the default one for any other name of a model."""
    agents = desk.house.agents
    try:
        agent = agent_named(model, agents.ids, agents.default)
    except Trouble:  # clients name a model of their maker's here, which nobody has
        agent = agents.default
    try:
        embedder = desk.house.memory(agent).embedder
    except NotOffered:
        embedder = None
    if embedder is None:
        said = "embeddings are not served: this house has no embedder"
        raise Trouble(501, said, code="not_implemented", retry=False)
    return embedder


def _shown(vector: bytes, *, as_text: bool) -> list[float] | str:
    if as_text:
        return base64.b64encode(vector).decode()
    return list(struct.unpack(f"<{len(vector) // 4}f", vector))
