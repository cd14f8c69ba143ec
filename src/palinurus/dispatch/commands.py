"""Slash commands, which are answered before the model gets the message.

Commands that only show something (/status, /context, /models, /whoami, /help), stop or decide (/approve, /trust) bypass
the lane and are answered at once, even during a run. Commands that change a session (/new, /reset, /compact) wait in
the lane like any message. A message that looks like a command and is none is refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from palinurus.agent.agent import Agent
from palinurus.dispatch.directives import DEFAULT_MODEL, NAMES, bad_value, parse_directives
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.parts import EXTENSIONS
from palinurus.skills.offer import WORD
from palinurus.text.words import nearest


class Command(Struct, frozen=True):
    name: str
    rest: str = ""

    @property
    def waits(self) -> bool:
        """Whether it goes through the lane."""
        return self.name in ("new", "compact")


class CommandHelp(Struct, frozen=True):
    words: str
    meaning: str


COMMANDS: dict[str, CommandHelp] = {
    "new": CommandHelp(
        "/new, /reset [model] [message]", "reset the session, with another model if you name one; the transcript stays"
    ),
    "compact": CommandHelp("/compact [focus]", "summarise the session, with a focus if you name one"),
    "stop": CommandHelp("/stop", "stop the run of this session"),
    "status": CommandHelp("/status", "model, tokens and state of this session"),
    "approve": CommandHelp("/approve [id] [allow-once|allow-always|deny]", "list and answer waiting approvals"),
    "trust": CommandHelp("/trust [source|number|all]", "list untrusted sources; trust one"),
    "context": CommandHelp("/context [list|detail|json]", "the parts of the prompt and their cost"),
    "models": CommandHelp("/models, /model list", "available models"),
    "whoami": CommandHelp("/whoami, /id", "your identity and channel in this session"),
    "help": CommandHelp("/help", "this list"),
}

COMMANDS |= {name: CommandHelp(*told) for each in EXTENSIONS for name, told in each.slash_commands.items()}
_OWN = tuple(COMMANDS)


def set_plugin_commands(told: Mapping[str, tuple[str, str]]) -> None:
    """With the commands of the plugins that are used, and of no others."""
    for name in [name for name in COMMANDS if name not in _OWN]:
        del COMMANDS[name]
    COMMANDS.update({name: CommandHelp(*words) for name, words in told.items() if name not in _OWN})


# Parsed by directives.py: they may be inside a message.
DIRECTIVES: dict[str, CommandHelp] = {
    "model": CommandHelp("/model [provider/model|default]", "the model of this session"),
    "think": CommandHelp("/think [off … max]", "thinking level; inside a message for that message only"),
    "queue": CommandHelp("/queue [mode]", "messages sent during a run: steer, followup, collect or interrupt"),
    "verbose": CommandHelp("/verbose [off|on|full]", "which tool calls are shown"),
    "reasoning": CommandHelp("/reasoning [off|on|stream]", "whether the model's thinking is shown"),
    "elevated": CommandHelp("/elevated [off|on|ask|full]", "whether commands may leave the sandbox"),
    "usage": CommandHelp("/usage [off|tokens|cost|full]", "what is shown below each reply"),
}
# Handled by the turn itself (agent/gather.py); each skill also has its own command.
SKILL = CommandHelp("/skill NAME [words]", "call a skill by its name")

CONTEXT_VIEWS = ("", "list", "detail", "json")

ALIASES = {"id": "whoami", "abort": "stop"}

SLASH_WORDS = (*COMMANDS, *DIRECTIVES, *ALIASES, "reset")  # names that no skill may use for its own command

STOP_WORDS = frozenset({"stop", "/stop", "abort", "/abort"})


def parse(text: str, reset_triggers: Sequence[str] = ("/new", "/reset")) -> Command | None:
    """The command of this message, or None if it is not a command."""
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


HINT = "/help lists them; a message that begins with a space goes to the model"

_NAME = re.compile(r"/(?P<name>[^\W\d_][\w-]*)(?=[\s:]|\Z)")


async def refusal(text: str, agent: Agent | None, reset_triggers: Sequence[str]) -> str:
    """Why a message is refused; empty if it is accepted. Without an agent only checks that need none are made."""
    match = _NAME.match(text)
    if match is None:
        return ""
    command = parse(text, reset_triggers)
    if command is not None:
        return await _bad_argument(command, agent, reset_triggers)
    name = match["name"].lower()
    if name in NAMES:
        if why := bad_value(text):
            return why
        directives, words = parse_directives(text)
        why = await _bad_model(directives.model, agent)
        return why or (await refusal(words, agent, reset_triggers) if words != text else "")
    return _unknown(text, name, agent, reset_triggers)


async def split_model(words: str, agent: Agent) -> tuple[str, str]:
    """The model before a message, as in `/new mock/m hello`, and the message; "" if there is none."""
    first, rest = (*words.split(maxsplit=1), "", "")[:2]
    try:
        return (await agent.find_model(first), rest.strip()) if first and not first.startswith("/") else ("", words)
    except BadRequest:
        return "", words


async def _bad_argument(command: Command, agent: Agent | None, reset_triggers: Sequence[str]) -> str:
    rest = command.rest
    if command.name == "context" and rest.lower() not in CONTEXT_VIEWS:
        near, known = nearest(rest, CONTEXT_VIEWS), ", ".join(CONTEXT_VIEWS[1:])
        return f"/context cannot be {rest[:40]!r}: {f'did you mean {near}? ' if near else ''}it can be {known}"
    if command.name != "new" or agent is None:
        return ""
    model, words = await split_model(rest, agent)
    if not model and "/" in rest and not rest.startswith("/") and len(rest.split()) == 1:
        return await _bad_model(rest, agent)  # one word that looks like a model: hardly a message
    return await refusal(words, agent, reset_triggers)


async def _bad_model(name: str | None, agent: Agent | None) -> str:
    if agent is None or not name or name.lower() == DEFAULT_MODEL:
        return ""
    try:
        await agent.find_model(name)
    except BadRequest as error:
        return str(error)
    return ""


def _unknown(text: str, name: str, agent: Agent | None, reset_triggers: Sequence[str]) -> str:
    skills: list[str] = []
    if agent is not None and agent.skills is not None:
        try:
            if agent.skills.invoked(text):
                return ""
        except NotFound as error:
            return str(error)
        skills = [WORD, *agent.skills.listing().commands]
    elif name == WORD:
        return "" if agent is None else "there are no skills here"
    if os.path.lexists(text.split(maxsplit=1)[0].rstrip(":")):
        return ""
    known = [*COMMANDS, *ALIASES, *NAMES, *skills, *(trigger.lstrip("/") for trigger in reset_triggers)]
    near = nearest(name, known)
    meant = f"; did you mean /{near}?" if near else ""
    return f"unknown command /{name[:40]}{meant} ({HINT})"
