"""The families of methods besides talking: sessions, agents, config, tools, approvals, usage, devices and others.

Each module is one family in OpenClaw's shapes, over the operations of the house; `FAMILIES` joins them. Field names are
OpenClaw's where it has the field. What a family cannot do here it says in one sentence, and never pretends.
"""

from __future__ import annotations

from palinurus.gateway.families import (
    agents,
    approvals,
    commands,
    config,
    credentials,
    health,
    logs,
    memory,
    models,
    pairing,
    sessions,
    tools,
    usage,
)
from palinurus.gateway.talk.methods import Method

_MODULES = (
    sessions, agents, config, credentials, models, commands, tools, memory, approvals, usage, health, logs, pairing,
)  # fmt: skip
FAMILIES: tuple[Method, ...] = tuple(method for family in _MODULES for method in family.METHODS)
