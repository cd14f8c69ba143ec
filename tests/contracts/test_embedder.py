"""The contract of embedders, kept by the fakes that we ship, by the embedded model with its real weights, and by the
remote ones over loopback servers that speak as the services do.
"""

from __future__ import annotations

import asyncio
import math
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from palinurus.memory.embedder import Embedder, check_vectors
from palinurus.memory.embedders.embedded import EmbeddedModel
from palinurus.memory.embedders.gguf import GgufEmbedder
from palinurus.providers.smollm.packages import weights_file
from palinurus.testing.fakes import HashingEmbedder, Mood, MoodyEmbedder, TokenEmbedder
from support.embedding_server import EmbeddingServer, remote

WEIGHTS = weights_file({})
LOCAL = pytest.param(
    "local", marks=[pytest.mark.real, pytest.mark.skipif(WEIGHTS is None, reason="there is no GGUF file")]
)
MAKERS: dict[str, Callable[[], Embedder]] = {
    "hashing": HashingEmbedder,
    "moody": lambda: MoodyEmbedder(Mood.FAILS, good_for=None),
    "tokens": TokenEmbedder,
    "embedded": EmbeddedModel,
    "local": lambda: GgufEmbedder(WEIGHTS or Path()),
}
REMOTE = ("openai", "gemini", "voyage", "mistral", "ollama", "openai-compatible")
ODD = [
    "",
    " ",
    "\n\n",
    "\x00",
    "🌙🌙",
    "記憶は海である",
    "\ud800 half a pair",
    "x" * 100_000,
    "word " * 20_000,
    "* - # ```",
]


@pytest.fixture(params=["hashing", "moody", "tokens", *REMOTE, LOCAL, pytest.param("embedded", marks=pytest.mark.slow)])
async def embedder(request: pytest.FixtureRequest) -> AsyncIterator[Embedder]:
    async with asyncio.timeout(60), AsyncExitStack() as stack:
        made = MAKERS[request.param]() if request.param in MAKERS else None
        if made is None:
            made = remote(request.param, await stack.enter_async_context(EmbeddingServer()))
        yield made
        await made.close()


def cosine(embedder: Embedder, one: bytes, other: bytes) -> float:
    """Of the vectors; token states may stand behind them."""
    form = f"<{embedder.space.dimensions}f"
    pairs = zip(struct.unpack_from(form, one), struct.unpack_from(form, other), strict=True)
    return math.fsum(a * b for a, b in pairs)


async def test_each_text_gets_a_vector_of_its_own_in_order(embedder: Embedder) -> None:
    texts = [f"Note {number} tells {'more and ' * (number % 7)}more about ship {number}." for number in range(70)]
    vectors = await embedder.embed(texts)
    check_vectors(embedder.space, vectors, len(texts))
    alone = [(await embedder.embed([texts[place]]))[0] for place in (0, 33, 69)]
    for place, vector in zip((0, 33, 69), alone, strict=True):
        assert cosine(embedder, vectors[place], vector) > 0.999


async def test_nothing_gives_nothing(embedder: Embedder) -> None:
    assert await embedder.embed([]) == []


@pytest.mark.parametrize("text", ODD, ids=[repr(text[:8]) for text in ODD])
async def test_any_text_gets_a_vector(embedder: Embedder, text: str) -> None:
    vectors = [*await embedder.embed([text]), await embedder.embed_query(text)]
    check_vectors(embedder.space, vectors, 2)


async def test_a_question_is_nearer_to_what_it_asks_about(embedder: Embedder) -> None:
    near, far = await embedder.embed(["Anna bought a blue bicycle in Porto.", "Interest rates rose again."])
    asked = await embedder.embed_query("What colour is the bicycle that Anna bought?")
    assert cosine(embedder, asked, near) > cosine(embedder, asked, far)


async def test_calls_may_overlap(embedder: Embedder) -> None:
    texts = [f"line {number}" for number in range(40)]
    *batches, asked = await asyncio.gather(embedder.embed(texts), embedder.embed(texts), embedder.embed_query("line 7"))
    assert isinstance(asked, bytes)
    for batch in batches:
        assert cosine(embedder, batch[7], asked) > 0.999


async def test_the_space_names_who_made_it_and_how(embedder: Embedder) -> None:
    space = embedder.space
    assert all((space.provider, space.model, space.preparation))
    assert str(space.dimensions) in space.id.split("/")
