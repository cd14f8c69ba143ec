"""Does what a cron job says: a reminder, a message to the main session, a run of its own, a command.

A result goes where the job says: with the run's own commit to a channel, or as a message of the agent into its main
session where people use no channel.
"""

from __future__ import annotations

from msgspec.structs import replace

from palinurus.config.section import dig
from palinurus.dispatch.dispatcher import CRON_CHANNEL
from palinurus.dispatch.messages import write_message
from palinurus.domain.clock import local_time, time_text
from palinurus.domain.envelope import Delivery, Inbound
from palinurus.domain.errors import JobFailed, QueueFull, WaitTimeout
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, Text
from palinurus.domain.tool import Restriction
from palinurus.extensions.schedule.cron_job import (
    AgentTurnPayload,
    CommandPayload,
    CronJob,
    DueOutcome,
    DueTime,
    HeartbeatPayload,
    ReminderPayload,
    SystemEventPayload,
)
from palinurus.extensions.schedule.settings import CronSettings
from palinurus.operations.services import Services
from palinurus.storage.jobs import RUN

LAST = ("", "last")
MOST_TEXT = 300  # characters of a result in the list of runs


async def act_on(services: Services, cron: CronJob, due: DueTime, run_key: str) -> DueOutcome:
    """`run_key` is the idempotency key of what is done. Raises what `submit` raises, and JobFailed."""
    match cron.payload:
        case ReminderPayload(text):
            await tell_owner(services, cron, f"⏰ {text}", run_key)
            return DueOutcome("ran", text=text[:MOST_TEXT])
        case SystemEventPayload(text):
            return await run_message(services, await _inbound(services, cron, f"[{cron.name}] {text}", run_key))
        case AgentTurnPayload() as turn:
            return await _run_turn(services, cron, turn, run_key)
        case CommandPayload():
            from palinurus.extensions.schedule.command import run_command

            return await run_command(services, cron, run_key)
        case HeartbeatPayload():
            from palinurus.extensions.schedule.heartbeat import beat

            return await beat(services, cron, due, run_key)


async def _run_turn(services: Services, cron: CronJob, turn: AgentTurnPayload, run_key: str) -> DueOutcome:
    """A run in a session of its own starts without what was said before."""
    text, key = turn.message, session_of(services, cron)
    if cron.session_target == "isolated":
        text = f"[cron job {cron.name!r}, {time_text(local_time(services.clock))}] {text}"
        if await services.jobs.find(RUN, run_key) is None:
            await _archive(services, key)
    only = turn.tools_allow
    limits = () if only is None else (Restriction(f"cron:{cron.id}", "its cron job allows only some", only=only),)
    inbound = replace(
        await _inbound(services, cron, text, run_key),
        model=turn.model,
        thinking=turn.thinking,
        timeout_seconds=turn.timeout_seconds,
        light=turn.light_context,
        restrictions=limits,
    )
    services.dispatcher.limit_scheduled(services.config.section(CronSettings).max_concurrent_runs)
    outcome = await run_message(services, inbound)
    if outcome.status == "ran" and outcome.text:
        await _send_on(services, cron, outcome, inbound, run_key)
    return outcome


async def _send_on(services: Services, cron: CronJob, outcome: DueOutcome, inbound: Inbound, run_key: str) -> None:
    """Sends a result where its run did not: into the main session, or to a webhook."""
    if cron.delivery.mode == "webhook":
        body = {"jobId": cron.id, "name": cron.name, "runId": outcome.run_id, "text": await _text(services, outcome)}
        post = {"url": cron.delivery.to, "body": body, "token": "cron.webhookToken"}
        await services.jobs.add("webhooks.post", post, run_key)
    elif cron.delivery.mode == "announce" and inbound.reply_to is None:
        main = SessionKey.main(cron.agent_id)
        if inbound.session_key != str(main):
            text = f"[{cron.name}] {await _text(services, outcome)}"
            await _write(services, main, text, run_key, cron.sources)


async def _text(services: Services, outcome: DueOutcome) -> str:
    result = (await services.dispatcher.find(outcome.run_id)).result
    return result.text if result is not None else outcome.text


async def run_message(services: Services, inbound: Inbound) -> DueOutcome:
    """Submits a message and waits for the end of its run."""
    run = await services.dispatcher.submit(inbound)
    result = await run.wait()
    return DueOutcome(
        "ran" if result.status == "ok" else "failed",
        result.error,
        run.id,
        str(run.key),
        result.duration_ms,
        result.usage.total,
        result.text[:MOST_TEXT],
    )


async def tell_owner(services: Services, cron: CronJob, text: str, key: str) -> None:
    """Writes a text into the session of a cron job, and sends it to where its owner wrote from last. Once per key."""
    session = session_of(services, cron)
    if session.kind == "cron":
        session = SessionKey.main(cron.agent_id)
    await _write(services, session, text, key, cron.sources)
    place = await place_of(services, cron)
    if place is not None:
        await services.deliveries.post(place, text, key, session_key=str(session))


async def _write(services: Services, session: SessionKey, text: str, key: str, sources: tuple[str, ...]) -> None:
    message = AssistantMessage((Text(text),), timestamp=services.clock.now_ms(), sources=sources)
    history = services.turns.history
    try:
        written = await services.dispatcher.in_lane(session, lambda: write_message(history, session, key, message))
    except (WaitTimeout, QueueFull) as error:
        raise JobFailed(f"{session} is busy", retry_after=30) from error
    if written:
        payload = {"sessionKey": str(session), "entryId": key, "text": text}
        services.holder.publish("session.message", str(session), lambda: payload)
        services.holder.publish_change(str(session), "message")


async def _archive(services: Services, key: SessionKey) -> None:
    session = await services.sessions.find(key)
    if session is not None and session.entry_count:
        await services.dispatcher.in_lane(key, lambda: services.sessions.archive(session.id))


def session_of(services: Services, cron: CronJob) -> SessionKey:
    match cron.session_target.partition(":"):
        case ("main", _, _):
            return SessionKey.main(cron.agent_id)
        case ("session", _, key) if key:
            return SessionKey.recipient(key, cron.agent_id)
        case _:
            return SessionKey(cron.agent_id, "cron", peer=cron.id)


async def _inbound(services: Services, cron: CronJob, text: str, run_key: str) -> Inbound:
    return Inbound(
        text,
        run_key,
        session_key=str(session_of(services, cron)),
        channel=CRON_CHANNEL,
        sender=f"cron:{cron.id}",
        origin=cron.origin,
        sources=cron.sources,
        for_owner=True,
        attended=False,
        plain=True,
        reply_to=await place_of(services, cron) if cron.delivery.mode == "announce" else None,
    )


async def place_of(services: Services, cron: CronJob) -> Delivery | None:
    """The channel to which a result goes; None: nobody uses one."""
    wanted = cron.delivery
    if wanted.channel not in LAST:
        return Delivery(wanted.channel, wanted.to, wanted.account_id, wanted.thread_id)
    session = await services.sessions.find(SessionKey.main(cron.agent_id))
    last = session.delivery if session is not None else None
    if last is None:
        return None
    known = {*services.deliveries.channels, *(dig(services.config.data, ["channels"]) or ())}
    return last if last.channel in known else None
