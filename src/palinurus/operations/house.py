"""The parts that operations work with: what wiring has joined, as one record."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from palinurus.agent.turn import TurnRunner
from palinurus.config.home import Home
from palinurus.dispatch.dispatcher import Agents, Dispatcher
from palinurus.domain.clock import Clock
from palinurus.sessions.store import SessionStore, TranscriptIndex


class House(Struct, frozen=True):
    home: Home
    dispatcher: Dispatcher
    turns: TurnRunner
    agents: Agents
    sessions: SessionStore
    index: TranscriptIndex
    clock: Clock
    warnings: Callable[[], tuple[str, ...]]
    """What is odd about the config right now, one line each."""
