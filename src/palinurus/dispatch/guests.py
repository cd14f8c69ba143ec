"""Messages that are answered by the turn of another: those that were collected, and those that steer.

The turn's own run is the host, the others are its guests: their words stand in the transcript under their own ids, and
when the host has its result they have the same.
"""

from __future__ import annotations

import asyncio
import re
from itertools import takewhile

import msgspec

from palinurus.agent.loop import Interjection
from palinurus.context.opening import Spoken, said
from palinurus.dispatch import commands
from palinurus.dispatch.directives import parse_directives
from palinurus.dispatch.runs import Run, Runs
from palinurus.domain.clock import Clock, local_time
from palinurus.domain.envelope import Inbound
from palinurus.domain.events import Lifecycle

_COMMAND = re.compile(r"/\w[\w-]*(?:\s|$)", re.ASCII)


class Guests:
    """Finds those who may join a turn. Implements agent.loop.Steer for one host."""

    def __init__(self, runs: Runs, host: Run, clock: Clock, *, twelve_hours: bool = False) -> None:
        self._runs = runs
        self._host = host
        self._clock = clock
        self._twelve_hours = twelve_hours

    def waiting(self) -> bool:
        return bool(self._who("steer"))

    def take(self) -> Interjection | None:
        guests = self._who("steer")
        if not guests:
            return None
        spoken = self._together(guests)
        return Interjection(spoken.run_id, said(spoken, local_time(self._clock), twelve_hours=self._twelve_hours))

    async def collect(self, spoken: Spoken) -> Spoken:
        """The message together with those that wait behind it, once a moment has passed without another."""
        if self._host.queue.mode != "collect" or _COMMAND.match(spoken.inbound.text):
            return spoken
        before = -1
        while not self._host.stop.requested and (now := len(self._who("collect"))) not in (0, before):
            before = now
            await asyncio.sleep(self._host.queue.debounce)  # a pause without news is what we wait for
        guests = self._who("collect")
        if not guests:
            return spoken
        joined = self._together(guests)
        text = "\n\n".join(part for part in (spoken.inbound.text, joined.inbound.text) if part)
        images = (*spoken.inbound.images, *joined.inbound.images)
        inbound = msgspec.structs.replace(spoken.inbound, text=text, images=images)
        return msgspec.structs.replace(spoken, inbound=inbound, also=(joined.run_id, *joined.also))

    def _who(self, mode: str) -> list[Run]:
        """Those who may join, up to the first who may not: nobody is heard before one who spoke earlier."""
        waiting = [run for run in self._runs.waiting(self._host.key) if run is not self._host]
        return list(takewhile(lambda run: self._may_join(run, mode), waiting))

    def _may_join(self, run: Run, mode: str) -> bool:
        return (
            run.queue.mode == mode
            and run.inbound is not None
            and not run.inbound.plain
            and not run.stop.requested
            and _plain(run.inbound)
            and _same_speaker(run.inbound, self._host.inbound)
        )

    def _together(self, guests: list[Run]) -> Spoken:
        """One message of all of them; from now on they belong to the host."""
        for guest in guests:
            guest.host = self._host
            guest.emit(Lifecycle("start", f"joined {self._host.id}"))
        self._host.guests += guests
        inbounds = [guest.inbound for guest in guests if guest.inbound is not None]
        text = "\n\n".join(inbound.text for inbound in inbounds if inbound.text)
        images = tuple(image for inbound in inbounds for image in inbound.images)
        inbound = msgspec.structs.replace(inbounds[0], text=text, images=images)
        return Spoken(guests[0].id, inbound, also=tuple(guest.id for guest in guests[1:]))


def _plain(inbound: Inbound) -> bool:
    """Whether it is only words: what changes the session, or may call a skill, has a turn of its own."""
    if commands.parse(inbound.text) is not None or _COMMAND.match(inbound.text):
        return False
    return not parse_directives(inbound.text)[0].any


def _same_speaker(one: Inbound, other: Inbound | None) -> bool:
    """Words of two people are not put into one mouth."""
    return other is not None and (one.channel, one.sender, one.origin) == (other.channel, other.sender, other.origin)
