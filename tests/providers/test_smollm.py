"""The small model chats, is told apart, and never gets near a tool, a prompt or a fact. With a fake engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, date, tzinfo

import pytest

from palinurus.domain.errors import Failure, ProviderError
from palinurus.domain.messages import AssistantMessage, Message, Text, ToolCall, ToolResult, UserMessage
from palinurus.domain.tool import ToolSpec
from palinurus.providers.provider import Head, ModelRequest, ReplyDone, ReplyEvent, ReplyFailed, ReplyNotice, TextDelta
from palinurus.providers.scout.scout import SMALL_MODEL, Scout, respond
from palinurus.providers.smollm.smollm import (
    EXAMPLES,
    LABEL,
    MOST_BYTES,
    MOST_TOKENS,
    ChatLine,
    SmolLM,
    Spent,
    lines_of,
)

TOOLS = tuple(ToolSpec(name, name, {"type": "object"}) for name in ("note", "grep", "ls", "read"))
OWN_LINES = 1 + 2 * len(EXAMPLES)


class StoppedClock:
    @property
    def zone(self) -> tzinfo:
        return UTC

    def now_ms(self) -> int:
        return 7


class FakeEngine:
    """Implements Engine: says what it was told to, or fails at the end of it."""

    def __init__(self, *pieces: str, fails: bool = False, cut: bool = False) -> None:
        self.pieces = pieces
        self.fails = fails
        self.cut = cut
        self.shown: list[Sequence[ChatLine]] = []
        self.most = 0
        self.left_early = 0
        self.closed = 0

    async def reply(self, lines: Sequence[ChatLine], *, most: int, seed: int) -> AsyncGenerator[str | Spent]:
        self.shown.append(lines)
        self.most = most
        finished = False
        try:
            for piece in self.pieces:
                yield piece
            if self.fails:
                raise ProviderError("the engine broke", kind=Failure.MALFORMED)
            finished = True
            yield Spent(11, 3, cut=self.cut)
        finally:
            self.left_early += not finished

    async def close(self) -> None:
        self.closed += 1


def small(engine: FakeEngine) -> SmolLM:
    return SmolLM(StoppedClock(), lambda: engine)


def asking(*messages: Message, model: str = "smollm2") -> ModelRequest:
    return ModelRequest(model, Head("SECRET PROMPT", TOOLS), messages)


def spoke(text: str) -> AssistantMessage:
    return AssistantMessage((Text(text),), provider="embedded", model="smollm2", api="smollm")


async def heard(provider: SmolLM | Scout, request: ModelRequest) -> list[ReplyEvent]:
    async with asyncio.timeout(60):
        return [event async for event in provider.stream(request)]


async def test_the_first_reply_says_what_is_speaking_and_the_next_does_not() -> None:
    provider = small(FakeEngine(" Hello", " you."))
    *deltas, done = await heard(provider, asking(UserMessage("hi")))
    assert [event.text for event in deltas if isinstance(event, TextDelta)] == [f"{LABEL}\nHello", " you."]
    assert isinstance(done, ReplyDone)
    assert done.message.text == f"{LABEL}\nHello you."
    again = (await heard(provider, asking(UserMessage("hi"), done.message, UserMessage("thanks"))))[-1]
    assert isinstance(again, ReplyDone)
    assert again.message.text == "Hello you."


async def test_whatever_is_not_small_talk_is_labelled_every_time() -> None:
    talk = (UserMessage("hi"), spoke("Hello."), UserMessage("what is the capital of France?"))
    done = (await heard(small(FakeEngine("Lyon.")), asking(*talk)))[-1]
    assert isinstance(done, ReplyDone)
    assert done.message.text == f"{LABEL}\nLyon."


async def test_the_message_says_who_spoke_and_what_it_used() -> None:
    done = (await heard(small(FakeEngine("Hello.", cut=True)), asking(UserMessage("hi"))))[-1]
    assert isinstance(done, ReplyDone)
    message = done.message
    assert (message.provider, message.model, message.api) == ("embedded", "smollm2", "smollm")
    assert (message.usage.input, message.usage.output, message.stop_reason) == (11, 3, "length")
    assert message.calls == ()


async def test_it_sees_neither_the_prompt_nor_the_tools_nor_their_results() -> None:
    engine = FakeEngine("Hello.")
    history = (
        UserMessage("list files"),
        AssistantMessage((ToolCall("c", "ls", {}),)),
        ToolResult("c", "ls", "SECRET FILE"),
        spoke(f"{LABEL}\nI see.\n\nWhat I can do: SECRET HELP"),
        UserMessage("hi"),
    )
    await heard(small(engine), asking(*history))
    said = "\n".join(line.content for line in engine.shown[0])
    assert "SECRET" not in said
    assert LABEL not in said
    assert [(line.role, line.content) for line in engine.shown[0][OWN_LINES:]] == [
        ("user", "list files"),
        ("assistant", "I see."),
        ("user", "hi"),
    ]


async def test_a_reply_is_short_whatever_was_asked_for() -> None:
    engine = FakeEngine("Hello.")
    request = ModelRequest("smollm2", Head(""), (UserMessage("hi"),), max_tokens=4000)
    await heard(small(engine), request)
    assert engine.most == MOST_TOKENS


@pytest.mark.parametrize("text", ["x" * 9000, "好" * 9000, "🌙" * 9000])
def test_what_it_is_shown_always_fits_its_window(text: str) -> None:
    lines = lines_of([UserMessage(text), spoke(text), UserMessage(text)])
    assert sum(len(line.content.encode()) for line in lines[OWN_LINES:]) <= MOST_BYTES
    assert lines[-1].role == "user"
    assert lines[-1].content == text[: len(lines[-1].content)]


def test_nothing_said_is_taken_for_a_greeting() -> None:
    assert lines_of([])[-1] == lines_of([UserMessage("")])[-1] == ChatLine("user", "Hello!")


async def test_a_failure_of_the_engine_is_the_last_event_and_keeps_what_was_said() -> None:
    events = await heard(small(FakeEngine("Hel", fails=True)), asking(UserMessage("hi")))
    failed = events[-1]
    assert isinstance(failed, ReplyFailed)
    assert (failed.error.message, failed.partial) == ("the engine broke", f"{LABEL}\nHel")


async def test_an_empty_reply_is_a_failure_without_a_label() -> None:
    [failed] = await heard(small(FakeEngine()), asking(UserMessage("hi")))
    assert isinstance(failed, ReplyFailed)
    assert failed.partial == ""


async def test_leaving_the_stream_leaves_the_engine() -> None:
    engine = FakeEngine("a", "b", "c")
    stream = small(engine).stream(asking(UserMessage("hi")))
    assert isinstance(await anext(stream), TextDelta)
    await stream.aclose()
    assert engine.left_early == 1


async def test_closing_gives_the_engine_back() -> None:
    engine = FakeEngine()
    await small(engine).close()
    assert engine.closed == 1


# Scout with the small model beside it.


def scout(engine: FakeEngine) -> Scout:
    talker = small(engine)
    return Scout(StoppedClock(), lambda: talker.stream)


EARLIER: tuple[Message, ...] = (UserMessage("my bike?"), AssistantMessage((Text("SECRET QUOTE"),), model="scout"))


async def test_small_talk_is_left_to_the_small_model_and_stored_under_its_name() -> None:
    engine = FakeEngine("Hello.")
    done = (await heard(scout(engine), asking(*EARLIER, UserMessage("hi"), model="scout")))[-1]
    assert isinstance(done, ReplyDone)
    assert done.message.text == f"{LABEL}\nHello."
    assert (done.message.provider, done.message.model) == ("embedded", "smollm2")


async def test_the_first_greeting_still_tells_what_can_be_done() -> None:
    *deltas, done = await heard(scout(FakeEngine("Hello.")), asking(UserMessage("hi"), model="scout"))
    assert isinstance(done, ReplyDone)
    said = done.message.text
    assert said.startswith(f"{LABEL}\nHello.\n\nWhat I can do:\n- ")
    assert said.endswith(SMALL_MODEL)
    assert said == "".join(event.text for event in deltas if isinstance(event, TextDelta))


async def test_the_small_model_never_sees_what_scout_quoted() -> None:
    engine = FakeEngine("Hello.")
    talked = (UserMessage("hi"), spoke("Hello."))
    await heard(scout(engine), asking(*EARLIER, *talked, *EARLIER, UserMessage("thanks"), model="scout"))
    assert [line.content for line in engine.shown[0][OWN_LINES:]] == ["hi", "Hello.", "thanks"]


@pytest.mark.parametrize(
    "text", ["what colour is my bicycle?", "remember that x", "list files", "help", "", "who wrote Hamlet?"]
)
async def test_whatever_is_no_small_talk_is_answered_as_if_the_model_were_not_there(text: str) -> None:
    engine = FakeEngine("Hello.")
    request = asking(*EARLIER, UserMessage(text), model="scout")
    assert await heard(scout(engine), request) == await heard(Scout(StoppedClock()), request)
    assert engine.shown == []


async def test_results_of_tools_are_told_by_scout_even_after_small_talk() -> None:
    engine = FakeEngine("Hello.")
    call = AssistantMessage((ToolCall("c", "ls", {}),))
    request = asking(UserMessage("hi"), call, ToolResult("c", "ls", "AGENTS.md"), model="scout")
    done = (await heard(scout(engine), request))[-1]
    assert isinstance(done, ReplyDone)
    assert "AGENTS.md" in done.message.text
    assert engine.shown == []


async def test_when_the_small_model_fails_scout_answers_by_itself_and_says_why() -> None:
    request = asking(*EARLIER, UserMessage("hi"), model="scout")
    events = await heard(scout(FakeEngine("Hel", fails=True)), request)
    notice, done = events[-3], events[-1]
    assert notice == ReplyNotice("the engine broke; scout answers instead", discard=True)
    assert isinstance(done, ReplyDone)
    assert done.message.text == respond(request, date(2026, 11, 15))
    assert done.message.model == "scout"
