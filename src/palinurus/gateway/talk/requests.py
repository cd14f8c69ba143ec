"""What one client has asked for and has not been told yet.

Every request is a task of its own, checked against the scopes of the credential as they are now. There are only so many
at once, and their frames are only so large. A request with effects that was begun is finished though its client has
gone; one that only reads is not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable
from typing import Any, Protocol

from palinurus.domain.errors import PalinurusError
from palinurus.gateway.door.guard import Refused
from palinurus.gateway.frames.protocol import MAX_BUFFERED, RequestFrame
from palinurus.gateway.talk.methods import Method, Methods, Talk
from palinurus.gateway.talk.replays import Replays, key_of

log = logging.getLogger(__name__)

AT_ONCE = 64  # requests of one client
FINALS = 256  # second answers that one client waits for


class Asker(Protocol):
    """The client, as its requests know it. Nothing here raises, also when it has gone."""

    def answer(
        self, request_id: str, *, payload: Any = None, error: PalinurusError | Refused | None = None
    ) -> None: ...

    async def feed(self, request_id: str, item: Any) -> None:
        """One item of many. Returns when there is room for the next."""

    def dismiss(self) -> None:
        """Its credential has died: show it out."""


class Requests:
    def __init__(self, methods: Methods, replays: Replays, talk: Talk, asker: Asker) -> None:
        self._methods = methods
        self._replays = replays
        self._talk: Talk | None = talk  # None once the client has gone
        self._asker = asker
        self._going: dict[asyncio.Task[None], bool] = {}  # and whether it must be finished
        self._finals: set[asyncio.Task[None]] = set()
        self._held = 0  # bytes of the frames of those that go on

    async def start(self, frame: RequestFrame, size: int) -> None:
        held = self._held + size > MAX_BUFFERED and bool(self._going)
        if held or len(self._going) >= AT_ONCE or len(self._finals) >= FINALS:
            asked = len(self._going) + len(self._finals)
            busy = Refused(429, "BUSY", f"{asked} requests of this client are being answered", 1.0)
            self._asker.answer(frame.id, error=busy)
            await asyncio.sleep(0)  # a flood must not keep the others from their turn
            return
        method = self._methods.find(frame.method)
        task = asyncio.create_task(self._request(frame))
        self._going[task] = method is not None and method.scope != "read"
        self._held += size
        task.add_done_callback(lambda ended: self._ended(ended, size))

    def end(self) -> list[asyncio.Task[None]]:
        """The client has gone. What must be finished all the same; the rest is cancelled."""
        self._talk = None  # which knows the client, and the client us: a circle would wait for the collector
        for task in (*self._finals, *(task for task, must_finish in self._going.items() if not must_finish)):
            task.cancel()
        return [task for task, must_finish in self._going.items() if must_finish]

    def _ended(self, request: asyncio.Task[None], size: int) -> None:
        self._going.pop(request, None)
        self._held -= size

    async def _request(self, frame: RequestFrame) -> None:
        try:
            method = self._methods.get(frame.method)
            talk = self._allowed(method)
            outcome = await self._outcome(frame, method, talk)
            self._asker.answer(frame.id, payload=outcome)
            if method.final is not None and self._talk is not None:
                self._await_final(frame, method.final(talk, outcome))
        except (Refused, PalinurusError) as error:
            self._asker.answer(frame.id, error=error)
        except Exception:  # the edge of the house: one request may fail by our mistake, not the connection
            log.exception("the method %s failed", frame.method[:80])
            self._asker.answer(frame.id, error=PalinurusError("this request failed by a mistake of the gateway"))

    def _allowed(self, method: Method) -> Talk:
        talk = self._talk
        if talk is None or not talk.desk.guard.still(talk.principal):
            self._asker.dismiss()
            raise Refused(401, "UNAUTHORIZED", "this credential is no longer good")
        if not talk.principal.may(method.scope):
            details = {"code": "MISSING_SCOPE", "missingScope": f"operator.{method.scope}"}
            raise Refused(403, "FORBIDDEN", f"{method.name} needs the scope {method.scope}", details=details)
        return talk

    async def _outcome(self, frame: RequestFrame, method: Method, talk: Talk) -> Any:
        """What the method gives; under an idempotency key that was used before, what it gave then."""
        params = self._methods.params(method, frame.params)
        key = key_of(frame.params) if method.replayed else ""
        if not key:
            return await self._told(frame.id, method.handler(talk, params))
        asked = (talk.principal.id, method.name, key)
        return await self._replays.once(asked, lambda: self._told(frame.id, method.handler(talk, params)))

    async def _told(self, request_id: str, found: Awaitable[Any] | AsyncIterator[Any]) -> Any:
        if not isinstance(found, AsyncIterator):
            return await found
        count = 0
        async for item in found:
            count += 1
            await self._asker.feed(request_id, item)
        return {"items": count}

    def _await_final(self, frame: RequestFrame, final: Awaitable[Any]) -> None:
        """The same id is answered once more; who has read the first answer only need not listen."""

        asked, name = frame.id, frame.method[:80]  # the frame itself may be large, and the run may be long

        async def tell() -> None:
            try:
                self._asker.answer(asked, payload=await final)
            except PalinurusError as error:
                self._asker.answer(asked, error=error)
            except Exception:
                log.exception("the second answer of %s failed", name)

        task = asyncio.create_task(tell())
        self._finals.add(task)
        task.add_done_callback(self._finals.discard)
