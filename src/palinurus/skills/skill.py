"""The record of a skill: what its SKILL.md declares, where it is, and what it may use.

What a skill may use is a restriction for the gate. A restriction only removes, so a declaration can never give a skill
more than its agent has. A skill that declares nothing and was added by a person runs under the agent's own policy; one
from a registry gets a cautious default.

There may be thousands of these records, and none can be part of a cycle: the garbage collector need not visit them.
"""

from __future__ import annotations

import os
from typing import Literal

from msgspec import Struct

from palinurus.domain.tool import Restriction

SKILL_FILE = "SKILL.md"
MAX_NAME = 64
Tier = Literal["workspace", "project", "personal", "managed", "bundled", "plugin", "extra"]
"""Where a skill comes from. Of two with one name the one from the earlier source wins."""
Kind = Literal["brew", "apt", "node", "go", "uv", "download"]
# Tools that send text to others: a person approves each call.
GOES_OUT = ("web_fetch", "web_search", "browser", "message", "group:plugins")


class Requires(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """What must exist before the skill can be used."""

    bins: tuple[str, ...] = ()
    any_bins: tuple[str, ...] = ()  # one of them is enough
    env: tuple[str, ...] = ()
    config: tuple[str, ...] = ()  # paths of the config that must be set


class Install(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """One way to install what is missing. Nothing of it is run without a person's approval."""

    kind: Kind
    id: str = ""
    label: str = ""
    bins: tuple[str, ...] = ()
    os: tuple[str, ...] = ()
    package: str = ""  # formula, package or module, depending on its kind
    url: str = ""
    sha256: str = ""
    archive: str = ""
    extract: bool = False
    strip_components: int = 0
    target_dir: str = ""


class Capabilities(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """What the skill says it needs. None: it declares nothing."""

    tools: tuple[str, ...] | None = None
    hosts: tuple[str, ...] | None = None
    paths: tuple[str, ...] | None = None

    @property
    def declared(self) -> bool:
        return any(each is not None for each in (self.tools, self.hosts, self.paths))


class SkillManifest(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """The front matter of a SKILL.md, read and checked."""

    name: str
    description: str
    homepage: str = ""
    version: str = ""
    license: str = ""
    compatibility: str = ""
    allowed_tools: str = ""  # of the AgentSkills convention; shown, but not enforced
    user_invocable: bool = True
    model_invocable: bool = True
    dispatch_tool: str = ""  # the tool that its slash command calls, without a model
    always: bool = False
    emoji: str = ""
    key: str = ""  # its name in the config; empty: its name
    primary_env: str = ""
    os: tuple[str, ...] = ()
    requires: Requires = Requires()
    install: tuple[Install, ...] = ()
    capabilities: Capabilities = Capabilities()
    remarks: tuple[str, ...] = ()  # remarks about unusual content that was accepted


class Skill(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """A skill and its location."""

    about: SkillManifest
    folder: str  # absolute, as it was found
    tier: Tier
    digest: str  # of SKILL.md
    registry: str = ""  # where it was installed from; empty: a person added it

    @property
    def name(self) -> str:
        return self.about.name

    @property
    def key(self) -> str:
        """Returns its name in `skills.entries` of the config."""
        return self.about.key or self.about.name

    @property
    def location(self) -> str:
        return f"{self.folder}/{SKILL_FILE}"


class OmittedSkill(Struct, frozen=True, omit_defaults=True):
    """Something that looked like a skill and is not used, with the reason."""

    path: str
    tier: Tier
    reason: str


class ShadowedSkill(Struct, frozen=True):
    """A skill whose name an earlier source has taken."""

    name: str
    tier: Tier
    path: str
    by: str  # path of the one that is used


def restriction_of(skill: Skill, workspace: str) -> Restriction | None:
    """Returns the skill's restriction. None: only the agent's policy applies."""
    needs, bounded = skill.about.capabilities, skill.about.capabilities.hosts is not None
    if not needs.declared and not skill.registry:
        return None
    bare = f"came from {skill.registry} and declares nothing"
    why = "is in use and declares what it needs" if needs.declared else bare
    return Restriction(
        f"skill:{skill.name}",
        f"the skill {skill.name} {why}",
        only=needs.tools,
        # A command could reach any host and file: in the sandbox it reaches the workspace only.
        sandboxed=bool(skill.registry) or bounded or needs.paths is not None,
        hosts=needs.hosts,
        paths=None if needs.paths is None else _places(needs.paths, skill, workspace),
        ask=GOES_OUT if skill.registry and not bounded else (),
    )


def restriction_text(restriction: Restriction | None) -> str:
    """Describes a restriction in one line."""
    if restriction is None:
        return "the agent's policy"
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
    """Returns paths as a call may write them: relative to the workspace or absolute. Its own folder always counts."""
    plain = [os.path.normpath(path) for path in paths]
    whole = (os.path.join(workspace, path) for path in plain)  # noqa: PTH118
    return tuple(dict.fromkeys((*plain, *whole, skill.folder, f"skill:{skill.name}")))
