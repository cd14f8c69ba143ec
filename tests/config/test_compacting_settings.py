"""What the config says about long conversations, in OpenClaw's words."""

from __future__ import annotations

from typing import Any

import pytest

from palinurus.config.load import Config, check_data
from palinurus.context.settings import CompactionSettings, FlushSettings, PruneSettings, StartupSettings
from palinurus.sessions.settings import MaintenanceSettings


def config(**sections: Any) -> Config:
    return Config(sections)


def defaults(**options: Any) -> Config:
    return config(agents={"defaults": options})


def test_an_empty_config_gives_the_defaults() -> None:
    assert Config().section(CompactionSettings) == CompactionSettings()
    assert Config().section(PruneSettings) == PruneSettings()
    assert Config().section(StartupSettings) == StartupSettings()
    assert Config().section(MaintenanceSettings) == MaintenanceSettings()


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
    assert said.section(CompactionSettings, "main") == CompactionSettings(
        reserve=9_000,
        keep_recent=5_000,
        timeout_seconds=30,
        identifiers=False,
        notify=True,
        flush=FlushSettings(enabled=False, ahead=1_000, prompt="and the weather"),
    )
    assert said.findings().unknown == []


def test_an_agent_says_more_than_the_defaults_field_by_field() -> None:
    both = config(
        agents={
            "defaults": {"compaction": {"reserveTokens": 1, "memoryFlush": {"enabled": False}}},
            "entries": {"ada": {"compaction": {"enabled": False, "memoryFlush": {"softThresholdTokens": 7}}}},
        }
    )
    ada = both.section(CompactionSettings, "ada")
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
    assert said.section(PruneSettings, "main") == PruneSettings(
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
    assert said.section(StartupSettings, "main") == StartupSettings(True, ("reset",), 3, 500, 900)


@pytest.mark.parametrize(
    ("text", "seconds"), [("12h", 43_200.0), ("7", 604_800.0), (7, 604_800.0), ("2w", 1_209_600.0)]
)
def test_maintenance_is_read_and_a_bare_number_is_days(text: str | int, seconds: float) -> None:
    said = config(
        session={"maintenance": {"mode": "enforce", "pruneAfter": text, "maxEntries": 9, "rotateBytes": "10mb"}}
    )
    assert said.section(MaintenanceSettings) == MaintenanceSettings("enforce", seconds, 9)
    assert said.findings().unknown == []


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
    (place,) = check_data({"agents": {"defaults": options}}, {})
    assert place[:2] == ("agents", "defaults")
