"""What a turn is made of besides the transcript: files, tools, notes that ride along, and on whose behalf it runs."""

from __future__ import annotations

from itertools import chain

import msgspec

from palinurus.agent.agent import Agent
from palinurus.agent.clients import CLIENT_SOURCE
from palinurus.agent.loop import Emit
from palinurus.context.epoch import Route
from palinurus.context.opening import ContextSettings, Gathered, Opening, Spoken, sender_source
from palinurus.context.recall import news_of
from palinurus.context.startup import begins, startup_notes
from palinurus.context.view import View
from palinurus.domain.clock import Clock, local_time
from palinurus.domain.envelope import Inbound
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin
from palinurus.domain.provenance import outside_texts, texts_beside
from palinurus.domain.tool import ToolRun, ToolSpec
from palinurus.sessions.session import Preferences, SessionChange
from palinurus.sessions.transcript import messages_of
from palinurus.skills.skills import skill_list
from palinurus.workspace.files import HEARTBEAT, Mode


async def in_session(agent: Agent, key: SessionKey) -> Agent:
    """The agent in the workspace of one session: its files, and what the prompt says about it."""
    if agent.workspace_of is None:
        return agent
    found = await agent.workspace_of(key)
    prompt = msgspec.structs.replace(agent.context.prompt, workspace=found.path, sandbox=found.sandbox)
    context = msgspec.structs.replace(agent.context, prompt=prompt)
    return msgspec.structs.replace(agent, files=found.files, context=context)


def with_startup(agent: Agent, spoken: Spoken, view: View, gathered: Gathered) -> Spoken:
    """With the newest daily notes, in the first message of a session."""
    if not begins(view, agent.startup) or spoken.inbound.results:
        return spoken
    notes = startup_notes(agent.files, gathered.now.date(), agent.startup)
    return msgspec.structs.replace(spoken, notes=(*notes, *spoken.notes))


async def with_recalled(agent: Agent, key: SessionKey, spoken: Spoken, view: View, gathered: Gathered) -> Spoken:
    """With what memory offers unasked, as far as the model has not read it yet."""
    found = await agent.recall(key, spoken.inbound.text) if spoken.inbound.text else ()
    whole = [file.name for file in gathered.files if file.raw_chars <= agent.context.prompt.file_limit]
    news = news_of(found, view, whole if agent.context.prompt.inject else ())
    return msgspec.structs.replace(spoken, notes=(*spoken.notes, *news)) if news else spoken


def on_behalf(
    key: SessionKey, spoken: Spoken, route: Route, preferences: Preferences, view: View, emit: Emit
) -> ToolRun:
    """For whom the tools of this turn run, and which texts from outside its model reads: all of them, old and new."""
    inbound = spoken.inbound
    said = outside_texts(inbound.text, inbound.origin, (sender_source(inbound),))
    brought = (outside_texts(each.text, Origin.OUTSIDE, (CLIENT_SOURCE,)) for each in inbound.results)
    beside = texts_beside((*inbound.notes, *spoken.notes))
    run = ToolRun(
        key,
        spoken.run_id,
        key.is_private,
        owner=inbound.origin == Origin.OWNER,
        channel=inbound.channel,
        sender=inbound.sender,
        provider=route.provider,
        model=route.model,
        origin=inbound.origin,
        attended=inbound.attended,
        elevated=preferences.elevated_level,
        emit=emit,
    )
    return run.having_read((*view.outside_texts, *said, *beside, *chain.from_iterable(brought)))


def reading(run: ToolRun, session_id: str, view: View, opening: Opening) -> ToolRun:
    """The run with what its model reads, so that tools can tell what somebody has said from what the model made up."""
    read = (*(line.message for line in view.lines), *messages_of(opening.entries))
    place = f"{session_id}/{view.begun}"
    return msgspec.structs.replace(run, head=opening.request.head.system, request=read, conversation=place)


def gather(
    agent: Agent, key: SessionKey, tools: tuple[ToolSpec, ...], route: Route, clock: Clock, *, heartbeat: bool = False
) -> Gathered:
    """What the next request is made of besides the transcript."""
    mode: Mode = "subagent" if key.is_subagent else "heartbeat" if heartbeat else "full"
    files = agent.files.bootstrap_files(mode, private=key.is_private, extra=agent.context.prompt.extra_files)
    always = tuple(file for file in files if file.name != HEARTBEAT)
    now_only = next((file for file in files if file.name == HEARTBEAT), None)
    skills = None
    can_read = any(tool.name == "read" for tool in tools)
    if agent.skills is not None and can_read and context_for(agent, key).prompt.mode == "full":
        skills = skill_list(agent.skills.offer())
    return Gathered(always, tools, route, local_time(clock), now_only, skills, agent.runtime)


def context_for(agent: Agent, key: SessionKey) -> ContextSettings:
    """The agent's settings; a subagent is told only what its task needs, and a group nothing of private memory."""
    prompt = agent.context.prompt
    if key.is_subagent and prompt.mode != "none":
        prompt = msgspec.structs.replace(prompt, mode="minimal")
    if not key.is_private:
        prompt = msgspec.structs.replace(prompt, private=False)
    return msgspec.structs.replace(agent.context, prompt=prompt)


def spoke(inbound: Inbound, route: Route) -> SessionChange:
    return SessionChange(
        interaction=inbound.channel not in ("heartbeat", "cron"),
        provider=route.provider,
        model=route.model,
        delivery=inbound.place,
    )
