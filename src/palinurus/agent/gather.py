"""Collects what a turn needs besides the transcript: files, notes, skills, and the context of its tools.

Most skills are instructions: they are added to the message, and a model follows them. A skill with `command-dispatch:
tool` names a tool instead, and its command is one call of that tool without a model.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import Annotated, Any

import msgspec

from palinurus.agent.agent import Agent, TurnContext
from palinurus.agent.resume import CLIENT_SOURCE, turn_so_far, waiting_turn
from palinurus.context.assemble import RequestParts, TurnInput, TurnOpening, text_sources
from palinurus.context.daily_notes import needs_startup_notes, startup_notes
from palinurus.context.epoch import Route, reason_for_new
from palinurus.context.view import View
from palinurus.domain.clock import Clock, local_time
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import NotFound
from palinurus.domain.hooks import BOOTSTRAP, Hooks
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import (
    AssistantMessage,
    ContextNote,
    Origin,
    ToolCall,
    ToolResult,
    UserMessage,
    outside_texts,
    texts_beside,
    texts_in,
)
from palinurus.domain.tool import ToolRun, ToolSpec
from palinurus.sessions.transcript import messages_of
from palinurus.skills.offer import SkillCall, SkillOffer
from palinurus.skills.skills import called_note
from palinurus.workspace.files import HEARTBEAT, BootstrapFile, Mode, TextFile, text_digest

MOST_FILES = 50  # of a prompt, when hooks add some
log = logging.getLogger(__name__)


class HookFile(msgspec.Struct, frozen=True):
    """A file of the prompt as hooks see and change it. Without content it is read from the workspace."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern=r"\A[^\x00-\x1f]+\Z")]
    content: str | None = None
    missing: bool = False


def request_parts(
    agent: Agent, key: SessionKey, tools: tuple[ToolSpec, ...], route: Route, clock: Clock, message: Inbound
) -> RequestParts:
    """What the next request is made of besides the transcript. The agent is the one in the session's workspace.

    A direct chat with somebody else than the owner holds nothing private; who shares the main session shares its head.
    """
    heartbeat, guest = message.channel == "heartbeat", message.by_guest and key.kind == "direct"
    usual: Mode = "unattended" if key.kind == "boot" else "full"
    mode: Mode = "subagent" if key.is_subagent else "heartbeat" if heartbeat else usual
    prompt = agent.context.prompt
    files = agent.files.bootstrap_files(mode, private=key.is_private and not guest, extra=prompt.extra_files)
    always = tuple(file for file in files if file.name != HEARTBEAT)
    now_only = next((file for file in files if file.name == HEARTBEAT), None)
    skills = None
    theirs = {tool.name for tool in message.client_tools}
    reads = "read" not in theirs and any(tool.name == "read" for tool in tools)  # a client's reads its own files
    if agent.skills is not None and prompt.mode == "full" and reads:
        skills = skill_list(agent.skills.offer())
    return RequestParts(always, tools, route, local_time(clock), now_only, skills, agent.runtime)


async def add_hook_files(
    hooks: Hooks, agent: Agent, key: SessionKey, view: View, parts: RequestParts, *, private: bool
) -> RequestParts:
    """The parts with the files that hooks add, replace or remove.

    Hooks are asked when a head is built. As long as it is sent, their files stay as it shows them (promise 20).
    """
    if not hooks.listens(BOOTSTRAP, key):
        return parts
    epoch = view.epoch
    if epoch is not None and not reason_for_new(epoch, parts.route, agent.context.fingerprint, parts.tools):
        own = (file for file in parts.files if file.name not in epoch.hooked)
        stay = (BootstrapFile(name, "present", digest=view.shown_files.get(name, "")) for name in epoch.hooked)
        shown = (file for file in stay if file.digest)
        return msgspec.structs.replace(parts, files=(*own, *shown), hooked=epoch.hooked)
    given = {file.name: file for file in parts.files}
    listed = [{"name": name, "content": file.text, "missing": file.state == "missing"} for name, file in given.items()]
    facts = {"agentId": key.agent, "workspaceDir": agent.context.prompt.workspace, "bootstrapFiles": listed}
    changed = await hooks.revise(BOOTSTRAP, key, facts, _read_hook_files)
    if changed is None:
        return parts
    found = {each.name: _hook_file(agent, each, given.get(each.name), private) for each in changed[:MOST_FILES]}
    files = {name: file for name, file in found.items() if file is not None}
    hooked = tuple(name for name in {**given, **files} if given.get(name) != files.get(name))
    return msgspec.structs.replace(parts, files=tuple(files.values()), hooked=hooked)


def _read_hook_files(context: dict[str, Any]) -> list[HookFile]:
    return msgspec.convert(context["bootstrapFiles"], list[HookFile])


def _hook_file(agent: Agent, wanted: HookFile, given: BootstrapFile | None, private: bool) -> BootstrapFile | None:
    if given is not None and wanted.content in (None, given.text):
        return given
    if wanted.content is not None:
        text = wanted.content
        return BootstrapFile(wanted.name, "present", text, text_digest(text), len(text)) if text.strip() else None
    found = agent.files.read(wanted.name)
    if isinstance(found, TextFile) and agent.files.sources_of(found.path):
        log.warning("%s holds text from outside: a hook cannot add it to the prompt", wanted.name)
        return None
    return agent.files.extra_file(wanted.name, private)


def reads_private(key: SessionKey, inbound: Inbound) -> bool:
    """Whether what is the owner's alone may be read: for nobody else on a channel, nor in their direct chats."""
    return key.is_private and not (inbound.by_guest and (inbound.peer is not None or key.kind == "direct"))


