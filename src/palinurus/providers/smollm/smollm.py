"""SmolLM2 as a provider: a very small local model for small talk; its answers are unreliable.

With 135 million parameters it chooses tools at random and invents facts. So it gets no tools and a short prompt of its
own instead of the agent's, and labels its replies: the first in a session, and each one that is not small talk.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Literal, Protocol

import msgspec
from msgspec import Struct

from palinurus.domain.clock import Clock
from palinurus.domain.errors import Failure, ProviderError
from palinurus.domain.messages import AssistantMessage, Message, Text, Usage, UserMessage
from palinurus.domain.worker import PROGRAM, Worker, WorkerFailed
from palinurus.domain.worker_program import QUERY
from palinurus.providers.provider import TALKER, ModelRequest, ReplyDone, ReplyEvent, ReplyFailed, TextDelta
from palinurus.providers.smollm.packages import weights_file
from palinurus.text.sentences import is_small_talk

WINDOW = 2048
IDLE_SECONDS = 300.0
LOAD_SECONDS = 60.0
PIECE_SECONDS = 30.0  # reading a full prompt takes several on a slow core
INSTALL = "`pal models install embedded` installs it"
CHECK = "`pal models install embedded` checks it"


class ChatLine(Struct, frozen=True):
    """One message, as the model gets it."""

    role: Literal["system", "user", "assistant"]
    content: str


class Spent(Struct, frozen=True):
    """The end of a reply: input and output tokens, and whether it was cut off."""

    input: int = 0
    output: int = 0
    cut: bool = False


class Engine(Protocol):
    """Generates one reply at a time; other requests wait."""

    def reply(self, lines: Sequence[ChatLine], *, most: int, seed: int) -> AsyncGenerator[str | Spent]:
        """Yields text, and Spent as the last item. Raises ProviderError. Closing the generator stops the work."""

    async def close(self) -> None:
        """Frees its resources. It may be used again."""


class ProcessEngine:
    """Implements Engine with worker.py in a separate process, which is killed when a reply is cancelled."""

    def __init__(
        self,
        *,
        idle_seconds: float = IDLE_SECONDS,
        load_seconds: float = LOAD_SECONDS,
        piece_seconds: float = PIECE_SECONDS,
        program: Sequence[str | Path] = (PROGRAM, Path(__file__).with_name("worker.py")),
        find_weights: Callable[[], Path | None] = weights_file,
    ) -> None:
        self._piece_seconds = piece_seconds
        self._program = program
        self._find_weights = find_weights
        self._one_at_a_time = asyncio.Lock()
        self._worker = Worker(
            "the small embedded model", self._arguments, idle_seconds=idle_seconds, load_seconds=load_seconds
        )

    @property
    def pid(self) -> int | None:
        """The pid of the process that holds the model, if any."""
        return self._worker.pid

    async def reply(self, lines: Sequence[ChatLine], *, most: int, seed: int) -> AsyncGenerator[str | Spent]:
        order = {"messages": [msgspec.structs.asdict(line) for line in lines], "most": most, "seed": seed}
        finished = False
        async with self._one_at_a_time, aclosing(self._worker.ask(QUERY, order, self._piece_seconds)) as parts:
            try:
                async for part in parts:
                    finished = part.is_last
                    yield msgspec.json.decode(part.body, type=Spent) if finished else part.body.decode()
            except WorkerFailed as error:
                kind = Failure.TIMEOUT if error.silent else Failure.MALFORMED
                hint = "the machine may be busy; try again" if error.silent else CHECK
                raise ProviderError(str(error), kind=kind, hint=hint) from error
            finally:
                if not finished:
                    await self._worker.stop()

    async def close(self) -> None:
        await self._worker.stop()

    @contextmanager
    def _arguments(self) -> Iterator[Sequence[str | Path]]:
        weights = self._find_weights()
        if weights is None:
            raise ProviderError("the small embedded model is not installed", kind=Failure.MODEL_NOT_FOUND, hint=INSTALL)
        with tempfile.TemporaryDirectory(prefix="pal-", ignore_cleanup_errors=True) as folder:
            yield (*self._program, weights, str(WINDOW), folder)


WIRE = "smollm"
LABEL = "(small embedded model, may be wrong)"
SYSTEM = "You make friendly small talk in one short sentence."

# Shown before every conversation: examples keep so small a model short, where instructions do not.
EXAMPLES = (
    ("Hello!", "Hello! It is nice to hear from you."),
    ("How are you?", "I am fine, thank you. I hope you are well, too."),
    ("Thank you!", "You are welcome!"),
    ("I am tired.", "Then take a little rest. You have earned it."),
    ("Tell me a joke.", "Why did the bicycle fall over? Because it was two-tired!"),
    ("Good night!", "Good night, and sleep well!"),
)
MOST_TOKENS = 60
MOST_LINES = 3  # with more history it repeats old topics

# A token is at least one byte: this many always fit into the window, and are read within a few seconds.
MOST_BYTES = 600
_NOTHING_SAID = ChatLine("user", "Hello!")
_BEFORE = (
    ChatLine("system", SYSTEM),
    *(line for question, answer in EXAMPLES for line in (ChatLine("user", question), ChatLine("assistant", answer))),
)


class SmolLM:
    """Implements Provider. Ignores the tools, thinking and system prompt of a request."""

    name = TALKER.provider
    wire = WIRE

    def __init__(self, clock: Clock, engine: Callable[[], Engine] = ProcessEngine) -> None:
        self._clock = clock
        self._engine = engine()

    def context_window(self, model: str) -> int:
        return WINDOW

    async def close(self) -> None:
        await self._engine.close()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ReplyEvent]:
        asked = [message.text for message in request.messages if isinstance(message, UserMessage)]
        spoke = any(isinstance(message, AssistantMessage) and message.api == WIRE for message in request.messages)
        said = "" if spoke and asked and is_small_talk(asked[-1]) else f"{LABEL}\n"
        spent, started = Spent(), False
        most = min(request.max_tokens or MOST_TOKENS, MOST_TOKENS)
        seed = self._clock.now_ms() % 2**31
        try:
            async with aclosing(self._engine.reply(lines_of(request.messages), most=most, seed=seed)) as reply:
                async for piece in reply:
                    if isinstance(piece, Spent):
                        spent = piece
                    elif piece:
                        new = piece if started else said + piece.lstrip()  # the label is sent with the first text
                        said = said + new if started else new
                        started = True
                        yield TextDelta(new)
        except ProviderError as error:
            yield ReplyFailed(error, said if started else "")
            return
        if not started:
            yield ReplyFailed(ProviderError("the small embedded model said nothing", kind=Failure.MALFORMED))
            return
        usage, now_ms = Usage(input=spent.input, output=spent.output), self._clock.now_ms()
        reason: Literal["length", "stop"] = "length" if spent.cut else "stop"
        yield ReplyDone(
            AssistantMessage((Text(said),), self.name, request.model, WIRE, usage, reason, timestamp=now_ms)
        )


def lines_of(messages: Sequence[Message]) -> list[ChatLine]:
    """The prompt: the examples, and as much of the latest small talk as surely fits. Pure."""
    shown: list[ChatLine] = []
    bytes_left = MOST_BYTES
    for message in reversed(messages):
        line = _line(message)
        if line is None or not line.content:
            continue
        content = line.content.encode()[:bytes_left].decode("utf-8", "ignore")
        if len(shown) == MOST_LINES or not content or (shown and content != line.content):
            break
        shown.append(ChatLine(line.role, content))
        bytes_left -= len(content.encode())
    while shown and shown[-1].role == "assistant":
        shown.pop()
    return [*_BEFORE, *(reversed(shown) if shown else (_NOTHING_SAID,))]


def _line(message: Message) -> ChatLine | None:
    match message:
        case UserMessage():
            return ChatLine("user", message.text.strip())
        case AssistantMessage():
            # The label and Scout's second paragraph are not the model's text; it would imitate them.
            own = message.text.removeprefix(LABEL).strip()
            return ChatLine("assistant", own.partition("\n\n")[0])
        case _:
            return None
