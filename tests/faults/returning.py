"""A WebSocket client that comes back: what it has no answer to is said again under the same key, and waited for.

It speaks in a session of its own, two messages ahead of the answers at most, each said when the one before it was
accepted. Every answer is kept with the way it came, so that one that came twice, or changed, is seen.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage

from homes import PATIENCE

AHEAD = 2
LOST = (ConnectionClosed, InvalidHandshake, InvalidMessage, OSError, EOFError)


class Services(Protocol):
    """Where the gateway is."""

    token: str

    async def address(self, after: int) -> tuple[int, str]:
        """Number and address of a gateway that is ready, and later than the one that was lost."""


@dataclass
class Message:
    text: str
    run_id: str = ""  # once it was acknowledged
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    answers: list[tuple[str, str]] = field(default_factory=list)  # how it came, and the words

    def answer(self, way: str, words: str) -> None:
        self.answers.append((way, words))
        self.answered.set()


class ReturningClient:
    def __init__(
        self, name: str, services: Services, say: Iterator[str], method: str, on_reply: Callable[[], None]
    ) -> None:
        self.name = name
        self.session = f"agent:main:explicit:{name}"
        self.messages: list[Message] = []
        self.finals: Counter[str] = Counter()  # of each run: how often its final event was heard
        self.lost: list[str] = []  # connections
        self._services = services
        self._say = say
        self._method = method
        self._on_reply = on_reply
        self._asked = 0
        self._waiting: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._leaving = asyncio.Event()
        self._history: list[dict[str, Any]] = []
        self._over = False

    @property
    def acknowledged(self) -> list[str]:
        return [message.text for message in self.messages if message.run_id]

    @property
    def history(self) -> list[tuple[str, str]]:
        """Who said what, as the gateway told it at the end."""
        return [(each["role"], _text(each["content"])) for each in self._history]

    def leave(self) -> None:
        """Say nothing new; go when everything is answered."""
        self._leaving.set()

    async def live(self) -> None:
        number = 0
        while not self._over:
            number, address = await self._services.address(number)
            try:
                async with connect(address, proxy=None, max_size=None) as socket, asyncio.TaskGroup() as both:
                    ears = both.create_task(self._hear(socket))
                    await self._visit(socket)
                    ears.cancel()
            except* LOST as group:
                self.lost.append(repr(group.exceptions[0]))
                self._waiting.clear()

    async def _visit(self, socket: ClientConnection) -> None:
        # Two of the protocol's three frames of greeting; the challenge goes by unanswered, since there is no device.
        await self._ask(socket, "connect", minProtocol=4, maxProtocol=4, auth={"token": self._services.token})
        for message in self.messages:
            if not message.answered.is_set():
                await self._submit(socket, message)
                await self._look_up(socket, message)
        while not self._leaving.is_set():
            message = Message(next(self._say))
            self.messages.append(message)
            await self._submit(socket, message)
            for earlier in self.messages[:-AHEAD]:
                await self._answered(earlier)
        for message in self.messages:
            await self._answered(message)
        self._history = (await self._ask(socket, "chat.history", sessionKey=self.session, limit=1_000))["messages"]
        self._over = True

    async def _submit(self, socket: ClientConnection, message: Message) -> None:
        said = {"sessionKey": self.session, "message": message.text, "idempotencyKey": message.text}
        started = await self._ask(socket, self._method, **said)
        assert message.run_id in ("", started["runId"]), f"{message.text} has two runs"
        message.run_id = started["runId"]

    async def _look_up(self, socket: ClientConnection, message: Message) -> None:
        """Its final event may have gone by while nobody listened."""
        asked = {"runId": message.run_id, "timeoutMs": int(PATIENCE * 1000)}
        result = await self._ask(socket, "agent.wait", **asked)
        assert result["status"] in ("ok", "aborted"), result
        message.answer("wait", result["text"])
        self._on_reply()

    async def _answered(self, message: Message) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                await message.answered.wait()
        except TimeoutError:
            raise AssertionError(f"{message} got no answer") from None

    async def _ask(self, socket: ClientConnection, method: str, **params: Any) -> Any:
        self._asked += 1
        number = str(self._asked)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        await socket.send(json.dumps({"type": "req", "id": number, "method": method, "params": params}))
        async with asyncio.timeout(PATIENCE * 2):  # not wait_for, which may swallow that the connection was lost
            told = await self._waiting[number]
        assert told["ok"], told
        return told["payload"]

    async def _hear(self, socket: ClientConnection) -> None:
        seen = 0
        while True:
            frame = json.loads(await socket.recv())
            if frame["type"] == "res":
                self._response(frame)
            elif seq := frame.get("seq"):
                assert seq == seen + 1, f"{seen} events, then number {seq}"
                seen = seq
                self._event(frame["event"], frame["payload"])

    def _response(self, frame: dict[str, Any]) -> None:
        waiting = self._waiting.pop(frame["id"], None)
        if waiting is not None:
            waiting.set_result(frame)
        elif frame["ok"]:  # the second answer of `agent`
            words = "".join(each["text"] for each in frame["payload"]["result"]["payloads"])
            self._heard(frame["payload"]["runId"], "second answer", words)

    def _event(self, name: str, payload: dict[str, Any]) -> None:
        if name == "chat" and payload["state"] != "delta":
            self.finals[payload["runId"]] += 1
            self._heard(payload["runId"], "event", _text(payload["message"]["content"]) if "message" in payload else "")
            self._on_reply()

    def _heard(self, run_id: str, way: str, words: str) -> None:
        """A run that goes on after a restart may end before it is known again whose it is; then it is looked up."""
        for message in self.messages:
            if message.run_id == run_id:
                message.answer(way, words)


def _text(content: Any) -> str:
    return "".join(part.get("text", "") for part in content) if isinstance(content, list) else str(content)
