"""Who may use which tool: a table for each layer, and what holds whatever the config says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from palinurus.domain.keys import SessionKey
from palinurus.domain.tool import Restriction, Tool, ToolOutput, ToolRun, ToolSpec
from palinurus.tools.policy import Policy, Rules, ToolRequest, decide, explain, must_ask, offered_tools
from palinurus.tools.tool_names import GROUPS, allowed_by, canonical, denied_by, group_of, is_known

MAIN = SessionKey.main()
GROUP = SessionKey.parse("agent:main:telegram:group:-100")
SUBAGENT = SessionKey.parse("agent:main:subagent:7")
FULL = Rules(profile="full")


def allowed(policy: Policy, tool: str, key: SessionKey = MAIN, **more: Any) -> bool:
    return decide(policy, ToolRequest(tool, key, **more)).allowed


def layer(policy: Policy, tool: str, key: SessionKey = MAIN, **more: Any) -> str:
    verdict = decide(policy, ToolRequest(tool, key, **more))
    return f"{'+' if verdict.allowed else '-'}{verdict.layer}"


# Names


@pytest.mark.parametrize(
    ("entry", "tool", "named"),
    [
        ("read", "read", True),
        ("READ", "read", True),
        ("read", "Read", True),
        (" read ", "read", True),
        ("read", "readme", False),
        ("sessions_*", "sessions_send", True),
        ("*_send", "sessions_send", True),
        ("s*s_*d", "sessions_send", True),
        ("*", "anything", True),
        ("s*s", "s", False),
        ("group:fs", "grep", True),
        ("GROUP:FS", "grep", True),
        ("group:fs", "exec", False),
        ("group:nonsense", "read", False),
        ("group:plugins", "github__create_issue", True),
        ("group:plugins", "web_fetch", False),
        ("github__*", "github__create_issue", True),
        ("GitHub__*", "github__Create_Issue", True),
        ("github__*", "gitlab__create_issue", False),
        ("group:openclaw", "web_fetch", True),
        ("group:openclaw", "exec", False),
        ("group:openclaw", "github__create_issue", False),
        ("file_read", "read", True),
        ("shell", "exec", True),
        ("bash", "exec", True),
        ("exec", "bash", True),
        ("note", "memory_write", True),
        ("channel_send", "message", True),
        ("write", "apply_patch", True),
        ("apply_patch", "write", False),
        ("group:fs", "delete", True),
        ("file_delete", "delete", True),
        ("file_delete", "apply_patch", False),
        ("write", "delete", True),
        ("delete", "write", False),
        ("edit", "delete", False),
        ("edit", "apply_patch", False),
        ("b*", "exec", False),
        ("", "read", False),
    ],
)
def test_an_entry_of_a_list_names_a_tool(entry: str, tool: str, named: bool) -> None:
    assert bool(allowed_by((entry,), tool)) is named
    if named:
        assert denied_by((entry,), tool) == entry


def test_a_pattern_forbids_by_every_name_of_a_tool_but_allows_only_by_its_own() -> None:
    assert denied_by(("file_*",), "write")
    assert denied_by(("file_delete",), "apply_patch")
    assert not allowed_by(("file_delete",), "apply_patch")
    assert not allowed_by(("file_*",), "write")


def test_a_pattern_of_many_stars_takes_no_time() -> None:
    assert not allowed_by(("*a" * 200 + "*b",), "a" * 5000)


@pytest.mark.parametrize(
    ("tool", "group"),
    [
        ("exec", "runtime"),
        ("memory_write", "memory"),
        ("note", "memory"),
        ("shell", "runtime"),
        ("github__x", "plugins"),
        ("unheard_of", ""),
    ],
)
def test_a_tool_belongs_to_a_group(tool: str, group: str) -> None:
    assert group_of(tool) == group


def test_what_the_tables_name_is_known_and_a_slip_is_not() -> None:
    assert all(map(is_known, ["group:fs", "shell", "browser", "sessions_*", "github__*", "*", "whatsapp_login"]))
    assert not any(map(is_known, ["group:fss", "raed", "exek*", ""]))


# Layers


@pytest.mark.parametrize(
    ("profile", "has", "has_not"),
    [
        ("minimal", ["session_status"], ["read", "message", "exec", "x__y"]),
        (
            "coding",
            ["read", "apply_patch", "exec", "web_fetch", "note", "session_status", "cron", "image", "x__y"],
            ["message", "nodes", "browser"],
        ),
        (
            "messaging",
            ["message", "sessions_list", "sessions_history", "sessions_send", "session_status"],
            ["read", "exec", "note", "web_fetch", "sessions_spawn", "cron", "x__y"],
        ),
        ("full", ["read", "nodes", "browser", "x__y", "unheard_of"], []),
    ],
)
def test_a_profile_is_the_base(profile: Any, has: list[str], has_not: list[str]) -> None:
    policy = Policy(Rules(profile=profile))
    assert {tool: allowed(policy, tool) for tool in (*has, *has_not)} == {
        **dict.fromkeys(has, True),
        **dict.fromkeys(has_not, False),
    }
    assert all(layer(policy, tool) == "-profile" for tool in has_not)


@pytest.mark.parametrize(
    ("key", "owner", "tool", "decided"),
    [
        ("agent:main:main", True, "exec", "+profile"),
        ("agent:main:main", True, "message", "+profile"),
        ("agent:main:main", False, "exec", "-profile"),
        ("agent:main:main", False, "message", "+profile"),
        ("agent:main:explicit:holiday", True, "exec", "+profile"),
        ("agent:main:telegram:direct:7", True, "exec", "+profile"),
        ("agent:main:telegram:direct:7", False, "exec", "-profile"),
        ("agent:main:telegram:group:-100", True, "exec", "-profile"),
        ("agent:main:telegram:group:-100", True, "message", "+profile"),
        ("agent:main:main:thread:9", True, "exec", "-profile"),
        ("agent:main:cron:1", True, "exec", "+profile"),
        ("agent:main:cron:1", False, "exec", "-profile"),
        ("agent:main:hook:1", True, "exec", "-profile"),
    ],
)
def test_without_config_the_owner_s_private_sessions_may_work_and_others_may_talk(
    key: str, owner: bool, tool: str, decided: str
) -> None:
    assert layer(Policy(), tool, SessionKey.parse(key), owner=owner) == decided


@pytest.mark.parametrize(
    ("policy", "key", "decided"),
    [
        (Policy(Rules(profile="minimal"), Rules(profile="full")), MAIN, "+profile"),
        (Policy(FULL, Rules(profile="minimal")), MAIN, "-profile"),
        (Policy(FULL, Rules(allow=("exec",))), GROUP, "+allow"),
        (Policy(FULL, Rules(allow=("read",))), MAIN, "-allow"),
        (Policy(Rules(profile="full", allow=("read",))), MAIN, "-allow"),
        (Policy(Rules(allow=("exec",))), GROUP, "-profile"),  # an allow list narrows, it does not add
        (Policy(Rules(profile="messaging", also_allow=("exec",))), MAIN, "+allow"),
        (Policy(Rules(profile="messaging"), Rules(also_allow=("group:runtime",))), MAIN, "+allow"),
        (Policy(Rules(also_allow=("exec",))), GROUP, "+allow"),
        (Policy(Rules(profile="messaging"), by_group={"telegram:-100": Rules(also_allow=("exec",))}), GROUP, "+allow"),
        (Policy(Rules(allow=("read",)), Rules(also_allow=("exec",))), MAIN, "-allow"),  # never beyond another scope
        (Policy(Rules(also_allow=("exec",), deny=("group:runtime",))), MAIN, "-deny"),
        (Policy(FULL, Rules(deny=("shell",))), MAIN, "-deny"),
        (Policy(FULL, Rules(allow=("exec",), deny=("*",))), MAIN, "-deny"),
        (Policy(FULL, by_group={"telegram:-100": Rules(deny=("exec",))}), GROUP, "-deny"),
        (Policy(FULL, by_group={"telegram:-100": Rules(deny=("exec",))}), MAIN, "+profile"),
        (Policy(FULL, by_group={"telegram:-200": Rules(deny=("exec",))}), GROUP, "+profile"),
        (Policy(FULL, by_group={"telegram:*": Rules(allow=("read",))}), GROUP, "-allow"),
    ],
)
def test_allow_and_deny_of_everybody_agent_and_group(policy: Policy, key: SessionKey, decided: str) -> None:
    assert layer(policy, "exec", key) == decided


def test_the_nearest_entry_of_a_table_says_what_is_allowed_and_all_that_fit_say_what_is_denied() -> None:
    policy = Policy(
        FULL,
        by_group={
            "telegram:*": Rules(allow=("message",), deny=("note",)),
            "telegram:-100": Rules(allow=("read", "note")),
        },
    )
    assert [allowed(policy, tool, GROUP) for tool in ("read", "message", "note")] == [True, False, False]


def test_an_empty_allow_list_allows_nothing() -> None:
    assert layer(Policy(Rules(profile="full", allow=())), "read") == "-allow"


def test_an_allow_list_of_unknown_tools_allows_nothing() -> None:
    assert layer(Policy(Rules(profile="full", allow=("no_such_tool",))), "read") == "-allow"


def test_who_may_write_may_patch_and_who_may_not_may_not() -> None:
    assert allowed(Policy(FULL, Rules(allow=("write",))), "apply_patch")
    assert not allowed(Policy(FULL, Rules(deny=("write",))), "apply_patch")


@pytest.mark.parametrize(
    ("table", "more", "decided"),
    [
        ({"channel:telegram:42": Rules(deny=("read",))}, {}, "-deny"),
        ({"channel:slack:42": Rules(deny=("read",))}, {}, "+profile"),
        ({"id:42": Rules(deny=("read",))}, {}, "-deny"),
        ({"id:43": Rules(deny=("read",))}, {}, "+profile"),
        ({"*": Rules(allow=("message",))}, {}, "-allow"),
        ({"*": Rules(allow=("message",)), "id:42": Rules(allow=("read",))}, {}, "+allow"),
        ({"*": Rules(deny=("read",)), "id:42": Rules(allow=("read",))}, {}, "-deny"),
        ({"e164:+491701": Rules(deny=("read",))}, {"sender": "+491701"}, "-deny"),
        ({"e164:+491701": Rules(deny=("read",))}, {"known_as": ("e164:+491701",)}, "-deny"),
        ({"username:alice": Rules(deny=("read",))}, {"known_as": ("username:@Alice",)}, "-deny"),
        ({"name:alice": Rules(deny=("read",))}, {"known_as": ("name:Alice",)}, "-deny"),
        ({"*": Rules(allow=("message",)), "name:boss": Rules(allow=("*",))}, {"known_as": ("name:Boss",)}, "-allow"),
    ],
)
@pytest.mark.parametrize("scope", ["by_sender", "agent_by_sender", "group_by_sender", "group_by_sender *"])
def test_a_sender_is_known_by_channel_id_phone_and_name(
    table: Mapping[str, Rules], more: dict[str, Any], decided: str, scope: str
) -> None:
    name, _, star = scope.partition(" ")
    said: Any = {f"telegram:{star or '-100'}": table} if name == "group_by_sender" else table
    policy = Policy(FULL, **{name: said})
    asked = {"channel": "telegram", "sender": "42", "owner": False, **more}
    assert layer(policy, "read", GROUP, **asked) == decided


def test_a_sender_may_be_given_more_than_the_group_but_nobody_by_the_name_they_chose() -> None:
    policy = Policy(by_sender={"id:42": Rules(also_allow=("read",)), "name:boss": Rules(also_allow=("read",))})
    assert allowed(policy, "read", GROUP, owner=False, sender="42")
    assert not allowed(policy, "read", GROUP, owner=False, sender="43", known_as=("name:boss",))


def test_a_name_in_the_nearer_group_does_not_lift_what_all_groups_say() -> None:
    policy = Policy(
        FULL,
        group_by_sender={"telegram:-100": {"name:boss": Rules()}, "telegram:*": {"*": Rules(allow=("message",))}},
    )
    assert not allowed(policy, "exec", GROUP, sender="42", known_as=("name:boss",))


@pytest.mark.parametrize(
    ("tool", "more", "decided"),
    [
        ("cron", {"owner": True}, "+owner-only"),
        ("cron", {"owner": False}, "-owner-only"),
        ("gateway", {"owner": False}, "-owner-only"),
        ("nodes", {"owner": False}, "-owner-only"),
        ("whatsapp_login", {"owner": False}, "-owner-only"),
        ("cron_create", {"owner": False}, "-owner-only"),
        ("read", {"owner": False}, "+profile"),
        ("read", {"owner": False, "owner_only": True}, "-owner-only"),
        ("read", {"owner": True, "owner_only": True}, "+owner-only"),
    ],
)
def test_some_tools_are_for_the_owner_alone(tool: str, more: dict[str, Any], decided: str) -> None:
    assert layer(Policy(FULL), tool, **more) == decided


@pytest.mark.parametrize("scope", ["by_provider", "agent_by_provider"])
@pytest.mark.parametrize(
    ("table", "decided"),
    [
        ({"openai": Rules(deny=("exec",))}, "-provider"),
        ({"openai/gpt-5": Rules(deny=("exec",))}, "-provider"),
        ({"openai/gpt-4": Rules(deny=("exec",))}, "+profile"),
        ({"anthropic": Rules(deny=("exec",))}, "+profile"),
        ({"openai": Rules(profile="minimal")}, "-provider"),
        ({"openai": Rules(profile="minimal", also_allow=("exec",))}, "+provider"),
        ({"openai": Rules(profile="coding")}, "+provider"),
        ({"openai": Rules(allow=("read",))}, "-provider"),
        ({"openai": Rules(allow=("read",)), "openai/gpt-5": Rules(allow=("exec",))}, "+provider"),
        ({"openai": Rules(deny=("exec",)), "openai/gpt-5": Rules(allow=("exec",))}, "-provider"),
    ],
)
def test_a_provider_or_a_model_narrows(scope: str, table: Mapping[str, Rules], decided: str) -> None:
    policy = msgspec.structs.replace(Policy(FULL), **{scope: table})
    assert layer(policy, "exec", provider="OpenAI", model="gpt-5") == decided
    assert allowed(policy, "exec")  # where no model is chosen yet, none is spoken of


def test_what_a_provider_adds_goes_no_further_than_its_own_profile() -> None:
    policy = Policy(Rules(profile="messaging"), by_provider={"openai": Rules(also_allow=("exec",))})
    assert not allowed(policy, "exec", provider="openai", model="gpt-5")


@pytest.mark.parametrize("may", [True, False])
def test_the_elevated_layer_is_shown_and_decides_nothing(may: bool) -> None:
    for tool in ("exec", "read"):
        verdict = explain(Policy(), ToolRequest(tool, MAIN, elevated_allowed=may))
        (step,) = [step for step in verdict.chain if step.layer == "elevated"]
        assert (step.verdict, verdict.allowed) == ("silent", True)


@pytest.mark.parametrize(
    ("more", "tool", "decided"),
    [
        ({}, "cron", "-sandbox"),
        ({}, "browser", "-sandbox"),
        ({}, "exec", "+profile"),
        ({"sandboxed": Rules(also_allow=("cron",))}, "cron", "+owner-only"),
        ({"sandboxed": Rules(deny=("exec",))}, "exec", "-sandbox"),
        ({"sandboxed": Rules(also_allow=("cron",), deny=("cron",))}, "cron", "-sandbox"),
        ({"sandboxed": Rules(allow=("read",))}, "exec", "-sandbox"),
        ({"sandboxed": Rules(allow=("exec",))}, "exec", "+sandbox"),
        ({"sandboxed": Rules(allow=("exec",)), "agent_sandboxed": Rules(allow=("read",))}, "exec", "-sandbox"),
        ({"agent_sandboxed": Rules(deny=("exec",))}, "exec", "-sandbox"),
    ],
)
def test_a_session_that_must_be_sandboxed_has_less(more: dict[str, Rules], tool: str, decided: str) -> None:
    policy = msgspec.structs.replace(Policy(FULL), **more)
    assert layer(policy, tool, sandboxed=True) == decided
    assert allowed(policy, tool, sandboxed=False)


@pytest.mark.parametrize(
    ("more", "tool", "decided"),
    [
        ({}, "message", "-subagent"),
        ({}, "session_status", "-subagent"),
        ({}, "sessions_send", "-subagent"),
        ({}, "conversations_list", "-subagent"),
        ({}, "gateway", "-subagent"),
        ({}, "exec", "+profile"),
        ({}, "sessions_spawn", "+profile"),
        ({"subagents": Rules(also_allow=("message",))}, "message", "-subagent"),
        ({"subagents": Rules(allow=("read",))}, "exec", "-subagent"),
        ({"agent_subagents": Rules(deny=("exec",))}, "exec", "-subagent"),
    ],
)
def test_a_subagent_has_less(more: dict[str, Rules], tool: str, decided: str) -> None:
    policy = msgspec.structs.replace(Policy(FULL), **more)
    assert layer(policy, tool, SUBAGENT) == decided
    assert allowed(policy, tool, MAIN)


@pytest.mark.parametrize(
    ("restriction", "decided"),
    [
        (Restriction("skill:pdf", "reads only"), "+profile"),
        (Restriction("skill:pdf", "reads only", only=("read",)), "-restriction"),
        (Restriction("skill:pdf", "reads only", only=()), "-restriction"),
        (Restriction("skill:pdf", "reads only", only=("group:runtime",)), "+profile"),
        (Restriction("skill:pdf", "reads only", deny=("sh*",)), "-restriction"),
        (Restriction("skill:pdf", "reads only", ask=("exec",)), "+profile"),
    ],
)
def test_a_restriction_narrows(restriction: Restriction, decided: str) -> None:
    assert layer(Policy(), "exec", restrictions=(restriction,)) == decided


def test_a_restriction_that_wants_a_person_says_why() -> None:
    wanted = Restriction("rule:money", "it spends money", ask=("group:web", "shell"))
    assert "rule:money" in must_ask((wanted,), "exec")
    assert "it spends money" in must_ask((wanted,), "web_fetch")
    assert must_ask((wanted,), "read") == ""


def test_the_chain_shows_every_layer_in_order_and_the_first_that_denies_decides() -> None:
    policy = Policy(Rules(profile="coding", deny=("exec",)), Rules(allow=("read",)))
    verdict = explain(policy, ToolRequest("exec", MAIN))
    layers = [step.layer for step in verdict.chain]
    assert list(dict.fromkeys(layers)) == [
        "profile", "allow", "deny", "owner-only", "provider", "elevated", "sandbox", "subagent", "restriction"
    ]  # fmt: skip
    assert (verdict.layer, verdict.allowed) == ("allow", False)
    assert "agents.main.tools.allow" in verdict.why
    assert [step.why for step in verdict.chain if step.layer == "deny"] == ["tools.deny has exec"]


# What holds whatever the config says

OURS = (
    "read",
    "write",
    "apply_patch",
    "exec",
    "web_fetch",
    "memory_write",
    "message",
    "cron",
    "session_status",
    "github__pr",
)
ENTRIES = st.sampled_from(
    (*OURS, "*", "shell", "file_*", "*e*", "github__*", "no_such_tool", "EXEC", *(f"group:{name}" for name in GROUPS))
)
LISTS = st.lists(ENTRIES, max_size=4).map(tuple)
SENDERS = ("*", "id:1", "id:2", "channel:telegram:1", "username:alice", "name:bob")


@st.composite
def rules(draw: st.DrawFn) -> Rules:
    allow = draw(st.none() | LISTS)
    return Rules(
        draw(st.sampled_from((None, None, "minimal", "coding", "messaging", "full"))),
        allow,
        () if allow is not None else draw(LISTS),
        draw(st.just(()) | LISTS),
    )


GROUP_KEYS = ("telegram:-100", "telegram:*")
TABLES = {
    "by_provider": ("openai", "openai/gpt-5"),
    "agent_by_provider": ("openai", "openai/gpt-5"),
    "by_group": GROUP_KEYS,
    "by_sender": SENDERS,
    "agent_by_sender": SENDERS,
}
PLAIN = ("everybody", "agent", "sandboxed", "agent_sandboxed", "subagents", "agent_subagents")


@st.composite
def policies_of_few_words(draw: st.DrawFn) -> Policy:
    """Two or three scopes speak and the others are silent: when all do, nearly everything is denied by somebody."""
    profile = draw(st.sampled_from((None, "full", "full", "coding", "messaging")))
    said: dict[str, Any] = {"everybody": Rules(profile)}
    for name in draw(st.lists(st.sampled_from((*PLAIN, *TABLES, "group_by_sender")), max_size=3, unique=True)):
        if name in PLAIN:
            said[name] = draw(rules())
        elif name in TABLES:
            said[name] = draw(st.dictionaries(st.sampled_from(TABLES[name]), rules(), max_size=3))
        else:
            table = st.dictionaries(st.sampled_from(SENDERS), rules(), max_size=3)
            said[name] = draw(st.dictionaries(st.sampled_from(GROUP_KEYS), table, max_size=2))
    return Policy(**said)


policies = policies_of_few_words()
many = settings(max_examples=60, suppress_health_check=[HealthCheck.filter_too_much])
restrictions = st.builds(
    Restriction, st.just("rule:x"), st.just("because"), only=st.none() | LISTS, deny=LISTS, ask=LISTS
)
requests = st.builds(
    ToolRequest,
    tool=st.sampled_from(OURS),
    key=st.sampled_from((MAIN, GROUP, GROUP, SUBAGENT)),
    owner=st.booleans(),
    channel=st.sampled_from(("cli", "telegram")),
    sender=st.sampled_from(("owner", "1", "2")),
    provider=st.sampled_from(("", "openai")),
    model=st.sampled_from(("gpt-5", "gpt-4")),
    sandboxed=st.sampled_from((False, False, True)),
    owner_only=st.sampled_from((False, False, True)),
    restrictions=st.just(()) | st.lists(restrictions, max_size=1).map(tuple),
    known_as=st.sampled_from(((), ("username:alice",), ("name:bob",))),
)


def may_speak(asked: ToolRequest) -> list[str]:
    """The scopes that hold for a request if they are there, told without the code under test."""
    senders = ["*", f"id:{asked.sender}", f"channel:{asked.channel}:{asked.sender}", *asked.known_as]
    providers = [f"openai/{asked.model}", "openai"] if asked.provider else []
    found = ["everybody", "agent"]
    found += ["sandboxed", "agent_sandboxed"] if asked.sandboxed else []
    found += ["subagents", "agent_subagents"] if asked.key.is_subagent else []
    found += [f"{table} {key}" for table in ("by_provider", "agent_by_provider") for key in providers]
    found += [f"{table} {key}" for table in ("by_sender", "agent_by_sender") for key in senders]
    if asked.key.kind == "group":
        found += [f"by_group {key}" for key in GROUP_KEYS]
        found += [f"group_by_sender {key} {who}" for key in GROUP_KEYS for who in senders]
    return found


def changed(policy: Policy, scope: str, **change: Any) -> Policy:
    """The policy with one scope's rules changed; a scope that was not there is made."""
    name, *keys = scope.split(" ")
    value: Any = msgspec.structs.replace(rules_at(policy, scope), **change)
    for depth in range(len(keys), 0, -1):
        table = getattr(policy, name)
        for key in keys[: depth - 1]:
            table = table.get(key, {})
        value = {**table, keys[depth - 1]: value}
    return msgspec.structs.replace(policy, **{name: value})


