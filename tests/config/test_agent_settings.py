"""What holds for one agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from palinurus.config.agents import ResetRule, agent_folder, agent_ids, agent_settings, default_agent, reset_rule
from palinurus.config.home import Home
from palinurus.config.load import Config
from palinurus.domain.errors import NotFound

OURS = Home(root=Path("/h"), config_path=Path("/h/palinurus.json"), user_home=Path("/u"))
FOREIGN = Home(root=Path("/h"), config_path=Path("/claw/openclaw.json"), ours=False, user_home=Path("/u"))


def config(**sections: Any) -> Config:
    return Config(sections)


def test_without_a_config_there_is_one_agent_called_main() -> None:
    settings = agent_settings(Config(), OURS)
    assert agent_ids(Config()) == ("main",)
    assert settings.workspace == Path("/h/workspace")
    assert (settings.agent_id, settings.name, settings.model) == ("main", "main", "")
    assert (settings.bootstrap_max_chars, settings.bootstrap_total_max_chars) == (20_000, 60_000)
    assert (settings.max_concurrent, settings.timeout_seconds, settings.context_injection) == (8, 600, "always")


def test_an_agent_says_more_than_the_defaults_and_entries_more_than_the_list() -> None:
    both = config(
        agent={"bootstrapMaxChars": 1, "maxConcurrent": 1},
        agents={
            "defaults": {"bootstrapMaxChars": 2, "timeoutSeconds": 2, "name": "nobody"},
            "list": [{"id": "Ada", "timeoutSeconds": 3, "thinkingDefault": "low", "identity": {"name": "Ada L."}}],
            "entries": {"ada": {"thinkingDefault": "high"}, "bob": {}},
        },
    )
    assert agent_ids(both) == ("ada", "bob")
    ada = agent_settings(both, OURS, "ADA")
    assert (ada.max_concurrent, ada.bootstrap_max_chars, ada.timeout_seconds) == (1, 2, 3)
    assert (ada.thinking_default, ada.name) == ("high", "Ada L.")
    assert agent_settings(both, OURS, "bob").name == "bob"


@pytest.mark.parametrize(
    ("agents", "expected"),
    [
        ({"list": [{"id": "a"}, {"id": "b", "default": True}]}, "b"),
        ({"entries": {"a": {}, "b": {"default": True}}}, "b"),
        ({"list": [{"id": "a", "default": True}], "entries": {"a": {"default": False}, "b": {}}}, "a"),
        ({"list": [{"id": "b", "default": True}], "entries": {"b": {"default": False}, "main": {}}}, "main"),
        ({"list": [{"id": "a"}, {"id": "main"}]}, "main"),
        ({"entries": {"b": {}, "a": {}}}, "b"),
    ],
)
def test_the_default_agent_is_the_marked_one_or_main_or_the_first(agents: dict[str, Any], expected: str) -> None:
    assert default_agent(config(agents=agents)) == expected


@pytest.mark.parametrize("name", ["nobody", "", "../main"])
def test_an_unknown_agent_is_not_found(name: str) -> None:
    with pytest.raises(NotFound, match="no agent"):
        agent_settings(config(agents={"entries": {"main": {}}}), OURS, name)


@pytest.mark.parametrize(
    ("home", "defaults", "entry", "agent", "workspace"),
    [
        (OURS, {}, {}, "main", "/h/workspace"),
        (OURS, {}, {}, "two", "/h/workspace-two"),
        (OURS, {"workspace": "~/ws"}, {}, "main", "/u/ws"),
        (OURS, {"workspace": "~/ws"}, {}, "two", "/u/ws/two"),
        (OURS, {"workspace": "/ws"}, {"workspace": "own"}, "two", "/h/own"),
        (FOREIGN, {}, {}, "main", "/claw/workspace"),
        (FOREIGN, {}, {}, "two", "/claw/workspace-two"),
        (FOREIGN, {"workspace": "~"}, {}, "main", "/u"),
    ],
)
def test_the_workspace_is_found(home: Home, defaults: Any, entry: Any, agent: str, workspace: str) -> None:
    settings = agent_settings(config(agents={"defaults": defaults, "entries": {"main": {}, "two": entry}}), home, agent)
    assert settings.workspace == Path(workspace)


def test_a_workspace_on_the_command_line_wins() -> None:
    home = Home(root=Path("/h"), config_path=Path("/h/palinurus.json"), workspace_override=Path("/cli"))
    assert agent_settings(config(agents={"entries": {"main": {"workspace": "/x"}}}), home).workspace == Path("/cli")


@pytest.mark.parametrize(
    ("defaults", "own", "model", "fallbacks"),
    [
        ({"primary": "p/a", "fallbacks": ["p/b"]}, None, "p/a", ("p/b",)),
        ({"primary": "p/a", "fallbacks": ["p/b"]}, "p/c", "p/c", ()),
        ({"primary": "p/a", "fallbacks": ["p/b"]}, {"primary": "p/c"}, "p/c", ()),
        ("p/a", {"fallbacks": ["p/d"]}, "p/a", ("p/d",)),
        (None, None, "", ()),
    ],
)
def test_only_listed_fallbacks_are_used(defaults: Any, own: Any, model: str, fallbacks: tuple[str, ...]) -> None:
    settings = agent_settings(
        config(agents={"defaults": {"model": defaults}, "entries": {"main": {"model": own}}}), OURS
    )
    assert (settings.model, settings.fallbacks) == (model, fallbacks)


def test_a_zone_is_known_or_none() -> None:
    assert str(agent_settings(config(agents={"defaults": {"userTimezone": "UTC"}}), OURS).zone) == "UTC"
    for odd in ("", "Middle/Earth", "../etc/passwd", "/", "x\0"):
        assert agent_settings(config(agents={"defaults": {"userTimezone": odd}}), OURS).zone is None


@pytest.mark.parametrize(
    ("chat_type", "channel", "rule"),
    [
        ("group", "", ResetRule("idle", 4, 30)),
        ("channel", "irc", ResetRule("idle", 4, 30)),
        ("direct", "irc", ResetRule("daily", 5, None)),
        ("thread", "", ResetRule("idle", 4, 5)),
        ("direct", "slack", ResetRule("none", 4, None)),
    ],
)
def test_a_reset_rule_goes_by_channel_then_type_and_reads_old_spellings(
    chat_type: str, channel: str, rule: ResetRule
) -> None:
    session = {
        "idleMinutes": 30,
        "resetByType": {"dm": {"mode": "daily", "atHour": 5}, "thread": {"idleMinutes": 5}},
        "resetByChannel": {"slack": {"mode": "none"}},
    }
    assert reset_rule(config(session=session), chat_type, channel) == rule


@pytest.mark.parametrize(
    ("home", "named", "folder"),
    [
        (OURS, None, "/h/agents/two"),
        (OURS, "keys", "/h/keys"),
        (OURS, "~/keys", "/u/keys"),
        (OURS, "/k", "/k"),
        (FOREIGN, "/k", "/h/agents/two"),
    ],
)
def test_the_folder_of_an_agents_keys_is_found(home: Home, named: str | None, folder: str) -> None:
    both = config(agents={"entries": {"main": {}, "two": {"agentDir": named}}})
    assert agent_folder(both, home, "two") == Path(folder)


def test_what_is_about_one_agent_is_not_read_from_the_defaults_and_that_is_said() -> None:
    said = config(agents={"defaults": {"agentDir": "/k", "default": True}, "entries": {"a": {}, "main": {}}})
    assert (default_agent(said), agent_folder(said, OURS, "a")) == ("main", Path("/h/agents/a"))
    assert [path for path, _ in said.findings().unused] == [
        ("agents", "defaults", "agentDir"),
        ("agents", "defaults", "default"),
    ]


def test_by_default_nothing_is_reset() -> None:
    assert reset_rule(Config(), "direct").mode == "none"
