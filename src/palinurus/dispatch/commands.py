"""Slash commands: what is answered before the model hears of it.

What only looks (/status, /context, /models, /whoami, /help), what stops and what decides (/approve, /trust) pass by the
lane and are answered at once, even while a run goes on. What changes a session (/new, /reset, /compact) waits its turn
in the lane like any message. What looks like a command and is none is refused (refusals.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class Command(Struct, frozen=True):
    name: str
    rest: str = ""

    @property
    def waits(self) -> bool:
        """Whether it goes through the lane."""
        return self.name in ("new", "compact")


class Described(Struct, frozen=True):
    words: str
    meaning: str


COMMANDS: dict[str, Described] = {
    "new": Described(
        "/new, /reset [model] [message]", "start over, with another model if you name one; the transcript stays"
    ),
    "compact": Described("/compact [focus]", "sum the conversation up, with an eye on what you name"),
    "stop": Described("/stop", "stop what is running in this session"),
    "status": Described("/status", "model, tokens and state of this session"),
    "approve": Described("/approve [id] [allow-once|allow-always|deny]", "what waits for your yes; decide about it"),
    "trust": Described("/trust [source|number|all]", "what is here from outside; what of it you trust"),
    "context": Described("/context [list|detail|json]", "what the prompt is made of and what it costs"),
    "models": Described("/models, /model list", "the models that can be chosen"),
    "whoami": Described("/whoami, /id", "who you are to this session, and where you speak"),
    "help": Described("/help", "this list"),
}
# Parsed by directives.py: they may stand inside a message.
DIRECTIVES: dict[str, Described] = {
    "model": Described("/model [provider/model|default]", "which model answers in this session"),
    "think": Described("/think [off … max]", "how hard it thinks; inside a message for that message only"),
    "queue": Described("/queue [mode]", "messages that come meanwhile: steer, followup, collect or interrupt"),
    "verbose": Described("/verbose [off|on|full]", "how much of the work is shown"),
    "reasoning": Described("/reasoning [off|on|stream]", "whether the model's thinking is shown"),
    "elevated": Described("/elevated [off|on|ask|full]", "whether commands may leave the sandbox"),
    "usage": Described("/usage [off|tokens|cost|full]", "what is shown below each reply"),
}
# Heard by the turn itself (agent/called.py); each skill has a word of its own besides.
SKILL = Described("/skill NAME [words]", "call a skill by its name")
CONTEXT_VIEWS = ("", "list", "detail", "json")
ALIASES = {"id": "whoami", "abort": "stop"}
STOP_WORDS = frozenset({"stop", "/stop", "abort", "/abort"})


def parse(text: str, reset_triggers: Sequence[str] = ("/new", "/reset")) -> Command | None:
    """The command that this message is, or None when it is something else."""
    first, rest = (*text.split(maxsplit=1), "", "")[:2]  # at any white space: people break the line after /new
    word = first.lower()
    if text.strip().lower() in STOP_WORDS:
        return Command("stop")
    if word in {trigger.lower() for trigger in reset_triggers}:
        return Command("new", rest.strip())
    if word == "/model" and rest.strip().lower() == "list":
        return Command("models")
    name = ALIASES.get(word[1:], word[1:])
    return Command(name, rest.strip()) if word.startswith("/") and name in COMMANDS else None


def help_text() -> str:
    listed = [*COMMANDS.values(), *DIRECTIVES.values(), SKILL]
    width = max(len(command.words) for command in listed)
    return "\n".join(f"{command.words:<{width}}  {command.meaning}" for command in listed)
