"""The embedded default: a provider without a language model, so that Palinurus works with no key and no network.

Scout takes part in the ordinary loop. It reads what was said, answers with real tool calls, and composes its reply out
of the results of this very turn: it notes, quotes stored lines with their place, lists and reads files. It never
invents and never paraphrases, and says so at the start of a conversation.

Where the small embedded model is installed, small talk and nothing else is left to it: it sees what was said as small
talk and no line that Scout found.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from msgspec import Struct, structs

from palinurus.domain.clock import Clock
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
from palinurus.providers.scout.quoting import Line, best_lines, cited_lines, query_of
from palinurus.providers.scout.smalltalk import TALKER, is_small_talk

SCOUT = ModelRef("embedded", "scout")
WIRE = "scout"
WINDOW = 32_000
MOST_MATCHES = 200
MOST_LINES = 60

_HOW = (
    "set OPENAI_API_KEY or another provider's key, or start Ollama or LM Studio, or run "
    "`pal config set agents.defaults.model provider/model`."
)
NO_MODEL = f"(No language model is configured, so I only quote and never guess. To get one, {_HOW})"
SMALL_MODEL = f"(The small model only chats; for the rest I quote and never guess. To get a larger one, {_HOW})"
ABILITIES = (
    ("note", '"remember that my bicycle is green" writes it into today\'s note'),
    ("grep", '"what colour is my bicycle?" quotes the lines of my notes that speak of it, with their place'),
    ("ls", '"list files" shows what is in the workspace'),
    ("read", '"read MEMORY.md" shows a file'),
)
TROUBLE = {
    "note": "I could not write the note",
    "grep": "I could not search my notes",
    "ls": "I could not list the files",
    "read": "I could not read the file",
}

_POLITE = r"(?:(?:please|pal|ok|okay|hey|can you|could you|would you|will you)[\s,:]+)*"
_REMEMBER = re.compile(
    rf"{_POLITE}(?:remember|(?:make|take) a note|note(?: down)?|write down|jot down|keep in mind"
    r"|(?:don['’]?t|do not) forget|merke? dir|recuerda|souviens-toi)(?![\w'’])[\s,:]*"
    r"(?P<that>(?:that|dass|que)\s+)?(?P<text>\S.*)",
    re.IGNORECASE | re.DOTALL,
)
_REMEMBER_CJK = re.compile(r"[请請]?[记記][住下][\s,:，：]*(?P<text>\S.*)(?P<that>)", re.DOTALL)
_FILES = re.compile(
    rf"{_POLITE}(?:(?:list|show)(?: me)?(?: all)?(?: the| my| your)? files"
    r"|(?:what|which) files(?: (?:are there|are|exist|do you have|can you see))?|ls)"
    r"(?: (?:(?:in|of|under) )?(?:the )?(?P<path>[^\s?!]+))?[\s?.!]*",
    re.IGNORECASE,
)
_NOTES = re.compile(
    rf"{_POLITE}(?:list|show)(?: me)?(?: all)?(?: the| my| your)? (?:notes|memory|memories)[.!?]*", re.IGNORECASE
)
_READ = re.compile(
    rf"{_POLITE}(?:read|show|open|cat|print|display|what(?:['’]s| is) in)(?: me)?(?: the)?(?: file)?\s+"
    r"[`\"']?(?P<path>[^\s`\"'?]*[./][^\s`\"'?]*\w)[`\"']?\s*[?.!]*",
    re.IGNORECASE,
)
_HELP = re.compile(
    rf"{_POLITE}(?:/?help(?: me)?|hi|hello|hey|hiya|good (?:morning|afternoon|evening|day)|greetings"
    r"|what (?:can|do) you do|who are you|what are you|how are you)(?:[ ,]+(?:there|pal|scout))?[\s?.!]*",
    re.IGNORECASE,
)

_THANKS = re.compile(
    r"(?:ok(?:ay)?[\s,]+)?(?:thanks|thank you|thx)(?: (?:a lot|very much|so much|pal))?[\s.!]*", re.IGNORECASE
)


Talk = Callable[[ModelRequest], AsyncGenerator[ReplyEvent]]
"""The stream of a provider."""
FindTalker = Callable[[], Talk | None]
"""The model for small talk, or None while there is none. Called for each small talk; must not raise."""


class Intent(Struct, frozen=True):
    """What the person wants: a tool to call, or nothing but words."""

    tool: str = ""
    arguments: dict[str, Any] = {}
    answer: str = ""


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
        reply = respond(request)
        now_ms = self._clock.now_ms()
        if isinstance(reply, str):
            yield TextDelta(reply)
            block: Text | ToolCall = Text(reply)
        else:
            call_id = f"scout_{now_ms:x}_{len(request.messages)}"
            block = ToolCall(call_id, reply.tool, reply.arguments)
        yield ReplyDone(
            AssistantMessage(
                content=(block,),
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


def respond(request: ModelRequest) -> str | Intent:
    """The words to say, or the tool to call first. Pure."""
    at = _last_user(request)
    text = _said(request, at)
    offered = {spec.name for spec in request.head.tools}
    results = [message for message in request.messages[at + 1 :] if isinstance(message, ToolResult)]
    intent = understand(text, offered)
    if intent.tool and not results:
        return intent if intent.tool in offered else _introduced(request, at, _cannot(intent.tool))
    told = _compose(text, results[-1]) if results else intent.answer
    return _introduced(request, at, told)


def understand(text: str, offered: set[str]) -> Intent:
    """What a sentence asks for. What is no command is a question to the notes."""
    text = text.strip()
    if not text or _HELP.fullmatch(text):
        return Intent(answer=_help(offered))
    if _THANKS.fullmatch(text):
        return Intent(answer="You are welcome.")
    if note := _to_remember(text):
        return Intent("note", {"text": note})
    if found := _READ.fullmatch(text):
        return Intent("read", {"path": found["path"]})
    if _NOTES.fullmatch(text):
        return Intent("ls", {"path": "memory"})
    if found := _FILES.fullmatch(text):
        return Intent("ls", {"path": found["path"]} if found["path"] else {})
    query = query_of(text)
    if not query.stems:
        return Intent(answer="Ask me with a word that may stand in my notes, or say `help`.")
    return Intent("grep", {"pattern": query.pattern(), "max": MOST_MATCHES})


def _to_remember(text: str) -> str:
    found = _REMEMBER.fullmatch(text) or _REMEMBER_CJK.fullmatch(text)
    if not found:
        return ""
    note = found["text"].strip()
    asked = note.endswith(("?", "？"))
    if asked and not found["that"]:  # "remember what colour it is?" asks, "can you remember that it is green?" tells
        return ""
    return note.rstrip("?？").rstrip()


def _compose(text: str, result: ToolResult) -> str:
    if result.is_error:
        said = " ".join(result.text.split())
        return f"{TROUBLE.get(result.tool_name, f'The tool {result.tool_name} failed')}: {said}"
    compose = COMPOSERS.get(result.tool_name)
    return compose(text, result.text) if compose else result.text


def _noted(_: str, result: str) -> str:
    stored = cited_lines(re.sub(r"^noted in ", "", result.strip(), flags=re.IGNORECASE))
    return f"Noted in {stored[0].place}: {stored[0].words}" if stored else f"Noted: {result.strip()}"


def _quoted(text: str, result: str) -> str:
    query = query_of(text)
    lines = best_lines(query, [line for line in cited_lines(result) if _is_memory(line)])
    more = "\n(More lines match than I can look through; a rarer word finds more.)" if "[more than" in result else ""
    if not lines:
        return f"I find nothing about {', '.join(query.shown)} in my notes.{more}"
    return "\n".join(["From my notes:", *(f"> {line.words} ({line.place})" for line in lines)]) + more


def _listed(_: str, result: str) -> str:
    return f"I see:\n{_clipped(result)}"


def _shown(_: str, result: str) -> str:
    return _clipped(result)


COMPOSERS: dict[str, Callable[[str, str], str]] = {"note": _noted, "grep": _quoted, "ls": _listed, "read": _shown}
"""Tool -> how to tell its result. Takes what the person said and the result's text; never raises."""


