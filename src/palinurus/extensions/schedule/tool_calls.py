"""Cron jobs as the agent and `/remind` make them: what was understood is said back in local time."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin
from palinurus.domain.tool import ToolOutput, ToolRun
from palinurus.extensions.schedule.cron_job import (
    AgentTurnPayload,
    AtSchedule,
    CommandPayload,
    CronJob,
    Payload,
    ReminderPayload,
    Schedule,
    SystemEventPayload,
)
from palinurus.extensions.schedule.drafts import CronDraft, CronJobInfo, info_of, make_cron_job, text_of
from palinurus.extensions.schedule.due import run_now, save
from palinurus.extensions.schedule.operations import list_cron_runs, remove_cron_job, show_cron_status, store_of
from palinurus.extensions.schedule.when import duration_words, moment_words, parse_schedule, split_reminder
from palinurus.operations.services import Services

MOST_NAME = 40
MOST_LISTED = 50
MOST_RUNS = 10
HELP = "/remind me tomorrow at 9 to call Ann · /remind list · /remind remove ID"


class CronCall(Struct, frozen=True):
    """A call of the tool cron."""

    action: str
    id: str = ""
    when: str = ""
    text: str = ""
    kind: str = ""
    enabled: bool | None = None


async def answer_call(services: Services, run: ToolRun, call: CronCall) -> ToolOutput:
    match call.action:
        case "status":
            status = await show_cron_status(services)
            state = "paused" if status.paused else "on" if status.enabled else "off"
            return ToolOutput(f"The clock is {state}: {status.enabled_jobs} jobs, next {status.next_run or 'none'}.")
        case "list":
            return ToolOutput(await _list(services, run.key.agent))
        case "add":
            return ToolOutput(f"Added {_line(services, await _add(services, run, call))}")
        case "update":
            return ToolOutput(f"Changed {_line(services, await _update(services, run, call))}")
    cron = await _own(services, run.key.agent, call.id)
    match call.action:
        case "remove":
            await remove_cron_job(services, id=cron.id)
            return ToolOutput(f"Removed {cron.name!r}.")
        case "run":
            await run_now(services, cron, f"{run.run_id}:{services.new_id()}")
            return ToolOutput(f"{cron.name!r} runs now; its result goes where it always goes.")
        case _:
            return ToolOutput(await runs_for_model(services, cron))


async def _add(services: Services, run: ToolRun, call: CronCall) -> CronJobInfo:
    now, zone, text = services.clock.now_ms(), services.clock.zone, call.text.strip()
    if not text:
        raise BadRequest("add needs when and text", hint='for example when "in 20 minutes", text "stretch"')
    schedule, what = (parse_schedule(call.when, now, zone), text) if call.when else split_reminder(text, now, zone)
    draft = _draft(run.key, schedule, _payload(call.kind or "reminder", what))
    origin = Origin.OUTSIDE if run.untrusted else Origin.AGENT
    return info_of(services, await save(services, make_cron_job(services, draft, origin=origin, sources=_sources(run))))


async def _update(services: Services, run: ToolRun, call: CronCall) -> CronJobInfo:
    """What outside text may have changed is outside text from then on."""
    cron = await _own(services, run.key.agent, call.id)
    if isinstance(cron.payload, CommandPayload):
        raise BadRequest("only the owner may change a command", hint=f"`pal cron edit {cron.id}`")
    payload: Payload = cron.payload
    if call.text or call.kind:
        payload = _payload(call.kind or _kind(cron.payload), call.text or text_of(cron.payload), cron.payload)
    schedule: Schedule = cron.schedule
    if call.when:
        schedule = parse_schedule(call.when, services.clock.now_ms(), services.clock.zone)
    enabled = cron.enabled if call.enabled is None else call.enabled
    state = replace(cron.state, consecutive_errors=0, disabled_why="")
    changed = replace(cron, payload=payload, schedule=schedule, enabled=enabled, state=state)
    if run.untrusted:
        sources = tuple(dict.fromkeys((*cron.sources, *_sources(run))))
        changed = replace(changed, origin=Origin.OUTSIDE, sources=sources)
    return info_of(services, await save(services, changed))


async def _own(services: Services, agent: str, reference: str) -> CronJob:
    cron = await store_of(services).require(reference)
    if cron.agent_id != agent or cron.is_heartbeat:
        raise BadRequest(f"the cron job {cron.name!r} is not one of yours", hint="list shows yours")
    return cron


def _payload(kind: str, text: str, before: Payload | None = None) -> Payload:
    if kind == "turn":
        return replace(before, message=text) if isinstance(before, AgentTurnPayload) else AgentTurnPayload(text)
    return SystemEventPayload(text) if kind == "event" else ReminderPayload(text)


def _kind(payload: Payload) -> str:
    names = {AgentTurnPayload: "turn", SystemEventPayload: "event"}
    return names.get(type(payload), "reminder")


def _draft(key: SessionKey, schedule: Schedule, payload: Payload) -> CronDraft:
    """Back into the session in which it was asked for; a run of its own stands alone."""
    name = " ".join(text_of(payload).split())
    here = "main" if key == SessionKey.main(key.agent) else f"session:{key}"
    target = "isolated" if isinstance(payload, AgentTurnPayload) else here
    shown = name if len(name) <= MOST_NAME else f"{name[: MOST_NAME - 1]}…"
    return CronDraft(shown, schedule, payload, key.agent, target)


def _sources(run: ToolRun) -> tuple[str, ...]:
    texts = run.suspects if run.untrusted else ()
    return tuple(dict.fromkeys(text.source for text in texts if text.source))


def _line(services: Services, job: CronJobInfo) -> str:
    """`"stretch" (id 3f2a…): Wed 2026-11-18 15:16 (in 2 minutes), once.`"""
    if job.next_run_at_ms is None:
        return f"{job.name!r} (id {job.id}): disabled."
    left = duration_words(_rounded(job.next_run_at_ms - services.clock.now_ms()))
    return f"{job.name!r} (id {job.id}): {job.next_run} (in {left}), {job.when}."


def _rounded(milliseconds: int) -> int:
    step = 1000 if milliseconds < 600_000 else 60_000 if milliseconds < 86_400_000 else 3_600_000
    return max(1, round(milliseconds / step)) * step


async def _list(services: Services, agent: str) -> str:
    found, total, _ = await store_of(services).listed(agent, MOST_LISTED, disabled=True)
    lines = [_line(services, info_of(services, each)) for each in found if not each.is_heartbeat]
    more = [f"And {total - MOST_LISTED} more."] if total > MOST_LISTED else []
    return "\n".join([*lines, *more]) or "There are no cron jobs or reminders."


async def runs_for_model(services: Services, cron: CronJob) -> str:
    zone = services.clock.zone
    runs = (await list_cron_runs(services, id=cron.id, limit=MOST_RUNS)).runs
    lines = []
    for run in runs:  # what another home wrote is text from outside
        words = () if run.imported else (run.reason, run.text)
        lines.append(" ".join(filter(None, (moment_words(run.at_ms, zone), run.status, *words))))
    return "\n".join(lines) or "Nothing was due yet."


async def answer_remind(services: Services, key: SessionKey, words: str, inbound: Inbound) -> str:
    """`/remind me tomorrow at 9 to call Ann`, `/remind list`, `/remind remove ID`; for the owner."""
    if inbound.origin != Origin.OWNER:
        return "Only the owner may set reminders."
    action, _, rest = words.strip().partition(" ")
    if action in ("", "help"):
        return HELP
    if action == "list" and not rest:
        return await _list(services, key.agent)
    if action in ("remove", "rm") and rest and " " not in rest:
        gone = await _own(services, key.agent, rest)
        await remove_cron_job(services, id=gone.id)
        return f"Removed {gone.name!r}."
    now, zone = services.clock.now_ms(), services.clock.zone
    schedule, what = split_reminder(words, now, zone)
    if not key.is_private:
        key = SessionKey.main(key.agent)
    made = info_of(
        services, await save(services, make_cron_job(services, _draft(key, schedule, ReminderPayload(what))))
    )
    often = "" if isinstance(schedule, AtSchedule) else f", {made.when}"
    left = duration_words(_rounded((made.next_run_at_ms or now) - now))
    return f"I will remind you {made.next_run} (in {left}{often}): {what}\n`/remind remove {made.id[:8]}` removes it."
