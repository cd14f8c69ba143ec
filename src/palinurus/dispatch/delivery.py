"""Deliveries: messages to people by a channel, each a job until the network has acknowledged it (promise 3).

A delivery is a job of the kind `delivery:<channel>` with its recipient as the lane (storage/jobs.py, dispatch/jobs.py):
committed before the first attempt, sent under an idempotency key, retried while that is harmless, and otherwise shown
as ambiguous. While a channel has no sender its deliveries wait.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec
from msgspec import Struct

from palinurus.dispatch.hook_contexts import sent_facts
from palinurus.domain.envelope import Button, Delivery, Inbound, Spawn
from palinurus.domain.errors import BadRequest, NotFound, QueueFull, StorageError
from palinurus.domain.events import RunResult
from palinurus.domain.hooks import Hooks
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin, Text
from palinurus.sessions.journal import Redact, redacted
from palinurus.storage import jobs
from palinurus.storage.jobs import Job, JobKind, RetryPolicy
from palinurus.storage.transaction import decoded

if TYPE_CHECKING:
    from palinurus.dispatch.jobs import Jobs

State = Literal["waiting", "sending", "sent", "ambiguous", "failed", "dropped"]

KIND = "delivery:"  # and the channel
ANNOUNCE = "announce"
ANSWER = "answer:"  # and the key of the command that is answered
MOST_WAITING = 100  # for one recipient
MOST_REPORTED = 50  # of the last deliveries to a recipient may be reported as failed
SEND_SECONDS = 600.0  # of one attempt, in which a sender may wait as its network asks
NO_ANSWER = "⚠️ This message could not be answered. Please try again later."
STATES: Mapping[jobs.State, State] = {
    "waiting": "waiting",
    "retry": "waiting",
    "running": "sending",
    "done": "sent",
    "ambiguous": "ambiguous",
    "failed": "failed",
    "dropped": "dropped",
}

log = logging.getLogger(__name__)


class ReplyBlock(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Says of a delivery that it is a part of a reply that was not complete yet."""

    segment: int  # how many tool calls came before; -1: it is no part of the reply's last text
    opened: str = ""  # the line of the code fence inside which it begins


class OutboundMessage(Struct, frozen=True, rename="camel"):
    """The payload of a delivery."""

    channel: str
    to: str
    text: str
    session_key: str = ""
    run_id: str = ""
    account: str = ""
    thread: str = ""
    reply_to: str = ""  # the network's id of the message that it answers
    buttons: tuple[Button, ...] = ()
    block: ReplyBlock | None = None


class Announcement(Struct, frozen=True, rename="camel"):
    """The payload of a job that reports the end of a subagent's run to its parent; the extension subagents does it."""

    spawn: Spawn
    task: str
    result: RunResult


class DeliveryJob(Struct, frozen=True, rename="camel"):
    """A delivery and its state: a job together with its message."""

    id: str
    idempotency_key: str
    channel: str
    to: str
    text: str
    session_key: str = ""
    run_id: str = ""
    account: str = ""
    thread: str = ""
    reply_to: str = ""
    buttons: tuple[Button, ...] = ()
    block: ReplyBlock | None = None
    queued_at: int = 0
    due_at: int = 0
    attempts: int = 0
    state: State = "waiting"
    receipt: str = ""  # the network's ids of the sent messages, with spaces between them
    sent: tuple[str, ...] = ()  # the same, also those of an earlier attempt
    trouble: str = ""  # why the last attempt failed
    doubtful_at: int = 0  # an attempt ended with unknown outcome
    retried_at: int = 0  # a person requested a retry
    retry_key: str = ""  # the idempotency key of that request
    revision: int = 0

    @property
    def recipient(self) -> str:
        return f"{self.channel}:{self.to}"

    @property
    def unsure(self) -> bool:
        """Whether it may have arrived and no person has approved a repetition since."""
        return self.doubtful_at > self.retried_at


class DeliveryCounts(Struct, frozen=True, rename="camel"):
    """How many deliveries are open, or need a person."""

    waiting: int = 0
    sending: int = 0
    ambiguous: int = 0
    failed: int = 0
    uncarried: dict[str, int] = {}  # channel without a sender -> how many wait for one


