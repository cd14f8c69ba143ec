"""What our config says when a foreign one has come over, setting by setting."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rich_config import AGENTS, CANARIES, HERE, HOME, PLAIN, RICH, load, outcomes, plan, reasons, rich, shown

from palinurus.config.agents import QueueOptions, agent_ids, agent_settings, default_agent, reset_rule
from palinurus.extensions.migrate.foreign import ForeignAgent
from palinurus.providers.settings import ModelsOptions
from palinurus.skills.settings import SkillsOptions
from palinurus.tools.settings import AgentToolOptions


def get(text: str, *path: str | int) -> Any:
    value = load(text).raw
    for step in path:
        value = value[step]  # type: ignore[index]
    return value


def test_what_the_schema_understands_is_taken() -> None:
    made = plan(RICH)
    loaded = load(made.text)
    main = agent_settings(loaded.config, HOME, "main")
    assert (main.model, main.fallbacks, main.user_timezone, main.name) == (
        "mock/large",
        ("mock/small",),
        "Europe/Berlin",
        "Crumb",
    )
    assert agent_settings(loaded.config, HOME, "night-watch").model == "mock/small"
    assert reset_rule(loaded.config, "direct").at_hour == 5
    assert loaded.config.at(AgentToolOptions, "tools").deny == ("browser",)
    assert loaded.config.section(QueueOptions).cap == 7
    assert not loaded.config.section(SkillsOptions).entries["todo"].enabled
    assert loaded.config.section(ModelsOptions).providers["mock"].models[0].context_window == 200000
    assert not [warning for warning in loaded.warnings if "not set" not in warning]


def test_workspaces_are_those_of_this_home_and_paths_lead_to_the_copies() -> None:
    made = plan(RICH)
    loaded = load(made.text)
    assert agent_settings(loaded.config, HOME, "main").workspace == HERE / "workspace"
    assert agent_settings(loaded.config, HOME, "silent").workspace == HERE / "workspace-silent"
    assert get(made.text, "skills", "load", "extraDirs") == [
        "/srv/here/workspace/more",
        "/srv/.openclaw/shared",
        "/opt/skills",
    ]
    assert get(made.text, "mcp", "servers", "files", "args")[1] == "/srv/here/workspace"
    assert outcomes(made)["agents.defaults.workspace"] == "taken"


def test_references_stay_references() -> None:
    made = plan(RICH)
    providers = get(made.text, "models", "providers")
    assert providers["mock"]["baseUrl"] == "${BASE}/v1"
    assert providers["mock"]["headers"] == {"Authorization": "Bearer ${MOCK_TOKEN}"}
    assert providers["named"]["apiKey"] == {"source": "env", "id": "NAMED_KEY"}
    assert providers["local"]["apiKey"] == "lm-studio"


@pytest.mark.parametrize("keys", [False, True])
def test_secrets_come_only_with_the_keys_and_are_told_by_their_place(keys: bool) -> None:
    made = plan(RICH, keys=keys)
    assert not any(canary in shown(made) for canary in CANARIES)
    assert (PLAIN in made.text) is keys
    expected = "taken" if keys else "secret"
    told = outcomes(made)
    for path in (
        "models.providers.mock.apiKey",
        "models.providers.mock.headers.X-Tenant",
        "env.OLD_TOKEN",
        "env.vars.SERVICE_KEY",
        "skills.entries.todo.env.TODO",
        "mcp.servers.keyed.args",
        "agents.defaults.sandbox.docker.env.GH_PAT",
    ):
        assert told[path] == expected, path
    if not keys:
        assert not any(canary in made.text for canary in CANARIES)
    load(made.text)


def test_keys_may_come_later() -> None:
    first = plan(RICH)
    second = plan(RICH, first.text, keys=True)
    assert get(second.text, "models", "providers", "mock", "apiKey") == PLAIN


@pytest.mark.parametrize(
    "args", [["--token", "hush-hush"], ["--token=hush-hush"], ["serve", "--db", "https://u:hush-hush@h/x"]]
)
def test_a_server_with_a_secret_among_its_arguments_stays_behind(args: list[str]) -> None:
    made = plan({"mcp": {"servers": {"s": {"command": "c", "args": args, "enabled": True}}}})
    assert "hush" not in made.text + shown(made)
    assert "mcp" not in load(made.text).raw
    assert outcomes(made) == {
        "mcp.servers.s.command": "left",
        "mcp.servers.s.args": "secret",
        "mcp.servers.s.enabled": "left",
    }


def test_no_key_is_left_alone_with_another_address() -> None:
    theirs = {"models": {"providers": {"openai": {"baseUrl": "https://me:hush-hush@proxy/v1", "apiKey": "${K}"}}}}
    assert "models" not in load(plan(theirs).text).raw
    ours = '{"models": {"providers": {"openai": {"apiKey": "${MINE}"}}}}'
    theirs = {"models": {"providers": {"openai": {"baseUrl": "https://proxy/v1"}}}}
    made = plan(theirs, ours)
    assert get(made.text, "models", "providers", "openai") == {"apiKey": "${MINE}"}
    assert outcomes(made)["models.providers.openai.baseUrl"] == "kept-yours"


def test_a_secret_as_a_key_is_not_told_either() -> None:
    token = "ghp_" + "a1B2" * 9
    made = plan({"models": {"providers": {token: {"baseUrl": "http://h/v1"}}}})
    assert token not in made.text + shown(made)
    assert "secret" in outcomes(made).values()


def test_what_would_happen_unasked_is_asked_anew() -> None:
    told = outcomes(plan(RICH))
    held = ("tools.exec.security", "tools.exec.ask", "tools.exec.safeBins", "agents.defaults.sandbox.mode")
    assert {path: told[path] for path in held} == dict.fromkeys(held, "left")
    assert told["gateway.auth.mode"] == told["gateway.port"] == "left"


@pytest.mark.parametrize(
    ("said", "here"),
    [
        ({"security": "deny"}, {"security": "deny"}),
        ({"security": "allowlist", "ask": "off"}, {"security": "allowlist", "ask": "off"}),
        ({"security": "full", "ask": "always"}, {"security": "full", "ask": "always"}),
        ({"security": "full", "ask": "on-miss"}, {"ask": "on-miss"}),
        ({"mode": "allowlist"}, {"security": "allowlist", "ask": "off"}),
        ({"mode": "deny"}, {"security": "deny"}),
        ({"mode": "full"}, None),
    ],
)
def test_what_narrows_commands_comes_over(said: dict[str, str], here: dict[str, str] | None) -> None:
    made = load(plan({"tools": {"exec": said}}).text).raw
    assert made.get("tools", {}).get("exec") == here


def test_rooms_that_are_not_here_stay_behind_with_a_reason() -> None:
    made = plan(rich(cron={"enabled": True}, unheardOf={"a": 1}))
    told, why = outcomes(made), reasons(made)
    for section in ("plugins", "unheardOf"):
        assert told[section] == "left"
        assert why[section]
    assert not {"plugins", "unheardOf", "hooks"} & load(made.text).raw.keys()
    assert load(made.text).raw["cron"] == {"enabled": True}
    assert told["channels.telegram.botToken"] == "secret"


def test_bundled_hooks_come_over_and_hooks_with_code_of_others_wait_for_a_person() -> None:
    entries = {"boot-md": {"enabled": True}, "session-memory": {"enabled": False}, "theirs": {"enabled": True}}
    made = plan({"hooks": {"internal": {"entries": entries, "load": {"extraDirs": ["/srv/hooks"]}}}}, allow=())
    assert load(made.text).raw["hooks"] == {
        "internal": {"entries": {"boot-md": {"enabled": True}, "session-memory": {"enabled": False}}}
    }
    assert outcomes(made)["hooks.internal.entries.theirs.enabled"] == "held"


def test_bindings_and_who_may_speak_come_over_and_what_lets_anybody_in_waits_for_a_person() -> None:
    bindings = [
        {"agentId": "main", "match": {"channel": "telegram", "peer": {"kind": "group", "id": "-1"}}},
        {"agentId": "nobody", "match": {"channel": "telegram"}},
        {"agentId": "main"},
    ]
    telegram = {"dmPolicy": "open", "allowFrom": ["*"], "groups": {"-1": {"requireMention": True}}, "botToken": "1:abc"}
    data = {
        "bindings": bindings,
        "channels": {"telegram": telegram, "slack": {"dmPolicy": "allowlist", "allowFrom": ["U1", "accessGroup:ops"]}},
        "accessGroups": {"ops": {"type": "message.senders", "members": {"slack": ["U2"]}}},
        "commands": {"ownerAllowFrom": ["slack:U1"], "native": "auto"},
        "session": {"dmScope": "per-channel-peer", "identityLinks": {"alice": ["slack:U1"]}},
        "messages": {"groupChat": {"mentionPatterns": ["@bot"], "historyLimit": 20}},
    }
    made = plan(data)
    here, told = load(made.text).raw, outcomes(made)
    assert here["bindings"] == bindings[:1]
    assert here["channels"] == {"telegram": {"groups": telegram["groups"]}, "slack": data["channels"]["slack"]}
    assert here["session"] == data["session"]
    assert here["messages"] == data["messages"]
    assert here["accessGroups"] == data["accessGroups"]
    held = {"channels.telegram.dmPolicy", "channels.telegram.allowFrom", "commands.ownerAllowFrom"}
    assert {path for path, outcome in told.items() if outcome == "held"} == held
    assert told["bindings[1].agentId"] == "refused"
    allowed = load(plan(data, allow=sorted(held)).text).raw
    assert allowed["channels"]["telegram"]["allowFrom"] == ["*"]
    assert allowed["commands"]["ownerAllowFrom"] == ["slack:U1"]


def test_ours_wins_and_its_comments_stay() -> None:
    ours = """{
  // mine
  agents: { defaults: { model: "ollama/mine" /* this one */ } },
  tools: { deny: ["write"] },
}
"""
    made = plan(RICH, ours)
    assert "// mine" in made.text
    assert "/* this one */" in made.text
    assert get(made.text, "agents", "defaults", "model") == "ollama/mine"
    assert get(made.text, "tools", "deny") == ["write"]
    assert get(made.text, "tools", "profile") == "coding"
    told = outcomes(made)
    assert told["agents.defaults.model.primary"] == told["tools.deny"] == "kept-yours"


def test_an_agent_that_is_here_gets_what_it_does_not_say_itself() -> None:
    ours = '{"agents": {"entries": {"main": {"name": "Mine"}}}}'
    made = plan(RICH, ours)
    assert get(made.text, "agents", "entries", "main") == {"name": "Mine", "default": True}
    theirs = {"agents": {"entries": {"main": {"name": "Theirs", "userTimezone": "Europe/Paris"}}}}
    made = plan(theirs, '{"agents": {"list": [{"id": "main", "name": "Mine"}]}}')
    assert get(made.text, "agents", "list")[0] == {"id": "main", "name": "Mine", "userTimezone": "Europe/Paris"}


@pytest.mark.parametrize("ours", ["{}", '{"agents": {"list": [{"id": "mine"}]}}', '{"agents": {"entries": {"m": {}}}}'])
def test_who_moves_in_does_not_become_the_default_agent(ours: str) -> None:
    agents = [ForeignAgent("main", None, None, is_default=True), ForeignAgent("crumb", None, None)]
    theirs = {"agents": {"list": [{"id": "crumb", "default": True}]}}
    made = plan(theirs, ours, agents=agents)
    before, after = load(ours).config, load(made.text).config
    assert default_agent(after) == default_agent(before)
    assert {"crumb", "main", default_agent(before)} <= set(agent_ids(after))
    assert outcomes(made)["agents.list[0].default"] == "kept-yours"
    assert plan(theirs, made.text, agents=agents).text == made.text


def test_the_oldest_form_becomes_the_newer_one() -> None:
    made = plan({"agent": {"bootstrapMaxChars": 500, "workspace": "~/.openclaw/workspace"}})
    assert get(made.text, "agents", "defaults") == {"bootstrapMaxChars": 500}
    assert outcomes(made)["agent.bootstrapMaxChars"] == "taken"


@pytest.mark.parametrize(
    ("theirs", "path"),
    [
        ({"agents": {"defaults": {"maxConcurrent": "many", "timeoutSeconds": 5}}}, "agents.defaults.maxConcurrent"),
        ({"agents": {"list": "none"}}, "agents.list"),
        ({"agents": {"list": [{"id": "../x"}, {"id": "ok", "model": 7}]}}, "agents.list[1].model"),
        ({"agents": 3}, "agents"),
        ({"agent": "x"}, "agent"),
        (
            {"models": {"providers": {"p": {"models": [{"name": "no id"}, {"id": "b"}]}}}},
            "models.providers.p.models[0].name",
        ),
        ({"tools": {"allow": ["read"], "alsoAllow": ["write"]}}, "tools.allow"),
        ({"session": {"reset": {"atHour": 99}}}, "session.reset.atHour"),
        ({"tools": {"exec": {"timeoutSec": float("inf")}}}, "tools.exec.timeoutSec"),
        ({"skills": {"entries": {"a": {"config": {"$include": "/etc/passwd"}}}}}, "skills.entries.a.config.$include"),
    ],
)
def test_a_wrong_value_costs_its_path_and_is_told_without_it(theirs: dict[str, Any], path: str) -> None:
    made = plan(theirs)
    load(made.text)
    assert outcomes(made)[path] == "refused"
    assert reasons(made)[path]
    assert "got" not in reasons(made)[path]
    if "agents" in theirs and path.endswith("maxConcurrent"):
        assert get(made.text, "agents", "defaults") == {"timeoutSeconds": 5}


def test_an_agent_that_is_named_twice_counts_once() -> None:
    twice = [{"id": "a", "model": "openai/one"}, {"id": "A", "model": {"primary": "openai/two"}}]
    made = plan({"agents": {"list": twice}}, agents=[ForeignAgent("a", None, None)])
    assert agent_settings(load(made.text).config, HOME, "a").model == "openai/one"
    assert outcomes(made)["agents.list[1]"] == "left"


def test_what_does_not_go_with_ours_gives_way() -> None:
    made = plan({"tools": {"allow": ["read"]}}, '{"tools": {"alsoAllow": ["write"]}}')
    assert get(made.text, "tools") == {"alsoAllow": ["write"]}
    assert outcomes(made)["tools.allow"] == "kept-yours"


def test_a_list_of_ours_is_not_mixed_with_another_one() -> None:
    rules = [{"action": "deny"}, {"action": "allow", "match": {"channel": "x"}}]
    ours = json.dumps({"memory": {"search": {"scope": {"rules": rules[:1]}}}})
    made = plan({"memory": {"search": {"scope": {"rules": rules}}}}, ours)
    assert get(made.text, "memory", "search", "scope", "rules") == rules[:1]


def test_a_second_time_changes_nothing() -> None:
    first = plan(RICH)
    second = plan(RICH, first.text)
    assert second.text == first.text
    assert {path for path, outcome in outcomes(second).items() if outcome == "kept-yours"} == set()
    assert outcomes(second) == outcomes(first)


ITEMS: list[Any] = [{}, {"id": False, "main": False}, {"main": 297, "model": "x"}]


@pytest.mark.parametrize(("pin", "kept"), [(ITEMS, ITEMS[1:]), ([{"in": ITEMS}], [{"in": ITEMS[1:]}])])
def test_a_list_that_closed_up_is_known_again(pin: list[Any], kept: list[Any]) -> None:
    theirs = {"skills": {"entries": {"todo": {"config": {"pin": pin}}}}}
    first = plan(theirs)
    assert get(first.text, "skills", "entries", "todo", "config", "pin") == kept
    second = plan(theirs, first.text)
    assert second.text == first.text
    assert "kept-yours" not in outcomes(second).values()


def test_a_list_of_an_agent_that_closed_up_is_known_again() -> None:
    rules = [{}, {"action": "deny"}, {"action": "allow", "match": {"channel": "x"}}]
    theirs = {"agents": {"list": [{"id": "b", "memorySearch": {"scope": {"rules": rules}}}]}}
    first = plan(theirs, '{"agents": {"list": [{"id": "a"}]}}', agents=[ForeignAgent("b", None, None)])
    assert get(first.text, "agents", "list", 1, "memorySearch", "scope", "rules") == rules[1:]
    second = plan(theirs, first.text, agents=[ForeignAgent("b", None, None)])
    assert second.text == first.text
    assert "kept-yours" not in outcomes(second).values()


def test_a_home_without_a_config_still_names_its_agents() -> None:
    made = plan({}, agents=AGENTS)
    assert agent_ids(load(made.text).config) == ("main", "night-watch", "silent")
    assert made.settings == ()


@pytest.mark.parametrize("wire", ["azure-openai-responses", "openai-codex-responses", "bedrock-converse-stream"])
def test_a_provider_that_cannot_be_spoken_to_is_named_and_left(wire: str) -> None:
    provider = {"baseUrl": "https://models.example/v1", "api": wire, "models": [{"id": "big"}]}
    agents = {"defaults": {"model": {"primary": "far/big"}}, "list": [{"id": "main", "model": "far/big"}]}
    made = plan({"agents": agents, "models": {"providers": {"far": provider}}}, agents=AGENTS[:1])
    found = {each.path: (each.outcome, each.reason) for each in made.settings}
    for path in ("agents.defaults.model.primary", "agents.list[0].model"):
        assert found[path] == ("left", "its provider far is not imported")
    assert found["models.providers.far.api"] == ("refused", f"{wire} cannot be spoken here, so it is not usable")
    load(made.text)
    assert "far" not in made.text
