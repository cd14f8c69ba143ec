"""What happened in a session, as far as somebody could do it again: the wish, the steps that worked, what went wrong.

Pure and without a model. Only the owner's words are quoted; of what tools and strangers said nothing is taken over but
which tool failed and how it was mended.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from msgspec import Struct

from palinurus.domain.errors import BadRequest
from palinurus.domain.messages import AssistantMessage, Message, Origin, ToolCall, ToolResult, UserMessage
from palinurus.skills.drafting.general import Blanks, seen

MAX_STEPS = 40
MAX_PITFALLS = 12
MAX_WISHES = 6
MAX_SOURCES = 20
IDLE = frozenset({"session_status", "process"})  # what only looks at the work itself
OWN_WORDS = frozenset({"read", "write", "edit", "delete", "ls", "find", "grep", "apply_patch"})  # of ours only
_ADDRESS = re.compile(r"https?://[A-Za-z0-9.:-]+(?:/[A-Za-z0-9/._~%-]*)?")


class Step(Struct, frozen=True):
    tool: str
    arguments: dict[str, str]
    doubtful: bool = False  # it was done after words from outside had been read


class Pitfall(Struct, frozen=True):
    tool: str
    arguments: dict[str, str]
    why: str = ""
    mended: Step | None = None


class Outline(Struct, frozen=True):
    wishes: tuple[str, ...]  # of the owner, in their words
    steps: tuple[Step, ...]
    pitfalls: tuple[Pitfall, ...]
    inputs: dict[str, str]
    tools: tuple[str, ...]
    hosts: tuple[str, ...]  # that the owner has named
    strangers: tuple[str, ...]  # hosts that were fetched from and came up by the way
    sources: tuple[str, ...]  # addresses and files that were read


def outline(messages: Iterable[Message], *, workspace: str = "", user_home: str = "") -> Outline:
    """Raises BadRequest when nothing was done that could be done again."""
    told = list(messages)
    wishes = [each.text.strip() for each in told if isinstance(each, UserMessage) and _is_wish(each)]
    walk = _Walk(Blanks("\n".join(wishes), workspace, user_home))
    for message in told:
        walk.hear(message)
    if not walk.steps:
        raise BadRequest(
            "nothing was done in this session that a skill could repeat", hint="no tool was used with success"
        )
    return Outline(
        tuple(wishes[:MAX_WISHES]),
        tuple(_once(walk.steps))[:MAX_STEPS],
        tuple(walk.pitfalls[:MAX_PITFALLS]),
        walk.blanks.inputs,
        tuple(sorted({step.tool for step in walk.steps})),
        tuple(sorted(walk.hosts)),
        tuple(sorted(walk.strangers - walk.hosts)),
        tuple(dict.fromkeys(walk.sources))[:MAX_SOURCES],
    )


class _Walk:
    def __init__(self, blanks: Blanks) -> None:
        self.blanks = blanks
        self.steps: list[Step] = []
        self.pitfalls: list[Pitfall] = []
        self.hosts: set[str] = set()
        self.strangers: set[str] = set()
        self.sources: list[str] = []
        self._calls: dict[str, ToolCall] = {}
        self._open: dict[str, list[int]] = {}  # tool -> pitfalls of this turn that nothing has mended yet
        self._tainted = False

    def hear(self, message: Message) -> None:
        match message:
            case UserMessage():
                self._open.clear()
                self._tainted = False
                self._hear_outside([note.text for note in message.context if note.origin == Origin.OUTSIDE])
                if message.origin == Origin.OUTSIDE:
                    self._hear_outside([message.text])
            case AssistantMessage():
                self._calls = {call.id: call for call in message.calls}
            case ToolResult():
                call = self._calls.pop(message.tool_call_id, None)
                if call is not None and call.name not in IDLE:
                    self._called(call, message)
                if message.origin == Origin.OUTSIDE:
                    self._hear_outside([message.text])

    def _hear_outside(self, texts: Sequence[str]) -> None:
        for text in texts:
            self.blanks.hear_outside(text)
            self._tainted = True

    def _called(self, call: ToolCall, result: ToolResult) -> None:
        arguments = self.blanks.filled(call.arguments)
        if why := _failed(result):
            self._open.setdefault(call.name, []).append(len(self.pitfalls))
            self.pitfalls.append(Pitfall(call.name, arguments, why))
            return
        step = Step(call.name, arguments, self._tainted)
        self.steps.append(step)
        for index in self._open.pop(call.name, ()):
            trouble = self.pitfalls[index]
            self.pitfalls[index] = Pitfall(trouble.tool, trouble.arguments, trouble.why, step)
        self._note_source(call, self.blanks.inputs.get(arguments.get("path", ""), ""))

    def _note_source(self, call: ToolCall, given: str) -> None:
        url = call.arguments.get("url")
        if isinstance(url, str) and (host := _host(url)):
            (self.hosts if self.blanks.said_by_owner(host) else self.strangers).add(host)
            found = _ADDRESS.match(url)
            self.sources.append(found[0][:200] if found else host)
        elif call.name == "read" and given:
            self.sources.append(given)


def _is_wish(message: UserMessage) -> bool:
    return message.origin == Origin.OWNER and bool(message.text.strip())


def _failed(result: ToolResult) -> str:
    """Why a call was of no use, in words that are our own; empty when it was."""
    code = (result.details or {}).get("exitCode")
    if isinstance(code, int) and code:
        return f"it ended with code {code}"
    if not result.is_error:
        return ""
    first = seen(result.text.strip().partition("\n")[0])[:200]
    ours = result.tool_name in OWN_WORDS and result.origin != Origin.OUTSIDE
    return first if ours and first else "it failed, or was not allowed"


def _host(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()[:200]
    except ValueError:
        return ""


def _once(steps: Sequence[Step]) -> list[Step]:
    """Without what was only done again."""
    kept: list[Step] = []
    for step in steps:
        if not any(step.tool == each.tool and step.arguments == each.arguments for each in kept):
            kept.append(step)
    return kept
