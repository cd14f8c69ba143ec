"""One exchange as a client sees it: say something, follow the run, get the result, whoever holds the home meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import HolderLost
from palinurus.domain.events import Lifecycle, RunEvent, RunResult
from palinurus.operations.agents import EVENTS, SUBMIT, WAIT, Accepted, Follow, Wait
from palinurus.operations.table import Caller

OnEvent = Callable[[RunEvent], None]
"""Told of every event. After the holder was lost it hears `accepted` again, and the story from its beginning."""


async def converse(
    caller: Caller, inbound: Inbound, on_event: OnEvent, on_accepted: Callable[[Accepted], None] = lambda _: None
) -> RunResult:
    """Submitting again is harmless: the idempotency key leads to the run that is there already."""
    while True:
        accepted = await caller.call(SUBMIT, inbound)
        on_accepted(accepted)
        try:
            async for event in caller.follow(EVENTS, Follow(accepted.run_id)):
                on_event(event)
        except HolderLost:
            on_event(Lifecycle("accepted", "the process that ran it went away; asking again"))
            continue
        return await caller.call(WAIT, Wait(accepted.run_id))