def rules_at(policy: Policy, scope: str) -> Rules:
    name, *keys = scope.split(" ")
    found: Any = getattr(policy, name)
    for key in keys:
        found = found.get(key, {})
    return found or Rules()


@many
@given(policies, requests, st.data())
def test_deny_wins_whatever_the_config(policy: Policy, asked: ToolRequest, data: st.DataObject) -> None:
    scope, other = data.draw(st.tuples(*[st.sampled_from(may_speak(asked))] * 2))
    policy = changed(policy, other)  # an entry without a word may be nearer than the one that denies
    entry = data.draw(st.sampled_from((asked.tool, asked.tool.upper(), "*", f"group:{group_of(asked.tool)}")))
    deny = (*rules_at(policy, scope).deny, entry)
    assume(decide(policy, asked).allowed)
    assert not decide(changed(policy, scope, deny=deny), asked).allowed


@many
@given(policies, requests, restrictions)
def test_a_restriction_never_grants(policy: Policy, asked: ToolRequest, more: Restriction) -> None:
    narrowed = msgspec.structs.replace(asked, restrictions=(*asked.restrictions, more))
    if decide(policy, narrowed).allowed:
        assert decide(policy, asked).allowed


@many
@given(policies, requests, st.data())
def test_removing_an_allow_never_grants(policy: Policy, asked: ToolRequest, data: st.DataObject) -> None:
    scope = data.draw(st.sampled_from(may_speak(asked)))
    key = data.draw(st.sampled_from(("allow", "also_allow")))
    entries = data.draw(st.lists(ENTRIES, min_size=1, max_size=3).map(tuple))
    policy = changed(policy, scope, allow=None, also_allow=())
    policy = changed(policy, scope, **{key: entries})
    gone = data.draw(st.integers(0, len(entries) - 1))
    less = changed(policy, scope, **{key: (*entries[:gone], *entries[gone + 1 :])})
    if decide(less, asked).allowed:
        assert decide(policy, asked).allowed


