"""What a config may say about skills."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from palinurus.config.section import Secret, Section, names


class SkillEntry(Section):
    """One skill, by its name or its skillKey."""

    enabled: bool = Field(True, description="Whether it is used at all.")
    api_key: Secret | None = Field(
        None, description="The value of the variable that it names as primaryEnv: text, ${NAME} or a reference."
    )
    env: dict[str, Secret] = Field(
        {}, description="Variables for commands while it is in use, where the process has none of that name."
    )
    sandbox_env: bool = Field(
        False, description="Whether those that it declares reach commands inside the sandbox too. Ours."
    )
    config: dict[str, Any] = Field({}, description="Whatever the skill itself looks up here.")


class SkillLoading(Section):
    foreign = names("watchDebounceMs")

    watch: bool = Field(True, description="Whether a gateway watches the folders; else it looks at each file a turn.")
    extra_dirs: tuple[str, ...] = Field((), description="More folders with skills; the lowest place.")
    allow_symlink_targets: tuple[str, ...] = Field(
        (), description="Folders that links among the skills may lead to. Any other way out is refused."
    )


class SkillInstalling(Section):
    foreign = names("allowUploadedArchives")

    prefer_brew: bool = Field(True, description="Whether brew comes first among the ways to install something.")
    node_manager: Literal["npm", "pnpm", "yarn", "bun"] = Field("npm", description="What installs node packages.")


class SkillRegistry(Section):
    """Where `pal skills search` and `install` look. Ours."""

    url: str | None = Field(
        None,
        description="The registry's address; the variable CLAWHUB_REGISTRY goes first. Default https://clawhub.ai.",
    )
    token: Secret | None = Field(
        None, description="For publishing there: text, ${NAME} or a reference; the variable CLAWHUB_TOKEN goes first."
    )


class SkillLimits(Section):
    max_candidates_per_root: int | None = Field(None, ge=1, le=100_000, description="Folders looked at. Default 300.")
    max_skills_loaded_per_source: int | None = Field(None, ge=1, le=100_000, description="Default 200.")
    max_skills_in_prompt: int | None = Field(None, ge=0, le=10_000, description="Default 150.")
    max_skills_prompt_chars: int | None = Field(
        None, ge=0, le=1_000_000, description="Characters of the list in the prompt. Default 18000."
    )
    max_skill_file_bytes: int | None = Field(
        None, ge=1_000, le=2_000_000, description="Size of a SKILL.md. Default 256000."
    )


class SkillsOptions(Section):
    foreign = names("workshop")

    allow_bundled: tuple[str, ...] | None = Field(
        None, description="The bundled skills that may be used. Unset: all of them; an empty list: none."
    )
    load: SkillLoading = Field(default_factory=SkillLoading.model_construct, description="Where skills are found.")
    install: SkillInstalling = Field(
        default_factory=SkillInstalling.model_construct, description="How `pal skills install-deps` installs."
    )
    registry: SkillRegistry = Field(
        default_factory=SkillRegistry.model_construct, description="Where skills of others come from."
    )
    entries: dict[str, SkillEntry] = Field({}, description="What is said about single skills, by name.")
    limits: SkillLimits = Field(
        default_factory=SkillLimits.model_construct, description="How many skills, and how large."
    )


class AgentSkillLimits(Section):
    max_skills_prompt_chars: int | None = Field(
        None, ge=0, le=1_000_000, description="Characters of the list in the prompt, for this agent."
    )


def skill_secrets(options: SkillsOptions) -> Iterator[Secret | None]:
    """Everything there that may be a secret, for the redactor."""
    yield options.registry.token
    for entry in options.entries.values():
        yield from (entry.api_key, *entry.env.values())
