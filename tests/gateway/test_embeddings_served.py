"""Vectors over HTTP, as the official client asks for them."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest
from serving import Running, request

from palinurus.testing.fakes import HashingEmbedder, TokenEmbedder


async def asked(served: Running, body: bytes) -> Any:
    token = f"Bearer {served.token}"
    headers = {"authorization": token, "content_type": "application/json"}
    return await request(served.port, "/v1/embeddings", method="POST", body=body, **headers)


@pytest.fixture
def hashing(served: Running) -> HashingEmbedder:
    """In the place of the real model, which is tested by itself; token states stand behind its vectors too."""
    made = TokenEmbedder()
    served.runtime.services.memory("main").embedder = made
    return made


async def test_each_text_has_its_vector_in_order(served: Running, hashing: HashingEmbedder) -> None:
    answer = await asked(served, b'{"input": ["one", "two"], "model": "text-embedding-3-small"}')
    assert answer.status == 200
    told = answer.json
    one, two = await hashing.embed(["one", "two"])
    size = f"<{hashing.space.dimensions}f"
    assert [each["embedding"] for each in told["data"]] == [list(struct.unpack_from(size, each)) for each in (one, two)]
    assert [each["index"] for each in told["data"]] == [0, 1]
    assert told["usage"]["prompt_tokens"] > 0


async def test_base64_is_the_very_bytes(served: Running, hashing: HashingEmbedder) -> None:
    answer = await asked(served, b'{"input": "one", "encoding_format": "base64"}')
    (one,) = await hashing.embed(["one"])
    assert base64.b64decode(answer.json["data"][0]["embedding"]) == one[: 4 * hashing.space.dimensions]


@pytest.mark.parametrize(
    "body", [b'{"input": []}', b'{"input": [1, 2]}', b'{"input": ""}', b'{"input": "x", "dimensions": 7}']
)
async def test_what_makes_no_sense_is_refused(served: Running, hashing: HashingEmbedder, body: bytes) -> None:
    assert (await asked(served, body)).status == 400


async def test_token_ids_are_refused_and_it_says_what_to_send(served: Running, hashing: HashingEmbedder) -> None:
    for body in (b'{"input": [1, 2]}', b'{"input": [[1, 2], [3]]}'):
        told = await asked(served, body)
        assert told.status == 400
        assert "token ids" in told.json["error"]["message"]
        assert "send texts" in told.json["error"]["message"]
