"""The model-and-tools loop: ask, run what was asked for, ask again, until there is nothing more to run.

It *yields* finished messages and stores nothing; the turn stores each before the loop goes on. Failures are
messages too: a reply that failed or was stopped ends the loop with a stop reason that says so. A call of a tool that
the client does ends it too: the call stays open, and the client's result opens the next turn.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Literal, Protocol, TypeVar

import msgspec
from msgspec import Struct

from palinurus.agent.direct import Told, as_reply, as_told
from palinurus.agent.relief import NoRelief, Relief
from palinurus.agent.stop import Stop, Stopped
from palinurus.agent.streamed import Streamed
from palinurus.context.assemble import answered, unanswered
from palinurus.domain.clock import Clock
from palinurus.domain.errors import Failure
from palinurus.domain.events import (
    AssistantDelta,
    ModelAnswered,
    ModelCalled,
    RunEvent,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
)
from palinurus.domain.events import Notice as NoticeEvent
from palinurus.domain.messages import AssistantMessage, Message, Text, ToolCall, ToolResult, UserMessage
from palinurus.domain.plan import Where
from palinurus.domain.provenance import texts_in
from palinurus.domain.tool import ToolOutput, ToolRun, ToolSpec
from palinurus.providers.provider import (
    ModelRequest,
    Notice,
    Provider,
    ReplyDone,
    ReplyFailed,
    TextDelta,
    ThinkingTextDelta,
)
from palinurus.skills.skills import Skills

MAX_STEPS = 100  # a model that has not finished after so many calls is going round in circles
STOPPED = "Stopped before it ended."
SKIPPED = "Skipped to hear a message that came in meanwhile."
DIRECT = "direct"  # the wire of replies that no model gave

M = TypeVar("M", AssistantMessage, ToolResult)


class Pen(Protocol):
    """How things look when they are written down: without secrets. The model is sent nothing else."""

    def clean(self, message: M) -> M: ...

    def redact(self, text: str) -> str: ...


class Hands(Protocol):
    """The tools of a turn."""

    def specs(self) -> tuple[ToolSpec, ...]: ...

    async def run(self, run: ToolRun, call: ToolCall) -> ToolOutput:
        """Run one call. Raises nothing but cancellation; every failure is a result."""


class Interjection(Struct, frozen=True):
    """Somebody spoke while the turn went on, and is heard in it."""

    run_id: str
    message: UserMessage


class Steer(Protocol):
    """Those who speak while the turn goes on."""

    def waiting(self) -> bool:
        """Whether somebody wants to be heard in this turn."""

    def take(self) -> Interjection | None:
        """What they say, as one message; from now on they are answered by this turn."""


Emit = Callable[[RunEvent], None]
"""Told of every event as it happens. Must neither block nor raise."""


class _Heard(Struct):
    """What is worth knowing about a model call besides its reply."""

    first: int | None = None  # when its first word or thought came, in milliseconds
    failure: str = ""


class Loop(Struct, frozen=True):
    """What the loop works with during one turn."""

    provider: Provider
    tools: Hands
    run: ToolRun
    stop: Stop
    emit: Emit
    clock: Clock
    pen: Pen
    steer: Steer
    asked: frozenset[str] = frozenset()  # names of the tools that the client does
    relief: Relief = NoRelief()
    skills: Skills | None = None

    async def messages(self, request: ModelRequest) -> AsyncIterator[AssistantMessage | ToolResult | Interjection]:
        """Yield replies, results and interjections in the order in which the model reads them.

        A reply without calls is the last, or one with a call that waits for the client and the results of the others.
        """
        run = self.run
        for _ in range(MAX_STEPS):
            request, reply = await self._fitting(request)
            yield reply
            if not reply.calls:
                return
            run = _reading(run, reply)
            results: list[ToolResult] = []
            for call in reply.calls:
                if call.name in self.asked and not self.steer.waiting():
                    continue
                if self.steer.waiting():
                    result = self._skipped(call)
                else:
                    run = self.skills.before(run, call) if self.skills else run
                    result = await self._result(run, call)
                    run = self.skills.after(run, call, result.text) if self.skills else run
                yield result
                results.append(result)
                run = _reading(run, result)
            if (waiting := unanswered((reply, *results))) and not self.stop.requested:
                return
            for call in waiting:
                yield (result := await self._result(run, call))  # that it was stopped
                results.append(result)
            # As the next turn will read them from the store: a model may give two calls one id.
            messages = [*request.messages, *answered(reply, results)]
            if interjection := self.steer.take():
                yield interjection
                messages.append(interjection.message)
                run = _reading(run, interjection.message)
            request = msgspec.structs.replace(request, messages=tuple(messages))
        yield self._cut(request, "error", f"gave up after {MAX_STEPS} model calls in one turn")

    async def direct(self, call: ToolCall, request: ModelRequest) -> AsyncIterator[AssistantMessage | Told]:
        """The same without a model: one call that a person asks for, and its result as the reply.

        A call that was cut off by a crash is not done twice: its reply says that there is no result.
        """
        earlier = next((each for each in request.messages[-1:] if isinstance(each, ToolResult)), None)
        if earlier is not None:
            yield self._replied(earlier)
            return
        made = self.pen.clean(self._made((call,), "toolUse"))
        yield made
        result = await self._result(self.run, made.calls[0])
        yield as_told(result, self._replied(result))

    def _replied(self, result: ToolResult) -> AssistantMessage:
        reply = self._made((Text(as_reply(result)),), "aborted" if self.stop.requested else "stop")
        self.emit(AssistantDelta(reply.text))
        return reply

    def _made(
        self, content: tuple[Text | ToolCall, ...], reason: Literal["stop", "toolUse", "aborted"]
    ) -> AssistantMessage:
        return AssistantMessage(content, api=DIRECT, stop_reason=reason, timestamp=self.clock.now_ms())

    async def _fitting(self, request: ModelRequest) -> tuple[ModelRequest, AssistantMessage]:
        """The reply to a request that fits into the window, and that request.

        What the provider has refused as too long is made smaller once; nothing had been said then.
        """
        smaller = await self.relief.before(request)
        if isinstance(smaller, str):
            return request, self._too_long(request, smaller)
        request = smaller or request
        reply, failure = await self._reply(request)
        if failure == Failure.CONTEXT_OVERFLOW and not self.stop.requested:
            smaller = await self.relief.after(request)
            if isinstance(smaller, str):
                return request, self._too_long(request, smaller)
            if smaller is not None:
                if reply.text:
                    self.emit(NoticeEvent("the conversation was too long and is asked again, shorter", discard=True))
                request = smaller
                reply, _ = await self._reply(request)
        return request, self.pen.clean(reply)

    def _too_long(self, request: ModelRequest, why: str) -> AssistantMessage:
        return self._cut(request, "error", f"{Failure.CONTEXT_OVERFLOW}: {why}")

    async def _reply(self, request: ModelRequest) -> tuple[AssistantMessage, str]:
        """The reply, and what kind of failure it is; empty for a good one."""
        began, heard = self.clock.now_ms(), _Heard()
        self.emit(ModelCalled(self.provider.name, request.model))
        reply = await self._streamed(request, heard)
        seconds = (self.clock.now_ms() - began) / 1000
        first = None if heard.first is None else (heard.first - began) / 1000
        self.emit(
            ModelAnswered(reply.provider, reply.model, seconds, first, reply.usage, reply.stop_reason, heard.failure)
        )
        return reply, heard.failure

    async def _streamed(self, request: ModelRequest, heard: _Heard) -> AssistantMessage:
        streamed = Streamed(self.pen.redact, lambda text: self.emit(AssistantDelta(text)))
        reply: AssistantMessage | None = None
        try:
            with self.stop.interruptible():
                # To the very end of the stream: leaving a generator half-way leaves its connection open.
                async for event in self.provider.stream(request):
                    if heard.first is None and isinstance(event, TextDelta | ThinkingTextDelta):
                        heard.first = self.clock.now_ms()
                    match event:
                        case TextDelta():
                            streamed.hear(event.text)
                        case ThinkingTextDelta():
                            self.emit(ThinkingDelta(self.pen.redact(event.text)))
                        case Notice():
                            heard.first = None  # another attempt begins
                            if event.discard:
                                streamed.discard()
                            self.emit(NoticeEvent(event.text, event.discard))
                        case ReplyDone():
                            reply = event.message
                        case ReplyFailed():
                            heard.failure = event.error.kind
                            reply = self._cut(request, "error", f"{event.error.kind}: {event.error}", event.partial)
        except Stopped:
            streamed.end()
            return self._cut(request, "aborted", self.stop.reason, streamed.text)
        streamed.end()
        return reply or self._cut(request, "error", f"{self.provider.name} ended its stream without a reply")

    def _cut(
        self, request: ModelRequest, reason: Literal["error", "aborted"], why: str, partial: str = ""
    ) -> AssistantMessage:
        """A reply that is none: what had arrived, and why there is no more."""
        return AssistantMessage(
            content=(Text(partial),) if partial else (),
            provider=self.provider.name,
            model=request.model,
            api=self.provider.wire,
            stop_reason=reason,
            error_message=why,
            timestamp=self.clock.now_ms(),
        )

    async def _result(self, run: ToolRun, call: ToolCall) -> ToolResult:
        started = self.clock.now_ms()
        self.emit(ToolStarted(call.id, call.name, call.arguments))  # of a reply that is clean already
        try:
            with self.stop.interruptible():
                output = await self.tools.run(run, call)
        except Stopped:
            output = ToolOutput(STOPPED, is_error=True)
        ended = self.clock.now_ms()
        result = self.pen.clean(
            ToolResult(
                call.id,
                call.name,
                output.content,
                output.is_error,
                ended,
                output.origin,
                output.details,
                output.sources,
            )
        )
        result = self.skills.marked(result, call) if self.skills else result
        seconds, where = (ended - started) / 1000, _where(output)
        self.emit(ToolFinished(call.id, call.name, result.text, result.is_error, seconds, where))
        return result

    def _skipped(self, call: ToolCall) -> ToolResult:
        self.emit(ToolFinished(call.id, call.name, SKIPPED, is_error=True, seconds=0.0))
        return ToolResult(call.id, call.name, SKIPPED, is_error=True, timestamp=self.clock.now_ms())


def _reading(run: ToolRun, *messages: Message) -> ToolRun:
    later = run.having_read(tuple(text for message in messages for text in texts_in(message)))
    return msgspec.structs.replace(later, request=(*run.request, *messages))


def _where(output: ToolOutput) -> Where:
    """Where a command ran, as its tool says; details of tools from elsewhere may say anything."""
    told = (output.details or {}).get("where")
    return "sandbox" if told == "sandbox" else "host" if told == "host" else ""
