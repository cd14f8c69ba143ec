"""Messages that are meant as a command and are none: they are refused with what may have been meant, and cost nothing.

The rule: a message is meant as a command when its very first sign is a slash, and behind it stands a name of letters,
digits, `-` and `_` that begins with a letter and ends with white space, a colon or the message. So `/etc/hosts is …`,
`/home/me/x`, `//` and `/ ` are for the model, and so are a folder at the root of this machine (`/tmp is full`) and
whatever begins with a space.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from palinurus.agent.agent import Agent
from palinurus.dispatch.commands import ALIASES, COMMANDS, CONTEXT_VIEWS, Command, parse
from palinurus.dispatch.directives import DEFAULT_MODEL, NAMES, bad_value, parse_directives
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.domain.suggestion import nearest
from palinurus.skills.commands import WORD

HINT = "/help lists them; a message that begins with a space goes to the model"
_NAME = re.compile(r"/(?P<name>[^\W\d_][\w-]*)(?=[\s:]|\Z)")


async def refusal(text: str, agent: Agent | None, reset_triggers: Sequence[str]) -> str:
    """Why a message is not taken; empty when it is. Without an agent only what needs none is looked at."""
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
    """The model that stands before a message, as `/new mock/m hello` has it, and the message; "" when none does."""
    first, rest = (*words.split(maxsplit=1), "", "")[:2]
    try:
        return (await agent.find_model(first), rest.strip()) if first and not first.startswith("/") else ("", words)
    except BadRequest:
        return "", words


async def _bad_argument(command: Command, agent: Agent | None, reset_triggers: Sequence[str]) -> str:
    rest = command.rest
    if command.name == "context" and rest.lower() not in CONTEXT_VIEWS:
        near = nearest(rest, CONTEXT_VIEWS)
        return f"/context cannot be {rest[:40]!r}: {f'did you mean {near}? ' if near else ''}it can be {_views()}"
    if command.name != "new" or agent is None:
        return ""
    model, words = await split_model(rest, agent)
    if not model and "/" in rest and not rest.startswith("/") and len(rest.split()) == 1:
        return await _bad_model(rest, agent)  # one word that is written like a model: hardly a message
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


def _views() -> str:
    return ", ".join(view for view in CONTEXT_VIEWS if view)