@many
@given(policies, requests, st.randoms(use_true_random=False))
def test_the_order_of_names_in_lists_does_not_matter(policy: Policy, asked: ToolRequest, random: Any) -> None:
    other = policy
    for scope in may_speak(asked):
        said = rules_at(policy, scope)
        if said == Rules():
            continue  # perhaps not there, and an entry more would not be silent
        shuffled = {
            name: tuple(random.sample(entries, len(entries)))
            for name in ("allow", "also_allow", "deny")
            if (entries := getattr(said, name)) is not None
        }
        other = changed(other, scope, **shuffled)
    one, two = decide(policy, asked), decide(other, asked)
    assert (one.allowed, one.layer) == (two.allowed, two.layer)


@many
@given(policies, requests)
def test_the_explanation_is_the_decision(policy: Policy, asked: ToolRequest) -> None:
    told = explain(policy, asked)
    assert msgspec.structs.replace(told, chain=()) == decide(policy, asked)
    assert told.allowed is not any(step.verdict == "denies" for step in told.chain)


async def nothing(run: ToolRun, arguments: Mapping[str, Any]) -> ToolOutput:
    return ToolOutput("")


def a_tool(name: str, owner_only: bool) -> Tool:
    return Tool(ToolSpec(name, "", {}), nothing, owner_only=owner_only)


