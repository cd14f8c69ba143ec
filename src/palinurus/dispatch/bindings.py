"""Which agent and which session a message belongs to, as far as its words tell. Pure.

A bare name may be that of a session which is there under another key: sessions/names.py looks for it.
"""

from __future__ import annotations

from collections.abc import Collection

from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import NotFound
from palinurus.domain.keys import SessionKey


def resolve(inbound: Inbound, agents: Collection[str], default_agent: str) -> SessionKey:
    """The session that the sender names, else the main one of the agent named, else of the default agent.

    A bare name ("holiday") is a session of its own, kept apart from the main one.
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


def is_name(inbound: Inbound) -> bool:
    """Whether the sender says where by a bare name and not by a key."""
    named = inbound.session_key.strip()
    return bool(named) and named != "main" and ":" not in named
