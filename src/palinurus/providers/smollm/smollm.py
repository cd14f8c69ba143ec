"""SmolLM2 as a provider: a very small model on this machine that may chat and may not be believed.

With 135 million parameters it chooses tools by chance and invents what it does not know. So it is offered no tools, is
shown a few lines of its own instead of the agent's prompt, and says what it is: the first time in a conversation, and
again whenever it answers something that is not small talk.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from palinurus.domain.clock import Clock
from palinurus.domain.errors import Failure, ProviderError
from palinurus.domain.messages import AssistantMessage, Message, Text, Usage, UserMessage
from palinurus.providers.provider import ModelRequest, ReplyDone, ReplyEvent, ReplyFailed, TextDelta
from palinurus.providers.scout.smalltalk import TALKER, is_small_talk
from palinurus.providers.smollm.engine import WINDOW, Engine, Line, ProcessEngine, Spent

WIRE = "smollm"
LABEL = "(small embedded model, may be wrong)"
SYSTEM = "You make friendly small talk in one short sentence."
# Shown before every conversation: examples keep so small a model short and to the point, where instructions do not.
EXAMPLES = (
    ("Hello!", "Hello! It is nice to hear from you."),
    ("How are you?", "I am fine, thank you. I hope you are well, too."),
    ("Thank you!", "You are welcome!"),
    ("I am tired.", "Then take a little rest. You have earned it."),
    ("Tell me a joke.", "Why did the bicycle fall over? Because it was two-tired!"),
    ("Good night!", "Good night, and sleep well!"),
)
MOST_TOKENS = 60
MOST_LINES = 3  # more of the past and it goes on about that
# A token is a byte at worst: so many fit into the window whatever they are, and are read within a few seconds.
MOST_BYTES = 600
_NOTHING_SAID = Line("user", "Hello!")
_BEFORE = (
    Line("system", SYSTEM),
    *(line for asked, answer in EXAMPLES for line in (Line("user", asked), Line("assistant", answer))),
)


class SmolLM:
    """Implements Provider. Tools, thinking and the system prompt of a request are not for this model."""

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
        said = f"{LABEL}\n" if _must_say_what_it_is(request.messages) else ""
        spent, heard = Spent(), False
        most = min(request.max_tokens or MOST_TOKENS, MOST_TOKENS)
        seed = self._clock.now_ms() % 2**31
        try:
            async with aclosing(self._engine.reply(lines_of(request.messages), most=most, seed=seed)) as reply:
                async for piece in reply:
                    if isinstance(piece, Spent):
                        spent = piece
                    elif piece:
                        new = piece if heard else said + piece.lstrip()  # the label waits until there is a reply
                        said = said + new if heard else new
                        heard = True
                        yield TextDelta(new)
        except ProviderError as error:
            yield ReplyFailed(error, said if heard else "")
            return
        if heard:
            yield ReplyDone(self._message(request, said, spent))
        else:
            yield ReplyFailed(ProviderError("the small embedded model said nothing", kind=Failure.MALFORMED))

    def _message(self, request: ModelRequest, said: str, spent: Spent) -> AssistantMessage:
        return AssistantMessage(
            content=(Text(said),),
            provider=self.name,
            model=request.model,
            api=WIRE,
            usage=Usage(input=spent.input, output=spent.output),
            stop_reason="length" if spent.cut else "stop",
            timestamp=self._clock.now_ms(),
        )


def lines_of(messages: Sequence[Message]) -> list[Line]:
    """What the model is shown: its own lines, and as much of the latest talk as surely fits. Pure."""
    kept: list[Line] = []
    room = MOST_BYTES
    for message in reversed(messages):
        line = _line(message)
        if line is None or not line.content:
            continue
        content = line.content.encode()[:room].decode("utf-8", "ignore")
        if len(kept) == MOST_LINES or not content or (kept and content != line.content):
            break
        kept.append(Line(line.role, content))
        room -= len(content.encode())
    while kept and kept[-1].role == "assistant":
        kept.pop()
    return [*_BEFORE, *(reversed(kept) if kept else (_NOTHING_SAID,))]


def _line(message: Message) -> Line | None:
    match message:
        case UserMessage():
            return Line("user", message.text.strip())
        case AssistantMessage():
            # The label and what Scout adds in a second paragraph are not the model's words; it would imitate them.
            own = message.text.removeprefix(LABEL).strip()
            return Line("assistant", own.partition("\n\n")[0])
        case _:
            return None


def _must_say_what_it_is(messages: Sequence[Message]) -> bool:
    said = [message.text for message in messages if isinstance(message, UserMessage)]
    spoke = any(isinstance(message, AssistantMessage) and message.api == WIRE for message in messages)
    return not spoke or not (said and is_small_talk(said[-1]))