@many
@given(policies, requests, requests)
def test_a_model_is_told_of_every_tool_that_anybody_may_use_and_the_same_whoever_speaks(
    policy: Policy, asked: ToolRequest, other: ToolRequest
) -> None:
    tools = [a_tool(name, asked.owner_only) for name in OURS]
    shown = offered_tools(policy, tools, asked)
    usable = {tool.spec.name for tool in tools if decide(policy, _with(asked, tool=tool.spec.name)).allowed}
    assert usable <= {tool.spec.name for tool in shown}
    personal = ("owner", "channel", "sender", "known_as", "restrictions", "tool")
    stranger = _with(asked, **{name: getattr(other, name) for name in personal})
    assert offered_tools(policy, tools, stranger) == shown


def _with(asked: ToolRequest, **change: Any) -> ToolRequest:
    return msgspec.structs.replace(asked, **change)


def test_the_model_is_told_of_what_one_sender_may_use() -> None:
    policy = Policy(by_sender={"id:42": Rules(also_allow=("read",))})
    tools = [a_tool("read", False), a_tool("exec", False), a_tool("message", False)]
    shown = offered_tools(policy, tools, ToolRequest("", GROUP))
    assert [tool.spec.name for tool in shown] == ["read", "message"]


@given(st.sampled_from(OURS))
def test_a_name_that_is_ours_is_its_own(name: str) -> None:
    assert canonical(name) == name
