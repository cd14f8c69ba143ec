"""One heartbeat: decide whether a model is called, let it look, and send what it reports, if it is a report.

What is sent to the model is stored before (BeatPlan), and the run and the report have keys that follow from the due
time: after a crash a heartbeat is continued, not repeated. Its own state is stored last.
"""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime, tzinfo

from msgspec.structs import replace

from palinurus.config.agents import agent_settings, known_zone
from palinurus.dispatch.settings import CommandOptions
from palinurus.domain.clock import SystemClock
from palinurus.domain.envelope import Delivery, Inbound
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import ContextNote, Origin, digest_of, wrapped
from palinurus.extensions.schedule.cron_job import BeatPlan, CronJob, CronState, DueOutcome, DueTime, WakeNote
from palinurus.extensions.schedule.heartbeat_file import HeartbeatFile
from palinurus.extensions.schedule.heartbeat_gate import PROBE, BeatDecision, BeatSituation, decide
from palinurus.extensions.schedule.heartbeat_jobs import session_of_heartbeat
from palinurus.extensions.schedule.heartbeat_settings import ACK, PROMPT, HeartbeatSettings, runs_heartbeat
from palinurus.extensions.schedule.payloads import (
    archive_session,
    outside_sources,
    place_of,
    result_text,
    run_message,
    session_of,
    write_text,
)
from palinurus.extensions.schedule.probes import CHANNEL, observe, observe_files, read_heartbeat
from palinurus.extensions.schedule.store import CronStore
from palinurus.operations.services import Services
from palinurus.providers.provider import EMBEDDED
from palinurus.storage.jobs import RUN

SAME_REPORT_MS = 24 * 3600 * 1000
RECENT_SESSIONS = 50
_ACK_AT_AN_END = re.compile(rf"\A[\s*_`~]*{ACK}(?!\w)[*_`~.!]*\s*|\s*[*_`~]*(?<!\w){ACK}[\s*_`~.!]*\Z")

log = logging.getLogger(__name__)


async def beat(services: Services, cron: CronJob, due: DueTime, run_key: str) -> DueOutcome:
    """Raises what `submit` raises, and JobFailed."""
    agent, settings = cron.agent_id, services.config.section(HeartbeatSettings, cron.agent_id)
    if not due.by_hand and not runs_heartbeat(services.config, agent):
        return DueOutcome("skipped", "the heartbeat is off")
    file = await read_heartbeat(services, agent)
    plan = cron.state.beat
    if plan is None or plan.run_key != run_key:
        made = await _plan(services, cron, due, settings, file, run_key)
        if isinstance(made, str):
            return DueOutcome("skipped", made)
        plan = made
    key = session_of_heartbeat(settings, agent)
    if settings.is_isolated and await services.jobs.find(RUN, run_key) is None:
        await archive_session(services, key)
    outcome = await run_message(services, _inbound(plan, settings, key))
    if outcome.status == "failed" or plan.reason is not None:  # the second after a crash at the very end
        return replace(outcome, reason=outcome.reason or plan.reason or "")
    return await _finish(services, cron, plan, file, outcome)


# -- before the model is called ---------------------------------------------------------------------------------------


async def _plan(
    services: Services, cron: CronJob, due: DueTime, settings: HeartbeatSettings, file: HeartbeatFile, run_key: str
) -> BeatPlan | str:
    """What is sent to the model, stored; or why nothing is."""
    key = session_of_heartbeat(settings, cron.agent_id)
    now = await situation_of(services, cron, settings, file, woken=due.is_woken)
    decision = decide(now)
    if decision.skip and not due.by_hand:
        return decision.skip
    seen = await observe(services, key, settings, file, cron.state.seen)
    for trouble in (*seen.failed, *file.faults):
        log.warning("heartbeat of %s: %s", cron.agent_id, trouble)
    no_model = await why_no_model(services, cron.agent_id, settings)
    decision = decide(replace(now, seen=seen.seen, failed_probes=seen.failed, no_model=no_model))
    if decision.skip and not due.by_hand:
        return decision.skip
    text = _text(settings, decision)
    tasks = tuple(task.name for task in decision.tasks)
    is_fresh = decision.changed or now.owner_wrote > cron.state.last_look_at_ms
    quiet = 0 if is_fresh else cron.state.quiet_beats
    plan = BeatPlan(run_key, now.now, text, cron.state.notes, tasks, seen.seen, decision.changed, quiet)
    store = CronStore(services.database, services.new_id)
    await store.change(cron.id, lambda stored: replace(stored, state=replace(stored.state, beat=plan)))
    return plan


async def situation_of(
    services: Services, cron: CronJob, settings: HeartbeatSettings, file: HeartbeatFile, *, woken: bool = False
) -> BeatSituation:
    """As it is before anybody has looked."""
    now = services.clock.now_ms()
    local = datetime.fromtimestamp(now / 1000, UTC).astimezone(zone_of_hours(services, cron.agent_id, settings))
    busy = any(run.key.agent == cron.agent_id for run in services.dispatcher.runs.active())
    wrote = max(cron.created_at_ms, await last_contact(services, cron.agent_id))
    minute = local.hour * 60 + local.minute
    return BeatSituation(now, minute, settings, cron.state, file, wrote, busy=busy, woken=woken)


def zone_of_hours(services: Services, agent_id: str, settings: HeartbeatSettings) -> tzinfo:
    name = settings.active_hours.timezone
    if name == "local":
        return SystemClock().zone
    user = agent_settings(services.config, services.home, agent_id).zone or services.clock.zone
    return user if name == "user" else known_zone(name) or user


