"""Does what a cron job says: a reminder, a message to the main session, a run of its own, a command.

A result goes where the job says: with the run's own commit to a channel, or as a message of the agent into its main
session where people use no channel.
"""

from __future__ import annotations

from msgspec.structs import replace

from palinurus.config.section import dig
from palinurus.dispatch.contacts import last_place
from palinurus.dispatch.dispatcher import CRON_CHANNEL
from palinurus.dispatch.messages import write_message
from palinurus.dispatch.routing import routing_table
from palinurus.dispatch.settings import CommandOptions
from palinurus.domain.clock import local_time, time_text
from palinurus.domain.envelope import SURFACES, Delivery, Inbound
from palinurus.domain.errors import JobFailed, QueueFull, WaitTimeout
from palinurus.domain.keys import PEER_KINDS, SessionKey
from palinurus.domain.messages import AssistantMessage, Text, harmless
from palinurus.domain.tool import Restriction
from palinurus.extensions.schedule.cron_job import (
    MOST_TEXT,
    AgentTurnPayload,
    CommandPayload,
    CronJob,
    DueOutcome,
    HeartbeatPayload,
    ReminderPayload,
    SystemEventPayload,
)
from palinurus.extensions.schedule.settings import CronSettings
from palinurus.operations.services import Services
from palinurus.sessions.transcript import SENT
from palinurus.storage.jobs import RUN

LAST = ("", "last")
OWNER = "owner"  # where they are known to be, whether or not they wrote from there


async def act_on(services: Services, cron: CronJob, run_key: str) -> DueOutcome:
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
            return await _run_command(services, cron, run_key)
        case HeartbeatPayload():
            raise TypeError("heartbeat.py acts on heartbeats")


async def _run_turn(services: Services, cron: CronJob, turn: AgentTurnPayload, run_key: str) -> DueOutcome:
    """A run in a session of its own starts without what was said before."""
    text, key = turn.message, session_of(services, cron)
    if cron.session_target == "isolated":
        text = f"[cron job {cron.name!r}, {time_text(local_time(services.clock))}] {text}"
        if await services.jobs.find(RUN, run_key) is None:
            await archive_session(services, key)
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


async def _run_command(services: Services, cron: CronJob, run_key: str) -> DueOutcome:
    from palinurus.extensions.schedule.command import run_command

    outcome, sources = await run_command(services, cron, run_key)
    if outcome.status == "ran" and outcome.text:
        await _deliver(services, cron, outcome.text, run_key, sources)
    return replace(outcome, text=outcome.text[:MOST_TEXT])


async def _deliver(services: Services, cron: CronJob, text: str, key: str, sources: tuple[str, ...]) -> None:
    """A result that no run has delivered."""
    if cron.delivery.mode == "webhook":
        body = {"jobId": cron.id, "name": cron.name, "text": text}
        await _post(services, cron, body, key)
    elif cron.delivery.mode == "announce":
        text = f"[{cron.name}] {harmless(text)}"
        await tell_owner(services, cron, text, key, sources)


async def _post(services: Services, cron: CronJob, body: dict[str, str], key: str) -> None:
    has_token = services.config.section(CronSettings).webhook_token is not None
    post = {"url": cron.delivery.to, "body": body, "tokenAt": "cron.webhookToken" if has_token else ""}
    await services.jobs.add("webhooks.post", post, key)


async def _send_on(services: Services, cron: CronJob, outcome: DueOutcome, inbound: Inbound, run_key: str) -> None:
    """Sends a result where its run did not: into the main session, or to a webhook."""
    if cron.delivery.mode == "webhook":
        text = await result_text(services, outcome)
        await _post(
            services, cron, {"jobId": cron.id, "name": cron.name, "runId": outcome.run_id, "text": text}, run_key
        )
    elif cron.delivery.mode == "announce" and inbound.reply_to is None:
        main = SessionKey.main(cron.agent_id)
        if inbound.session_key != str(main):
            text = f"[{cron.name}] {harmless(await result_text(services, outcome))}"
            await write_text(
                services, main, text, run_key, await outside_sources(services, SessionKey.parse(inbound.session_key))
            )


