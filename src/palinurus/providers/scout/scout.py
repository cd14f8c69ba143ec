"""The embedded default: a provider without a language model, so that Palinurus works with no key and no network.

Scout uses the ordinary loop. It reads the newest message, answers with real tool calls, and composes its reply from
their results: it writes notes, searches memory and quotes lines with their place, lists and reads files. It never
invents and never paraphrases, and says so in the first reply of a session.

One table of intents maps messages to actions; everything else is a memory question. Small talk goes to the small
embedded model if it is installed: the model sees the small talk and no line that Scout found.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import aclosing
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from palinurus.domain.clock import Clock, local_time
from palinurus.domain.messages import AssistantMessage, Message, Text, ToolCall, ToolResult, UserMessage
from palinurus.providers.provider import (
    SCOUT,
    SCOUT_WINDOW,
    TALKER,
    Head,
    ModelRequest,
    ReplyDone,
    ReplyEvent,
    ReplyFailed,
    ReplyNotice,
    TextDelta,
)
from palinurus.text.fact_lines import FACT_HEAD
from palinurus.text.sentences import is_small_talk
from palinurus.text.words import lazy_pattern

if TYPE_CHECKING:
    from palinurus.providers.scout.quotes import ScoutQuestion

WIRE = "scout"
MAX_COMMAND = 1_000  # characters
MAX_DAYS = 7  # daily notes that are read whole
MAX_SHOWN = 60  # lines of a file or a list
FIRST_PERSON = "I me my we our"  # finds older lines about the person
ABOUT_PERSON = ("USER.md", "MEMORY.md")
WHO = "I am scout: I note what you tell me, find it again and quote it, without a language model."
_HOW = (
    "set OPENAI_API_KEY or another provider's key, or start Ollama or LM Studio, or run "
    "`pal config set agents.defaults.model provider/model`."
)
NO_MODEL = f"(No language model is configured, so I only quote and never guess. To get one, {_HOW})"
SMALL_MODEL = f"(The small model only chats; for the rest I quote and never guess. To get a larger one, {_HOW})"
ABILITIES = (
    ("memory_write", '"remember that my bicycle is green" writes it into today\'s note'),
    ("memory_search", '"what colour is my bicycle?" quotes the lines of my notes that speak of it, with their place'),
    ("memory_search", '"what do you know about Anna?" and "what did I do last Tuesday?" do so too'),
    ("memory_get", '"what do you remember about me?" quotes what I know of you'),
    ("cron", '"remind me in 20 minutes to stretch" does so'),
    ("ls", '"list files" shows what is in the workspace'),
    ("read", '"read USER.md" shows a file'),
)
_SELF = r"(?:/?help(?: me)?|what (?:can|do) you do(?: for me)?|(?:who|what|how) are you|how does (?:this|it) work"
_SELF += r"|what can i (?:ask|say|do)(?: you| here)?|(?:introduce|tell me about) yourself)"


FACTS = "memory_retain"  # the better `memory_write`
COMMANDS = {
    "remember": ("memory_write", "text", ""),
    "read": ("read", "path", ""),
    "notes": ("ls", "path", "memory"),
    "list": ("ls", "path", ""),
}
"""Intent -> the tool, its argument, and the default value of the argument."""


def _intent(name: str, *patterns: str) -> tuple[str, Callable[[], re.Pattern[str]]]:
    return name, lazy_pattern("".join(patterns), re.IGNORECASE | re.DOTALL)


_TAG = lazy_pattern(r"^\[[^\]\n]{1,200}\]\s+(?=\S)")  # a program says before a message who sends it
_POLITE = lazy_pattern(r"(?:(?:please|pal|ok|okay|hey|can you|could you|would you|will you)[\s,:]+)*", re.IGNORECASE)
INTENTS = (
    _intent("help", rf"(?:(?:hi|hello|hey)(?: there| pal)?[\s,.!]+)?{_SELF}(?:[\s,.!?]+(?:and )?{_SELF}){{0,3}}"),
    _intent("thanks", r"(?:thanks|thank you|thx)(?: (?:a lot|very much|so much|pal))?"),
    _intent(
        "remember",
        r"(?:remember|(?:make|take) a note|note(?: down)?|write down|jot down|keep in mind|(?:don['’]?t|do not) forget",
        r"|merke? dir|recuerda|souviens-toi)(?![\w'’])[\s,:]*(?P<that>(?:that|dass|que)\s+)?(?P<what>\S.*)",
    ),
    _intent(
        "remind", r"remind (?:me|us)\s+(?!(?:of |about )?(?:what|who|where|which|why|how|if|whether)\b)(?P<what>\S.*)"
    ),
    _intent("remember", r"[请請]?(?:[帮幫]我)?(?:[记記][住下得]|[记記]一下)[\s,:，：]*(?P<that>)(?P<what>\S.*)"),
    _intent(
        "remember",
        r"(?P<what>.+?)(?P<that>(?:ということ)?[をと、]?) ?(?:覚えて|メモして)(?:おいて)?(?:ください|ね)?[。！!]*",
    ),
    _intent(
        "read",
        r"(?:read|show|open|cat|print|display|what(?:['’]s| is) in)(?: me)?(?: the)?(?: file)?\s+",
        r"[`\"']?(?P<what>[^\s`\"']*[./][^\s`\"']*\w)[`\"']?",
    ),
    _intent("notes", r"(?:list|show)(?: me)?(?: all)?(?: the| my| your)? (?:notes|memory|memories)"),
    _intent(
        "list",
        r"(?:(?:(?:have|take) a )?look \w+(?: in)?|go through|explore|list|show(?: me)?|(?:see )?what(?:['’]s| is)",
        r"(?: there)? in)(?: the| my| your| this)? (?:workspace|folder)(?:(?:,| and)? (?:tell|show)[\w '’]{0,30})?",
    ),
    _intent(
        "list",
        r"(?:(?:list|show|look through)(?: me)?(?: all)?(?: the| my| your)? files|(?:what|which) files(?: (?:are there",
        r"|are|exist|do you have|can you see))?|ls)(?: (?:(?:in|of|under) )?(?:the )?(?P<what>\S+))?",
    ),
    _intent(
        "about",
        r"(?:what (?:else )?(?:do|can|did|have) (?:you|we|i) (?:know|remember|recall|noted?|have|got)|tell (?:me|us)",
        r"(?: (?:all|everything|more|something))?(?: you know)?|(?:any|some|every)thing(?: you know)?",
        r"|(?:my |your |the )?notes) (?:about|on|of|regarding|concerning) (?P<what>\S.*)",
    ),
)
"""Intent and pattern. The first row that matches the whole message decides."""
Talk = Callable[[ModelRequest], AsyncGenerator[ReplyEvent]]
"""The stream of a provider."""
FindTalker = Callable[[], Talk | None]
"""Returns the model for small talk, or None if there is none. Called for each small talk; must not raise."""


class Call(Struct, frozen=True):
    tool: str
    arguments: dict[str, Any] = {}


class Scout:
    """Implements Provider. Deterministic: the same request at the same time gives the same reply."""

    name = SCOUT.provider
    wire = WIRE

    def __init__(self, clock: Clock, find_talker: FindTalker = lambda: None) -> None:
        self._clock = clock
        self._find_talker = find_talker

    def context_window(self, model: str) -> int:
        return SCOUT_WINDOW

    async def close(self) -> None:
        return None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ReplyEvent]:
        talk = small_talk(request)
        talker = self._find_talker() if talk else None
        if talker is not None and talk is not None:
            async with aclosing(_chat(talker, talk, _welcome(request))) as events:
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
        message = AssistantMessage(content, self.name, request.model, WIRE, timestamp=now_ms)
        yield ReplyDone(message if isinstance(reply, str) else structs.replace(message, stop_reason="toolUse"))


def small_talk(request: ModelRequest) -> ModelRequest | None:
    """The request to the small model if the newest message is small talk: that and earlier small talk. Pure."""
    newest = request.messages[-1] if request.messages else None
    if not isinstance(newest, UserMessage) or not is_small_talk(newest.text):
        return None
    messages: list[Message] = []
    for before, message in zip(request.messages, request.messages[1:], strict=False):
        if isinstance(message, AssistantMessage) and message.model == TALKER.model and isinstance(before, UserMessage):
            messages += [before, message]
    return ModelRequest(TALKER.model, Head(""), (*messages, newest), max_tokens=request.max_tokens)


async def _chat(talker: Talk, talk: ModelRequest, welcome: str) -> AsyncGenerator[ReplyEvent]:
    """The small model's reply, then the welcome. A reply without ReplyDone failed, and a notice says why."""
    streamed = False
    async with aclosing(talker(talk)) as events:
        async for event in events:
            match event:
                case ReplyDone():
                    if welcome:
                        yield TextDelta(welcome)
                    yield ReplyDone(structs.replace(event.message, content=(Text(event.message.text + welcome),)))
                case ReplyFailed():
                    yield ReplyNotice(f"{event.error.message}; scout answers instead", discard=streamed)
                case _:
                    streamed = streamed or isinstance(event, TextDelta)
                    yield event


