"""A skill as everyone sees it: what its SKILL.md says about itself, where it lies, and why another was left out.

There may be thousands of these, and none can be part of a circle: the garbage collector need not look at them.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

SKILL_FILE = "SKILL.md"
MAX_NAME = 64

Tier = Literal["workspace", "project", "personal", "managed", "bundled", "plugin", "extra"]
"""Where a skill comes from. Of two with one name the one from the earlier place wins."""

Kind = Literal["brew", "apt", "node", "go", "uv", "download"]


class Requires(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """What must be there before the skill is of any use."""

    bins: tuple[str, ...] = ()
    any_bins: tuple[str, ...] = ()  # one of them is enough
    env: tuple[str, ...] = ()
    config: tuple[str, ...] = ()  # paths of the config that must say something


class Install(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """One way to get what is missing. Nothing of it is ever run without a person's yes."""

    kind: Kind
    id: str = ""
    label: str = ""
    bins: tuple[str, ...] = ()
    os: tuple[str, ...] = ()
    package: str = ""  # formula, package or module, whatever its kind calls it
    url: str = ""
    sha256: str = ""
    archive: str = ""
    extract: bool = False
    strip_components: int = 0
    target_dir: str = ""


class Capabilities(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """What the skill says it needs of the house. None: it says nothing about it."""

    tools: tuple[str, ...] | None = None
    hosts: tuple[str, ...] | None = None
    paths: tuple[str, ...] | None = None

    @property
    def declared(self) -> bool:
        return any(each is not None for each in (self.tools, self.hosts, self.paths))


class Manifest(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """The front matter of a SKILL.md, read and checked."""

    name: str
    description: str
    homepage: str = ""
    version: str = ""
    license: str = ""
    compatibility: str = ""
    allowed_tools: str = ""  # of the AgentSkills convention; shown, and no rule of ours
    user_invocable: bool = True
    model_invocable: bool = True
    dispatch_tool: str = ""  # the tool that its slash command calls, without asking a model
    always: bool = False
    emoji: str = ""
    key: str = ""  # what the config calls it; empty: its name
    primary_env: str = ""
    os: tuple[str, ...] = ()
    requires: Requires = Requires()
    install: tuple[Install, ...] = ()
    capabilities: Capabilities = Capabilities()
    remarks: tuple[str, ...] = ()  # what is odd about it and was read all the same


class Skill(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """A skill in its place."""

    about: Manifest
    folder: str  # absolute, as it was found
    tier: Tier
    digest: str  # of SKILL.md
    registry: str = ""  # where it was installed from; empty: somebody put it there by hand

    @property
    def name(self) -> str:
        return self.about.name

    @property
    def key(self) -> str:
        """What `skills.entries` of the config calls it."""
        return self.about.key or self.about.name

    @property
    def location(self) -> str:
        return f"{self.folder}/{SKILL_FILE}"


class LeftOut(Struct, frozen=True, omit_defaults=True):
    """Something that looked like a skill and is not used, with the reason for a person."""

    path: str
    tier: Tier
    reason: str


class Shadowed(Struct, frozen=True):
    """A skill whose name an earlier place has taken."""

    name: str
    tier: Tier
    path: str
    by: str  # path of the one that is used
