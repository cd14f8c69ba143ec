"""The main exchanges by the socket, frame by frame, as reviewed text: tests/golden/frames.json.

`UPDATE_GOLDEN=1 pytest tests/gateway/families/test_golden_frames.py` rewrites it; the change is reviewed in the diff.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from family_asking import TOKEN, Asking, Line
from websockets.asyncio.client import ClientConnection

from palinurus import __version__

GOLDEN = Path(__file__).parents[2] / "golden" / "frames.json"
MAIN = "agent:main:main"


class Recorder:
    """Asks, and writes down every frame: what was sent, and all that came until the answer, or until an event."""

    def __init__(self, line: Line, client: ClientConnection) -> None:
        self._line = line
        self._client = client
        self.exchanges: list[dict[str, Any]] = []

    async def __call__(self, method: str, /, until: str = "", **params: Any) -> Any:
        sent = {"type": "req", "id": str(len(self.exchanges)), "method": method, "params": params}
        await self._client.send(json.dumps(sent))
        received: list[Any] = []
        answer = None
        while answer is None or (until and not _has(received, until)):
            frame = await self._line.read(self._client)
            received.append(frame)
            answer = frame if frame["type"] == "res" else answer
        self.exchanges.append({"sent": sent, "received": received})
        return answer.get("payload")


def _has(frames: list[Any], state: str) -> bool:
    return any(frame["type"] == "event" and frame["payload"].get("state") == state for frame in frames)


def reviewed(exchanges: list[dict[str, Any]], ask: Asking) -> str:
    """Without what differs from run to run and place to place."""
    text = json.dumps(exchanges, indent=1, ensure_ascii=False)
    for path, name in ((ask.pal.files.boundary.root, "/workspace"), (ask.home.root, "/home"), (__version__, "VERSION")):
        text = text.replace(str(path), name)
    text = re.sub(r'"durationMs": \d+', '"durationMs": 0', text)
    return re.sub(r'"(hash|updatedAtMs|pid)": ("\w+"|\d+)', r'"\1": "…"', text) + "\n"


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tick comes between."""
    monkeypatch.setattr("palinurus.gateway.websocket.socket.TICK_MS", 600_000)


async def test_the_frames_of_the_main_exchanges_read_as_reviewed(ask: Asking, quiet: None) -> None:
    async with Line(ask) as line:
        client = await line.open()
        record = Recorder(line, client)
        hello = await record("connect", auth={"token": TOKEN}, client={"id": "test", "mode": "cli"})
        hello["features"]["methods"] = ["…"]  # told by the table of methods, and grows with it
        await record("health")
        sent = await record(
            "chat.send", until="final", sessionKey=MAIN, message="What is the boat called?", idempotencyKey="one"
        )
        await record("agent.wait", runId=sent["runId"], timeoutMs=1000)
        await record("chat.history", sessionKey=MAIN)
        await record(
            "chat.inject", sessionKey=MAIN, message="The tide turns at nine.", label="clock", idempotencyKey="i"
        )
        await record("sessions.list", includeDerivedTitles=True, includeLastMessage=True)
        await record("sessions.preview", keys=[MAIN, "agent:main:direct:nobody"], limit=2)
        await record("sessions.patch", key=MAIN, label="Boat", thinkingLevel="low", idempotencyKey="p")
        await record("sessions.describe", key=MAIN)
        await record("sessions.reset", key=MAIN, idempotencyKey="r")
        await record("sessions.delete", key=MAIN, idempotencyKey="d")
        await record("agents.list")
        await record("agents.files.get", agentId="main", name="SOUL.md")
        await record("config.get")
        await record("usage.cost", days=1)
        await record("exec.approval.list")
        await record("status")
        await record("sessions.compact", key=MAIN)
        await record("sessions.reset", key="agent:nobody:main")
        await record("config.set", raw="{}", baseHash="0" * 64)
        await record("no.such.method")
        text = reviewed(record.exchanges, ask)
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert GOLDEN.exists(), "UPDATE_GOLDEN=1 pytest tests/gateway/families/test_golden_frames.py"
    assert text == GOLDEN.read_text(encoding="utf-8"), "if this is meant: UPDATE_GOLDEN=1"