class ChannelSender(Protocol):
    """Sends messages by one channel."""

    @property
    def channel(self) -> str: ...

    @property
    def repeatable(self) -> bool:
        """Whether sending a message twice under its idempotency key delivers it once."""

    async def send(self, delivery: DeliveryJob) -> str:
        """Returns the network's id of the message after the network has acknowledged it, or ""; the ids of several have
        spaces between them. Then it notes each (`Deliveries.note_sent`), and goes on after `delivery.sent` later.

        Raises JobFailed if it did not arrive and a retry may work, JobRefused if a retry cannot help; any other
        exception leaves the outcome unknown.
        """


class Deliveries:
    """Sends messages."""

    def __init__(
        self,
        runner: Jobs,
        *,
        redact: Redact = lambda text: text,
        retry: RetryPolicy = RetryPolicy(),  # noqa: B008  frozen
        at_once: int = 8,
        hooks: Hooks | None = None,
    ) -> None:
        """`at_once` recipients of a channel are served in parallel."""
        self._hooks = hooks or Hooks()
        self._runner = runner
        self._redact = redact
        self._retry = retry
        self._at_once = at_once
        self._channels: set[str] = set()

    def register(self, sender: ChannelSender) -> None:
        """Sets the sender of a channel, also for waiting deliveries. It replaces an earlier one."""

        async def send(_: Any, message: OutboundMessage, job: Job) -> str:
            receipt = await sender.send(delivery_of(job))
            key = SessionKey.parse(message.session_key) if message.session_key else None
            sent = sent_facts(message.channel, message.to, message.text, message.run_id)
            self._hooks.observe("message:sent", key, lambda: sent)
            return receipt

        self._channels.add(sender.channel)
        kind = JobKind(
            KIND + sender.channel,
            OutboundMessage,
            send,
            at_once=self._at_once,
            retry=self._retry,
            seconds=SEND_SECONDS,
            on_crash="retry" if sender.repeatable else "ambiguous",
        )
        self._runner.offer(kind)

    def unregister(self, channel: str) -> None:
        """Removes the sender of a channel: waiting deliveries stay."""
        self._channels.discard(channel)
        self._runner.withdraw(KIND + channel)

    async def post(
        self,
        place: Delivery,
        text: str,
        idempotency_key: str,
        *,
        session_key: str = "",
        run_id: str = "",
        buttons: tuple[Button, ...] = (),
        block: ReplyBlock | None = None,
    ) -> DeliveryJob:
        """Adds a delivery. When this returns it is on the disk; the same key again returns the same delivery.

        Raises QueueFull if too many wait for this recipient.
        """
        if not text.strip() or not place.channel or not place.to or not idempotency_key:
            raise BadRequest("a delivery needs a text, a channel, a recipient and an idempotency key")
        message = self._message(place, text, session_key, run_id, buttons=buttons, block=block)
        job = self._job(message, idempotency_key)
        return delivery_of(await self._runner.put(job, MOST_WAITING))

    def reply(self, inbound: Inbound, result: RunResult) -> Job | None:
        """The delivery of a reply, to be stored with the run's result. None: nothing to send.

        It goes where the message says, or back to its sender if the channel has a sender. Runs that joined another one
        get the reply of that one. The result of a subagent is announced to the session that started it.
        """
        if inbound.spawn is not None and not result.joined:
            announcement = Announcement(inbound.spawn, inbound.text, result)
            return self._runner.make(ANNOUNCE, announcement, result.run_id, lane=inbound.spawn.parent)
        place = self.place_of(inbound)
        text = _reply_text(inbound, result)
        if place is None or result.joined or not text.strip():
            return None
        message = self._message(place, text, result.session_key, result.run_id, reply_to=inbound.message_id)
        return self._job(message, result.run_id)

    async def note_sent(self, delivery: DeliveryJob, sent: Sequence[str]) -> None:
        """Stores the ids of the messages that were sent so far. Raises JobFailed when another process has the job."""
        await self._runner.note_progress(delivery.id, delivery.revision, sent)

    async def hurry(self, channel: str) -> None:
        """Called when a network is back: what waits for another attempt is sent now."""
        await self._runner.hurry(KIND + channel)

    async def report_failure(self, channel: str, to: str, message_id: str, why: str) -> None:
        """A network says that a message which it had taken did not arrive. Raises QueueFull while its delivery is not
        done: then it has to be reported again."""
        jobs = await self._runner.of_lane(KIND + channel, to, MOST_REPORTED)
        for job in jobs:
            if message_id in (sent := delivery_of(job).sent) and job.state == "done":
                await self._runner.report_failure(job, why, partly=len(sent) > 1)
                return
        if any(job.state == "running" for job in jobs):
            raise QueueFull(f"a delivery to {to} is under way")
        log.warning("%s did not deliver the message %.100r to %s: %s", channel, message_id, to, self._redact(why))

    def has_sender(self, channel: str) -> bool:
        return channel in self._channels

    def place_of(self, inbound: Inbound) -> Delivery | None:
        """Where its reply must be delivered; None: its sender reads it."""
        return inbound.place if inbound.reply_to is not None or inbound.channel in self._channels else None

    async def answer(self, inbound: Inbound, result: RunResult) -> None:
        """Sends a reply that is not stored. A storage error is logged: the command itself is done."""
        job = self.reply(inbound, result)
        if job is None:
            return
        try:
            answer = msgspec.structs.replace(job, idempotency_key=f"{ANSWER}{inbound.idempotency_key}")
            await self._runner.put(answer, MOST_WAITING)
        except (QueueFull, StorageError) as error:
            log.warning("an answer to %s %s was not sent: %s", job.kind, job.lane, error)

    def expect(self, job: Job) -> None:
        """Called after the delivery was stored, together with something else."""
        if job.state == "failed":
            log.warning("job %s (%s %s) was not sent: %s", job.id, job.kind, job.lane, job.trouble)
        self._runner.expect(job)

    async def retry(self, beginning: str, idempotency_key: str = "") -> DeliveryJob:
        """Sends it now at a person's request, even if it may have arrived before."""
        return delivery_of(await self._runner.retry(beginning, idempotency_key, f"{KIND}*"))

    async def drop(self, beginning: str) -> DeliveryJob:
        """Drops it at a person's request."""
        return delivery_of(await self._runner.drop(beginning, f"{KIND}*"))

    async def get(self, delivery_id: str) -> DeliveryJob:
        """Raises NotFound."""
        job = await self._runner.get(delivery_id)
        if job is None or not job.kind.startswith(KIND):
            raise NotFound(f"there is no delivery {delivery_id[:80]!r}", hint="`pal delivery list` shows them")
        return delivery_of(job)

    async def recent(self, *, states: Collection[State] = (), limit: int = 50) -> list[DeliveryJob]:
        """Newest first; no states mean every state."""
        wanted = [state for state, shown in STATES.items() if shown in states]
        found = await self._runner.recent(kinds=[f"{KIND}*"], states=wanted, limit=limit)
        return [delivery_of(job) for job in found]

    async def counts(self) -> DeliveryCounts:
        sums = dict.fromkeys(("waiting", "sending", "ambiguous", "failed"), 0)
        unsent: dict[str, int] = {}
        for (kind, state), number in (await self._runner.counts()).items():
            channel, shown = kind.removeprefix(KIND), STATES.get(state)
            if not kind.startswith(KIND) or shown not in sums:
                continue
            sums[shown] += number
            if shown == "waiting" and channel not in self._channels:
                unsent[channel] = unsent.get(channel, 0) + number
        return DeliveryCounts(**sums, uncarried=unsent)

    def _message(self, place: Delivery, text: str, session_key: str, run_id: str, **more: Any) -> OutboundMessage:
        text = redacted(Text(text), self._redact).text
        to = place.channel, place.to
        return OutboundMessage(*to, text, session_key, run_id, place.account, place.thread, **more)

    def _job(self, message: OutboundMessage, key: str) -> Job:
        return self._runner.make(KIND + message.channel, message, key, lane=message.to)


def delivery_of(job: Job) -> DeliveryJob:
    """Raises StorageDamaged."""
    message = decoded(bytes(job.payload), OutboundMessage, "the row of a delivery")
    same = {name: getattr(job, name) for name in DeliveryJob.__struct_fields__ if name in Job.__struct_fields__}
    values = msgspec.structs.asdict(message) | same | {"state": STATES[job.state]}
    noted = msgspec.json.decode(job.outcome, type=str | tuple[str, ...]) if job.outcome is not None else ()
    sent = tuple(noted.split(" ")) if isinstance(noted, str) else noted
    return DeliveryJob(**values, queued_at=job.added_at, receipt=" ".join(sent), sent=sent, revision=job.fence)


def _reply_text(inbound: Inbound, result: RunResult) -> str:
    """What its sender reads. A person on a network would wait for an answer that never comes."""
    if result.status == "ok":
        return "\n\n".join(filter(None, (result.text, result.footer)))
    if result.status == "aborted" or not inbound.by_person:
        return ""
    return f"⚠️ {result.error}" if inbound.origin == Origin.OWNER else NO_ANSWER
