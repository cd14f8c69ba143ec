"""From a config to a policy: every place that speaks about tools is read, and none is lost."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyjson5
import pytest

from palinurus.config.agents import agent_ids
from palinurus.config.load import Config
from palinurus.domain.errors import ConfigError, NotFound
from palinurus.domain.keys import SessionKey
from palinurus.runtime.policy import policy_of, unknown_names
from palinurus.tools.policy import Policy, Rules, ToolRequest, decide
from palinurus.tools.tool_names import GROUPS, PROFILES

GROUP = SessionKey.parse("agent:main:telegram:group:-100")


def config(**sections: Any) -> Config:
    return Config(sections)


def group(**said: Any) -> Config:
    return config(tools={"profile": "full"}, channels={"telegram": {"enabled": True, "groups": {"-100": said}}})


def test_a_config_without_a_word_about_tools_is_the_default_policy() -> None:
    assert policy_of(config(), "main") == Policy()


def test_every_scope_of_the_config_arrives() -> None:
    policy = policy_of(
        config(
            tools={
                "profile": "coding",
                "alsoAllow": ["message"],
                "deny": ["cron"],
                "byProvider": {"OpenAI/GPT-5": {"profile": "minimal", "allow": ["session_status"]}},
                "toolsBySender": {"username:@Alice": {"deny": ["exec"]}, "42": {"allow": ["read"]}},
                "sandbox": {"tools": {"deny": ["note"]}},
                "subagents": {"tools": {"allow": ["read"]}},
            },
            agents={
                "entries": {
                    "main": {
                        "tools": {
                            "profile": "messaging",
                            "allow": ["group:fs"],
                            "byProvider": {"anthropic": {"deny": ["exec"]}},
                            "toolsBySender": {"*": {"deny": ["*"]}},
                            "sandbox": {"tools": {"alsoAllow": ["cron"]}},
                            "subagents": {"tools": {"deny": ["write"]}},
                        }
                    }
                }
            },
            channels={
                "Telegram": {"groups": {"*": {"tools": {"allow": ["message"]}, "requireMention": True}}},
                "slack": {"groups": {"C1": {"toolsBySender": {"id:U1": {"alsoAllow": ["read"]}}}}},
                "signal": {"enabled": False},
                "irc": {"groups": None},
            },
        ),
        "main",
    )
    assert policy == Policy(
        everybody=Rules("coding", also_allow=("message",), deny=("cron",)),
        agent=Rules("messaging", allow=("group:fs",)),
        by_provider={"openai/gpt-5": Rules("minimal", allow=("session_status",))},
        agent_by_provider={"anthropic": Rules(deny=("exec",))},
        by_group={"telegram:*": Rules(allow=("message",))},
        by_sender={"username:alice": Rules(deny=("exec",)), "id:42": Rules(allow=("read",))},
        group_by_sender={"slack:c1": {"id:u1": Rules(also_allow=("read",))}},
        agent_by_sender={"*": Rules(deny=("*",))},
        sandboxed=Rules(deny=("note",)),
        agent_sandboxed=Rules(also_allow=("cron",)),
        subagents=Rules(allow=("read",)),
        agent_subagents=Rules(deny=("write",)),
    )


def test_an_agent_s_own_words_stand_before_the_defaults_and_no_deny_is_lost() -> None:
    policy = policy_of(
        config(
            agents={
                "defaults": {"tools": {"profile": "messaging", "allow": ["message"], "deny": ["exec"]}},
                "list": [{"id": "home", "tools": {"profile": "coding", "deny": ["write"]}}],
            }
        ),
        "home",
    )
    assert policy.agent == Rules("coding", allow=("message",), deny=("write", "exec"))


def test_what_is_said_of_one_agent_does_not_touch_another() -> None:
    both = config(agents={"entries": {"main": {}, "guest": {"tools": {"profile": "minimal"}}}})
    assert policy_of(both, "guest").agent.profile == "minimal"
    assert policy_of(both, "main") == Policy()
    with pytest.raises(NotFound, match="no agent 'ghost'"):
        policy_of(both, "ghost")


def test_a_group_s_tools_hold_in_that_group() -> None:
    policy = policy_of(group(tools={"deny": ["exec"]}, toolsBySender={"id:7": {"deny": ["read"]}}), "main")
    assert decide(policy, ToolRequest("exec", GROUP)).why == "channels.telegram.groups.-100.tools.deny has exec"
    assert decide(policy, ToolRequest("exec", SessionKey.main())).allowed
    assert decide(policy, ToolRequest("read", GROUP, channel="telegram", sender="8")).allowed
    assert not decide(policy, ToolRequest("read", GROUP, channel="telegram", sender="7")).allowed


@pytest.mark.parametrize(
    ("said", "path"),
    [
        ({"tools": ["exec"]}, 'channels.telegram.groups."-100".tools'),
        ({"tools": {"deny": "exec"}}, 'channels.telegram.groups."-100".tools.deny'),
        ({"tools": {"deny": [7]}}, 'channels.telegram.groups."-100".tools.deny[0]'),
        ({"tools": {"allow": ["read"], "alsoAllow": ["exec"]}}, 'channels.telegram.groups."-100".tools: has both'),
        ({"toolsBySender": ["id:7"]}, 'channels.telegram.groups."-100".toolsBySender should be an object'),
        ({"toolsBySender": {"id:7": {"deny": {}}}}, '.toolsBySender."id:7".deny'),
    ],
)
def test_a_wrong_shape_under_channels_is_an_error_that_names_its_place(said: dict[str, Any], path: str) -> None:
    with pytest.raises(ConfigError) as raised:
        policy_of(group(**said), "main")
    assert path in str(raised.value)
    assert "\n" not in str(raised.value)


def test_names_that_mean_nothing_are_told_and_those_of_other_homes_are_not() -> None:
    policy = Policy(
        Rules(also_allow=("shell", "group:web", "github__*", "browser"), deny=("raed", "file_*")),
        Rules(allow=("read", "my_tool")),
        by_group={"telegram:-100": Rules(deny=("group:nothing",))},
        group_by_sender={"telegram:*": {"id:1": Rules(deny=("exek",))}},
    )
    assert unknown_names(policy, ["read", "write", "exec"], "home") == (
        "tools.deny: there is no tool called raed",
        "agents.home.tools.allow: there is no tool called my_tool",
        "channels.telegram.groups.-100.tools.deny: there is no tool called group:nothing",
        "channels.telegram.groups.*.toolsBySender.id:1.deny: there is no tool called exek",
    )
    assert unknown_names(Policy(Rules(deny=("my_*",))), ["my_tool"]) == ()


@pytest.mark.parametrize("allow", [(), ("no_such_tool",), ("browser",)])
def test_an_allow_list_that_leaves_nothing_is_told(allow: tuple[str, ...]) -> None:
    (*_, last) = unknown_names(Policy(Rules(allow=allow)), ["read"])
    assert last.startswith("tools.allow names no tool that there is")
    assert unknown_names(Policy(Rules(allow=("github__*",))), ["read"]) == ()  # its server may not run yet


def examples() -> list[Policy]:
    """The configs of the guide, each as the policy of its first agent."""
    page = (Path(__file__).parents[2] / "docs" / "tools.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```json5\n(.*?)```", page, re.DOTALL)
    parsed = [config(**pyjson5.decode(block)) for block in blocks]
    return [policy_of(each, agent_ids(each)[0]) for each in parsed]


def test_the_examples_of_the_guide_mean_what_it_says() -> None:
    reader, family, small = examples()
    helper = SessionKey.main("reader")
    for tool, may in (("read", True), ("grep", True), ("write", False), ("exec", False)):
        assert decide(reader, ToolRequest(tool, helper)).allowed is may
    in_group = SessionKey.parse("agent:main:telegram:group:-1001")
    for sender, may_read in (("42", True), ("43", False)):
        who: dict[str, Any] = {"owner": False, "channel": "telegram", "sender": sender}
        assert decide(family, ToolRequest("read", in_group, **who)).allowed is may_read
        assert decide(family, ToolRequest("web_fetch", in_group, **who)).allowed
        assert not decide(family, ToolRequest("exec", in_group, **who)).allowed
    with_ollama: dict[str, Any] = {"provider": "ollama", "model": "qwen3"}
    main = SessionKey.main()
    assert decide(small, ToolRequest("read", main, **with_ollama)).allowed
    assert not decide(small, ToolRequest("exec", main, **with_ollama)).allowed
    assert decide(small, ToolRequest("github__list_issues", main)).allowed
    assert not decide(small, ToolRequest("github__delete_repo", main)).allowed


def test_the_guide_names_every_group_tool_and_alias() -> None:
    page = (Path(__file__).parents[2] / "docs" / "tools.md").read_text(encoding="utf-8")
    built_in = [
        name for group in ("fs", "runtime", "web", "memory", "sessions", "automation") for name in GROUPS[group]
    ]
    ours = [name for name in built_in if name != "webhook_create"]
    for name in (*(f"group:{group}" for group in GROUPS), *ours, *PROFILES):
        assert f"`{name}`" in page, name
