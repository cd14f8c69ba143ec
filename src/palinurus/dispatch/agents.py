"""Who lives here, as the dispatcher asks for them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from palinurus.agent.agent import Agent
from palinurus.dispatch.queueing import QueueSettings


class Agents(Protocol):
    """Who lives here. Asked anew for every turn, because config may have changed between two."""

    @property
    def ids(self) -> Collection[str]: ...

    @property
    def default(self) -> str: ...

    @property
    def reset_triggers(self) -> Sequence[str]: ...

    def get(self, agent_id: str) -> Agent: ...

    def queue(self, channel: str) -> QueueSettings:
        """What happens to messages of this channel that come while their session is busy."""
