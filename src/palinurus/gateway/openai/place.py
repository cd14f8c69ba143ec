"""Where a request takes place: which agent answers it, and in which session. Pure.

A model's name is an agent's. A request that names nobody (`user`) and no session is on its own: it gets a session that
nobody else will ever speak in, and brings its history along.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping

from msgspec import Struct

from palinurus.domain.errors import BadRequest, NotFound
from palinurus.domain.keys import SessionKey
from palinurus.gateway.openai.troubles import Trouble

HOUSES = ("palinurus", "openclaw")
_NAMED = re.compile(r"(?:(?:palinurus|openclaw)[/:]|agent:)(.+)")
NO_MODEL = "model_not_found"
RESERVED = ("subagent", "cron", "acp")  # sessions that belong to runs of their own
_BACKEND = re.compile(r"[A-Za-z0-9][\w.+-]{0,63}/[\w.:+@/-]{1,200}")


class Place(Struct, frozen=True):
    key: SessionKey
    lasting: bool  # whether somebody may come back to it

    @property
    def agent(self) -> str:
        return self.key.agent


def header(headers: Mapping[str, str], name: str) -> str:
    """A header of ours under either name of the house."""
    return (headers.get(f"x-palinurus-{name}") or headers.get(f"x-openclaw-{name}") or "").strip()


def model_names(agents: Collection[str]) -> list[str]:
    """The names under which agents are listed. The others are understood too."""
    return ["palinurus", *(f"palinurus/{agent}" for agent in sorted(agents))]


def agent_named(model: str, agents: Collection[str], default: str) -> str:
    """The agent that a model's name means. Raises Trouble."""
    name = model.strip().lower()
    if not name or name in HOUSES:
        return default
    found = _NAMED.fullmatch(name)
    agent = found[1] if found else ""
    if agent in agents:
        return agent
    if agent == "default":
        return default
    known = ", ".join(model_names(agents))
    raise Trouble(404, f"the model {model[:80]!r} does not exist (there are {known})", code=NO_MODEL, param="model")


def place_of(
    model: str, user: str, headers: Mapping[str, str], agents: Collection[str], default: str, fresh: str
) -> Place:
    """`fresh` names the session of a request that stands alone. Raises NotFound, BadRequest and Trouble."""
    named = header(headers, "agent-id").lower()
    if named and named not in agents:
        raise NotFound(f"there is no agent {named[:80]!r}", hint=f"configured: {', '.join(sorted(agents))}")
    agent = named or agent_named(model, agents, default)
    if wanted := header(headers, "session-key"):
        key = _asked_for(wanted, agent, agents)
        if named and key.agent != named:
            raise BadRequest(
                f"the session {str(key)[:80]!r} is not one of the agent {named!r}", hint="name one of them"
            )
        return Place(key, lasting=True)
    if user:
        digest = hashlib.sha256(user.encode("utf-8", "replace")).hexdigest()[:32]
        return Place(SessionKey.parse(f"agent:{agent}:openai-user:{digest}"), lasting=True)
    return alone(agent, fresh)


def alone(agent: str, fresh: str) -> Place:
    return Place(SessionKey.parse(f"agent:{agent}:openai:{fresh}"), lasting=False)


def again(key: SessionKey) -> Place:
    """The place of an earlier request, as its session tells it."""
    return Place(key, lasting=not (key.kind == "named" and key.peer.startswith("openai:")))


def _asked_for(wanted: str, agent: str, agents: Collection[str]) -> SessionKey:
    if wanted.lower().startswith("agent:"):
        key = SessionKey.parse(wanted)
    elif ":" in wanted or wanted.lower() == "main":
        key = SessionKey.parse(f"agent:{agent}:{wanted}")
    else:
        key = SessionKey.parse(f"agent:{agent}:explicit:{wanted}")
    if key.kind in RESERVED:
        raise BadRequest(f"sessions of {key.kind} are not spoken in from outside", hint="name another session key")
    if key.agent not in agents:
        raise NotFound(f"there is no agent {key.agent!r}", hint=f"configured: {', '.join(sorted(agents))}")
    return key


def backend(headers: Mapping[str, str]) -> str:
    """The model that is asked for beside the agent, as provider/model; empty: the session's. Raises BadRequest."""
    model = header(headers, "model")
    if model and not _BACKEND.fullmatch(model):
        raise BadRequest(f"not a model: {model[:80]!r}", hint="for example x-openclaw-model: anthropic/claude-opus-5")
    return model
