"""What the config says about long conversations, in OpenClaw's words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from palinurus.config.compacting import (
    CompactionSettings,
    FlushSettings,
    MaintenanceSettings,
    PruneSettings,
    StartupSettings,
)
from palinurus.config.compacting_settings import (
    compaction_settings,
    maintenance_settings,
    prune_settings,
    startup_settings,
)
from palinurus.config.schema import Config, parse_config, unknown_keys


def config(**sections: Any) -> Config:
    return parse_config(json.dumps(sections).encode())


def defaults(**options: Any) -> Config:
    return config(agents={"defaults": options})


def test_an_empty_config_gives_the_defaults() -> None:
    assert compaction_settings(Config(), "main") == CompactionSettings()
    assert prune_settings(Config(), "main") == PruneSettings()
    assert startup_settings(Config(), "main") == StartupSettings()
    assert maintenance_settings(Config()) == MaintenanceSettings()


def test_compaction_is_read_with_its_flush() -> None:
    said = defaults(
        compaction={
            "mode": "safeguard",
            "reserveTokens": 9_000,
            "reserveTokensFloor": 20_000,
            "keepRecentTokens": 5_000,
            "identifierPolicy": "off",
            "notifyUser": True,
            "timeoutSeconds": 30,
            "memoryFlush": {"enabled": False, "softThresholdTokens": 1_000, "prompt": "and the weather"},
        }
    )
    assert compaction_settings(said, "main") == CompactionSettings(
        reserve=9_000,
        keep_recent=5_000,
        timeout_seconds=30,
        identifiers=False,
        notify=True,
        flush=FlushSettings(enabled=False, ahead=1_000, prompt="and the weather"),
    )
    assert list(unknown_keys(said)) == []


def test_an_agent_says_more_than_the_defaults_field_by_field() -> None:
    both = config(
        agents={
            "defaults": {"compaction": {"reserveTokens": 1, "memoryFlush": {"enabled": False}}},
            "entries": {"ada": {"compaction": {"enabled": False, "memoryFlush": {"softThresholdTokens": 7}}}},
        }
    )
    ada = compaction_settings(both, "ada")
    assert (ada.enabled, ada.reserve, ada.flush) == (False, 1, FlushSettings(enabled=False, ahead=7))


@pytest.mark.parametrize(("mode", "ours"), [("off", "off"), ("cache-ttl", "cache-ttl"), ("adaptive", "cache-ttl")])
def test_pruning_is_read_in_old_and_new_words(mode: str, ours: str) -> None:
    said = defaults(
        contextPruning={
            "mode": mode,
            "ttl": "1h",
            "keepLastAssistants": 2,
            "softTrimRatio": 0.2,
            "hardClearRatio": 0.4,
            "minPrunableToolChars": 10,
            "softTrim": {"maxChars": 100, "headChars": 10, "tailChars": 20},
            "hardClear": {"enabled": False, "placeholder": "[gone]"},
            "tools": {"allow": ["exec"], "deny": ["read"]},
        }
    )
    assert prune_settings(said, "main") == PruneSettings(
        ours,
        3_600.0,
        2,
        0.2,
        0.4,
        10,
        100,
        10,
        20,
        False,
        "[gone]",
        ("exec",),
        ("read",),  # type: ignore[arg-type]
    )


def test_startup_context_is_read() -> None:
    said = defaults(
        startupContext={
            "enabled": True,
            "applyOn": ["reset"],
            "dailyMemoryDays": 3,
            "maxFileBytes": 16_384,
            "maxFileChars": 500,
            "maxTotalChars": 900,
        }
    )
    assert startup_settings(said, "main") == StartupSettings(True, ("reset",), 3, 500, 900)


@pytest.mark.parametrize(
    ("text", "seconds"), [("12h", 43_200.0), ("7", 604_800.0), (7, 604_800.0), ("2w", 1_209_600.0)]
)
def test_maintenance_is_read_and_a_bare_number_is_days(text: str | int, seconds: float) -> None:
    said = config(
        session={"maintenance": {"mode": "enforce", "pruneAfter": text, "maxEntries": 9, "rotateBytes": "10mb"}}
    )
    assert maintenance_settings(said) == MaintenanceSettings("enforce", seconds, 9)
    assert list(unknown_keys(said)) == []


@pytest.mark.parametrize(
    "options",
    [
        {"contextPruning": {"ttl": "soon"}},
        {"contextPruning": {"mode": "sometimes"}},
        {"compaction": {"reserveTokens": -1}},
        {"startupContext": {"dailyMemoryDays": 900}},
    ],
)
def test_nonsense_is_told_and_not_taken(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        defaults(**options)
