"""A parcel and what becomes of it. Pure.

    waiting → sending → sent
                      → waiting      it has certainly not arrived; or it may have, and its carrier can repeat it
                      → ambiguous    it may have arrived, and sending it again could double it: a person decides
                      → failed       it has certainly not arrived, and trying again is of no use
    waiting, ambiguous, failed → dropped, by a person

A parcel that may have arrived remembers it until it is sent: it never ends as failed, which would say that it has not.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct

from palinurus.domain.errors import BadRequest, QueueFull

State = Literal["waiting", "sending", "sent", "ambiguous", "failed", "dropped"]
MOST_WAITING = 100  # for one recipient
LEFT_BEHIND = "the process ended while it was being sent"


class Recipient(NamedTuple):
    """Whose parcels are carried one after the other."""

    channel: str
    to: str

    def __str__(self) -> str:
        return f"{self.channel}:{self.to}"


class Parcel(Struct, frozen=True, rename="camel"):
    id: str
    idempotency_key: str
    channel: str
    to: str
    text: str
    session_key: str = ""
    run_id: str = ""
    account: str = ""
    thread: str = ""
    queued_at: int = 0
    due_at: int = 0
    attempts: int = 0
    state: State = "waiting"
    receipt: str = ""  # the network's id of what was sent
    trouble: str = ""  # why the last attempt failed
    doubtful_at: int = 0  # an attempt ended of which nobody knows whether it arrived
    retried_at: int = 0  # a person asked to send it again
    retry_key: str = ""  # under which they did
    revision: int = 0  # counted by the store: nobody changes what somebody else has changed meanwhile

    @property
    def recipient(self) -> Recipient:
        return Recipient(self.channel, self.to)

    @property
    def unsure(self) -> bool:
        """Whether it may have arrived and nobody has agreed since then to send it again."""
        return self.doubtful_at > self.retried_at


class Patience(Struct, frozen=True):
    """How often and how long a parcel is tried."""

    first_ms: int = 1_000
    longest_ms: int = 600_000
    attempts: int = 500
    age_ms: int = 24 * 3600 * 1000
    at_least: int = 5  # attempts, however old it is: the machine may have been off for days

    def pause(self, attempts: int, chance: float) -> int:
        """Milliseconds before the next attempt: twice as long each time, the later half of it left to chance."""
        whole = min(self.first_ms << min(attempts - 1, 40), self.longest_ms)
        return round(whole * (0.5 + chance / 2))

    def over(self, parcel: Parcel, now: int) -> bool:
        old = now - max(parcel.queued_at, parcel.retried_at) >= self.age_ms
        return parcel.attempts >= self.attempts or (old and parcel.attempts >= self.at_least)


def begun(parcel: Parcel) -> Parcel:
    """From here on until its fate is known it may be anywhere."""
    return msgspec.structs.replace(parcel, state="sending", attempts=parcel.attempts + 1)


def arrived(parcel: Parcel, receipt: str) -> Parcel:
    return msgspec.structs.replace(parcel, state="sent", receipt=receipt, trouble="")


def put_off(parcel: Parcel, why: str, now: int, patience: Patience, pause: int) -> Parcel:
    """It is tried again after a pause; when patience is at its end it is given up."""
    if patience.over(parcel, now):
        return given_up(parcel, f"given up after {parcel.attempts} attempts: {why}")
    return msgspec.structs.replace(parcel, state="waiting", due_at=now + pause, trouble=why)


def given_up(parcel: Parcel, why: str) -> Parcel:
    return msgspec.structs.replace(parcel, state="ambiguous" if parcel.doubtful_at else "failed", trouble=why)


def in_doubt(parcel: Parcel, why: str, now: int) -> Parcel:
    """It may have arrived. Whoever carries it next knows whether it can be repeated."""
    doubt = max(now, parcel.retried_at + 1)  # whatever somebody did to the clock, doubt comes after what it follows
    return msgspec.structs.replace(parcel, state="waiting", due_at=now, doubtful_at=doubt, trouble=why)


def ambiguous(parcel: Parcel) -> Parcel:
    return msgspec.structs.replace(parcel, state="ambiguous")


def retried(parcel: Parcel, now: int, key: str) -> Parcel:
    """A person wants it to be sent, again if need be. Under the same key once. Raises BadRequest."""
    if key and parcel.retry_key == key:
        return parcel
    if parcel.state not in ("waiting", "ambiguous", "failed"):
        raise _too_late(parcel, "sent again")
    asked = max(now, parcel.doubtful_at)
    return msgspec.structs.replace(
        parcel, state="waiting", due_at=now, attempts=0, retried_at=asked, retry_key=key, trouble=""
    )


def dropped(parcel: Parcel) -> Parcel:
    """A person does not want it to be sent any more. Twice is once. Raises BadRequest."""
    if parcel.state == "dropped":
        return parcel
    if parcel.state not in ("waiting", "ambiguous", "failed"):
        raise _too_late(parcel, "dropped")
    return msgspec.structs.replace(parcel, state="dropped")


def no_room(parcel: Parcel) -> QueueFull:
    return QueueFull(
        f"{MOST_WAITING} parcels already wait for {parcel.recipient}", hint="`pal delivery list` shows what is wrong"
    )


def _too_late(parcel: Parcel, verb: str) -> BadRequest:
    now = {"sending": "is being sent right now", "sent": "was sent", "dropped": "was dropped"}[parcel.state]
    hint = "look again in a moment" if parcel.state == "sending" else "say it anew"
    return BadRequest(f"parcel {parcel.id} {now} and cannot be {verb}", hint=hint if verb == "sent again" else "")
