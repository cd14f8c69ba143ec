"""The model-and-tools loop: call the model, run its tool calls, repeat, until there are none.

It *yields* finished messages and stores nothing; the turn stores each before the loop continues. Failures are messages
too: a failed or stopped reply ends the loop with a stop reason that says so. A call of a client's tool ends it too: the
call stays open, and the client's result opens the next turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Literal, Protocol

import msgspec
from msgspec import Struct

from palinurus.agent.reply import SILENT, ReplyText, Stop, Stopped
from palinurus.context.assemble import answered, unanswered
from palinurus.domain.clock import Clock
from palinurus.domain.errors import Failure
from palinurus.domain.events import (
    AssistantDelta,
    ModelAnswered,
    ModelCalled,
    Notice,
    RunEvent,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
    Where,
)
from palinurus.domain.messages import (
    AssistantMessage,
    Image,
    Message,
    Origin,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
    texts_in,
)
from palinurus.domain.tool import ToolOutput, ToolRun, ToolSpec
from palinurus.providers.provider import (
    ModelRequest,
    Provider,
    ReplyDone,
    ReplyFailed,
    ReplyNotice,
    TextDelta,
    ThinkingTextDelta,
)
from palinurus.sessions.journal import Journal
from palinurus.skills.skills import Skills
from palinurus.tools.tool_names import SIDE_BY_SIDE

MAX_STEPS = 100  # a model that has not finished after so many calls is in an endless loop
AT_ONCE = 8  # calls of one reply
STOPPED = "Stopped before it ended."
SKIPPED = "Skipped to hear a message that came in meanwhile."
DIRECT = "direct"  # the wire of replies without a model
SEE_REPLY = "The user has it word for word: it is the reply below."


class TurnTools(Protocol):
    """The tools of a turn."""

    def specs(self) -> tuple[ToolSpec, ...]: ...

    async def run(self, run: ToolRun, call: ToolCall) -> ToolOutput:
        """Runs one call. Raises nothing but cancellation; every failure is a result."""


class RequestBudget(Protocol):
    """The space in the context window."""

    async def before_call(self, request: ModelRequest) -> ModelRequest | str | None:
        """A smaller request to send instead, None to send it as it is. A string says why it cannot be sent at all."""

    async def after_overflow(self) -> ModelRequest | None:
        """A smaller request after the provider refused the last one as too long; None if there is none."""


class Interjection(Struct, frozen=True):
    """A message that arrived during the turn, and that the model reads in this turn."""

    run_id: str
    message: UserMessage


class Steer(Protocol):
    """Messages that arrive during the turn."""

    def waiting(self) -> bool:
        """Whether there is one to read in this turn."""

    def take(self) -> Interjection | None:
        """All of them as one message; from now on this turn answers them."""


Emit = Callable[[RunEvent], None]
"""Called with every event as it happens. Must neither block nor raise."""


class DirectReply(Struct, frozen=True):
    """A result and the reply with its text. They are stored together, or a crash in between would lose the reply."""

    result: ToolResult
    reply: AssistantMessage

    @property
    def messages(self) -> tuple[ToolResult, AssistantMessage]:
        return self.result, self.reply


class _CallRecord(Struct):
    """Facts about a model call besides its reply."""

    first: int | None = None  # time of its first text or thinking, in milliseconds
    failure: str = ""


class Loop(Struct, frozen=True):
    """What the loop needs during one turn."""

    provider: Provider
    tools: TurnTools
    run: ToolRun
    stop: Stop
    emit: Emit
    clock: Clock
    journal: Journal  # redacts secrets in what is stored
    steer: Steer
    client_tools: frozenset[str] = frozenset()  # names of the client's tools
    budget: RequestBudget | None = None  # None: everything is sent as it is
    skills: Skills | None = None

    async def messages(self, request: ModelRequest) -> AsyncIterator[AssistantMessage | ToolResult | Interjection]:
        """Yields replies, results and interjections in the order in which the model reads them.

        The last is a reply without calls, or one with a call that waits for the client and the results of the others.
        """
        run = self.run
        for _ in range(MAX_STEPS):
            request, reply = await self._fitting(request)
            yield reply
            if not reply.calls:
                return
            run = _reading(run, reply)
            results: list[ToolResult] = []
            yields = False
            for batch in batches(reply.calls):
                if skipped := self.steer.waiting():
                    done = [(call, self._skipped(call), False) for call in batch]
                else:
                    done = await self._results(run, [call for call in batch if call.name not in self.client_tools])
                for call, result, ends_turn in done:
                    run = self.skills.after(run, call, result.text) if self.skills and not skipped else run
                    yield result
                    results.append(result)
                    run = _reading(run, result)
                    yields |= ends_turn
            if (waiting := unanswered((reply, *results))) and not self.stop.requested:
                return
            for _, result, _ in await self._results(run, waiting):  # that they were stopped
                yield result
                results.append(result)
            # As the next turn will read them from the store: a model may give two calls one id.
            messages = [*request.messages, *answered(reply, results)]
            if interjection := self.steer.take():
                yield interjection
                messages.append(interjection.message)
                run = _reading(run, interjection.message)
            elif yields:
                yield self._direct_message((Text(SILENT),), "stop")
                return
            request = msgspec.structs.replace(request, messages=tuple(messages), tool_choice="")  # it was for the first
        yield self._cut(request, "error", f"gave up after {MAX_STEPS} model calls in one turn")

    async def direct(self, call: ToolCall, request: ModelRequest) -> AsyncIterator[AssistantMessage | DirectReply]:
        """The same without a model: one call that a person requests, and its result as the reply.

        A call that was interrupted by a crash is not repeated: its reply says that there is no result.
        """
        earlier = next((each for each in request.messages[-1:] if isinstance(each, ToolResult)), None)
        if earlier is not None:
            yield self._direct_answer(earlier)
            return
        calling = self.journal.clean(self._direct_message((call,), "toolUse"))
        yield calling
        ((_, result, _),) = await self._results(self.run, calling.calls)
        yield direct_reply(result, self._direct_answer(result))

    def _direct_answer(self, result: ToolResult) -> AssistantMessage:
        reply = self._direct_message((Text(reply_text(result)),), "aborted" if self.stop.requested else "stop")
        self.emit(AssistantDelta(reply.text))
        return reply

    def _direct_message(
        self, content: tuple[Text | ToolCall, ...], reason: Literal["stop", "toolUse", "aborted"]
    ) -> AssistantMessage:
        return AssistantMessage(content, api=DIRECT, stop_reason=reason, timestamp=self.clock.now_ms())

    async def _fitting(self, request: ModelRequest) -> tuple[ModelRequest, AssistantMessage]:
        """The reply to a request that fits into the window, and that request.

        A request that the provider refused as too long is shortened once; no text had been streamed then.
        """
        smaller = await self.budget.before_call(request) if self.budget else None
        if isinstance(smaller, str):
            return request, self._cut(request, "error", f"{Failure.CONTEXT_OVERFLOW}: {smaller}")
        wanted = {"tool_choice": request.tool_choice, "reply_format": request.reply_format}
        request = msgspec.structs.replace(smaller, **wanted) if smaller else request
        reply, failure = await self._reply(request)
        if failure == Failure.CONTEXT_OVERFLOW and self.budget and not self.stop.requested:
            shorter = await self.budget.after_overflow()
            if shorter is not None:
                if reply.text:
                    self.emit(Notice("the conversation was too long and is sent again, shortened", discard=True))
                request = msgspec.structs.replace(shorter, **wanted)
                reply, _ = await self._reply(request)
        return request, self.journal.clean(reply)

    async def _reply(self, request: ModelRequest) -> tuple[AssistantMessage, str]:
        """The reply, and its kind of failure; empty for a good one."""
        began, record = self.clock.now_ms(), _CallRecord()
        self.emit(ModelCalled(self.provider.name, request.model))
        reply = await self._streamed(request, record)
        seconds = (self.clock.now_ms() - began) / 1000
        first = None if record.first is None else (record.first - began) / 1000
        self.emit(
            ModelAnswered(reply.provider, reply.model, seconds, first, reply.usage, reply.stop_reason, record.failure)
        )
        return reply, record.failure

    async def _streamed(self, request: ModelRequest, record: _CallRecord) -> AssistantMessage:
        streamed = ReplyText(self.journal.redact, lambda text: self.emit(AssistantDelta(text)))
        reply: AssistantMessage | None = None
        try:
            with self.stop.interruptible():
                # Read to the end of the stream: a half-read generator leaves its connection open.
                async for event in self.provider.stream(request):
                    if record.first is None and isinstance(event, TextDelta | ThinkingTextDelta):
                        record.first = self.clock.now_ms()
                    match event:
                        case TextDelta():
                            streamed.add(event.text)
                        case ThinkingTextDelta():
                            self.emit(ThinkingDelta(self.journal.redact(event.text)))
                        case ReplyNotice():
                            record.first = None  # another attempt begins
                            if event.discard:
                                streamed.discard()
                            self.emit(Notice(event.text, event.discard))
                        case ReplyDone():
                            reply = event.message
                        case ReplyFailed():
                            record.failure = event.error.kind
                            reply = self._cut(request, "error", f"{event.error.kind}: {event.error}", event.partial)
        except Stopped:
            streamed.end()
            return self._cut(request, "aborted", self.stop.reason, streamed.text)
        streamed.end()
        return reply or self._cut(request, "error", f"{self.provider.name} ended its stream without a reply")

    def _cut(
        self, request: ModelRequest, reason: Literal["error", "aborted"], why: str, partial: str = ""
    ) -> AssistantMessage:
        """A failed reply: the text that had arrived, and why there is no more."""
        return AssistantMessage(
            content=(Text(partial),) if partial else (),
            provider=self.provider.name,
            model=request.model,
            api=self.provider.wire,
            stop_reason=reason,
            error_message=why,
            timestamp=self.clock.now_ms(),
        )

    async def _results(self, run: ToolRun, calls: Sequence[ToolCall]) -> list[tuple[ToolCall, ToolResult, bool]]:
        """Runs calls at the same time. Returns them in their order, and whether they end the turn."""
        started = self.clock.now_ms()
        for call in calls:
            run = self.skills.before(run, call) if self.skills else run
            self.emit(ToolStarted(call.id, call.name, call.arguments))  # of an already redacted reply
        outputs = [ToolOutput(STOPPED, is_error=True)] * len(calls)
        with suppress(Stopped), self.stop.interruptible():
            if len(calls) == 1:
                outputs[0] = await self.tools.run(run, calls[0])
            else:
                await self._fill(outputs, run, calls)
        return [
            (call, self._result(call, output, started), output.ends_turn)
            for call, output in zip(calls, outputs, strict=True)
        ]

    async def _fill(self, outputs: list[ToolOutput], run: ToolRun, calls: Sequence[ToolCall]) -> None:
        """Puts the output of each call into its place. What is there when it is stopped stays."""

        async def fill(at: int, call: ToolCall) -> None:
            outputs[at] = await self.tools.run(run, call)

        async with asyncio.TaskGroup() as group:
            for at, call in enumerate(calls):
                group.create_task(fill(at, call))

    def _result(self, call: ToolCall, output: ToolOutput, started: int) -> ToolResult:
        ended = self.clock.now_ms()
        made = ToolResult(
            call.id, call.name, output.content, output.is_error, ended, output.origin, output.details, output.sources
        )
        result = self.journal.clean(made)
        result = self.skills.marked(result, call) if self.skills else result
        seconds, where = (ended - started) / 1000, _where(output)
        self.emit(ToolFinished(call.id, call.name, result.text, result.is_error, seconds, where))
        return result

    def _skipped(self, call: ToolCall) -> ToolResult:
        self.emit(ToolFinished(call.id, call.name, SKIPPED, is_error=True, seconds=0.0))
        return ToolResult(call.id, call.name, SKIPPED, is_error=True, timestamp=self.clock.now_ms())


def batches(calls: Sequence[ToolCall]) -> Iterator[list[ToolCall]]:
    """The calls of a reply in order: those that only read, and do so alike, together; every other one by itself."""
    batch: list[ToolCall] = []
    for call in calls:
        group = SIDE_BY_SIDE.get(call.name)
        if batch and (group is None or len(batch) == AT_ONCE or group != SIDE_BY_SIDE.get(batch[0].name)):
            yield batch
            batch = []
        batch.append(call)
    if batch:
        yield batch


def _reading(run: ToolRun, *messages: Message) -> ToolRun:
    later = run.having_read(tuple(text for message in messages for text in texts_in(message)))
    return msgspec.structs.replace(later, request=(*run.request, *messages))


def _where(output: ToolOutput) -> Where:
    """Where a command ran, from its tool's details; details of foreign tools may hold anything."""
    where = (output.details or {}).get("where")
    return "sandbox" if where == "sandbox" else "host" if where == "host" else ""


def reply_text(result: ToolResult) -> str:
    """Outside text must not look like ours, neither to a person nor to the model."""
    text = result.text or f"{result.tool_name} is done; it had nothing to say."
    return f"{result.tool_name} brings, from outside:\n\n{text}" if result.origin == Origin.OUTSIDE else text


def direct_reply(result: ToolResult, reply: AssistantMessage) -> DirectReply:
    """How both are stored in the transcript.

    The text is stored once, in the reply, where every reader looks for it: a person, the dashboard, a search or the
    model in the next turn. The result keeps its origin, its error flag and its images.
    """
    if not result.text:
        return DirectReply(result, reply)
    blocks = () if isinstance(result.content, str) else result.content
    pictures = tuple(block for block in blocks if isinstance(block, Image))
    content = (Text(SEE_REPLY), *pictures) if pictures else SEE_REPLY
    return DirectReply(msgspec.structs.replace(result, content=content), reply)