def _welcome(request: ModelRequest) -> str:
    """The text added to the first reply of a session, so that a greeting still explains what scout can do."""
    first = not any(isinstance(message, AssistantMessage) for message in request.messages)
    return f"\n\n{_help({spec.name for spec in request.head.tools})}\n{SMALL_MODEL}" if first else ""


def respond(request: ModelRequest, today: date) -> str | tuple[Call, ...]:
    """The reply, or the tools to call first. Pure. `today` is used if the message has no time note."""
    at = max((at for at, each in enumerate(request.messages) if isinstance(each, UserMessage)), default=0)
    message = request.messages[at] if request.messages else None
    results = [each for each in request.messages[at + 1 :] if isinstance(each, ToolResult)]
    offered = {spec.name for spec in request.head.tools}
    offered |= {COMMANDS["remember"][0]} if FACTS in offered else set()
    intent, what = understand(message.text if isinstance(message, UserMessage) else "")
    if intent == "help" and not results:
        return f"{what}{_help(offered)}\n{NO_MODEL}"
    reply = _reply(intent, what, results, offered, _day_of(message) or today)
    first = not any(isinstance(each, AssistantMessage) for each in request.messages[:at])
    return f"{reply}\n{NO_MODEL}" if first and isinstance(reply, str) else reply


