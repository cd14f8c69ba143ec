"""What holds for the skills of one agent: all that the config says about them, joined into one record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from palinurus.config.home import Home
from palinurus.config.load import Loaded, resolve_secret, secret_providers
from palinurus.config.offering import SkillLimit, SkillsSettings, SkillWord
from palinurus.config.schema import AgentOptions
from palinurus.config.settings import agent_layers
from palinurus.config.skills import SkillEntry, SkillLimits

MAX_SAID = 5_000


def skills_settings(loaded: Loaded, home: Home, agent_id: str) -> SkillsSettings:
    options = loaded.config.skills
    base = home.root if home.ours else home.config_path.parent
    layers = list(agent_layers(loaded.config, agent_id))
    return SkillsSettings(
        allow=next((layer.skills for layer in layers if layer.skills is not None), None),
        allow_bundled=options.allow_bundled,
        extra_dirs=tuple(home.expand(each, base) for each in options.load.extra_dirs),
        link_targets=tuple(home.expand(each, base) for each in options.load.allow_symlink_targets),
        entries={name: _word(entry) for name, entry in options.entries.items()},
        limits=_limits(options.limits, layers),
        variables=tuple(_variables(loaded.raw.get("env"))),
        said=tuple(_said(loaded.raw))[:MAX_SAID],
        prefer_brew=options.install.prefer_brew,
        node_manager=options.install.node_manager,
        watch=options.load.watch,
    )


def skill_variables(loaded: Loaded, key: str, primary: str) -> Mapping[str, str]:
    """The values that the config has for a skill, its key under `primary`. They are secrets: use them and forget them.

    Raises ConfigError when a file of secrets cannot be read.
    """
    entry = loaded.config.skills.entries.get(key)
    if entry is None:
        return {}
    providers = secret_providers(loaded)
    named = {**({primary: entry.api_key} if primary and entry.api_key else {}), **entry.env}
    found = {name: resolve_secret(value, loaded.env, providers) for name, value in named.items()}
    return {name: value for name, value in found.items() if value}


def _word(entry: SkillEntry) -> SkillWord:
    return SkillWord(entry.enabled, tuple(entry.env), entry.api_key is not None, entry.sandbox_env)


def _limits(limits: SkillLimits, layers: list[AgentOptions]) -> SkillLimit:
    own = [layer.skills_limits.max_skills_prompt_chars for layer in layers if layer.skills_limits]
    said = {
        "folders": limits.max_candidates_per_root,
        "skills": limits.max_skills_loaded_per_source,
        "file_bytes": limits.max_skill_file_bytes,
        "listed": limits.max_skills_in_prompt,
        "characters": next((each for each in (*own, limits.max_skills_prompt_chars) if each is not None), None),
    }
    return SkillLimit(**{name: value for name, value in said.items() if value is not None})


def _variables(section: Any) -> Iterator[str]:
    """Names under `env.vars`, and those that older configs put right under `env`."""
    if isinstance(section, dict):
        yield from (name for name, value in section.items() if isinstance(value, str) and value)
        yield from _variables(section.get("vars"))


def _said(value: Any, path: str = "") -> Iterator[str]:
    """Paths whose value counts as yes: not false, not nought, not empty."""
    if isinstance(value, dict):
        if path and value:
            yield path
        for key, item in value.items():
            yield from _said(item, f"{path}.{key}" if path else str(key))
    elif value and path:
        yield path
