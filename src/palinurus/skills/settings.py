"""Which skills an agent has and how they are offered. The skills package gets no secrets."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Struct

from palinurus.config.agents import AgentEntry
from palinurus.config.home import Home
from palinurus.config.load import LoadedConfig, resolve_secret, secret_providers
from palinurus.config.section import Secret, Section, option

MAX_CONFIG_PATHS = 5_000


class SkillLimit(Section, frozen=True):
    """Limits on number and size of skills. The values are OpenClaw's."""

    folders: Annotated[int, option("Folders searched below one root.", "maxCandidatesPerRoot", ge=1, le=100_000)] = 300
    skills: Annotated[int, option("Skills of one root.", "maxSkillsLoadedPerSource", ge=1, le=100_000)] = 200
    file_bytes: Annotated[int, option("Size of a SKILL.md.", "maxSkillFileBytes", ge=1_000, le=2_000_000)] = 256_000
    listed: Annotated[int, option("Skills in the prompt's list.", "maxSkillsInPrompt", ge=0, le=10_000)] = 150
    characters: Annotated[
        int, option("Characters of the list in the prompt.", "maxSkillsPromptChars", ge=0, le=1_000_000)
    ] = 18_000


class SkillEntry(Section, frozen=True):
    """One skill, by its name or its skillKey."""

    enabled: Annotated[bool, option("Whether it is used at all.")] = True
    api_key: Annotated[Secret | None, option("The value of its primaryEnv variable: text, ${NAME} or a reference.")] = (
        None
    )
    env: Annotated[
        dict[str, Secret],
        option("Variables for commands while it is in use, unless the process has them."),
    ] = {}
    sandbox_env: Annotated[bool, option("Whether the variables that it declares are also set inside the sandbox.")] = (
        False
    )
    config: Annotated[dict[str, Any], option("Settings that the skill itself reads.")] = {}


class SkillsOptions(Section, frozen=True):
    """Which skills are used."""

    foreign: ClassVar = {"": "workshop", "load": "watch watchDebounceMs", "install": "allowUploadedArchives"}

    allow_bundled: Annotated[
        tuple[str, ...] | None,
        option("The bundled skills that may be used. Unset: all of them; an empty list: none."),
    ] = None
    extra_dirs: Annotated[
        tuple[str, ...], option("More folders with skills, with the lowest precedence.", "load.extraDirs")
    ] = ()
    link_targets: Annotated[
        tuple[str, ...],
        option(
            "Folders outside the roots that links may lead to. Other links are refused.", "load.allowSymlinkTargets"
        ),
    ] = ()
    prefer_brew: Annotated[
        bool, option("Whether brew is the preferred way to install programs.", "install.preferBrew")
    ] = True
    node_manager: Annotated[
        Literal["npm", "pnpm", "yarn", "bun"], option("What installs node packages.", "install.nodeManager")
    ] = "npm"
    registry_url: Annotated[
        str | None,
        option(
            "The registry's address; the variable CLAWHUB_REGISTRY has precedence. Unset: https://clawhub.ai.",
            "registry.url",
        ),
    ] = None
    registry_token: Annotated[
        Secret | None,
        option(
            "For publishing there: text, ${NAME} or a reference; the variable CLAWHUB_TOKEN has precedence.",
            "registry.token",
        ),
    ] = None
    entries: Annotated[dict[str, SkillEntry], option("Settings of single skills, by name.")] = {}


class SkillEntrySettings(Struct, frozen=True):
    """The config of one skill. Values of variables are secrets and not included."""

    enabled: bool = True
    env: tuple[str, ...] = ()  # names of variables with a value in the config
    has_key: bool = False
    sandbox_env: bool = False


class SkillsSettings(Struct, frozen=True):
    allow: tuple[str, ...] | None = None  # the agent's own list; None: all
    allow_bundled: tuple[str, ...] | None = None
    extra_dirs: tuple[Path, ...] = ()
    link_targets: tuple[Path, ...] = ()
    entries: Mapping[str, SkillEntrySettings] = {}
    limits: SkillLimit = SkillLimit()
    variables: tuple[str, ...] = ()  # names with a value in the config's own `env`
    config_paths: tuple[str, ...] = ()  # config paths with a value, for skills that require them
    prefer_brew: bool = True
    node_manager: Literal["npm", "pnpm", "yarn", "bun"] = "npm"


def skills_settings(loaded: LoadedConfig, home: Home, agent_id: str) -> SkillsSettings:
    config, options = loaded.config, loaded.config.section(SkillsOptions)
    base = home.root if home.ours else home.config_path.parent
    return SkillsSettings(
        allow=config.section(AgentEntry, agent_id).skills,
        allow_bundled=options.allow_bundled,
        extra_dirs=tuple(home.expand(each, base) for each in options.extra_dirs),
        link_targets=tuple(home.expand(each, base) for each in options.link_targets),
        entries={
            name: SkillEntrySettings(entry.enabled, tuple(entry.env), entry.api_key is not None, entry.sandbox_env)
            for name, entry in options.entries.items()
        },
        limits=config.section(SkillLimit, agent_id),
        variables=tuple(_variables(loaded.raw.get("env"))),
        config_paths=tuple(_config_paths(loaded.raw))[:MAX_CONFIG_PATHS],
        prefer_brew=options.prefer_brew,
        node_manager=options.node_manager,
    )


def skill_variables(loaded: LoadedConfig, key: str, primary: str) -> Mapping[str, str]:
    """The values of the config for a skill, its key under `primary`. They are secrets: do not store them.

    Raises ConfigError if a file of secrets cannot be read.
    """
    entry = loaded.config.section(SkillsOptions).entries.get(key)
    if entry is None:
        return {}
    providers = secret_providers(loaded)
    named = {**({primary: entry.api_key} if primary and entry.api_key else {}), **entry.env}
    found = {name: resolve_secret(value, loaded.env, providers) for name, value in named.items()}
    return {name: value for name, value in found.items() if value}


def _variables(section: Any) -> Iterator[str]:
    """Names under `env.vars`, and those that older configs put directly under `env`."""
    if isinstance(section, dict):
        yield from (name for name, value in section.items() if isinstance(value, str) and value)
        yield from _variables(section.get("vars"))


def _config_paths(value: Any, path: str = "") -> Iterator[str]:
    """Paths with a true value: not false, zero or empty."""
    if isinstance(value, dict):
        if path and value:
            yield path
        for key, item in value.items():
            yield from _config_paths(item, f"{path}.{key}" if path else str(key))
    elif value and path:
        yield path
