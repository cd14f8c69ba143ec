"""What a config says about memory, in all the places where OpenClaw has said it, joined for one agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.config.home import Home, find_home
from palinurus.config.load import load_config
from palinurus.domain.errors import ConfigError, NotFound
from palinurus.memory.settings import (
    RESERVED,
    Collection,
    MemorySettings,
    Ranking,
    ScopeRule,
    SearchLimits,
    Sync,
    clean_name,
    free_name,
    memory_settings,
)


class Written:
    """A config in a file, and what it means for memory."""

    def __init__(self, home: Home, config: dict[str, Any]) -> None:
        home.config_path.write_text(json.dumps(config))
        self.home = home
        self.loaded = load_config(home, {})

    def of(self, agent: str | None = None) -> MemorySettings:
        return memory_settings(self.loaded.config, self.home, agent)


@pytest.fixture
def place(tmp_path: Path) -> Home:
    (tmp_path / "home").mkdir()
    return find_home({"PALINURUS_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)})


def test_without_a_word_the_defaults_hold(place: Home) -> None:
    assert Written(place, {}).of() == MemorySettings()


SEARCH = {
    "enabled": True,
    "sources": ["memory", "sessions"],
    "chunking": {"tokens": 300, "overlap": 60},
    "query": {
        "maxResults": 6,
        "minScore": 0.35,
        "hybrid": {
            "enabled": True,
            "vectorWeight": 0.7,
            "textWeight": 0.3,
            "candidateMultiplier": 4,
            "mmr": {"enabled": True},
            "temporalDecay": {"enabled": True, "halfLifeDays": 14},
        },
    },
    "sync": {"watch": False, "watchDebounceMs": 500, "intervalMinutes": 2, "sessions": {"deltaBytes": 9}},
}


@pytest.mark.parametrize(
    "config",
    [
        {"agents": {"defaults": {"memorySearch": SEARCH}}},
        {"agents": {"list": [{"id": "main", "memorySearch": SEARCH}]}},
        {"agents": {"entries": {"main": {"memorySearch": SEARCH}}}},
        {"agents": {"entries": {"main": {"memory": {"search": SEARCH}}}}},
        {"memory": {"search": SEARCH}},
        {"agent": {"memorySearch": SEARCH}},
    ],
)
def test_the_section_means_the_same_wherever_openclaw_has_put_it(place: Home, config: dict[str, Any]) -> None:
    found = Written(place, config).of("main")
    assert found.sources == ("memory", "sessions")
    assert found.passage_tokens == 300
    assert found.ranking == Ranking(words=0.3, vector=0.7, min_score=0.35, mmr_lambda=0.7, half_life_days=14)
    assert found.budget == SearchLimits(results=6)
    assert found.sync == Sync(watch=False, debounce_seconds=0.5, sweep_minutes=2, session_bytes=9)


def test_what_is_nearer_to_the_agent_wins_field_by_field(place: Home) -> None:
    written = Written(
        place,
        {
            "agents": {
                "defaults": {"memorySearch": {"chunking": {"tokens": 200}, "query": {"maxResults": 4}}},
                "entries": {"a": {"memory": {"search": {"query": {"minScore": 0.5}}}}, "b": {}},
            },
            "memory": {"search": {"provider": "none", "chunking": {"tokens": 999}}, "citations": "off"},
        },
    )
    a, b = written.of("a"), written.of("b")
    assert (a.passage_tokens, a.budget.results, a.ranking.min_score) == (200, 4, 0.5)
    assert (b.passage_tokens, b.budget.results, b.ranking.min_score) == (200, 4, 0.08)
    assert a.embedder == b.embedder == "none"
    assert a.citations == "off"


def test_the_preset_of_openclaw_gives_its_chunks_and_weights_and_what_is_set_wins(place: Home) -> None:
    search = {"preset": "openclaw", "query": {"hybrid": {"vectorWeight": 0.7}}}
    plain = Written(place, {"memory": {"search": {"preset": "openclaw"}}}).of("main")
    assert (plain.passage_tokens, plain.overlap_tokens) == (1024, 128)
    assert (plain.ranking.vector, plain.ranking.words, plain.ranking.passage, plain.ranking.late) == (
        0.6,
        0.4,
        0,
        False,
    )
    assert Written(place, {"memory": {"search": search}}).of("main").ranking.vector == 0.7


def test_the_section_of_qmd_gives_collections_retention_limits_scope_and_debounce(place: Home) -> None:
    qmd = {
        "command": "qmd",
        "paths": [{"name": "Docs & Co", "path": "~/docs", "pattern": "**/*.md"}],
        "sessions": {"enabled": True, "retentionDays": 30},
        "limits": {"maxResults": 6, "maxSnippetChars": 500, "maxInjectedChars": 3000, "timeoutMs": 2000},
        "scope": {"default": "deny", "rules": [{"action": "allow", "match": {"channel": "telegram"}}]},
        "update": {"interval": "10m", "debounceMs": 20000},
    }
    found = Written(place, {"memory": {"backend": "qmd", "qmd": qmd}}).of()
    assert found.collections == (Collection("docs-co", place.user_home / "docs"),)
    assert found.sources == ("memory", "sessions")
    assert found.budget == SearchLimits(characters=3000, snippet=500, results=6, seconds=2.0)
    assert found.scope == (ScopeRule("allow", channel="telegram"),)
    assert (found.sync.session_days, found.sync.settle_seconds, found.sync.sweep_minutes) == (30, 20.0, 10.0)
    assert Written(place, {"memory": {"backend": "builtin", "qmd": qmd}}).of() == MemorySettings()


def test_collections_of_all_levels_are_added_up_and_have_names_of_their_own(place: Home, tmp_path: Path) -> None:
    written = Written(
        place,
        {
            "agents": {
                "defaults": {"workspace": "/ws", "memorySearch": {"extraPaths": ["notes", "/other/notes", "/x/a.md"]}},
                "entries": {
                    "main": {"memorySearch": {"extraPaths": [{"path": "notes"}, {"path": "~/memory", "pattern": "*"}]}}
                },
            }
        },
    )
    assert written.of("main").collections == (
        Collection("notes", Path("/ws/notes")),
        Collection("notes-2", Path("/other/notes")),
        Collection("a", Path("/x"), "a.md"),
        Collection("memory-2", tmp_path / "memory", "*"),
    )


@pytest.mark.parametrize(
    ("scope", "rules"),
    [
        ({"default": "deny"}, (ScopeRule("allow", "direct"),)),
        ({"rules": []}, ()),
        ({"default": "allow"}, (ScopeRule("allow"),)),
        (
            {"default": "allow", "rules": [{"action": "deny", "match": {"keyPrefix": "telegram:"}}]},
            (ScopeRule("deny", key_prefix="telegram:"), ScopeRule("allow")),
        ),
    ],
)
def test_a_scope_is_a_list_of_rules_and_ends_in_denial(place: Home, scope: Any, rules: tuple[ScopeRule, ...]) -> None:
    assert Written(place, {"memory": {"search": {"scope": scope}}}).of().scope == rules


@pytest.mark.parametrize(
    ("search", "embedders"),
    [
        ({"provider": "openai"}, ("openai", "embedded")),
        ({"provider": "OpenAI", "model": "text-embedding-3-large"}, ("openai/text-embedding-3-large", "embedded")),
        ({"provider": "gemini", "fallback": "none"}, ("gemini",)),
        ({"provider": "my-own", "model": "a/B", "fallback": ["voyage/voyage-4", "local"]},
         ("my-own/a/B", "voyage/voyage-4", "local")),
        ({"provider": "openclaw"}, ("openai", "gemini", "local")),
        ({"provider": "openclaw", "fallback": "none"}, ("openai",)),
        ({"provider": "none", "fallback": "openai"}, ()),
        ({"model": "m"}, ("embedded",)),
        ({"provider": "auto", "fallback": "openai"}, ("embedded", "openai")),
    ],
)  # fmt: skip
def test_who_makes_vectors_in_order(place: Home, search: dict[str, Any], embedders: tuple[str, ...]) -> None:
    written = Written(place, {"agents": {"defaults": {"memorySearch": search}}})
    assert written.loaded.warnings == ()
    assert written.of().embedders == embedders


def test_the_remote_embedder_is_named_as_openclaw_names_it(place: Home) -> None:
    batch = {"enabled": True, "wait": True, "concurrency": 2, "pollIntervalMs": 2000, "timeoutMinutes": 60}
    remote = {"baseUrl": "http://127.0.0.1:9/v1", "apiKey": "k-1234567", "headers": {"X-A": "b"}, "batch": batch}
    search = {"provider": "openai", "remote": remote, "local": {"modelPath": "/m.gguf"}, "outputDimensionality": 256}
    written = Written(place, {"agents": {"defaults": {"memorySearch": search}}})
    assert written.loaded.warnings == ()
    options = written.of().embedding
    assert (options.base_url, options.api_key, options.headers) == (remote["baseUrl"], "k-1234567", {"X-A": "b"})
    assert (options.batch.enabled, options.batch.poll_seconds, options.batch.timeout_minutes) == (True, 2.0, 60)
    assert (options.model_path, options.dimensions) == ("/m.gguf", 256)
    assert "k-1234567" in written.loaded.secrets


@pytest.mark.parametrize(
    ("provider", "embedder"), [("none", "none"), ("auto", "embedded"), ("embedded", "embedded"), (None, "embedded")]
)
def test_providers_that_we_have_are_no_news(place: Home, provider: str | None, embedder: str) -> None:
    written = Written(place, {"memory": {"search": {"provider": provider}}})
    assert written.loaded.warnings == ()
    assert written.of().embedder == embedder


def test_keys_that_nobody_knows_are_kept_and_reported_and_openclaws_own_are_kept_in_silence(place: Home) -> None:
    search = {"store": {"driver": "sqlite"}, "cache": {"enabled": True}, "remote": {"apiKey": "k"}, "colour": "red"}
    written = Written(place, {"memory": {"search": search}})
    (warning,) = written.loaded.warnings
    assert "memory.search.colour: unknown key" in warning
    assert written.loaded.raw["memory"]["search"] == search


def test_a_value_that_makes_no_sense_is_an_error_with_its_place(place: Home) -> None:
    with pytest.raises(ConfigError, match=r"memory\.search\.query\.minScore"):
        Written(place, {"memory": {"search": {"query": {"minScore": 7}}}})


def test_an_agent_that_is_not_there_has_no_memory(place: Home) -> None:
    with pytest.raises(NotFound):
        Written(place, {}).of("nobody")


@given(st.lists(st.text(max_size=60), max_size=8))
def test_names_of_collections_are_plain_and_all_different(wanted: list[str]) -> None:
    names: list[str] = []
    for each in wanted:
        names.append(free_name(each, names))
    assert len(set(names)) == len(names)
    assert not RESERVED & set(names)
    assert all(name.isascii() and name == clean_name(name) and "/" not in name for name in names)
