"""The outbox: what is to be carried to a person by a channel, until it is acknowledged (promise 3).

A parcel is a committed row before anybody tries to carry it. It has an idempotency key that the carrier hands on where
its network knows such a thing. A carrier that died between sending and being told leaves a parcel that may have come:
it is carried again where the key makes that harmless, and else shown as ambiguous, never silently doubled or dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

import msgspec
from msgspec import Struct

from palinurus.dispatch.carrying import DEFAULT, Limits, Lines
from palinurus.dispatch.outbox import Carrier, Outbox
from palinurus.dispatch.parcel import LEFT_BEHIND, Parcel, State, dropped, in_doubt, retried
from palinurus.domain.clock import Clock, NewId
from palinurus.domain.envelope import Delivery, Inbound
from palinurus.domain.errors import BadRequest, NotFound, QueueFull, StorageError
from palinurus.domain.events import RunResult
from palinurus.domain.messages import Text
from palinurus.sessions.journal import Redact, redacted

log = logging.getLogger(__name__)

KEPT_MS = 30 * 24 * 3600 * 1000  # how long what was sent is remembered


class Standing(Struct, frozen=True, rename="camel"):
    """How many parcels are on their way, or need a person."""

    waiting: int = 0
    sending: int = 0
    ambiguous: int = 0
    failed: int = 0
    uncarried: dict[str, int] = {}  # channel that nobody carries now -> how many wait for one who does


class Deliveries:
    """Has parcels carried. `dice` gives numbers from 0 to 1."""

    def __init__(
        self,
        outbox: Outbox,
        clock: Clock,
        new_id: NewId,
        dice: Callable[[], float],
        *,
        redact: Redact = lambda text: text,
        limits: Limits = DEFAULT,
    ) -> None:
        self._outbox = outbox
        self._clock = clock
        self._new_id = new_id
        self._redact = redact
        self._lines = Lines(outbox, clock, dice, redact, limits)

    def register(self, carrier: Carrier) -> None:
        """From now on this one carries its channel, also what waits already. It takes the place of an earlier one."""
        self._lines.register(carrier)

    def unregister(self, channel: str) -> None:
        """Nobody carries there any more: what waits stays."""
        self._lines.unregister(channel)

    async def start(self) -> None:
        """Take up what another process had left, then carry what waits."""
        await self.recover()
        await self._outbox.forget(self._clock.now_ms() - KEPT_MS)
        await self._lines.open()

    async def recover(self) -> int:
        """What was being sent when a process died may have arrived. Only before anything is carried here."""
        left = await self._outbox.unfinished()
        for parcel in left:
            await self._outbox.change(in_doubt(parcel, LEFT_BEHIND, self._clock.now_ms()))
        return len(left)

    async def close(self) -> None:
        """Begin nothing more. What is being carried may end within a grace; the rest waits for the next start."""
        await self._lines.close()

    async def idle(self) -> None:
        """Until nothing waits that somebody could carry."""
        await self._lines.idle()

    async def post(
        self, place: Delivery, text: str, idempotency_key: str, *, session_key: str = "", run_id: str = ""
    ) -> Parcel:
        """Have it carried. When this returns it is on the disk; the same key again is the same parcel.

        Raises QueueFull when too many wait for this recipient.
        """
        if not text.strip() or not place.channel or not place.to or not idempotency_key:
            raise BadRequest("a parcel needs words, a channel, somebody it goes to, and an idempotency key")
        parcel = await self._outbox.add(self._packed(place, text, idempotency_key, session_key, run_id))
        self._lines.wake(parcel.recipient)
        return parcel

    def reply(self, inbound: Inbound, result: RunResult) -> Parcel | None:
        """The parcel that a reply goes out in, to be stored with the run's result. None: there is none to be sent.

        It goes where the message says, or back to its sender if somebody carries the channel. Those who joined
        another's turn hear the reply of the other.
        """
        wanted = inbound.reply_to is not None or inbound.channel in self._lines.channels
        if not wanted or result.joined or result.status != "ok" or not result.text.strip():
            return None
        text = "\n\n".join(filter(None, (result.text, result.footer)))
        return self._packed(inbound.place, text, result.run_id, result.session_key, result.run_id)

    async def answer(self, inbound: Inbound, result: RunResult) -> None:
        """Send a reply that is stored nowhere. What was done is done: where there is no room, that is only told."""
        parcel = self.reply(inbound, result)
        if parcel is None:
            return
        key = f"answer:{inbound.idempotency_key}"
        try:
            self.expect(await self._outbox.add(msgspec.structs.replace(parcel, idempotency_key=key)))
        except (QueueFull, StorageError) as error:
            log.warning("an answer to %s is not sent: %s", parcel.recipient, error)

    def expect(self, parcel: Parcel) -> None:
        """Somebody has put it into the outbox, together with something else."""
        if parcel.state == "failed":
            log.warning("parcel %s to %s is not sent: %s", parcel.id, parcel.recipient, parcel.trouble)
        self._lines.wake(parcel.recipient)

    async def retry(self, parcel_id: str, idempotency_key: str = "") -> Parcel:
        """A person wants it to be sent now, even if it may have arrived before."""
        return await self._decided(parcel_id, lambda parcel: retried(parcel, self._clock.now_ms(), idempotency_key))

    async def drop(self, parcel_id: str) -> Parcel:
        """A person has looked at it and wants no more done."""
        return await self._decided(parcel_id, dropped)

    async def recent(self, *, states: Collection[State] = (), limit: int = 50) -> list[Parcel]:
        return await self._outbox.recent(states=states, limit=limit)

    async def standing(self) -> Standing:
        counts = await self._outbox.counts()
        sums = dict.fromkeys(("waiting", "sending", "ambiguous", "failed"), 0)
        for (_, state), number in counts.items():
            sums[state] += number
        carried = self._lines.channels
        lost = {channel: number for (channel, state), number in counts.items() if state == "waiting"}
        return Standing(**sums, uncarried={channel: lost[channel] for channel in lost if channel not in carried})

    def _packed(self, place: Delivery, text: str, key: str, session_key: str, run_id: str) -> Parcel:
        now = self._clock.now_ms()
        return Parcel(
            id=self._new_id(),
            idempotency_key=key,
            channel=place.channel,
            to=place.to,
            text=redacted(Text(text), self._redact).text,
            session_key=session_key,
            run_id=run_id,
            account=place.account,
            thread=place.thread,
            queued_at=now,
            due_at=now,
        )

    async def _decided(self, parcel_id: str, decide: Callable[[Parcel], Parcel]) -> Parcel:
        before = await self._found(parcel_id)
        after = decide(before)
        if after is before:
            return before
        changed = await self._outbox.change(after)
        if changed is None:
            raise BadRequest(f"parcel {before.id} has changed meanwhile", hint="look at it again")
        self._lines.wake(changed.recipient)
        return changed

    async def _found(self, parcel_id: str) -> Parcel:
        found = await self._outbox.find(parcel_id) if parcel_id else []
        if not found or (len(found) > 1 and found[0].id != parcel_id):
            what = "more than one parcel begins with" if found else "there is no parcel"
            raise NotFound(f"{what} {parcel_id!r}", hint="`pal delivery list` shows them")
        return found[0]
