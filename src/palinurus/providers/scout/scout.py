"""The embedded default: a provider without a language model, so that Palinurus works with no key and no network.

Scout takes part in the ordinary loop. It reads what was said, answers with real tool calls, and composes its reply out
of the results of this very turn: it notes, searches memory and quotes its lines with their place, lists and reads
files. It never invents and never paraphrases, and says so at the start of a conversation.

Where the small embedded model is installed, small talk and nothing else is left to it: it sees what was said as small
talk and no line that Scout found.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from datetime import date

from msgspec import structs

from palinurus.domain.clock import Clock, local_time
from palinurus.domain.days import date_of
from palinurus.domain.messages import AssistantMessage, Message, Text, ToolCall, ToolResult, UserMessage
from palinurus.providers.provider import (
    Head,
    ModelRef,
    ModelRequest,
    Notice,
    ReplyDone,
    ReplyEvent,
    ReplyFailed,
    TextDelta,
)
from palinurus.providers.scout.asked import Asked
from palinurus.providers.scout.intents import Call, Intent, understand
from palinurus.providers.scout.quoting import Line, cited_lines
from palinurus.providers.scout.remembered import MORE, about, nothing, tell
from palinurus.providers.scout.smalltalk import TALKER, is_small_talk

SCOUT = ModelRef("embedded", "scout")
WIRE = "scout"
WINDOW = 32_000
MOST_LINES = 60

_HOW = (
    "set OPENAI_API_KEY or another provider's key, or start Ollama or LM Studio, or run "
    "`pal config set agents.defaults.model provider/model`."
)
NO_MODEL = f"(No language model is configured, so I only quote and never guess. To get one, {_HOW})"
SMALL_MODEL = f"(The small model only chats; for the rest I quote and never guess. To get a larger one, {_HOW})"
ABILITIES = (
    (("memory_write", "note"), '"remember that my bicycle is green" writes it into today\'s note'),
    (
        ("memory_search", "grep"),
        '"what colour is my bicycle?" quotes the lines of my notes that speak of it, with their place',
    ),
    (("memory_search",), '"what do you know about Anna?" and "what did I do last Tuesday?" do so too'),
    (("memory_get",), '"what do you remember about me?" quotes what I know of you'),
    (("ls",), '"list files" shows what is in the workspace'),
    (("read",), '"read USER.md" shows a file'),
)
TROUBLE = {
    "memory_write": "I could not write the note",
    "note": "I could not write the note",
    "memory_search": "I could not search my notes",
    "memory_get": "I could not read my notes",
    "grep": "I could not search my notes",
    "ls": "I could not list the files",
    "read": "I could not read the file",
}

Talk = Callable[[ModelRequest], AsyncGenerator[ReplyEvent]]
"""The stream of a provider."""
FindTalker = Callable[[], Talk | None]
"""The model for small talk, or None while there is none. Called for each small talk; must not raise."""


class Scout:
    """Implements Provider. Deterministic: the same request and the same time give the same reply."""

    name = SCOUT.provider
    wire = WIRE

    def __init__(self, clock: Clock, find_talker: FindTalker = lambda: None) -> None:
        self._clock = clock
        self._find_talker = find_talker

    def context_window(self, model: str) -> int:
        return WINDOW

    async def close(self) -> None:
        return None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ReplyEvent]:
        talk = small_talk(request)
        talker = self._find_talker() if talk else None
        if talker is not None and talk is not None:
            async with aclosing(_chatted(talker, talk, _welcome(request))) as events:
                async for event in events:
                    yield event
                    if isinstance(event, ReplyDone):
                        return
        reply = respond(request, local_time(self._clock).date())
        now_ms = self._clock.now_ms()
        if isinstance(reply, str):
            yield TextDelta(reply)
            content: tuple[Text | ToolCall, ...] = (Text(reply),)
        else:
            content = tuple(
                ToolCall(f"scout_{now_ms:x}_{len(request.messages)}_{number}", call.tool, call.arguments)
                for number, call in enumerate(reply)
            )
        yield ReplyDone(
            AssistantMessage(
                content=content,
                provider=SCOUT.provider,
                model=request.model,
                api=WIRE,
                stop_reason="stop" if isinstance(reply, str) else "toolUse",
                timestamp=now_ms,
            )
        )


def small_talk(request: ModelRequest) -> ModelRequest | None:
    """What the small model is asked when the newest message is small talk: that and earlier small talk. Pure."""
    at = _last_user(request)
    if at != len(request.messages) - 1 or not is_small_talk(_said(request, at)):
        return None
    talked: list[Message] = []
    for before, message in zip(request.messages, request.messages[1:], strict=False):
        if isinstance(message, AssistantMessage) and message.model == TALKER.model and isinstance(before, UserMessage):
            talked += [before, message]
    return ModelRequest(TALKER.model, Head(""), (*talked, request.messages[at]), max_tokens=request.max_tokens)


async def _chatted(talker: Talk, talk: ModelRequest, welcome: str) -> AsyncGenerator[ReplyEvent]:
    """The small model's reply with a welcome behind it. No ReplyDone: it did not answer, and a notice says why."""
    heard = False
    async with aclosing(talker(talk)) as events:
        async for event in events:
            match event:
                case ReplyDone():
                    if welcome:
                        yield TextDelta(welcome)
                    yield ReplyDone(structs.replace(event.message, content=(Text(event.message.text + welcome),)))
                case ReplyFailed():
                    yield Notice(f"{event.error.message}; scout answers by itself", discard=heard)
                case _:
                    heard = heard or isinstance(event, TextDelta)
                    yield event