async def add_notes(turn: TurnContext, message: TurnInput, view: View, parts: RequestParts) -> TurnInput:
    """The message with its notes: daily notes, recalled memory, the instructions of a skill that it calls.

    A message that is already in the transcript has its notes there.
    """
    if message.run_id in view.stored_ids:
        return message
    agent, inbound = turn.agent, message.inbound
    private = reads_private(turn.key, inbound) and inbound.channel != "heartbeat"
    notes = list(message.notes)
    if private and needs_startup_notes(view, agent.startup) and not inbound.results:
        notes = [*startup_notes(agent.files, parts.now.date(), agent.startup), *notes]
    if private and agent.recall is not None and inbound.text:
        from palinurus.context.recall import news_of  # loaded with recall; most turns need neither

        found = await agent.recall(turn.key, inbound.text)
        whole = [file.name for file in parts.files if file.raw_chars <= agent.context.prompt.file_limit]
        notes += news_of(found, view, whole if agent.context.prompt.inject else ())
    if (note := _skill_note(agent, message)) is not None:
        notes.append(note)
    return msgspec.structs.replace(message, notes=tuple(notes))


def tool_run(turn: TurnContext, message: TurnInput, view: View, opening: TurnOpening) -> ToolRun:
    """The context in which the tools of this turn run, and what its model reads.

    Tools use it to know which texts are from outside, and to tell messages from the model's inventions.
    """
    inbound, key = message.inbound, turn.key
    run = ToolRun(
        key,
        message.run_id,
        reads_private(key, inbound),
        owner=inbound.by_owner,
        channel=inbound.channel,
        sender=inbound.sender,
        provider=turn.route.provider,
        model=turn.route.model,
        origin=inbound.origin,
        attended=inbound.attended,
        restrictions=inbound.restrictions,
        elevated=turn.journal.session.preferences.elevated_level,
        emit=turn.emit,
        head=opening.request.head.system,
        request=(*(line.message for line in view.lines), *messages_of(opening.entries)),
        conversation=f"{turn.journal.session.id}/{view.begun}",
    )
    own = outside_texts(inbound.text, inbound.origin, text_sources(inbound))
    results = (outside_texts(each.text, Origin.OUTSIDE, (CLIENT_SOURCE,)) for each in inbound.results)
    notes = texts_beside((*inbound.notes, *message.notes))
    brought = chain.from_iterable((*map(texts_in, inbound.earlier), *results))
    outside = (*view.outside_texts, *own, *notes, *brought)
    return with_skills(turn.agent, run.having_read(outside), message, view)


# -- skills -----------------------------------------------------------------------------------------------------------


def _skill_note(agent: Agent, message: TurnInput) -> ContextNote | None:
    """The instructions of the skill that the message calls, so that the model need not read them."""
    try:
        invoked = _invoked(agent, message)
        return called_note(invoked) if invoked and not invoked.skill.about.dispatch_tool else None
    except NotFound as error:
        return ContextNote("notice", str(error), "skill")


def with_skills(agent: Agent, run: ToolRun, message: TurnInput, view: View) -> ToolRun:
    """Narrowed by the called skill, by those in use when the turn was interrupted, and by registry skills whose text is
    still in the session.
    """
    if agent.skills is None:
        return run
    skills, inbound = agent.skills, message.inbound
    run = skills.lasting(run)
    waiting = waiting_turn(view) if inbound.results else []  # for the model both are one turn
    calling = (inbound.text, *(each.text for each in waiting if isinstance(each, UserMessage)))
    for text in () if inbound.plain else calling:
        with suppress(NotFound):  # a note tells the model
            run = skills.called(run, invoked) if (invoked := skills.invoked(text)) else run
    for earlier in (*turn_so_far(view, message.run_id), *inbound.results, *waiting):
        if isinstance(earlier, AssistantMessage):
            for call in earlier.calls:
                run = skills.after(run, call)
        elif isinstance(earlier, ToolResult):
            run = skills.shown(run, earlier.text)
    return run


def direct_call(agent: Agent, message: TurnInput, specs: Sequence[ToolSpec]) -> ToolCall | None:
    """The one tool call of a message that calls a skill with a tool dispatch."""
    with suppress(NotFound):
        invoked = _invoked(agent, message)
        if invoked and (name := invoked.skill.about.dispatch_tool):
            spec = next((each for each in specs if each.name == name), None)
            return ToolCall(f"direct-{message.run_id}"[:64], name, fitting_arguments(invoked, spec))
    return None


def fitting_arguments(invoked: SkillCall, spec: ToolSpec | None) -> dict[str, Any]:
    """OpenClaw's arguments as far as the tool has them; for a tool without `command`, the text as its one argument.

    A missing tool is called all the same: the gate returns the reason.
    """
    given: dict[str, Any] = dict(invoked.arguments)
    if spec is None:
        return given
    known = spec.parameters.get("properties", {})
    required = spec.parameters.get("required", [])
    if "command" not in known and len(required) == 1:
        given[required[0]] = given.pop("command")
    closed = "__" not in spec.name or spec.parameters.get("additionalProperties") is False  # ours, or an MCP server's
    return {name: value for name, value in given.items() if name in known or not closed}


def _invoked(agent: Agent, message: TurnInput) -> SkillCall | None:
    """Raises NotFound for `/skill` with a wrong name. Messages of programs contain no commands."""
    if agent.skills is None or message.inbound.plain:
        return None
    return agent.skills.invoked(message.inbound.text)


def skill_list(offered: SkillOffer) -> BootstrapFile | None:
    """The list of skills for the prompt: a change of it is added to the newest message, as for workspace files."""
    if not offered.text:
        return None
    return BootstrapFile("Skills", "present", offered.text, offered.digest, len(offered.text))