async def last_contact(services: Services, agent_id: str) -> int:
    """When the owner wrote to an agent last; 0: never."""
    sessions = await services.sessions.recent(agent=agent_id, limit=RECENT_SESSIONS)
    main = await services.sessions.find(SessionKey.main(agent_id))
    own = str(SessionKey(agent_id, "named", peer="heartbeat"))
    used = [each for each in (*sessions, *filter(None, [main])) if each.key != own]
    return max((each.last_interaction_at for each in used if SessionKey.parse(each.key).is_private), default=0)


async def why_no_model(services: Services, agent_id: str, settings: HeartbeatSettings) -> str:
    """Why every model that could be called would fail for want of a working key; empty if one may work."""
    _, route = await services.models.choose(agent_id, settings.model)
    if route.provider == EMBEDDED:
        return "no language model is configured"
    fallbacks = () if settings.model else services.models.fallbacks(agent_id)
    states = services.models.credential_states(agent_id)
    reasons = []
    for provider in dict.fromkeys((route.provider, *(each.partition("/")[0] for each in fallbacks))):
        own = [each for each in states if each.provider == provider]
        if not own or any(each.state == "ready" or (each.models and route.model not in each.models) for each in own):
            return ""
        rests = min((each.rests_seconds for each in own if each.state == "resting"), default=0.0)
        why = f"is paused for {rests / 60:.0f} min after failures" if rests else "has expired"
        reasons.append(f"the key of {provider} {why}")
    return "; ".join(reasons)


def _text(settings: HeartbeatSettings, decision: BeatDecision) -> str:
    text = settings.prompt or PROMPT
    if not decision.tasks:
        return text
    due = "\n".join(f"- {task.name}: {task.prompt}" for task in decision.tasks)
    return f"{text}\n\nOf its tasks only these are due:\n{due}"


def _inbound(plan: BeatPlan, settings: HeartbeatSettings, key: SessionKey) -> Inbound:
    changed = ", ".join(name.removeprefix(PROBE) for name in plan.changed)
    notes = (ContextNote("notice", f"Changed since the last check: {changed}.", "changes"),) if changed else ()
    return Inbound(
        plan.text,
        plan.run_key,
        session_key=str(key),
        channel=CHANNEL,
        sender=CHANNEL,
        origin=Origin.SYSTEM,
        for_owner=True,
        attended=False,
        plain=True,
        notes=(*notes, *map(_note, plan.notes)),
        model=settings.model,
        timeout_seconds=settings.timeout_seconds,
        light=settings.light_context and settings.is_isolated,
    )


def _note(note: WakeNote) -> ContextNote:
    if not note.sources:
        return ContextNote("notice", note.text, "wake")
    return ContextNote("notice", wrapped(note.sources[0], note.text), "wake", "", Origin.OUTSIDE, note.sources)


# -- after it has answered --------------------------------------------------------------------------------------------


def report_of(reply: str, most: int) -> str:
    """What is to be sent of a reply: without HEARTBEAT_OK at its ends; nothing if hardly more is left."""
    text = _ACK_AT_AN_END.sub("", reply).strip()
    return "" if text != reply.strip() and len(text) <= most else text


async def _finish(
    services: Services, cron: CronJob, plan: BeatPlan, file: HeartbeatFile, outcome: DueOutcome
) -> DueOutcome:
    settings, now = services.config.section(HeartbeatSettings, cron.agent_id), services.clock.now_ms()
    report = report_of(await result_text(services, outcome), settings.ack_max_chars)
    digest = digest_of(" ".join(report.split()))
    same = digest == cron.state.last_text and now - cron.state.last_text_at_ms < SAME_REPORT_MS
    if report and not same:
        await _send(services, cron, settings, report, plan.run_key, SessionKey.parse(outcome.session_key))
    reason = "nothing to report" if not report else "the same was reported before" if same else ""
    files = await observe_files(services, cron.agent_id, file)  # as the agent has left them

    def ended(state: CronState) -> CronState:
        names = {task.name for task in file.tasks}
        runs = {name: at for name, at in state.task_runs.items() if name in names}
        after = replace(
            state,
            quiet_beats=plan.quiet_beats + 1 if reason else 0,
            last_look_at_ms=plan.at_ms,
            seen=plan.seen | files,
            task_runs=runs | dict.fromkeys(plan.tasks, plan.at_ms),
            notes=tuple(note for note in state.notes if note not in plan.notes),
            beat=BeatPlan(plan.run_key, plan.at_ms, reason=reason),
        )
        return after if reason else replace(after, last_text=digest, last_text_at_ms=now)

    store = CronStore(services.database, services.new_id)
    await store.change(cron.id, lambda stored: replace(stored, state=ended(stored.state)))
    return replace(outcome, reason=reason)


async def _send(
    services: Services, cron: CronJob, settings: HeartbeatSettings, report: str, run_key: str, session: SessionKey
) -> None:
    """From a session of its own the report goes into the main session as well: the owner may answer it there."""
    if settings.target == "none":
        return
    place = await place_of(services, cron)
    if place is not None and settings.direct_policy == "block" and _is_person(services, cron, place):
        place = None
    if settings.is_isolated:
        sources = await outside_sources(services, session)
        await write_text(services, SessionKey.main(cron.agent_id), report, run_key, (*cron.sources, *sources))
        session = SessionKey.main(cron.agent_id)
    if place is not None:
        await services.deliveries.post(place, report, run_key, session_key=str(session))


def _is_person(services: Services, cron: CronJob, place: Delivery) -> bool:
    """As far as it is known: the owner's own address, or where they wrote last in a private session."""
    owners = services.config.section(CommandOptions).owner_allow_from
    if f"{place.channel}:{place.to}" in map(str, owners):
        return True
    session = session_of(services, cron)
    return not cron.delivery.to and (session.kind == "cron" or session.is_private)
