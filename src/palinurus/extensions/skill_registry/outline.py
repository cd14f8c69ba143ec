"""What happened in a session, so that it can be done again: the requests, the steps that worked, what went wrong.

Pure and without a model. Only the owner's words are quoted; of what tools and other people said nothing is taken
over except which tool failed and what worked instead. There are three kinds of words in the arguments of a call.
What the owner said is an input, and becomes a named blank. What came from outside (a page, a mail, a file of others)
must not get into instructions, so it is left out. The rest is the know-how, and stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from palinurus.domain.errors import BadRequest
from palinurus.domain.messages import AssistantMessage, Message, Origin, ToolCall, ToolResult, UserMessage

LONGEST = 300  # characters of one argument
SHORTEST = 3  # of what counts as an input
TELLING = 6  # characters that a word must have to be recognised as somebody else's
FROM_OUTSIDE = "<from-outside>"
_DATE = re.compile(r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?)?")
_ID = re.compile(
    r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b(?=[0-9a-f]*\d)[0-9a-f]{12,64}\b|\b[0-9A-HJKMNP-TV-Z]{26}\b"
)
_WORD = re.compile(r"[^\s'\"`=|;&()<>{}\[\],]+")
_LOOKS_GIVEN = re.compile(r"[\d./@:_]|^[A-Z]")  # `report.xlsx` and `Lisbon`, and not `list`
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]+")
_NAME_BREAK = re.compile(r"[^a-z0-9]+")
MAX_STEPS = 40
MAX_PITFALLS = 12
MAX_REQUESTS = 6
MAX_SOURCES = 20
IDLE = frozenset({"session_status", "process"})  # what only looks at the work itself
OWN_WORDS = frozenset({"read", "write", "edit", "delete", "ls", "find", "grep", "apply_patch"})  # of ours only
_ADDRESS = re.compile(r"https?://[A-Za-z0-9.:-]+(?:/[A-Za-z0-9/._~%-]*)?")


class Blanks:
    """Fills blanks in. One for each draft: an input has the same name wherever it stands."""

    def __init__(self, said: str, workspace: str, user_home: str) -> None:
        self._said = said
        self._words = {word.strip(".,:!?") for word in _WORD.findall(said)}
        self._places = [(f"{place.rstrip('/')}/", to) for place, to in ((workspace, ""), (user_home, "~/")) if place]
        self._outside: set[str] = set()
        self._texts: list[str] = []  # the same as it was said
        self.inputs: dict[str, str] = {}  # blank -> what stood there

    def add_outside(self, text: str) -> None:
        """Somebody else's words: what is in them and not in the owner's is not carried over."""
        self._texts.append(seen(text))
        self._outside |= {word for each in _WORD.findall(text) if len(word := each.strip(".,:!?")) >= TELLING}

    def filled(self, arguments: Mapping[str, Any]) -> dict[str, str]:
        return {seen(name)[:40]: self._general(name, value) for name, value in arguments.items()}

    def said_by_owner(self, word: str) -> bool:
        return word in self._words or (len(word) >= TELLING and word in self._said)

    def _general(self, name: str, value: Any) -> str:
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for place, to in self._places:
            text = text.replace(place, to)
        text = text.strip()
        if len(text) >= SHORTEST and _given_whole(text, self._said):
            return self._blank(name, text)
        if len(text) >= TELLING and any(seen(text) in each for each in self._texts) and text not in self._said:
            return FROM_OUTSIDE
        if "\n" in text and name != "command":
            return f"<{_clean(name)}: a text>"
        text = _WORD.sub(lambda found: self._word(name, found[0]), seen(text))
        text = _ID.sub("<id>", _DATE.sub("<date>", text))
        return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"

    def _word(self, name: str, word: str) -> str:
        bare = word.strip(".,:!?")
        if len(bare) < SHORTEST or bare.startswith("-"):
            return word
        if bare in self._words and _LOOKS_GIVEN.search(bare):
            return word.replace(bare, self._blank("input" if name == "command" else name, bare))
        if bare in self._outside and not self.said_by_owner(bare):
            return word.replace(bare, FROM_OUTSIDE)
        return word

    def _blank(self, name: str, value: str) -> str:
        example = seen(value)[:LONGEST]
        known = next((blank for blank, stood in self.inputs.items() if stood == example), None)
        if known:
            return known
        base = _clean(name)
        names = (f"<{base}>", *(f"<{base}-{number}>" for number in range(2, len(self.inputs) + 3)))
        blank = next(each for each in names if each not in self.inputs)
        self.inputs[blank] = example
        return blank


def seen(text: str) -> str:
    """On one line, and nothing in it that a person would not see."""
    return " ".join(_UNSEEN.sub(" ", text).split())


def _given_whole(text: str, said: str) -> bool:
    """Whether the owner has said just that, as words of their own."""
    at = said.find(text)
    if at < 0:
        return False
    before, after = said[at - 1 : at], said[at + len(text) : at + len(text) + 1]
    return not before.isalnum() and not after.isalnum() and (bool(_LOOKS_GIVEN.search(text)) or " " in text)


def _clean(name: str) -> str:
    return _NAME_BREAK.sub("-", name.lower()).strip("-")[:30] or "input"


class OutlineStep(Struct, frozen=True):
    tool: str
    arguments: dict[str, str]
    doubtful: bool = False  # it was done after words from outside had been read


class Pitfall(Struct, frozen=True):
    tool: str
    arguments: dict[str, str]
    why: str = ""
    mended: OutlineStep | None = None


class Outline(Struct, frozen=True):
    requests: tuple[str, ...]  # of the owner, in their words
    steps: tuple[OutlineStep, ...]
    pitfalls: tuple[Pitfall, ...]
    inputs: dict[str, str]
    tools: tuple[str, ...]
    hosts: tuple[str, ...]  # that the owner has named
    unnamed_hosts: tuple[str, ...]  # hosts that were fetched from and came up by the way
    sources: tuple[str, ...]  # addresses and files that were read


def outline(messages: Iterable[Message], *, workspace: str = "", user_home: str = "") -> Outline:
    """Raises BadRequest when nothing was done that could be done again."""
    everything = list(messages)
    requests = [each.text.strip() for each in everything if isinstance(each, UserMessage) and _is_request(each)]
    walk = _Walk(Blanks("\n".join(requests), workspace, user_home))
    for message in everything:
        walk.add(message)
    if not walk.steps:
        raise BadRequest(
            "nothing was done in this session that a skill could repeat", hint="no tool was used with success"
        )
    return Outline(
        tuple(requests[:MAX_REQUESTS]),
        tuple(_once(walk.steps))[:MAX_STEPS],
        tuple(walk.pitfalls[:MAX_PITFALLS]),
        walk.blanks.inputs,
        tuple(sorted({step.tool for step in walk.steps})),
        tuple(sorted(walk.hosts)),
        tuple(sorted(walk.unnamed_hosts - walk.hosts)),
        tuple(dict.fromkeys(walk.sources))[:MAX_SOURCES],
    )


class _Walk:
    def __init__(self, blanks: Blanks) -> None:
        self.blanks = blanks
        self.steps: list[OutlineStep] = []
        self.pitfalls: list[Pitfall] = []
        self.hosts: set[str] = set()
        self.unnamed_hosts: set[str] = set()
        self.sources: list[str] = []
        self._calls: dict[str, ToolCall] = {}
        self._open: dict[str, list[int]] = {}  # tool -> pitfalls of this turn that nothing has mended yet
        self._tainted = False

    def add(self, message: Message) -> None:
        match message:
            case UserMessage():
                self._open.clear()
                self._tainted = False
                self._add_outside([note.text for note in message.context if note.origin == Origin.OUTSIDE])
                if message.origin == Origin.OUTSIDE:
                    self._add_outside([message.text])
            case AssistantMessage():
                self._calls = {call.id: call for call in message.calls}
            case ToolResult():
                call = self._calls.pop(message.tool_call_id, None)
                if call is not None and call.name not in IDLE:
                    self._called(call, message)
                if message.origin == Origin.OUTSIDE:
                    self._add_outside([message.text])

    def _add_outside(self, texts: Sequence[str]) -> None:
        for text in texts:
            self.blanks.add_outside(text)
            self._tainted = True

    def _called(self, call: ToolCall, result: ToolResult) -> None:
        arguments = self.blanks.filled(call.arguments)
        if why := _failed(result):
            self._open.setdefault(call.name, []).append(len(self.pitfalls))
            self.pitfalls.append(Pitfall(call.name, arguments, why))
            return
        step = OutlineStep(call.name, arguments, self._tainted)
        self.steps.append(step)
        for index in self._open.pop(call.name, ()):
            trouble = self.pitfalls[index]
            self.pitfalls[index] = Pitfall(trouble.tool, trouble.arguments, trouble.why, step)
        self._note_source(call, self.blanks.inputs.get(arguments.get("path", ""), ""))

    def _note_source(self, call: ToolCall, given: str) -> None:
        url = call.arguments.get("url")
        if isinstance(url, str) and (host := _host(url)):
            (self.hosts if self.blanks.said_by_owner(host) else self.unnamed_hosts).add(host)
            found = _ADDRESS.match(url)
            self.sources.append(found[0][:200] if found else host)
        elif call.name == "read" and given:
            self.sources.append(given)


def _is_request(message: UserMessage) -> bool:
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


def _once(steps: Sequence[OutlineStep]) -> list[OutlineStep]:
    """Without what was only done again."""
    unique: list[OutlineStep] = []
    for step in steps:
        if not any(step.tool == each.tool and step.arguments == each.arguments for each in unique):
            unique.append(step)
    return unique
