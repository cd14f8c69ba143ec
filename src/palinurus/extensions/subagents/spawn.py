"""Starts subagents, and says which rule forbids one.

A subagent is a session of its own (`agent:<id>:subagent:<uuid>`) with one task. Its run is an accepted message like any
other: committed before the tool answers, run in its lane, continued after a crash. It has no more tools than its
parent, the limits of its parent's run, and its parent's distrust of outside text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from palinurus.context.assemble import unanswered
from palinurus.dispatch.runs import Run
from palinurus.domain.envelope import Inbound, Spawn
from palinurus.domain.errors import BadRequest, NotFound, PalinurusError
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Image, Origin, OutsideText
from palinurus.domain.tool import Restriction, ToolOutput, ToolRun, failed
from palinurus.extensions.subagents.announce import expect_by
from palinurus.extensions.subagents.settings import SubagentSettings
from palinurus.extensions.subagents.spawn_call import SpawnCall
from palinurus.operations.services import Services
from palinurus.tools.policy import ToolRequest, decide
from palinurus.tools.tool_names import allowed_by

MOST_FORKED = 100_000  # tokens of a conversation that a subagent may start from
MOST_ATTACHED = 50_000  # characters of all attachments
LONGEST_LABEL = 60
CHANNEL = "subagent"
ONLY_PARENTS = ("sessions_spawn", "sessions_yield", "subagents", "sessions_list", "sessions_history", "sessions_search")
"""Tools of subagents that may start further ones; the others have no use for them."""


class SpawnRefused(BadRequest):
    """A rule forbids it."""


class _Order(Struct, frozen=True):
    """What all subagents of one call have in common."""

    agent: str
    settings: SubagentSettings
    lineage: tuple[str, ...]
    model: str
    thinking: str
    seconds: float
    restrictions: tuple[Restriction, ...]
    images: tuple[Image, ...]
    preface: str
    warning: str = ""


async def spawn(services: Services, run: ToolRun, call: SpawnCall) -> ToolOutput:
    """Starts the subagents of one call. Every refusal is a result that names its rule."""
    try:
        tasks = _tasks(call)
        order = await _checked_order(services, run, call, len(tasks))
        keys = [SessionKey(order.agent, "subagent", peer=services.new_id()) for _ in tasks]
        if call.context == "fork":
            await _fork(services, run.key, keys)
        started = await _start(services, run, call, order, list(zip(keys, tasks, strict=True)))
    except SpawnRefused as error:
        return _answer("forbidden", f"{error.message} ({error.hint})" if error.hint else error.message)
    except PalinurusError as error:
        return _answer("error", str(error))
    told = [{"runId": each.id, "childSessionKey": str(each.key)} for each in started]
    answer = {"status": "accepted", **(told[0] if len(told) == 1 else {"children": told})}
    return ToolOutput(_json(answer | ({"warning": order.warning} if order.warning else {})), details=answer)


def _answer(status: str, error: str) -> ToolOutput:
    return failed(_json({"status": status, "error": error}))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _tasks(call: SpawnCall) -> list[str]:
    if call.runtime != "subagent" or call.mode != "run" or call.thread:
        raise SpawnRefused("runtime acp, mode session and thread do not exist here yet", hint="leave them out")
    tasks = [task.strip() for task in (call.task, *call.tasks) if task.strip()]
    if not tasks:
        raise BadRequest("sessions_spawn needs a task", hint="write what the subagent should do and report")
    return tasks


async def _checked_order(services: Services, run: ToolRun, call: SpawnCall, count: int) -> _Order:
    settings = services.config.section(SubagentSettings, run.key.agent)
    lineage = (str(run.key), *await ancestors(services, run.key))
    if len(lineage) > settings.max_spawn_depth:
        raise SpawnRefused(
            f"subagents may not be started at depth {len(lineage)}: subagents.maxSpawnDepth is"
            f" {settings.max_spawn_depth}",
            hint="do the task yourself",
        )
    running = len({each.key for each in children(services, str(run.key))})
    if running + count > settings.max_children_per_agent:
        raise SpawnRefused(
            f"{running} subagents of this session run, {count} more would be over"
            f" subagents.maxChildrenPerAgent {settings.max_children_per_agent}",
            hint="wait for results, or start fewer",
        )
    agent = _allowed_agent(services, run, call, settings)
    _check_sandbox(services, run, call, agent)
    model, warning = await _model(services, run, call, settings, agent)
    images, attached = _attachments(call)
    return _Order(
        agent,
        settings,
        lineage,
        model,
        call.thinking or settings.thinking or await _thinking(services, run),
        call.run_timeout_seconds or call.timeout_seconds or settings.run_timeout_seconds,
        await _restrictions(services, run, leaf=len(lineage) >= settings.max_spawn_depth),
        images,
        "\n\n".join(filter(None, (_folder(services, agent, call.cwd), attached))),
        warning,
    )


def _allowed_agent(services: Services, run: ToolRun, call: SpawnCall, settings: SubagentSettings) -> str:
    wanted = call.agent_id.strip().lower()
    if not wanted and settings.require_agent_id:
        raise SpawnRefused("subagents.requireAgentId wants agentId in every call", hint=_known(settings))
    if wanted in ("", run.key.agent):
        return run.key.agent
    if not allowed_by(settings.allow_agents, wanted):
        raise SpawnRefused(f"subagents.allowAgents does not have {wanted[:64]!r}", hint=_known(settings))
    if wanted not in services.agents.ids:
        raise NotFound(f"there is no agent {wanted[:64]!r}", hint=f"configured: {', '.join(services.agents.ids)}")
    return wanted


def _known(settings: SubagentSettings) -> str:
    return f"allowed: {', '.join(settings.allow_agents) or 'only itself'}"


def _check_sandbox(services: Services, run: ToolRun, call: SpawnCall, agent: str) -> None:
    """A sandboxed parent has sandboxed subagents."""
    needed = call.sandbox == "require" or services.toolsets.environment(run.key).sandboxed == "required"
    child = SessionKey(agent, "subagent", peer="x")
    if needed and services.toolsets.environment(child).sandboxed != "required":
        raise SpawnRefused(
            f"this session is sandboxed, or the call wants it, and subagents of {agent} are not",
            hint=f'set agents.list[].sandbox.mode of {agent} to "all" or "non-main"',
        )


async def _model(
    services: Services, run: ToolRun, call: SpawnCall, settings: SubagentSettings, agent: str
) -> tuple[str, str]:
    """The model of the call, of the config, or of the parent; an unknown one is a warning."""
    inherited = f"{run.provider}/{run.model}" if agent == run.key.agent and run.provider else ""
    wanted = call.model or settings.model
    if not wanted:
        return inherited, ""
    try:
        return await services.agents.get(agent).find_model(wanted), ""
    except BadRequest as error:
        return inherited, f"{error.message}; the default model is used"


async def _thinking(services: Services, run: ToolRun) -> str:
    return (await services.turns.history.view_of(run.key)).thinking


async def _restrictions(services: Services, run: ToolRun, *, leaf: bool) -> tuple[Restriction, ...]:
    """No more tools than the parent has at this moment, and all the limits of its run."""
    agent, key = run.key.agent, run.key
    policy = services.toolsets.policy(agent)
    request = ToolRequest(
        "",
        key,
        owner=run.owner,
        channel=run.channel,
        sender=run.sender,
        provider=run.provider,
        model=run.model,
        sandboxed=services.toolsets.environment(key).sandboxed == "required",
        restrictions=run.restrictions,
    )
    names = [tool.spec.name for tool in await services.toolsets.tools(agent)]
    allowed = tuple(name for name in names if decide(policy, msgspec.structs.replace(request, tool=name)).allowed)
    own = Restriction(
        "subagents", "a subagent has no more tools than its parent", allowed, deny=ONLY_PARENTS if leaf else ()
    )
    return (*run.restrictions, own)


def _folder(services: Services, agent: str, cwd: str) -> str:
    if not cwd:
        return ""
    if not services.agents.get(agent).files.boundary.is_directory(cwd):
        raise BadRequest(f"cwd: there is no folder {cwd[:200]!r} in the workspace", hint="name one that exists")
    return f"Work in the folder {cwd} of the workspace."


def _attachments(call: SpawnCall) -> tuple[tuple[Image, ...], str]:
    if sum(len(each.content) for each in call.attachments if each.encoding == "utf8") > MOST_ATTACHED:
        raise BadRequest(
            f"attachments have more than {MOST_ATTACHED:,} characters", hint="name files of the workspace instead"
        )
    images = tuple(
        Image(each.content, each.mime_type)
        for each in call.attachments
        if each.encoding == "base64" and each.mime_type.startswith("image/")
    )
    texts = [f"Attached {each.name}:\n{each.content}" for each in call.attachments if each.encoding == "utf8"]
    if len(images) + len(texts) < len(call.attachments):
        raise BadRequest("attachments are texts (utf8) or images (base64 with their mimeType)")
    return images, "\n\n".join(texts)


async def _start(
    services: Services, run: ToolRun, call: SpawnCall, order: _Order, tasks: Sequence[tuple[SessionKey, str]]
) -> list[Run]:
    services.dispatcher.limit_subagents(order.settings.max_concurrent)
    now = services.clock.now_ms()
    parent = services.dispatcher.runs.get(run.run_id)
    common = Spawn(
        order.lineage,
        run=run.run_id,
        group=tuple(str(key) for key, _ in tasks) if len(tasks) > 1 or call.deadline_seconds else (),
        deadline=now + round(call.deadline_seconds * 1000) if call.deadline_seconds else 0,
        cleanup=call.cleanup,
        for_owner=run.owner,
        reply_to=services.deliveries.place_of(parent.inbound) if parent and parent.inbound else None,
    )
    started: list[Run] = []
    try:
        for number, (key, task) in enumerate(tasks, 1):
            label = shortened(call.label or task, LONGEST_LABEL) + (f" {number}" if call.label and common.group else "")
            spawn = msgspec.structs.replace(common, label=label)
            started.append(await _submit(services, run, order, (key, task), spawn, light=call.light_context))
    except PalinurusError:
        for each in started:
            services.dispatcher.stop(each.key)
        raise
    if common.deadline:
        await expect_by(services, common, started[0].id)
    return started


async def _submit(
    services: Services, run: ToolRun, order: _Order, task_of: tuple[SessionKey, str], spawn: Spawn, *, light: bool
) -> Run:
    key, task = task_of
    return await services.dispatcher.submit(
        Inbound(
            "\n\n".join(filter(None, (task, order.preface))),
            f"spawn:{key.peer}",
            images=order.images,
            session_key=str(key),
            channel=CHANNEL,
            sender=str(run.key),
            origin=Origin.OUTSIDE if run.untrusted else Origin.AGENT,
            sources=sources_of(run.suspects) if run.untrusted else (),
            for_owner=run.owner,
            attended=run.attended,
            model=order.model,
            thinking=order.thinking,
            light=light,
            timeout_seconds=order.seconds,
            restrictions=order.restrictions,
            plain=True,
            spawn=spawn,
        )
    )


def sources_of(texts: Iterable[OutsideText]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text.source for text in texts if text.source))


async def ancestors(services: Services, key: SessionKey) -> tuple[str, ...]:
    """The keys of the sessions above a subagent's, its parent first."""
    found: list[str] = []
    while key.is_subagent and len(found) < 8:
        session = await services.sessions.find(key)
        if session is None or not session.spawned_by:
            break
        found.append(session.spawned_by)
        key = SessionKey.parse(session.spawned_by)
    return tuple(found)


def shortened(text: str, length: int) -> str:
    words = " ".join(text.split())
    return words if len(words) <= length else f"{words[: length - 1]}…"


def children(services: Services, parent: str) -> list[Run]:
    """The running and waiting runs of a session's own subagents."""
    active = services.dispatcher.runs.active()
    return [run for run in active if run.inbound and run.inbound.spawn and run.inbound.spawn.parent == parent]


async def _fork(services: Services, parent: SessionKey, keys: Sequence[SessionKey]) -> None:
    """The subagents begin with the conversation of their parent, up to the reply that starts them."""
    session = await services.sessions.find(parent)
    if session is None or session.context_tokens > MOST_FORKED:
        raise SpawnRefused(
            f"context fork copies at most {MOST_FORKED:,} tokens, and this session has more",
            hint="say in the task what it needs to know",
        )
    history = services.turns.history
    messages = [line.message for line in (await history.whole_view(session)).lines]
    while messages and unanswered(messages):
        messages.pop()
    for key in keys:
        child = await history.open(key)
        await child.journal.write([child.journal.message(message) for message in messages])
