"""Reads a cron job of OpenClaw, of any of its versions, as one of ours.

A job is never taken by halves: if it says something that nothing here does, it is imported disabled, and the reason is
shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palinurus.config.load import normal_agent_id
from palinurus.dispatch.directives import THINKING
from palinurus.domain.errors import BadRequest
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin
from palinurus.extensions.migrate.foreign import as_object, as_text, time_ms
from palinurus.extensions.migrate.openclaw.cron_documents import OWN, VOLATILE, definition_digest, job_id
from palinurus.extensions.schedule.cron_job import (
    AgentTurnPayload,
    AtSchedule,
    CommandPayload,
    CronDelivery,
    CronJob,
    CronSchedule,
    CronState,
    EverySchedule,
    HeartbeatPayload,
    Payload,
    Schedule,
    Status,
    SystemEventPayload,
)
from palinurus.extensions.schedule.times import check_schedule, iso_time, moment_of
from palinurus.sessions.older import speaker_in

OWN_FIELDS = {  # that may stand under the key of our own, and how they are called here
    "payload": "payload", "sessionTarget": "session_target", "delivery": "delivery", "catchUp": "catch_up",
    "origin": "origin", "sources": "sources",
}  # fmt: skip
HINTS = ("deliver", "bestEffortDeliver", "channel", "provider", "to", "threadId")  # of delivery, in older payloads
MANAGED = "OpenClaw makes it itself"
STATUSES: dict[Any, Status] = {"ok": "ran", "error": "failed", "skipped": "skipped"}

_OLDEST = (*HINTS, "message", "text", "command", "model", "thinking", "timeoutSeconds")  # that stood in the job itself
_KNOWN = {  # part of a job -> fields that are read, or make no difference here
    "": (
        *_OLDEST, "id", "jobId", "agentId", "sessionKey", "name", "displayName", "description", "enabled", "schedule",
        "deleteAfterRun", "createdAtMs", "sessionTarget", "wakeMode", "payload", "delivery", "owner", "createdActor",
        "scheduledToolPolicy", "isolation", "notify", OWN, *VOLATILE,
    ),
    "schedule": ("kind", "at", "atMs", "everyMs", "anchorMs", "expr", "cron", "tz", "staggerMs"),
    "payload": (
        *HINTS, "kind", "message", "text", "model", "thinking", "timeoutSeconds", "lightContext", "toolsAllow",
        "toolsAllowIsDefault", "allowUnsafeExternalContent", "externalContentSource", "argv", "cwd",
    ),
    "delivery": ("mode", "channel", "to", "threadId", "accountId", "bestEffort"),
}  # fmt: skip
_WITHOUT = {  # what a job can do without
    "failureAlert": "failures are told in the main session, not as its failureAlert says",
    "pacing": "it is due as its schedule says, its pacing is not used",
    "payload.fallbacks": "the models of the agent stand in for its model, not its own fallbacks",
    "delivery.failureDestination": "failures are told in the main session, not at its failureDestination",
    "delivery.completionDestination": "its completionDestination is not used",
}


class JobSurroundings(Struct, frozen=True):
    """What a job is read for."""

    agents: frozenset[str]  # that are here, or come with it
    default: str  # the agent of a job that names none
    now: int
    zone: tzinfo


class ReadJob(Struct, frozen=True):
    job: CronJob | None  # None: there is no such job here
    reasons: tuple[str, ...] = ()  # why it is disabled, or is not here
    notes: tuple[str, ...] = ()  # what is different here


def read_job(raw: dict[str, Any], around: JobSurroundings) -> ReadJob:
    """Never raises because of what it says."""
    if "declarationKey" in raw:
        return ReadJob(None, (MANAGED,))
    given = {name: raw[name] for name in _OLDEST if name in raw} | as_object(raw.get("payload"))
    try:
        schedule, payload = _schedule(raw), _payload(given)
    except BadRequest as error:
        return ReadJob(None, (str(error),))
    agent = _agent(raw, around.default)
    created = time_ms(raw.get("createdAtMs")) or 0
    origin, sources = _origin(raw, given)
    job = CronJob(
        id=job_id(raw),
        agent_id=agent,
        name=as_text(raw.get("name")) or as_text(raw.get("displayName")) or job_id(raw),
        schedule=schedule,
        payload=payload,
        session_target=_target(raw, payload, agent),
        delivery=_delivery(raw, given),
        description=as_text(raw.get("description")),
        delete_after_run=raw.get("deleteAfterRun") is True,
        created_at_ms=created,
        origin=origin,
        sources=sources,
    )
    job = _with_own_fields(job, raw)
    reasons = tuple(_reasons(job, raw, given, around))
    is_enabled = raw.get("enabled") is not False
    if is_enabled and isinstance(schedule, AtSchedule) and moment_of(schedule.at, UTC) <= around.now:
        reasons = (*reasons, f"its time, {schedule.at}, has passed")
    state = _state(raw)
    if reasons:
        why = f"was imported disabled: {'; '.join(reasons)}. `pal cron enable {job.id}` enables it."
        state = replace(state, disabled_why=why)
    job = replace(job, enabled=is_enabled and not reasons, state=state)
    return ReadJob(job, reasons, tuple(_notes(job, raw, given)))


def _schedule(raw: dict[str, Any]) -> Schedule:
    """Raises BadRequest for a kind that is not known here."""
    value = raw.get("schedule")
    given = {"kind": "cron", "expr": value} if isinstance(value, str) else as_object(value) or raw
    kind = as_text(given.get("kind")).lower()
    at, every = given.get("at") or given.get("atMs"), _number(given.get("everyMs"))
    expression = as_text(given.get("expr")) or as_text(given.get("cron"))
    if kind == "at" or (not kind and at):
        return AtSchedule(_moment(at))
    if (kind == "every" or not kind) and every is not None:
        anchor = _number(given.get("anchorMs"))
        return EverySchedule(every, _number(raw.get("createdAtMs")) or 0 if anchor is None else anchor)
    if (kind == "cron" or not kind) and expression:
        return CronSchedule(expression, as_text(given.get("tz")), _number(given.get("staggerMs")))
    raise BadRequest(f"schedules like this are not supported: {json.dumps(value, ensure_ascii=False)[:100]}")


def _moment(value: Any) -> str:
    """With an offset: a time without one is UTC there."""
    text = value.strip() if isinstance(value, str) else value
    at = time_ms(int(text) if isinstance(text, str) and text.isdecimal() and len(text) < 15 else text)
    if at is None:
        raise BadRequest(f"{str(value)[:60]!r} is not a time")
    try:
        named = datetime.fromisoformat(text).tzinfo is not None if isinstance(text, str) else False
    except ValueError:
        named = False
    return text if named else iso_time(at)


def _payload(given: dict[str, Any]) -> Payload:
    """Raises BadRequest for a kind that is not known here."""
    kind = as_text(given.get("kind")).lower()
    message, text = _words(given, "message"), _words(given, "text")
    seconds = _number(given.get("timeoutSeconds"))
    if kind in ("agentturn", "") and message:
        thinking = as_text(given.get("thinking")).lower()
        return AgentTurnPayload(
            message,
            as_text(given.get("model")),
            thinking if thinking in THINKING else "",
            float(seconds) if seconds else None,
            given.get("lightContext") is True,
            _tools(given),
        )
    if kind in ("systemevent", "") and (said := text or message or _words(given, "command")):
        return SystemEventPayload(said)
    argv = given.get("argv")
    if kind == "command" and isinstance(argv, list) and argv and all(isinstance(each, str) and each for each in argv):
        return CommandPayload(tuple(argv), as_text(given.get("cwd")), float(seconds or 600))
    raise BadRequest(f"there are no payloads of the kind {kind or 'unknown'!r} here")


def _tools(given: dict[str, Any]) -> tuple[str, ...] | None:
    listed = given.get("toolsAllow")
    names = tuple(each for each in listed if isinstance(each, str)) if isinstance(listed, list) else None
    return None if names is None or "*" in names else names


def _agent(raw: dict[str, Any], default: str) -> str:
    try:
        return normal_agent_id(as_text(raw.get("agentId")) or default)
    except ValueError:
        return as_text(raw.get("agentId"))[:64]


def _target(raw: dict[str, Any], payload: Payload, agent: str) -> str:
    kind, _, name = as_text(raw.get("sessionTarget")).partition(":")
    if kind == "current":
        kind, name = "session", as_text(raw.get("sessionKey"))
    if kind == "session" and name:
        try:
            SessionKey.recipient(name, agent)
        except BadRequest:
            return "isolated"
        return f"session:{name}"
    is_event = isinstance(payload, SystemEventPayload)
    return "main" if kind == "main" or (is_event and kind != "isolated") else "isolated"


def _delivery(raw: dict[str, Any], given: dict[str, Any]) -> CronDelivery:
    """Older versions have it in the payload."""
    value = dict(as_object(raw.get("delivery")))
    if any(name in given for name in HINTS):
        value["mode"] = "none" if given.get("deliver") is False else "announce"
        value |= {name: given[name] for name in ("to", "threadId") if given.get(name)}
        value |= {"channel": channel} if (channel := given.get("channel") or given.get("provider")) else {}
    mode = as_text(value.get("mode")).lower()
    to, _, topic = as_text(value.get("to")).partition(":topic:")
    thread = value.get("threadId") or topic
    return CronDelivery(
        mode if mode in ("webhook", "none") else "announce",  # type: ignore[arg-type]
        as_text(value.get("channel")).lower(),
        to,
        as_text(value.get("accountId")),
        str(thread) if isinstance(thread, str | int) else "",
    )


def _origin(raw: dict[str, Any], given: dict[str, Any]) -> tuple[Origin, tuple[str, ...]]:
    """Who wrote it is not recorded there. As with messages, the session where it was made decides."""
    made_in = as_text(as_object(raw.get("owner")).get("sessionKey")) or as_text(raw.get("sessionKey"))
    try:
        is_outside = bool(made_in) and speaker_in(SessionKey.parse(made_in)) != Origin.OWNER
    except BadRequest:
        is_outside = True
    if is_outside or given.get("externalContentSource"):
        return Origin.OUTSIDE, (f"session:{made_in[:200]}" if made_in else f"openclaw:cron:{job_id(raw)}",)
    return Origin.OWNER, ()


def _with_own_fields(job: CronJob, raw: dict[str, Any]) -> CronJob:
    """What this program wrote beside it for itself, if nobody has changed the job since. It cannot gain trust by it."""
    own = as_object(raw.get(OWN))
    fields = {name: own[name] for name in OWN_FIELDS if name in own}
    if not fields or own.get("of") != definition_digest(raw, OWN):
        return job
    try:
        read = msgspec.convert(msgspec.to_builtins(job) | fields, CronJob)
        SessionKey.recipient(read.session_target.partition(":")[2] or "main", read.agent_id)
    except (msgspec.ValidationError, BadRequest):
        return job
    if isinstance(read.payload, HeartbeatPayload) or read.origin == Origin.SYSTEM:
        return job
    return replace(read, origin=job.origin, sources=job.sources) if job.origin == Origin.OUTSIDE else read


def _reasons(job: CronJob, raw: dict[str, Any], given: dict[str, Any], around: JobSurroundings) -> Iterator[str]:
    """Why it may not run here without a person who looks at it."""
    if job.agent_id not in around.agents:
        yield f"there is no agent {job.agent_id!r}"
    try:
        check_schedule(job.schedule, around.zone)
    except BadRequest as error:
        yield str(error)
    key = job.session_target.partition(":")[2]
    if key and SessionKey.recipient(key, job.agent_id).agent != job.agent_id:
        yield f"its session {key} belongs to another agent"
    if isinstance(job.payload, CommandPayload):
        yield "it runs a command, which a person has to approve here"
    if job.delivery.mode == "webhook":
        yield f"it sends its results to {job.delivery.to or 'an address that it does not name'}"
    if isinstance(job.payload, SystemEventPayload) and _tools(given) is not None:
        yield "it allows only some tools, which a message to the main session cannot"
    if raw.get("trigger"):
        yield "its trigger is a script of OpenClaw"
    if unknown := _unknown_fields(raw):
        yield f"it says what is not known here: {', '.join(unknown)}"


def _unknown_fields(raw: dict[str, Any]) -> list[str]:
    found = []
    for part, known in _KNOWN.items():
        fields = as_object(raw.get(part)) if part else raw
        named = [f"{part}.{name}" if part else name for name, value in fields.items() if name not in known and value]
        found += [name[:60] for name in named if name not in (*_WITHOUT, "trigger")]
    return found


def _notes(job: CronJob, raw: dict[str, Any], given: dict[str, Any]) -> Iterator[str]:
    for name, note in _WITHOUT.items():
        part, _, field = name.rpartition(".")
        if (as_object(raw.get(part)) if part else raw).get(field):
            yield note
    if raw.get("wakeMode") == "next-heartbeat":
        yield "it runs when it is due, not with the next heartbeat"
    thinking = as_text(given.get("thinking"))
    if thinking and thinking.lower() not in THINKING:
        yield f"its thinking level {thinking[:20]!r} is not known here"
    if job.origin == Origin.OUTSIDE:
        yield f"its text counts as from outside ({', '.join(job.sources)})"


def _state(raw: dict[str, Any]) -> CronState:
    state = as_object(raw.get("state"))
    return CronState(
        last_run_at_ms=time_ms(state.get("lastRunAtMs")) or 0,
        last_status=STATUSES.get(as_text(state.get("lastRunStatus")) or as_text(state.get("lastStatus")), ""),
        last_error=as_text(state.get("lastError")),
        last_duration_ms=_number(state.get("lastDurationMs")) or 0,
        consecutive_errors=_number(state.get("consecutiveErrors")) or 0,
    )


def _words(given: dict[str, Any], name: str) -> str:
    value = given.get(name)
    return value if isinstance(value, str) and value.strip() else ""


def _number(value: Any) -> int | None:
    """Not negative; numbers in older files are texts."""
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 16:
        return int(value)
    usable = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**53
    return int(value) if usable else None
