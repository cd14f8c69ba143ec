"""Skills in a turn: the one that a message calls by a slash command, and those that the turn had taken up before.

Most are called to be followed: their instructions ride along, and a model does the rest. A skill with
`command-dispatch: tool` names a tool instead, and its command is one call of that tool: no model is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from palinurus.agent.agent import Agent
from palinurus.agent.earlier import calls_so_far, results_so_far, waiting_turn
from palinurus.context.opening import Spoken
from palinurus.context.view import View
from palinurus.domain.errors import NotFound
from palinurus.domain.messages import AssistantMessage, ContextNote, ToolCall, ToolResult, UserMessage
from palinurus.domain.tool import ToolRun, ToolSpec
from palinurus.skills.commands import Invoked
from palinurus.skills.skills import Skills, called_note


def with_called(agent: Agent, spoken: Spoken) -> Spoken:
    """With the instructions of the skill that the message calls, so that none need be read."""
    try:
        invoked = _invoked(agent, spoken)
        note = called_note(invoked) if invoked and not invoked.skill.about.dispatch_tool else None
    except NotFound as error:
        note = ContextNote("notice", str(error), "skill")
    return msgspec.structs.replace(spoken, notes=(*spoken.notes, note)) if note else spoken


def with_skills(agent: Agent, run: ToolRun, spoken: Spoken, view: View) -> ToolRun:
    """Narrowed by the skill that was called, by those in use when the turn was cut off, and by those of registries
    whose words are still in the conversation."""
    if agent.skills is None:
        return run
    run = agent.skills.lasting(run)
    with suppress(NotFound):  # the model has been told
        if invoked := _invoked(agent, spoken):
            run = agent.skills.called(run, invoked)
    for call in calls_so_far(view, spoken.run_id):
        run = agent.skills.after(run, call)
    for text in (*results_so_far(view, spoken.run_id), *(result.text for result in spoken.inbound.results)):
        run = agent.skills.shown(run, text)
    return _gone_on_with(agent.skills, run, spoken, view) if spoken.inbound.results else run


def _gone_on_with(skills: Skills, run: ToolRun, spoken: Spoken, view: View) -> ToolRun:
    """With the skills of the turn that waited for its client: to the model it is one turn, whatever we call it."""
    for message in waiting_turn(view):
        match message:
            case UserMessage() if not spoken.inbound.plain:
                with suppress(NotFound):
                    run = skills.called(run, invoked) if (invoked := skills.invoked(message.text)) else run
            case AssistantMessage():
                for call in message.calls:
                    run = skills.after(run, call)
            case ToolResult():
                run = skills.shown(run, message.text)
    return run


def direct_call(agent: Agent, spoken: Spoken, specs: Sequence[ToolSpec]) -> ToolCall | None:
    """The one call that the message stands for, when it calls a skill that dispatches to a tool."""
    with suppress(NotFound):
        invoked = _invoked(agent, spoken)
        if invoked and (name := invoked.skill.about.dispatch_tool):
            spec = next((each for each in specs if each.name == name), None)
            return ToolCall(f"direct-{spoken.run_id}"[:64], name, fitting_arguments(invoked, spec))
    return None


def fitting_arguments(invoked: Invoked, spec: ToolSpec | None) -> dict[str, Any]:
    """What OpenClaw sends, as far as the tool knows it; to a tool without `command` the words as its one argument.

    A tool that is not there is called all the same: the gate says why not.
    """
    given: dict[str, Any] = dict(invoked.arguments)
    if spec is None:
        return given
    known = spec.parameters.get("properties", {})
    required = spec.parameters.get("required", [])
    if "command" not in known and len(required) == 1:
        given[required[0]] = given.pop("command")
    closed = spec.parameters.get("additionalProperties") is False
    return {name: value for name, value in given.items() if name in known or not closed}


def _invoked(agent: Agent, spoken: Spoken) -> Invoked | None:
    """Raises NotFound for `/skill` with a wrong name. No command is read in the words of a program."""
    if agent.skills is None or spoken.inbound.plain:
        return None
    return agent.skills.invoked(spoken.inbound.text)