def _is_memory(line: Line) -> bool:
    """Templates such as AGENTS.md speak about everything and know nothing of the person."""
    return line.path in ("MEMORY.md", "USER.md") or line.path.startswith("memory/")


def _clipped(text: str) -> str:
    lines = text.rstrip().splitlines()
    rest = len(lines) - MOST_LINES
    return "\n".join([*lines[:MOST_LINES], *([f"… and {rest} more lines"] if rest > 0 else [])])


def _help(offered: set[str]) -> str:
    able = [f"- {what}" for tool, what in ABILITIES if tool in offered]
    return "\n".join(["What I can do:", *able] if able else ["No tools are offered here, so I can do nothing."])


def _cannot(tool: str) -> str:
    return f"I cannot do that here: the tool `{tool}` is not offered in this session."


def _introduced(request: ModelRequest, at: int, text: str) -> str:
    """Help and the first reply of a conversation say that nobody thinks here."""
    helping = text.startswith("What I can do:")
    return f"{text}\n{NO_MODEL}" if helping or _is_first(request, at) else text


def _is_first(request: ModelRequest, at: int) -> bool:
    return not any(isinstance(message, AssistantMessage) for message in request.messages[: max(at, 0)])


def _last_user(request: ModelRequest) -> int:
    return max((at for at, message in enumerate(request.messages) if isinstance(message, UserMessage)), default=-1)


def _said(request: ModelRequest, at: int) -> str:
    message = request.messages[at] if at >= 0 else None
    return message.text if isinstance(message, UserMessage) else ""