async def result_text(services: Services, outcome: DueOutcome) -> str:
    result = (await services.dispatcher.find(outcome.run_id)).result
    return result.text if result is not None else outcome.text


async def run_message(services: Services, inbound: Inbound) -> DueOutcome:
    """Submits a message and waits for the end of its run."""
    run = await services.dispatcher.submit(inbound)
    result = await run.wait()
    spent = await services.usage.of_run(str(run.key), run.id)
    return DueOutcome(
        "ran" if result.status == "ok" else "failed",
        result.error,
        run.id,
        str(run.key),
        result.duration_ms,
        result.usage.total,
        None if spent.unpriced else spent.cost,
        result.text[:MOST_TEXT],
    )


async def tell_owner(services: Services, cron: CronJob, text: str, key: str, sources: tuple[str, ...] = ()) -> None:
    """Writes a text into the session of a cron job, and sends it to where its owner wrote from last. Once per key.

    `sources`: of what it was made of, besides the job's own."""
    session = session_of(services, cron)
    if session.kind == "cron":
        session = SessionKey.main(cron.agent_id)
    await write_text(services, session, text, key, (*cron.sources, *sources))
    place = await place_of(services, cron)
    if place is not None:
        await services.deliveries.post(place, text, key, session_key=str(session))


async def write_text(services: Services, session: SessionKey, text: str, key: str, sources: tuple[str, ...]) -> None:
    """As a message of the agent, once per key."""
    message = AssistantMessage((Text(text),), timestamp=services.clock.now_ms(), sources=sources)
    history, entry_id = services.turns.history, f"{key}{SENT}cron"
    try:
        written = await services.dispatcher.in_lane(session, lambda: write_message(history, session, entry_id, message))
    except (WaitTimeout, QueueFull) as error:
        raise JobFailed(f"{session} is busy", retry_after=30) from error
    if written:
        services.holder.publish_message(str(session), entry_id, text)


async def archive_session(services: Services, key: SessionKey) -> None:
    """The next run under this key starts without what was said before."""
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
            return cron.own_session


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
    configured = dig(services.config.data, ["channels"]) or ()

    def is_known(channel: str) -> bool:
        return channel in configured or services.deliveries.has_sender(channel)

    if wanted.channel not in LAST and wanted.to:
        return Delivery(wanted.channel, wanted.to, wanted.account_id, wanted.thread_id)
    if wanted.channel not in LAST:  # without a recipient the owner is meant
        ids = (str(each).partition(":") for each in services.config.section(CommandOptions).owner_allow_from)
        owner = [(channel, to) for channel, _, to in ids if to and wanted.channel in (OWNER, channel)]
        found = next((Delivery(channel, to, wanted.account_id) for channel, to in owner if is_known(channel)), None)
        if found is not None or wanted.channel == OWNER:
            return found
    last = await _last_place(services, cron)
    if last is None or not is_known(last.channel) or wanted.channel not in (*LAST, last.channel):
        return None
    return last


async def _last_place(services: Services, cron: CronJob) -> Delivery | None:
    """The chat of the job's own session, or where the owner wrote to the agent from last."""
    key = session_of(services, cron)
    session = await services.sessions.find(key) if key.kind in PEER_KINDS else None
    if session is not None and session.delivery is not None and session.delivery.channel not in SURFACES:
        return session.delivery
    return await last_place(services.sessions, routing_table(services.config), cron.agent_id)


async def outside_sources(services: Services, session: SessionKey) -> tuple[str, ...]:
    """Of what a session has read from outside: a result that leaves it is text from outside too."""
    view = await services.turns.history.view_of(session)
    return tuple(dict.fromkeys(text.source or f"session:{session}" for text in view.outside_texts))
