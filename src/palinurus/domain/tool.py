"""A tool as everyone sees it: a name, a schema for the model, something that runs, and what may narrow it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from palinurus.domain.events import RunEvent
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Image, Message, Origin, Text
from palinurus.domain.plan import Plan
from palinurus.domain.provenance import NO_TRUST, OutsideText, Trust

MALFORMED = "_malformed"
"""The only key of a call's arguments when the wire carried something that is no JSON; its value is what it carried."""

MAX_CHARACTERS = 16_000  # of a result, for a model with a small window


class ToolSpec(Struct, frozen=True):
    """What a model is told about a tool."""

    name: str
    description: str
    parameters: dict[str, Any]  # JSON Schema


class Restriction(Struct, frozen=True):
    """What narrows the tools of a run: a rule, a skill's declared needs. It only ever takes away.

    Names may be patterns with `*` and groups (`group:fs`), as in the config.
    """

    source: str  # who says so, such as "skill:pdf"
    reason: str
    only: tuple[str, ...] | None = None  # nothing but these tools
    deny: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()  # a person approves each call of these
    sandboxed: bool = False  # exec stays inside the sandbox
    hosts: tuple[str, ...] | None = None  # addresses go to these only; `*.example.org` is a host and all below it
    paths: tuple[str, ...] | None = None  # file tools touch these only, and what lies below: see narrowing.py


def nobody(_: RunEvent) -> None:
    """Hears events where no door listens."""


class ToolRun(Struct, frozen=True):
    """On whose behalf a tool runs."""

    key: SessionKey
    run_id: str
    private: bool  # whether private memory may be touched: promise 17
    owner: bool = True  # whether the owner asked for the turn
    channel: str = "cli"
    sender: str = "owner"
    provider: str = ""
    model: str = ""
    origin: Origin = Origin.OWNER  # the least trusted text that the model reads
    outside: tuple[OutsideText, ...] = ()  # the texts from outside that it reads, as far as they are known
    trust: Trust = NO_TRUST
    head: str = ""  # what the model reads before all messages: the house's words and the owner's files
    request: tuple[Message, ...] = ()  # the messages that it reads, oldest first
    conversation: str = ""  # another one after a reset
    restrictions: tuple[Restriction, ...] = ()
    skills: tuple[str, ...] = ()  # names of those that this turn has taken up
    attended: bool = True  # whether somebody may be there to be asked
    elevated: str = ""  # what `/elevated` says in this session: off, on, ask, full; empty: as the config
    max_characters: int = MAX_CHARACTERS
    emit: Callable[[RunEvent], None] = nobody
    """Told of what happens while the tool runs. Neither blocks nor raises."""

    @property
    def untrusted(self) -> bool:
        """Whether the model reads a text from outside that nobody has declared trusted."""
        return self.origin == Origin.OUTSIDE and (not self.outside or bool(self.suspects))

    @property
    def suspects(self) -> tuple[OutsideText, ...]:
        return tuple(text for text in self.outside if not self.trust.covers(text))

    def having_read(self, texts: tuple[OutsideText, ...]) -> ToolRun:
        """The run after its model has read these. Trust only ever gets less within a turn (promise 18)."""
        if not texts:
            return self
        return replace(self, origin=Origin.OUTSIDE, outside=tuple(dict.fromkeys((*self.outside, *texts))))


class ToolOutput(Struct, frozen=True):
    """What a tool hands back to the model. An error is a result that says what to fix."""

    content: str | tuple[Text | Image, ...]
    is_error: bool = False
    origin: Origin = Origin.OWNER
    details: dict[str, Any] | None = None
    sources: tuple[str, ...] = ()  # where text from outside came from: see provenance.py


class Prepared(Struct, frozen=True):
    """A call that was looked at and not yet done: `run` does what `plan` says, and nothing else.

    The gate asks a person when `ask` says why, or, in a turn that has read text from outside, when `when_untrusted`
    does. A call that may not be done at all has a `refusal`, and nobody is asked.
    """

    plan: Plan
    run: Callable[[], Awaitable[ToolOutput]]
    refusal: str = ""
    ask: str = ""
    when_untrusted: str = ""
    unanswered: bool = False  # whether it is done all the same when nobody answers
    granted: tuple[str, ...] = ()  # ids of the grants that cover it
    lasting: bool = False  # whether a yes to this very plan holds for the rest of the conversation


class Tool(Struct, frozen=True):
    """A tool that can be run.

    `run` gets the arguments as the model sent them. It returns a ToolOutput for everything the model can mend,
    and raises a PalinurusError for what it cannot; it must stop promptly when cancelled.
    """

    spec: ToolSpec
    run: Callable[[ToolRun, Mapping[str, Any]], Awaitable[ToolOutput]]
    prepare: Callable[[ToolRun, Mapping[str, Any]], Awaitable[Prepared | ToolOutput]] | None = None
    """For tools whose calls must be judged one by one. Has no effect of its own; returns and raises as `run` does."""
    outside: bool = False  # its results come from outside: the gate marks them so
    owner_only: bool = False
    when_untrusted: str = ""  # why a person approves its calls in a turn that has read text from outside
