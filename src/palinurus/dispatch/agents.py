"""The agents as the dispatcher sees them, and to which agent and session a message belongs.

A bare name may be that of an existing session under another key: sessions/names.py looks it up.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from palinurus.agent.agent import Agent
from palinurus.dispatch.queue import QueueSettings
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import NotFound
from palinurus.domain.keys import SessionKey


class Agents(Protocol):
    """The agents of the home. Read again for every turn, because the config may have changed."""

    @property
    def ids(self) -> Collection[str]: ...

    @property
    def default(self) -> str: ...

    @property
    def reset_triggers(self) -> Sequence[str]: ...

    def get(self, agent_id: str) -> Agent: ...

    def redact(self, text: str) -> str:
        """The text without the secrets of the home."""

    def queue(self, channel: str) -> QueueSettings:
        """The queue settings for messages of this channel that arrive while their session is busy."""


def session_key_of(inbound: Inbound, agents: Collection[str], default_agent: str) -> SessionKey:
    """The session that the sender names, else the main one of the named agent, else of the default agent.

    A bare name ("holiday") is a separate session.
    """
    agent = inbound.agent.strip().lower() or default_agent
    named = inbound.session_key.strip()
    if not named or named == "main":
        key = SessionKey.main(agent)
    elif ":" in named:
        key = SessionKey.parse(named)
    else:
        key = SessionKey.parse(f"agent:{agent}:explicit:{named}")
    if key.agent not in agents:
        raise NotFound(f"there is no agent {key.agent!r}", hint=f"configured: {', '.join(sorted(agents))}")
    return key


def names_session(inbound: Inbound) -> bool:
    """Whether the sender gives a bare name and not a key."""
    named = inbound.session_key.strip()
    return bool(named) and named != "main" and ":" not in named