def _welcome(request: ModelRequest) -> str:
    """What the first reply of a conversation adds, so that a greeting still tells what can be done here."""
    if not _is_first(request, _last_user(request)):
        return ""
    return f"\n\n{_help({spec.name for spec in request.head.tools})}\n{SMALL_MODEL}"


def respond(request: ModelRequest, today: date) -> str | tuple[Call, ...]:
    """The words to say, or the tools to call first. Pure. `today` is for a message that does not tell the time."""
    at = _last_user(request)
    offered = {spec.name for spec in request.head.tools}
    intent = understand(_said(request, at), offered, _day(request, at) or today)
    results = [message for message in request.messages[at + 1 :] if isinstance(message, ToolResult)]
    if intent.help and not results:
        who = f"{intent.answer}\n" if intent.answer else ""
        return f"{who}{_help(offered)}\n{NO_MODEL}"
    if intent.calls and not results:
        lacking = next((call.tool for call in intent.calls if call.tool not in offered), "")
        return _introduced(request, at, _cannot(lacking)) if lacking else intent.calls
    return _introduced(request, at, _compose(intent, results) if results else intent.answer)


def _compose(intent: Intent, results: Sequence[ToolResult]) -> str:
    """What the results say, or what went wrong with the first of them."""
    result = results[0]
    if result.is_error:
        said = " ".join(result.text.split())
        return f"{TROUBLE.get(result.tool_name, f'The tool {result.tool_name} failed')}: {said}"
    if intent.asked and result.tool_name == "grep":
        return _grepped(intent.asked, result.text)
    if intent.asked:
        return tell(intent.asked, results)
    compose = COMPOSERS.get(result.tool_name)
    return compose(result.text) if compose else result.text


def _noted(result: str) -> str:
    stored = cited_lines(re.sub(r"^noted in ", "", result.strip(), flags=re.IGNORECASE))
    return f"Noted in {stored[0].place}: {stored[0].words}" if stored else f"Noted: {result.strip()}"


def _grepped(asked: Asked, result: str) -> str:
    told = about(asked, [line for line in cited_lines(result) if _is_memory(line)]) or nothing(asked)
    return f"{told}\n{MORE}" if "[more than" in result else told


def _listed(result: str) -> str:
    return f"I see:\n{_clipped(result)}"


def _is_memory(line: Line) -> bool:
    """Templates such as AGENTS.md speak about everything and know nothing of the person."""
    return line.path in ("MEMORY.md", "USER.md") or line.path.startswith("memory/")


def _clipped(text: str) -> str:
    lines = text.rstrip().splitlines()
    rest = len(lines) - MOST_LINES
    return "\n".join([*lines[:MOST_LINES], *([f"… and {rest} more lines"] if rest > 0 else [])])


COMPOSERS: dict[str, Callable[[str], str]] = {
    "memory_write": _noted,
    "note": _noted,
    "ls": _listed,
    "read": _clipped,
}
"""Tool -> how to tell its result. Takes the result's text; never raises."""


def _help(offered: set[str]) -> str:
    able = [f"- {what}" for tools, what in ABILITIES if offered.intersection(tools)]
    return "\n".join(["What I can do:", *able] if able else ["No tools are offered here, so I can do nothing."])


def _cannot(tool: str) -> str:
    return f"I cannot do that here: the tool `{tool}` is not offered in this session."


def _introduced(request: ModelRequest, at: int, text: str) -> str:
    """The first reply of a conversation says that nobody thinks here."""
    return f"{text}\n{NO_MODEL}" if _is_first(request, at) else text


def _is_first(request: ModelRequest, at: int) -> bool:
    return not any(isinstance(message, AssistantMessage) for message in request.messages[: max(at, 0)])


def _last_user(request: ModelRequest) -> int:
    return max((at for at, message in enumerate(request.messages) if isinstance(message, UserMessage)), default=-1)


def _day(request: ModelRequest, at: int) -> date | None:
    """The day on which the newest message was said, as the system has noted it there."""
    message = request.messages[at] if at >= 0 else None
    notes = message.context if isinstance(message, UserMessage) else ()
    return next((day for note in notes if note.kind == "time" and (day := date_of(note.text))), None)


def _said(request: ModelRequest, at: int) -> str:
    message = request.messages[at] if at >= 0 else None
    return message.text if isinstance(message, UserMessage) else ""
