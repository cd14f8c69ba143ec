"""Embedding services that answer badly, late or not at all, and what is sent to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, get_type_hints

import pytest

from palinurus.domain.errors import EmbedderError
from palinurus.memory.embedder import check_vectors
from support.embedding_server import HANGS, KEY, EmbeddingServer, Refuses, Waiting, remote

REMOTE = ("openai", "gemini", "voyage", "mistral", "ollama")
NUMBERED = ("openai", "voyage", "mistral")
TEXTS = [f"The ship number {number} is blue." for number in range(5)]


@pytest.fixture
async def server() -> AsyncIterator[EmbeddingServer]:
    async with asyncio.timeout(60), EmbeddingServer() as made:
        yield made


@pytest.mark.parametrize("provider", NUMBERED)
async def test_vectors_in_another_order_find_their_texts(server: EmbeddingServer, provider: str) -> None:
    wanted = await remote(provider, server).embed(TEXTS)
    server.shuffle = True
    assert len(set(wanted)) == len(TEXTS)
    assert await remote(provider, server).embed(TEXTS) == wanted


SPOILED: dict[str, Any] = {
    "too few": lambda vectors: vectors[:-1],
    "too many": lambda vectors: [*vectors, vectors[0]],
    "wrong dimensions": lambda vectors: [*vectors[:-1], vectors[-1][:-1]],
    "no direction": lambda vectors: [*vectors[:-1], [0.0] * 64],
    "none": lambda _: [],
}


@pytest.mark.parametrize("provider", REMOTE)
@pytest.mark.parametrize("how", SPOILED)
async def test_none_of_a_bad_answer_is_kept(server: EmbeddingServer, provider: str, how: str) -> None:
    server.spoil = SPOILED[how]
    with pytest.raises(EmbedderError, match="none of them was kept"):
        await remote(provider, server).embed(TEXTS)


async def test_vectors_of_another_size_than_is_known_of_the_model_are_refused(server: EmbeddingServer) -> None:
    with pytest.raises(EmbedderError, match="64 dimensions instead of 1536"):
        await remote("openai", server, model="text-embedding-3-small").embed(TEXTS)


async def test_two_entries_for_one_text_are_no_answer(server: EmbeddingServer) -> None:
    twice = {"data": [{"index": 0, "embedding": [1.0, 0.0]}, {"index": 0, "embedding": [0.0, 1.0]}]}
    server.other = lambda *_: twice
    with pytest.raises(EmbedderError, match="1 vectors for 2 texts"):
        await remote("openai", server).embed(TEXTS[:2])


@pytest.mark.parametrize("provider", REMOTE)
async def test_texts_wait_as_long_as_a_busy_service_says(provider: str) -> None:
    busy = Refuses(429, headers={"Retry-After": "7"})
    waiting = Waiting()
    async with EmbeddingServer(busy, busy) as server:
        vectors = await remote(provider, server, waiting).embed(TEXTS)
    assert len(vectors) == len(TEXTS)
    assert waiting.waited == [7.0, 7.0]


async def test_a_long_wait_is_left_to_the_caller_and_meanwhile_nothing_is_sent() -> None:
    waiting = Waiting()
    async with EmbeddingServer(Refuses(429, headers={"Retry-After": "900"})) as server:
        embedder = remote("openai", server, waiting)
        for attempt in range(3):
            with pytest.raises(EmbedderError, match="rate limit") as caught:
                await (embedder.embed(TEXTS) if attempt else embedder.embed_query("Who?"))
            assert caught.value.retry_after == pytest.approx(900, abs=1)
        assert len(server.paths) == 1
        waiting.clock.advance(seconds=901)
        assert await embedder.embed_query("Who?")
    assert waiting.waited == []


async def test_a_service_that_fails_is_asked_a_few_times_for_texts_and_once_for_a_question() -> None:
    waiting = Waiting()
    async with EmbeddingServer(*[Refuses(503)] * 20) as server:
        embedder = remote("openai", server, waiting)
        with pytest.raises(EmbedderError, match="overloaded"):
            await embedder.embed(TEXTS)
        assert (len(server.paths), waiting.waited) == (4, [1.0, 2.0, 4.0])
        with pytest.raises(EmbedderError, match="overloaded"):
            await embedder.embed_query("Who?")
        assert len(server.paths) == 5


@pytest.mark.parametrize("provider", REMOTE)
async def test_one_that_hangs_fails_in_time(provider: str) -> None:
    async with asyncio.timeout(60), EmbeddingServer(HANGS) as server:
        with pytest.raises(EmbedderError, match="took too long"):
            await remote(provider, server, seconds=0.05).embed_query("Who?")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500])
@pytest.mark.parametrize("provider", REMOTE)
async def test_no_error_holds_a_key(provider: str, status: int) -> None:
    echo = f'{{"error": {{"message": "bad key {KEY} or header h-9876543210"}}}}'
    async with EmbeddingServer(*[Refuses(status, echo)] * 9) as server:
        with pytest.raises(EmbedderError) as caught:
            await remote(provider, server, headers={"X-Own": "h-9876543210"}).embed(TEXTS)
    for secret in (KEY, "h-9876543210"):
        assert secret not in str(caught.value)
        assert secret not in repr(caught.value.__cause__)
    assert caught.value.lasting == (status < 429)


async def test_the_stored_key_goes_to_no_other_address_than_the_providers(server: EmbeddingServer) -> None:
    """`remote.baseUrl` without `remote.apiKey`: another server must not learn the key of the provider."""
    await remote("openai", server, api_key=None).embed(TEXTS)
    assert "authorization" not in server.headers[-1]
    await remote("openai", server).embed(TEXTS)
    assert server.headers[-1]["authorization"] == f"Bearer {KEY}"


async def test_a_redirect_is_not_followed(server: EmbeddingServer) -> None:
    async with EmbeddingServer(Refuses(307, headers={"Location": f"{server.url}/v1/embeddings"})) as first:
        with pytest.raises(EmbedderError):
            await remote("openai", first).embed(TEXTS)
    assert server.paths == []


async def test_requests_are_no_larger_than_the_service_takes(server: EmbeddingServer) -> None:
    embedder = remote("mistral", server)
    vectors = await embedder.embed(["word " * 1_200] * 30)
    check_vectors(embedder.space, vectors, 30)
    assert max(sum(map(len, body["input"])) for body in server.requests) <= 40_000
    assert len(server.texts) == 30


async def test_another_address_makes_another_space(server: EmbeddingServer) -> None:
    async with EmbeddingServer() as other:
        one, two = remote("openai", server), remote("openai", other)
        await one.embed(TEXTS)
        await two.embed(TEXTS)
        assert one.space.id != two.space.id
        assert not one.space.fits(two.space)


async def test_bodies_are_as_the_vendors_document_them(server: EmbeddingServer) -> None:
    for provider, options in (("openai", {"dimensions": 64}), ("gemini", {"dimensions": 64}), ("voyage", {})):
        await remote(provider, server, model="m-1", **options).embed(["a ship"])
        await remote(provider, server, model="m-1", **options).embed_query("a boat")
    await remote("mistral", server, model="m-1").embed(["a ship"])
    await remote("ollama", server, model="m-1").embed(["a ship"])
    openai, _, gemini, asked, voyage, asked_voyage, mistral, ollama = server.requests
    assert openai == {"model": "m-1", "input": ["a ship"], "encoding_format": "float", "dimensions": 64}
    assert gemini == {
        "requests": [
            {
                "model": "models/m-1",
                "taskType": "RETRIEVAL_DOCUMENT",
                "outputDimensionality": 64,
                "content": {"parts": [{"text": "a ship"}]},
            }
        ]
    }
    assert asked["requests"][0]["taskType"] == "RETRIEVAL_QUERY"
    assert (voyage["input_type"], asked_voyage["input_type"]) == ("document", "query")
    assert mistral == ollama == {"model": "m-1", "input": ["a ship"]}
    assert server.paths[2] == "/v1beta/models/m-1:batchEmbedContents"
    assert server.headers[2]["x-goog-api-key"] == KEY


async def test_openais_own_types_accept_the_body(server: EmbeddingServer) -> None:
    types = pytest.importorskip("openai.types.embedding_create_params")
    await remote("openai", server, dimensions=64).embed(TEXTS)
    known = get_type_hints(types.EmbeddingCreateParams)
    from pydantic import TypeAdapter

    TypeAdapter(types.EmbeddingCreateParams).validate_python(server.requests[0], strict=True)
    assert set(server.requests[0]) <= set(known)
