"""`agent` is answered twice, as OpenClaw's clients expect: when the message was accepted, and when its run is over."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from serving import PATIENCE, Running, Visitor


async def frames_of(visitor: Visitor, request_id: str, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(PATIENCE):
        while len(found) < count:
            frame = json.loads(await visitor.socket.recv())
            if frame.get("id") == request_id:
                found.append(frame)
    return found


async def test_an_agent_call_is_answered_when_accepted_and_again_with_its_words(served: Running) -> None:
    visitor = await Visitor.enter(served.ws, served.token)
    asked = {"message": "list files", "sessionKey": "main", "idempotencyKey": "one"}
    await visitor.socket.send(json.dumps({"type": "req", "id": "7", "method": "agent", "params": asked}))
    first, second = await frames_of(visitor, "7", 2)
    assert first["payload"]["status"] == "accepted"
    assert second["payload"]["runId"] == first["payload"]["runId"]
    assert second["payload"]["status"] == "ok"
    assert "AGENTS.md" in second["payload"]["result"]["payloads"][0]["text"]
    # Asked again under the same key it says the same, and nothing runs a second time.
    await visitor.socket.send(json.dumps({"type": "req", "id": "8", "method": "agent", "params": asked}))
    again = await frames_of(visitor, "8", 2)
    assert [frame["payload"] for frame in again] == [first["payload"], second["payload"]]
