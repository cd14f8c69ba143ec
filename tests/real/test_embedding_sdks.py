"""What we send to embedding services is what their vendors' own programs send; and these read what our server says."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from support.embedding_server import KEY, EmbeddingServer, remote

PLACE = Path(__file__).parents[2] / ".peers" / "embedding-sdks"
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not (PLACE / ".installed").exists(), reason="`sh tools/embedding-sdks` was not run"),
]
OPTIONS: dict[str, dict[str, Any]] = {"openai": {"dimensions": 64}, "gemini": {"dimensions": 64}}
THEIRS_ONLY = {"voyage": {"truncation", "encoding_format"}, "mistral": {"encoding_format"}}


def plain(body: Any, provider: str) -> Any:
    """Without what the service assumes anyway."""
    if isinstance(body, list):
        return [plain(each, provider) for each in body]
    if not isinstance(body, dict):
        return body
    left_out = THEIRS_ONLY.get(provider, set()) | ({"role"} if provider == "gemini" else set())
    return {name: plain(value, provider) for name, value in body.items() if name not in left_out and value is not None}


@pytest.mark.parametrize("provider", ["openai", "gemini", "mistral", "voyage"])
async def test_requests_are_those_of_the_vendors_own_program(provider: str) -> None:
    async with asyncio.timeout(60), EmbeddingServer() as server:
        program = Path(__file__).with_name("embedding_sdks.py")
        env = {"PATH": os.environ["PATH"], "HOME": str(PLACE), "PYTHONPATH": str(PLACE / "python")}
        asked = await asyncio.create_subprocess_exec(
            sys.executable, program, provider, server.url, KEY, env=env, stdout=-1, stderr=-1
        )
        said, trouble = await asked.communicate()
        assert asked.returncode == 0, trouble.decode()[-2000:]
        theirs, count = list(zip(server.paths, server.requests, strict=True)), len(server.requests)
        assert said.decode().strip() == str([64] * count)
        embedder = remote(provider, server, model="m-1", **OPTIONS.get(provider, {}))
        await embedder.embed(["a ship"])
        if count > 1:
            await embedder.embed_query("a ship")
        ours = list(zip(server.paths[count:], server.requests[count:], strict=True))
        for (their_path, their_body), (our_path, our_body) in zip(theirs, ours, strict=True):
            assert our_path == their_path
            assert plain(our_body, provider) == plain(their_body, provider)
        name = "x-goog-api-key" if provider == "gemini" else "authorization"
        assert server.headers[0][name] == server.headers[-1][name]