def understand(text: str) -> tuple[str, str]:
    """The intent of a message and its argument: a note, a path, a subject, a question."""
    text = _TAG().sub("", text.strip(), count=1)
    wish = text[polite.end() :] if (polite := _POLITE().match(text)) else text
    note, command = wish.rstrip(" \n?？"), wish.rstrip(" \n?？!！.。")
    asks = wish.endswith(("?", "？", "吗", "嗎"))
    for intent, pattern in INTENTS:
        if intent == "remember":
            found = pattern().fullmatch(note)
            if found and asks and not found["that"]:
                continue  # "remember what colour it is?" is a question, "can you remember that it is green?" is not
        else:
            found = pattern().fullmatch(command) if len(command) <= MAX_COMMAND else None
        if found is None:
            continue
        if intent == "help":
            return intent, f"{WHO}\n" if re.search(r"(?:who|what) are you|yourself", command, re.IGNORECASE) else ""
        return intent, (found.groupdict().get("what") or "").strip()
    return ("help", "") if not text or is_small_talk(text) else ("question", text)


def _day_of(message: Message | None) -> date | None:
    """The date of a message, from its time note."""
    from palinurus.text.dates import date_of  # only questions use the date

    notes = message.context if isinstance(message, UserMessage) else ()
    return next((day for note in notes if note.kind == "time" and (day := date_of(note.text))), None)


def _help(offered: Collection[str]) -> str:
    able = [f"- {what}" for tool, what in ABILITIES if tool in offered]
    return "\n".join(["What I can do:", *able] if able else ["No tools are offered here, so I can do nothing."])


def _reply(
    intent: str, what: str, results: Sequence[ToolResult], offered: Collection[str], today: date
) -> str | tuple[Call, ...]:
    """The tool calls of an intent, or the reply after their results."""
    if results and (results[0].is_error or not results[0].tool_name.startswith("memory_") or intent == "remember"):
        return _tell(results[0])
    if intent == "thanks":
        return "You are welcome."
    if intent == "remind":
        return _offered((Call("cron", {"action": "add", "text": what}),), offered)
    if intent in COMMANDS:
        tool, argument, usual = COMMANDS[intent]
        tool = FACTS if intent == "remember" and FACTS in offered else tool
        value = what or usual
        return _offered((Call(tool, {argument: value} if value else {}),), offered)
    from palinurus.providers.scout import quotes  # commands and small talk need none of it

    is_person = intent == "about" and what.rstrip(".! ").lower() in ("me", "myself")
    question = quotes.parse_question(what, today, broad=intent == "about")
    if not question.words and not question.period and not is_person:
        return "Ask me with a word that may stand in my notes, or say `help`."
    if not results:
        return _offered(_memory_calls(question, today, is_person=is_person), offered)
    return quotes.answer_about_person(results) if is_person else quotes.answer_question(question, results)


def _memory_calls(question: ScoutQuestion, today: date, *, is_person: bool) -> tuple[Call, ...]:
    """A search, and daily notes that are read whole: a day's notes need not hold a word of a question about the day.

    Plans for a day may be in the notes of today or the day before.
    """
    files: list[str] = []
    period = question.period
    if is_person:
        files = [*ABOUT_PERSON, *(f"memory/{today - timedelta(back)}.md" for back in range(MAX_DAYS))]
    elif period and period.length <= MAX_DAYS:
        before = [today, period.first - timedelta(1)] if period.last >= today else []
        files = [f"memory/{day.isoformat()}.md" for day in sorted({*period.days, *before}) if day <= today]
    gets = tuple(Call("memory_get", {"path": path}) for path in files)
    search = Call("memory_search", {"query": FIRST_PERSON if is_person else question.query})
    return (*gets, search) if is_person else (search, *gets)


def _offered(calls: tuple[Call, ...], offered: Collection[str]) -> str | tuple[Call, ...]:
    lacking = next((call.tool for call in calls if call.tool not in offered), "")
    return f"I cannot do that here: the tool `{lacking}` is not offered in this session." if lacking else calls


def _tell(result: ToolResult) -> str:
    """The tool's result, or its error."""
    text = result.text.strip()
    if result.is_error:
        return f"I could not do that: {' '.join(text.split())}"
    if result.tool_name in ("memory_write", FACTS):  # noted in memory/2026-11-15.md#L3: - the words
        place, _, note = text.removeprefix("noted in ").partition(": ")
        words = FACT_HEAD.sub("", note.removeprefix("- ").strip(), count=1)
        return f"Noted in {place}: {words}"
    lines = text.splitlines()
    if (rest := len(lines) - MAX_SHOWN) > 0:
        lines[MAX_SHOWN:] = [f"… and {rest} more lines"]
    shown = "\n".join(lines)
    return f"I see:\n{shown}" if result.tool_name == "ls" else shown
