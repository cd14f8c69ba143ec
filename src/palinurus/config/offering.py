"""Which skills an agent has and how they are offered: what the config says, as records that hold no secret.

The skills room uses them without having read any config; skill_settings.py joins them from it. The values here are the
defaults of the product, the limits those of OpenClaw.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct


class SkillLimit(Struct, frozen=True):
    folders: int = 300  # looked at below one root
    skills: int = 200  # of one root
    file_bytes: int = 256_000
    listed: int = 150
    characters: int = 18_000  # of the list in the prompt


class SkillWord(Struct, frozen=True):
    """What the config says about one skill. Values of variables are secrets and stay where they are."""

    enabled: bool = True
    env: tuple[str, ...] = ()  # names of variables that the config has a value for
    has_key: bool = False
    sandbox_env: bool = False


class SkillsSettings(Struct, frozen=True):
    allow: tuple[str, ...] | None = None  # the agent's own list; None: all
    allow_bundled: tuple[str, ...] | None = None
    extra_dirs: tuple[Path, ...] = ()
    link_targets: tuple[Path, ...] = ()
    entries: Mapping[str, SkillWord] = {}
    limits: SkillLimit = SkillLimit()
    variables: tuple[str, ...] = ()  # names that the config's own `env` has a value for
    said: tuple[str, ...] = ()  # paths of the config that hold something, for skills that require it
    prefer_brew: bool = True
    node_manager: Literal["npm", "pnpm", "yarn", "bun"] = "npm"
    watch: bool = True
