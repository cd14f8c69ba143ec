"""The parts that operations work with: what wiring has joined, as one record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from palinurus.agent.turn import TurnRunner
from palinurus.config.home import Home
from palinurus.dispatch.dispatcher import Agents, Dispatcher
from palinurus.domain.clock import Clock
from palinurus.ledger.usage import UsageLedger
from palinurus.providers.keys.pool import CredentialState
from palinurus.sessions.store import SessionStore, TranscriptIndex


class ModelDesk(Protocol):
    """What can be said about the models of an agent besides asking them."""

    def credential_states(self, agent_id: str) -> Sequence[CredentialState]:
        """How its keys stand, in the order in which they would be asked, without their secrets."""

    def fallbacks(self, agent_id: str) -> Sequence[str]: ...


class House(Struct, frozen=True):
    home: Home
    dispatcher: Dispatcher
    turns: TurnRunner
    agents: Agents
    sessions: SessionStore
    index: TranscriptIndex
    usage: UsageLedger
    models: ModelDesk
    clock: Clock
    warnings: Callable[[], tuple[str, ...]]
    """What is odd about the config right now, one line each."""
