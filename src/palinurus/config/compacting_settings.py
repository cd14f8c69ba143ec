"""What holds for the long conversations of one agent: all that the config says about them, joined into records.

The nearest place wins, field by field: the agent's own entry, then `agents.defaults`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from msgspec import Struct

from palinurus.config.compacting import (
    CompactionSettings,
    FlushSettings,
    MaintenanceSettings,
    PruneSettings,
    StartupSettings,
)
from palinurus.config.compaction import seconds
from palinurus.config.schema import AgentOptions, Config
from palinurus.config.settings import agent_layers

S = TypeVar("S", bound=Struct)


def compaction_settings(config: Config, agent_id: str) -> CompactionSettings:
    said = _Said(config, agent_id, "compaction")
    flush = _made(
        FlushSettings,
        enabled=said("memory_flush", "enabled"),
        ahead=said("memory_flush", "soft_threshold_tokens"),
        timeout_seconds=said("memory_flush", "timeout_seconds"),
        prompt=said("memory_flush", "prompt"),
    )
    policy = said("identifier_policy")
    return _made(
        CompactionSettings,
        enabled=said("enabled"),
        reserve=said("reserve_tokens"),
        keep_recent=said("keep_recent_tokens"),
        timeout_seconds=said("timeout_seconds"),
        identifiers=None if policy is None else policy != "off",
        notify=said("notify_user"),
        flush=flush,
    )


def prune_settings(config: Config, agent_id: str) -> PruneSettings:
    said = _Said(config, agent_id, "context_pruning")
    mode, ttl = said("mode"), said("ttl")
    return _made(
        PruneSettings,
        mode=None if mode is None else "off" if mode == "off" else "cache-ttl",
        ttl_seconds=None if ttl is None else seconds(ttl),
        keep_last_assistants=said("keep_last_assistants"),
        soft_ratio=said("soft_trim_ratio"),
        hard_ratio=said("hard_clear_ratio"),
        min_clearable=said("min_prunable_tool_chars"),
        soft_above=said("soft_trim", "max_chars"),
        head=said("soft_trim", "head_chars"),
        tail=said("soft_trim", "tail_chars"),
        clears=said("hard_clear", "enabled"),
        placeholder=said("hard_clear", "placeholder"),
        only=said("tools", "allow"),
        never=said("tools", "deny"),
    )


def startup_settings(config: Config, agent_id: str) -> StartupSettings:
    said = _Said(config, agent_id, "startup_context")
    return _made(
        StartupSettings,
        enabled=said("enabled"),
        on=said("apply_on"),
        days=said("daily_memory_days"),
        file_characters=said("max_file_chars"),
        characters=said("max_total_chars"),
    )


def maintenance_settings(config: Config) -> MaintenanceSettings:
    options = config.session.maintenance
    if options is None:
        return MaintenanceSettings()
    after = options.prune_after
    return _made(
        MaintenanceSettings,
        mode=options.mode,
        after_seconds=None if after is None else seconds(str(after), bare="d"),
        most=options.max_entries,
    )


class _Said:
    """What the nearest layer says at the end of some steps into one section; None when none says anything."""

    def __init__(self, config: Config, agent_id: str, section: str) -> None:
        layers: Sequence[AgentOptions] = list(agent_layers(config, agent_id))
        self._sections = [getattr(layer, section) for layer in layers]

    def __call__(self, *steps: str) -> Any:
        for section in self._sections:
            value: Any = section
            for step in steps:
                value = getattr(value, step, None)
            if value is not None:
                return value
        return None


def _made(kind: type[S], **values: Any) -> S:
    return kind(**{name: value for name, value in values.items() if value is not None})
