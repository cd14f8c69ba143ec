"""What a skill may use while it is in use: what it declares, as a restriction for the gate.

A restriction only takes away, so a declaration can never give a skill more than its agent has. A skill that declares
nothing and was put there by a person runs under the agent's own policy; one from a registry gets a cautious default.
"""

from __future__ import annotations

import os

from palinurus.domain.tool import Restriction
from palinurus.skills.skill import Skill

# What carries words out of the house: a person approves each.
GOES_OUT = ("web_fetch", "web_search", "browser", "message", "group:plugins")


def restriction_of(skill: Skill, workspace: str) -> Restriction | None:
    """None: the agent's policy is all that holds."""
    needs = skill.about.capabilities
    source = f"skill:{skill.name}"
    if needs.declared:
        return Restriction(
            source,
            f"the skill {skill.name} is in use and declares what it needs",
            only=needs.tools,
            # A command could reach any host and file: inside the walls it reaches none but the workspace.
            sandboxed=bool(skill.registry) or needs.hosts is not None or needs.paths is not None,
            hosts=needs.hosts,
            paths=None if needs.paths is None else _places(needs.paths, skill, workspace),
            ask=() if needs.hosts is not None or not skill.registry else GOES_OUT,
        )
    if skill.registry:
        return Restriction(
            source,
            f"the skill {skill.name} came from {skill.registry} and declares nothing",
            ask=GOES_OUT,
            sandboxed=True,
        )
    return None


def told(restriction: Restriction | None) -> str:
    """For a person, in one line."""
    if restriction is None:
        return "as the agent's policy says"
    parts = []
    if restriction.only is not None:
        parts.append(f"only {', '.join(restriction.only) or 'no tools at all'}")
    if restriction.hosts is not None:
        parts.append(f"hosts: {', '.join(restriction.hosts) or 'none'}")
    if restriction.paths is not None:
        named = [each for each in restriction.paths if not each.startswith(("/", "~", "skill:"))]
        parts.append(f"paths: {', '.join(named) or 'its own'}")
    if restriction.sandboxed:
        parts.append("commands only in the sandbox")
    if restriction.ask:
        parts.append(f"asks before {', '.join(restriction.ask)}")
    return "; ".join(parts)


def _places(paths: tuple[str, ...], skill: Skill, workspace: str) -> tuple[str, ...]:
    """As a call may spell them: from the workspace or whole. Its own folder always counts."""
    plain = [os.path.normpath(path) for path in paths]
    whole = (os.path.join(workspace, path) for path in plain)  # noqa: PTH118
    return tuple(dict.fromkeys((*plain, *whole, skill.folder, f"skill:{skill.name}")))
