"""The workspace and the walls of a session in words: for its prompt, its status and people who ask. Pure."""

from __future__ import annotations

from typing import Literal

from palinurus.sandbox.quarters import Quarters
from palinurus.sandbox.sandbox import Walls

Runs = Literal["sandbox", "host", "nowhere"]
MEMORY_IS_REAL = "MEMORY.md, USER.md and memory/ are the agent's own: file and memory tools reach them, commands do not"


def where_commands_run(place: Quarters, walls: Walls) -> Runs:
    if place.sandboxed == "no":
        return "host"
    if walls.works:
        return "sandbox"
    return "host" if place.sandboxed == "preferred" else "nowhere"


def describe_access(place: Quarters) -> str:
    """Whose workspace it is and whether it can be changed, in a few words."""
    if place.own is not None:
        return f"a copy of the agent's{', memory the real one' if place.private else ''}"
    return "read-write" if place.writable else "read-only"


def describe_sandbox(place: Quarters, walls: Walls) -> str:
    """What a model is told. Nothing in it changes from one message to the next."""
    return " ".join((*_commands(place, walls), *_workspace(place)))


def _commands(place: Quarters, walls: Walls) -> tuple[str, ...]:
    runs = where_commands_run(place, walls)
    if runs == "nowhere":
        return (f"A sandbox ({walls.name}) is required and does not work on this machine: no command runs.",)
    if runs == "host":
        asks = ", so they ask your user first" if place.sandboxed == "preferred" else ""
        return (f"None: commands run on the machine itself, with network{asks}.",)
    network = "network" if place.network else "no network"
    return (f"Commands run in a sandbox ({walls.name}): they see the workspace and the machine's programs, {network}.",)


def _workspace(place: Quarters) -> tuple[str, ...]:
    if place.own is None:
        if place.writable:
            return ("The workspace is your real one, read-write.",)
        notes = "; `memory_write` writes real notes all the same" if place.private else ""
        return (f"The workspace is your real one, read-only{notes}.",)
    told = ["The workspace is a copy of your real one, which stays as it is; what you change here stays here."]
    if place.private:
        told.append("Only MEMORY.md, USER.md and memory/ are real: file and memory tools reach them, commands do not.")
    if place.shared:
        told.append("Other agents share it; your AGENTS.md, SOUL.md and so on are read-only.")
    return tuple(told)
