"""Whether a heartbeat calls a model. Pure: everything that it depends on is in a BeatSituation.

It is asked twice: before the probes are run, which take time, and with what they have seen. Without probes nobody knows
whether something has changed outside the workspace, so a look that found nothing is repeated, after pauses that double.
"""

from __future__ import annotations

from msgspec import Struct

from palinurus.extensions.schedule.cron_job import CronState
from palinurus.extensions.schedule.heartbeat_file import HeartbeatFile, HeartbeatTask
from palinurus.extensions.schedule.heartbeat_settings import HeartbeatSettings

DAY_MS = 86_400_000
PROBE = "probe: "  # before a command, among the names of what was seen


class BeatSituation(Struct, frozen=True):
    """Times are milliseconds since the epoch."""

    now: int
    minute: int  # of the day, in the zone of the active hours
    settings: HeartbeatSettings
    state: CronState
    file: HeartbeatFile
    owner_wrote: int  # when they wrote last
    busy: bool = False  # the agent is answering somebody
    woken: bool = False  # not by the clock: a person or a program wants it now
    seen: dict[str, str] | None = None  # digests by name; None: nobody has looked yet
    failed_probes: tuple[str, ...] = ()  # and why
    no_model: str = ""  # why none can be called


class BeatDecision(Struct, frozen=True):
    skip: str = ""  # the reason; empty: call a model, or look first
    tasks: tuple[HeartbeatTask, ...] = ()
    changed: tuple[str, ...] = ()  # names of what has changed


def decide(now: BeatSituation) -> BeatDecision:
    settings, state = now.settings, now.state
    if why := _why_not_now(now):
        return BeatDecision(why)
    tasks = now.file.due_tasks(state.task_runs, now.now + _slack(settings))
    if not state.notes and (why := _why_empty(now)):
        return BeatDecision(why)
    if now.seen is None:
        return BeatDecision(tasks=tasks)
    changed = tuple(
        name
        for name, digest in now.seen.items()
        if state.seen.get(name) != digest and (not now.file.tasks or name.startswith(PROBE))
    )
    if not (state.notes or tasks or changed) and (why := _why_unchanged(now, settings)):
        return BeatDecision(why)
    return BeatDecision(now.no_model, tasks, changed)


def _why_not_now(now: BeatSituation) -> str:
    hours = now.settings.active_hours
    if not hours.include(now.minute):
        return f"outside the active hours ({hours.start}–{hours.end})"
    absent = now.now - now.owner_wrote
    if now.settings.absent_after and absent > now.settings.absent_after * 1000:
        return f"the owner has not written for {absent // DAY_MS} days"
    return "the agent is busy" if now.busy and not now.woken else ""


def _why_empty(now: BeatSituation) -> str:
    if now.file.text is None and not now.settings.prompt:
        return "there is no HEARTBEAT.md"
    return "; ".join(("HEARTBEAT.md is empty", *now.file.faults)) if now.file.is_empty else ""


def _why_unchanged(now: BeatSituation, settings: HeartbeatSettings) -> str:
    if now.failed_probes:
        return f"nothing has changed; {'; '.join(now.failed_probes)}"
    if now.file.tasks:
        return "no task is due"
    if settings.probes or settings.calendars:
        return "nothing has changed since the last check"
    wait = next_look(now.state, settings, now.owner_wrote) - now.now
    return f"nothing has changed; the next check is in {_words(wait)}" if wait > _slack(settings) else ""


def next_look(state: CronState, settings: HeartbeatSettings, owner_wrote: int) -> int:
    """When to look again although nothing has changed. The pause is short again once the owner has written."""
    every = settings.every_ms
    quiet = 0 if owner_wrote > state.last_look_at_ms else min(state.quiet_beats, 30)
    return state.last_look_at_ms + max(every, min(every << quiet, round(settings.back_off * 1000)))


def _slack(settings: HeartbeatSettings) -> int:
    """A pause is over a little earlier: looks are not exactly as far apart as the config says."""
    return settings.every_ms // 10


def _words(pause: int) -> str:
    minutes = -(-pause // 60_000)
    return f"{minutes} min" if minutes < 120 else f"{round(minutes / 60)} h"
