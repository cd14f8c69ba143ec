"""Subagents as people ask for them: list them, watch them, stop one, send one a message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from palinurus.dispatch.delivery import ANNOUNCE
from palinurus.dispatch.runs import Run
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin
from palinurus.domain.tool import ToolOutput, ToolRun
from palinurus.extensions.subagents.announce import CHANNEL, announcement_of, report_of
from palinurus.extensions.subagents.spawn import shortened, sources_of
from palinurus.operations.operation import SessionRef, operation
from palinurus.operations.services import Services
from palinurus.sessions.names import require_session
from palinurus.storage.jobs import RUN
from palinurus.storage.transaction import decoded

MOST_LISTED = 200
WATCH_SECONDS = 1.0
LONGEST_TASK = 200


class SubagentInfo(Struct, frozen=True, rename="camel"):
    """One subagent and its newest run."""

    key: str
    run_id: str
    parent: str
    depth: int
    label: str
    task: str
    state: str  # waiting | running | success | error | timeout | stopped | unknown
    step: str = ""  # what it does at this moment
    started_at: int = 0
    elapsed_ms: int = 0
    tokens: int = 0
    cost: float | None = None
    text: str = ""  # the beginning of its result


class SubagentList(Struct, frozen=True):
    subagents: tuple[SubagentInfo, ...]  # active ones first, then those that ended last


class StoppedSubagents(Struct, frozen=True):
    key: str
    runs: int


class SteeredSubagent(Struct, frozen=True):
    key: str
    outcome: str


@operation("subagents.list", scope="read")
async def list_subagents(
    services: Services,
    session: Annotated[SessionRef, "Only those below this session."] = "",
    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED), "Maximum number."] = 50,
) -> SubagentList:
    """List subagents: what each does, how long, tokens and cost.

    Examples:
      pal subagents list
      pal subagents list --watch
      pal subagents list --session main --json
    """
    return await _list(services, session, limit)


@operation("subagents.watch", scope="read", local=True)
async def watch_subagents(
    services: Services, session: SessionRef = "", limit: Annotated[int, Meta(ge=1, le=MOST_LISTED)] = 50
) -> AsyncIterator[SubagentList]:
    """The same list again whenever it has changed."""
    shown: SubagentList | None = None
    while True:
        now = await _list(services, session, limit)
        if now != shown:
            shown = now
            yield now
        await asyncio.sleep(WATCH_SECONDS)


@operation("subagents.stop", scope="write")
async def stop_subagent(
    services: Services, subagent: Annotated[str, "Its label, its key or the beginning of its id."]
) -> StoppedSubagents:
    """Stop a subagent and those that it started.

    Examples:
      pal subagents stop "read the logs"
    """
    key = await find_subagent(services, subagent)
    return StoppedSubagents(key, services.dispatcher.stop(SessionKey.parse(key)))


@operation("subagents.steer", scope="write")
async def send_to_subagent(
    services: Services,
    subagent: Annotated[str, "Its label, its key or the beginning of its id."],
    message: Annotated[str, Meta(min_length=1), "What it shall know or do."],
) -> SteeredSubagent:
    """Send a message to a subagent: into its running turn, or as a new run that reports to its parent again.

    Examples:
      pal subagents steer 3f9a "only the last week"
    """
    key = await find_subagent(services, subagent)
    return SteeredSubagent(key, await steer_subagent(services, key, message, "owner", Origin.OWNER))


async def _list(services: Services, session: str, limit: int) -> SubagentList:
    ancestor = ""
    if session:
        found = await require_session(services.sessions, session, agent=services.agents.default)
        ancestor = found.key
    return SubagentList(tuple((await listed(services, ancestor))[:limit]))


async def listed(services: Services, ancestor: str = "") -> list[SubagentInfo]:
    """Those below a session, or all."""
    active = [run for run in services.dispatcher.runs.active() if run.inbound is not None and run.inbound.spawn]
    found = {info.key: info for info in (_active(services, run) for run in active)}
    lineages = {str(run.key): run.inbound.spawn.lineage for run in active if run.inbound and run.inbound.spawn}
    for job in await services.jobs.recent(kinds=[ANNOUNCE], limit=MOST_LISTED):
        ended = announcement_of(job)
        key = ended.result.session_key
        if key in found or (ancestor and ancestor not in ended.spawn.lineage):
            continue
        report = await report_of(services, ended)
        lineages[key] = ended.spawn.lineage
        found[key] = SubagentInfo(
            key,
            ended.result.run_id,
            ended.spawn.parent,
            len(ended.spawn.lineage),
            report.label,
            shortened(ended.task, LONGEST_TASK),
            report.status,
            started_at=job.added_at - report.runtime_ms,
            elapsed_ms=report.runtime_ms,
            tokens=report.tokens,
            cost=report.cost,
            text=shortened(report.text, LONGEST_TASK),
        )
    return [info for key, info in found.items() if not ancestor or ancestor in lineages[key]]


def _active(services: Services, run: Run) -> SubagentInfo:
    inbound = run.inbound
    assert inbound is not None  # noqa: S101  # of those that have a spawn
    assert inbound.spawn is not None  # noqa: S101
    return SubagentInfo(
        str(run.key),
        run.id,
        inbound.spawn.parent,
        len(inbound.spawn.lineage),
        inbound.spawn.label,
        shortened(inbound.text, LONGEST_TASK),
        "waiting" if run.waits else "running",
        run.step,
        run.accepted_at,
        (services.clock.now_ms() - run.accepted_at) // 1000 * 1000,
        run.usage.total,
    )


async def steer_subagent(
    services: Services, key: str, message: str, sender: str, origin: Origin, sources: tuple[str, ...] = ()
) -> str:
    """Its limits stay those of its first run. Raises BadRequest and NotFound."""
    if not message.strip():
        raise BadRequest("a message is missing", hint="write what the subagent should know or do")
    first = await services.jobs.find(RUN, f"spawn:{SessionKey.parse(key).peer}")
    if first is None or await services.sessions.find(SessionKey.parse(key)) is None:
        raise NotFound(f"the session {key} has been archived", hint="start a new subagent")
    before = decoded(bytes(first.payload), Inbound, f"the message of run {first.id}")
    spawn = before.spawn and msgspec.structs.replace(before.spawn, group=(), deadline=0)
    inbound = msgspec.structs.replace(
        before,
        text=message,
        idempotency_key=services.new_id(),
        images=(),
        sender=sender,
        channel=CHANNEL,
        origin=origin,
        sources=sources,
        steers=True,
        spawn=spawn,
    )
    busy = bool(services.dispatcher.runs.active(SessionKey.parse(key)))
    run = await services.dispatcher.submit(inbound)
    return f"sent into its running turn as {run.id}" if busy else f"started again as run {run.id}"


async def manage(services: Services, run: ToolRun, action: str, target: str, message: str) -> ToolOutput:
    """The tool subagents: of those below its session."""
    above = str(run.key)
    if action == "list":
        return ToolOutput(describe(await listed(services, above)))
    if action == "kill" and target.strip().lower() == "all":
        keys = {each.key for each in await listed(services, above)}
        return ToolOutput(f"Stopped {sum(services.dispatcher.stop(SessionKey.parse(key)) for key in keys)} runs.")
    key = await find_subagent(services, target, above)
    if action == "kill":
        return ToolOutput(_stopped(key, services.dispatcher.stop(SessionKey.parse(key))))
    origin = Origin.OUTSIDE if run.untrusted else Origin.AGENT
    sources = sources_of(run.suspects) if run.untrusted else ()
    return ToolOutput(await steer_subagent(services, key, message, above, origin, sources))


def _stopped(key: str, runs: int) -> str:
    return f"Stopped {key}." if runs else f"{key} was not running."


async def find_subagent(services: Services, target: str, ancestor: str = "") -> str:
    """The key of the subagent below a session with this label, key or beginning of its id. Raises NotFound."""
    wanted = target.strip().lower()
    known = await listed(services, ancestor)
    for each in known:
        if wanted in (each.key, each.label.lower()):
            return each.key
    begins = {each.key for each in known if len(wanted) >= 4 and each.key.rpartition(":")[2].startswith(wanted)}
    if len(begins) == 1:
        return begins.pop()
    raise NotFound(f"there is no subagent {target[:80]!r} here", hint="list shows their labels and keys")


def describe(subagents: list[SubagentInfo]) -> str:
    """For the model and /subagents: a line each."""
    if not subagents:
        return "There are no subagents."
    return "\n".join(map(line_of, subagents))


def line_of(info: SubagentInfo) -> str:
    cost = f"${info.cost:.4f}" if info.cost is not None else ""
    facts = (info.state, info.step, f"{info.elapsed_ms / 1000:.0f} s", f"{info.tokens:,} tokens", cost, info.key)
    return f"{'  ' * (info.depth - 1)}{info.label}: {', '.join(filter(None, facts))}"


async def answer_slash(services: Services, key: SessionKey, words: str, inbound: Inbound) -> str:
    """`/subagents [list|stop|steer] [name] [message]`, for the owner."""
    action, _, rest = words.strip().partition(" ")
    if action in ("", "list"):
        return describe(await listed(services, str(key)))
    if inbound.origin != Origin.OWNER:
        return "Only the owner may stop or steer subagents."
    if action in ("stop", "kill"):
        found = await find_subagent(services, rest, str(key))
        return _stopped(found, services.dispatcher.stop(SessionKey.parse(found)))
    if action == "steer":
        name, _, message = rest.strip().partition(" ")
        found = await find_subagent(services, name, str(key))
        return f"{found}: {await steer_subagent(services, found, message, inbound.sender, Origin.OWNER)}"
    raise BadRequest(f"/subagents cannot be {action[:40]!r}", hint="list, stop NAME or steer NAME MESSAGE")
