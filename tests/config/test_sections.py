"""A section is declared once, wherever its package is; checks, layers, schema and docs follow from that."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from palinurus.config.home import Home, find_home
from palinurus.config.load import Config, check_data, load_config
from palinurus.config.schema import explain_option, json_schema, option_rows
from palinurus.config.section import REGISTRY, config_section
from palinurus.context.settings import CompactionSettings, PruneSettings
from palinurus.domain.errors import ConfigError
from palinurus.tools.settings import AgentToolOptions, ExecSettings

BEATS = '''
from __future__ import annotations
from typing import Annotated
from palinurus.config.section import Section, option

class BeatSettings(Section, frozen=True):
    """How often the agent wakes."""
    minutes: Annotated[int, option("Minutes between two beats.", "every.minutes", ge=1)] = 30
    quiet: Annotated[bool, option("Whether it says nothing.")] = False
'''


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return find_home({"HOME": str(tmp_path), "PALINURUS_HOME": str(tmp_path)})


@pytest.fixture
def beats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package of somebody else's that has a section; its module's name."""
    name = f"beats_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(BEATS)
    monkeypatch.syspath_prepend(str(tmp_path))
    config_section(f"{name}:BeatSettings", at=["agents.defaults.beats", "agents.list[].beats"])
    yield name
    del REGISTRY.mounts[f"{name}:BeatSettings"]
    REGISTRY.version += 1
    sys.modules.pop(name, None)


def test_a_section_of_another_package_is_not_imported_to_load_a_config(home: Home, beats: str) -> None:
    home.config_path.write_text("{agents: {defaults: {beats: {every: {minutes: 0}, colour: 1}}}, slip: 1}")
    loaded = load_config(home, {})
    assert beats not in sys.modules
    assert [line.split(": ")[1] for line in loaded.warnings] == ["slip"]
    assert loaded.unused == ()


def test_it_is_looked_at_when_it_is_asked_for_and_by_whoever_looks_thoroughly(home: Home, beats: str) -> None:
    home.config_path.write_text("{agents: {defaults: {beats: {\nevery: {minutes: 0}, colour: 1}}}}")
    loaded = load_config(home, {})
    with pytest.raises(
        ConfigError, match=r"palinurus.json:2: agents.defaults.beats.every.minutes: should be 1 or more"
    ):
        load_config(home, {}, thorough=True)
    model = __import__(beats).BeatSettings
    with pytest.raises(ConfigError, match=r"agents.defaults.beats.every.minutes: should be 1 or more, got 0"):
        loaded.config.section(model)
    home.config_path.write_text("{agents: {defaults: {beats: {colour: 1}}}}")
    assert "agents.defaults.beats.colour: unknown key" in load_config(home, {}, thorough=True).warnings[0]


def test_it_has_layers_a_schema_docs_and_an_explanation_like_any_other(home: Home, beats: str) -> None:
    home.config_path.write_text(
        "{agents: {defaults: {beats: {every: {minutes: 5}, quiet: true}},\n list: [{id: 'ada',\n"
        " beats: {every: {minutes: 7}}}]}}"
    )
    loaded = load_config(home, {}, thorough=True)
    model = __import__(beats).BeatSettings
    assert loaded.config.section(model, "ada") == model(minutes=7, quiet=True)
    assert loaded.config.section(model) == model(minutes=5, quiet=True)
    assert Config().section(model) == model()
    agent = json_schema()["$defs"]["Agent"]["properties"]["beats"]["properties"]
    assert agent["every"]["properties"]["minutes"]["default"] == 30
    assert "agents.defaults.beats.every.minutes" in dict(option_rows())
    told = explain_option(loaded, "agents.defaults.beats.every.minutes", "ada")
    assert [(each.value, each.where) for each in told.said] == [(7, "palinurus.json:3"), (5, "palinurus.json:1")]
    assert told.default == 30


def test_a_short_config_imports_only_the_sections_that_it_speaks_of(home: Home) -> None:
    home.config_path.write_text("{tools: {exec: {ask: 'always'}}}")
    code = (
        "import sys\nfrom palinurus.config.home import find_home\nfrom palinurus.config.load import load_config\n"
        f"load_config(find_home({{'PALINURUS_HOME': {str(home.root)!r}, 'HOME': '/'}}), {{}})\n"
        "print(sorted(name for name in sys.modules if name in ('pydantic', 'difflib')"
        " or name.endswith('.settings') or name == 'palinurus.config.agents'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "['palinurus.sandbox.settings', 'palinurus.tools.settings', 'palinurus.workspace.settings']\n"


def test_the_nearest_place_wins_option_by_option_and_lists_are_replaced_whole() -> None:
    config = Config(
        {
            "tools": {"exec": {"ask": "off", "allowlist": ["a"], "timeoutSec": 1}},
            "agents": {
                "defaults": {"tools": {"exec": {"ask": "always", "allowlist": ["b"]}}},
                "list": [{"id": "ada", "tools": {"exec": {"allowlist": []}}}],
                "entries": {"ada": {"tools": {"exec": {"grantDays": 3}}}},
            },
        }
    )
    assert config.section(ExecSettings, "ada") == ExecSettings(ask="always", allowlist=(), timeout_sec=1, grant_days=3)
    assert config.section(ExecSettings, "ada") is config.section(ExecSettings, "ada")


def test_null_says_that_something_is_not_set() -> None:
    config = Config({"agents": {"defaults": {"compaction": {"reserveTokens": None, "memoryFlush": None}}}})
    assert config.findings().wrong == {}
    assert config.section(CompactionSettings) == CompactionSettings()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"tools": {"allow": [], "alsoAllow": []}}, {("tools",): "has both allow and alsoAllow"}),
        (
            {"tools": {"byProvider": {"x": {"allow": [7, "a"], "profile": "all"}}}},
            {
                ("tools", "byProvider", "x", "allow", 0): "should be text, got 7",
                ("tools", "byProvider", "x", "profile"): "should be minimal, coding, messaging or full",
            },
        ),
        ({"mcp": {"servers": {"s": {"args": []}}}}, {("mcp", "servers", "s"): "needs either a command or a url"}),
        ({"agents": {"list": [None]}}, {("agents", "list", 0): "should be an object, got null"}),
        (
            {"memory": {"search": {"embedShare": float("nan"), "scope": {"rules": [{"match": 1}]}}}},
            {
                ("memory", "search", "embedShare"): "should be a number",
                ("memory", "search", "scope", "rules", 0, "match"): "should be an object, got 1",
                ("memory", "search", "scope", "rules", 0, "action"): "is missing",
            },
        ),
    ],
)
def test_everything_that_is_wrong_is_told_at_its_place(
    data: dict[str, object], expected: dict[tuple[str | int, ...], str]
) -> None:
    found = check_data(data, {})
    assert isinstance(found, dict)
    assert set(found) == set(expected)
    for place, words in expected.items():
        assert found[place].startswith(words)


def test_what_each_place_says_can_be_read_by_itself() -> None:
    config = Config({"tools": {"deny": ["a"]}, "agents": {"entries": {"ada": {"tools": {"deny": ["b"]}}}}})
    assert [each.deny for each in config.said(AgentToolOptions, "ada")] == [("b",), ("a",)]
    assert config.at(AgentToolOptions, "agents", "defaults", "tools") == AgentToolOptions()


def test_a_default_is_written_as_the_file_would_have_it() -> None:
    rows = dict(option_rows())
    assert PruneSettings().ttl_seconds == 300.0
    assert rows["agents.defaults.contextPruning.ttl"].default == "5m"
    assert rows["memory.search.sync.watchDebounceMs"].default == 1500
