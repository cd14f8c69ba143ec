"""One exchange as a client sees it: whoever holds the home meanwhile, the answer comes once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from palinurus.config.home import Home
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import HolderLost
from palinurus.domain.events import AssistantDelta, Lifecycle, RunEvent
from palinurus.operations.runs import AcceptedMessage, converse
from palinurus.operations.table import LocalCaller
from palinurus.testing.harness import Harness


class Unlucky(LocalCaller):
    """Loses its holder in the middle of the first story."""

    losses = 1

    async def follow(self, feed: Any, params: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        async for event in super().follow(feed, params):
            yield event
            if self.losses and isinstance(event, AssistantDelta):
                self.losses -= 1
                raise HolderLost("gone")


async def test_a_lost_holder_costs_a_notice_and_the_story_is_told_from_its_beginning(pal: Harness, home: Home) -> None:
    heard: list[RunEvent] = []
    accepted: list[AcceptedMessage] = []
    caller = Unlucky(pal.services(home))
    result = await asyncio.wait_for(converse(caller, Inbound("hello you", "k"), heard.append, accepted.append), 60)
    assert (result.status, result.text) == ("ok", "you said: hello you")
    assert len({answer.run_id for answer in accepted}) == 1
    assert len(accepted) == 2
    notice = next(index for index, event in enumerate(heard) if isinstance(event, Lifecycle) and event.detail)
    again = "".join(event.text for event in heard[notice:] if isinstance(event, AssistantDelta))
    assert again == result.text
    assert len(pal.model.requests) == 1
