"""How each embedding service is asked, and what it answers. Pure.

Requests and answers as the services document them. Answers may come in any order where they are numbered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.providers.choose import GEMINI_URL

Body = dict[str, Any]


class EmbeddingRequest(Struct, frozen=True):
    model: str
    texts: tuple[str, ...]
    is_query: bool
    dimensions: int | None = None  # that are asked for


class Vendor(Struct, frozen=True):
    """One service."""

    name: str
    address: str
    model: str  # the usual one; empty: the config must name it
    path: str  # below the address; {model} is filled in
    body: Callable[[EmbeddingRequest], Body]
    read: Callable[[bytes], list[tuple[int, list[float]]]]
    """Vectors with the numbers of their texts. Raises msgspec.DecodeError."""
    keys: str = ""  # the provider under which its key is stored, if it needs one
    key_header: tuple[str, str] = ("Authorization", "Bearer ")
    dimensions: Mapping[str, int] = {}  # of known models
    most_texts: int = 64
    most_characters: int = 100_000  # of all texts of a request
    asymmetric: bool = False  # questions are embedded otherwise than texts
    batches: bool = False  # it has OpenAI's Batch API


class _IndexedVector(Struct):
    embedding: list[float]
    index: int


class _VectorList(Struct):
    data: list[_IndexedVector]


class _Values(Struct):
    values: list[float]


class _ValuesList(Struct):
    embeddings: list[_Values]


class _PlainList(Struct):
    embeddings: list[list[float]]


def _read_indexed(answer: bytes) -> list[tuple[int, list[float]]]:
    return [(each.index, each.embedding) for each in msgspec.json.decode(answer, type=_VectorList).data]


def _read_values(answer: bytes) -> list[tuple[int, list[float]]]:
    found = msgspec.json.decode(answer, type=_ValuesList).embeddings
    return [(number, each.values) for number, each in enumerate(found)]


def _read_plain(answer: bytes) -> list[tuple[int, list[float]]]:
    return list(enumerate(msgspec.json.decode(answer, type=_PlainList).embeddings))


def _with(name: str, value: Any) -> Body:
    return {} if value is None else {name: value}


def _openai(asked: EmbeddingRequest) -> Body:
    return {
        "model": asked.model,
        "input": list(asked.texts),
        "encoding_format": "float",
        **_with("dimensions", asked.dimensions),
    }


def _mistral(asked: EmbeddingRequest) -> Body:
    return {"model": asked.model, "input": list(asked.texts), **_with("output_dimension", asked.dimensions)}


def _voyage(asked: EmbeddingRequest) -> Body:
    return {
        "model": asked.model,
        "input": list(asked.texts),
        "input_type": "query" if asked.is_query else "document",
        **_with("output_dimension", asked.dimensions),
    }


def _gemini(asked: EmbeddingRequest) -> Body:
    each = {
        "model": f"models/{asked.model}",
        "taskType": "RETRIEVAL_QUERY" if asked.is_query else "RETRIEVAL_DOCUMENT",
        **_with("outputDimensionality", asked.dimensions),
    }
    return {"requests": [{**each, "content": {"parts": [{"text": text}]}} for text in asked.texts]}


def _ollama(asked: EmbeddingRequest) -> Body:
    return {"model": asked.model, "input": list(asked.texts), **_with("dimensions", asked.dimensions)}


VENDORS: Mapping[str, Vendor] = {
    each.name: each
    for each in (
        Vendor(
            "openai",
            "https://api.openai.com/v1",
            "text-embedding-3-small",
            "/embeddings",
            _openai,
            _read_indexed,
            "openai",
            dimensions={
                "text-embedding-3-small": 1536,
                "text-embedding-3-large": 3072,
                "text-embedding-ada-002": 1536,
            },
            batches=True,
        ),
        Vendor(
            "gemini",
            GEMINI_URL,
            "gemini-embedding-001",
            "/models/{model}:batchEmbedContents",
            _gemini,
            _read_values,
            "google",
            key_header=("x-goog-api-key", ""),
            dimensions={"gemini-embedding-001": 3072, "text-embedding-004": 768},
            asymmetric=True,
        ),
        Vendor(
            "voyage",
            "https://api.voyageai.com/v1",
            "voyage-4-large",
            "/embeddings",
            _voyage,
            _read_indexed,
            "voyage",
            asymmetric=True,
        ),
        Vendor(
            "mistral",
            "https://api.mistral.ai/v1",
            "mistral-embed",
            "/embeddings",
            _mistral,
            _read_indexed,
            "mistral",
            dimensions={"mistral-embed": 1024},
            most_characters=40_000,
        ),
        Vendor("ollama", "http://127.0.0.1:11434", "nomic-embed-text", "/api/embed", _ollama, _read_plain),
        Vendor("openai-compatible", "", "", "/embeddings", _openai, _read_indexed, batches=True),
    )
}
