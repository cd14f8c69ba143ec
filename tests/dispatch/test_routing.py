"""Which agent answers, and in which session: a table of cases from the documents, and what holds for all configs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.config.load import Config
from palinurus.dispatch.routing import TIERS, MessageRoute, find_route, routing_table
from palinurus.domain.envelope import Peer
from palinurus.domain.keys import SessionKey

AGENTS = ("main", "home", "work", "ops", "kids")


def config(bindings: list[dict[str, Any]] | None = None, **more: Any) -> Config:
    made = Config({"agents": {"list": [{"id": each} for each in AGENTS]}, "bindings": bindings or [], **more})
    assert not made.findings().wrong
    return made


def to(agent: str, channel: str, *, dm: str = "", group: str = "", session: Any = None, **match: Any) -> dict[str, Any]:
    """A binding. `peer="group:7"`, `peer="dm"`: any of the kind."""
    if peer := match.pop("peer", ""):
        kind, _, name = peer.partition(":")
        match["peer"] = {"kind": kind, **({"id": name} if name else {})}
    scopes = {**({"dmScope": dm} if dm else {}), **({"groupScope": group} if group else {})}
    return {"agentId": agent, "match": {"channel": channel, **match}, **({"session": scopes} if scopes else {})}


def route(made: Config, said: str) -> MessageRoute:
    """`telegram/bot2 group:7 parent=5 thread=9 guild=g roles=a,b team=t`."""
    place, chat, *rest = said.split()
    channel, _, account = place.partition("/")
    kind, _, name = chat.partition(":")
    more: dict[str, Any] = dict(each.split("=", 1) for each in rest)
    if "roles" in more:
        more["roles"] = tuple(more["roles"].split(","))
    return find_route(routing_table(made), channel, account, Peer(name, kind, **more))  # type: ignore[arg-type]


T, S, D, W = "telegram", "slack", "discord", "whatsapp"
DOCUMENTS = [  # the examples of the documents
    to("home", T, peer="dm:12345"),
    to("work", S, teamId="T123456"),
    to("home", W, accountId="personal"),
    to("work", W, accountId="business"),
    to("kids", D, peer="dm"),
]
ALL = [  # one of each tier, the least exact first
    to("main", D, accountId="*"),
    to("home", D),
    to("work", D, teamId="t1"),
    to("ops", D, guildId="g1"),
    to("kids", D, guildId="g1", roles=["admin", "mod"]),
    to("home", D, peer="channel:*"),
    to("ops", D, peer="channel:55"),
]
TWO = [
    to("home", T, peer="group:7"),
    to("work", T, peer="group:7"),
    to("ops", T, peer="group"),
    to("kids", T, peer="group"),
]
TOLD = [
    to("home", T, accountId="Bot2"),
    to("work", T, accountId="default"),
    to("ops", T, peer="direct:9", accountId="*"),
    to("kids", T, peer="group:-100", accountId="bot2"),
    to("work", S, teamId="T1", peer="channel:C1"),
    to("ops", S, teamId="T1", accountId="*"),
    to("kids", D, guildId="g", roles=["r"], peer="channel:1"),
]

CASES: list[tuple[list[dict[str, Any]], str, str, str, int | None]] = [
    # the documents' examples
    (DOCUMENTS, "telegram direct:12345", "home", "peer", 0),
    (DOCUMENTS, "telegram direct:99", "main", "default", None),
    (DOCUMENTS, "telegram group:12345", "main", "default", None),
    (DOCUMENTS, "slack channel:C1 team=T123456", "work", "team", 1),
    (DOCUMENTS, "slack direct:U1 team=T123456", "work", "team", 1),
    (DOCUMENTS, "slack channel:C1 team=t123456", "work", "team", 1),
    (DOCUMENTS, "slack channel:C1 team=T9", "main", "default", None),
    (DOCUMENTS, "slack channel:C1", "main", "default", None),
    (DOCUMENTS, "whatsapp/personal direct:+49170", "home", "account", 2),
    (DOCUMENTS, "whatsapp/business direct:+49170", "work", "account", 3),
    (DOCUMENTS, "whatsapp/business group:1@g.us", "work", "account", 3),
    (DOCUMENTS, "whatsapp direct:+49170", "main", "default", None),
    (DOCUMENTS, "whatsapp/other direct:+49170", "main", "default", None),
    (DOCUMENTS, "discord direct:5", "kids", "peer-wildcard", 4),
    (DOCUMENTS, "discord channel:5", "main", "default", None),
    (DOCUMENTS, "matrix direct:12345", "main", "default", None),
    # each tier before the next, whatever the order in the config
    (ALL, "discord channel:55 guild=g1 roles=admin team=t1", "ops", "peer", 6),
    (ALL, "discord channel:77 parent=55 thread=77 guild=g1", "ops", "parent", 6),
    (ALL, "discord channel:56 guild=g1 roles=admin", "home", "peer-wildcard", 5),
    (ALL, "discord direct:1 guild=g1 roles=mod", "kids", "guild-roles", 4),
    (ALL, "discord direct:1 guild=g1 roles=other,mod", "kids", "guild-roles", 4),
    (ALL, "discord direct:1 guild=g1 roles=other", "ops", "guild", 3),
    (ALL, "discord direct:1 guild=g1", "ops", "guild", 3),
    (ALL, "discord direct:1 guild=g2 roles=admin", "home", "account", 1),
    (ALL, "discord direct:1 team=t1", "work", "team", 2),
    (ALL, "discord direct:1 guild=g1 team=t1", "ops", "guild", 3),
    (ALL, "discord direct:1", "home", "account", 1),
    (ALL, "discord/default direct:1", "home", "account", 1),
    (ALL, "discord/bot2 direct:1", "main", "channel", 0),
    (ALL, "discord/bot2 channel:55", "main", "channel", 0),  # the others name no account: the default one
    (ALL, "DISCORD channel:55", "ops", "peer", 6),
    (ALL, "slack channel:55 guild=g1", "main", "default", None),
    # the first in the config wins inside a tier
    (TWO, "telegram group:7", "home", "peer", 0),
    (TWO[1:], "telegram group:7", "work", "peer", 0),
    (TWO, "telegram group:8", "ops", "peer-wildcard", 2),
    ([TWO[3], TWO[2]], "telegram group:8", "kids", "peer-wildcard", 0),
    ([TWO[2], TWO[0]], "telegram group:7", "home", "peer", 1),
    (TWO, "telegram direct:7", "main", "default", None),
    (TWO, "telegram channel:7", "main", "default", None),
    ([to("home", T), to("work", T, accountId="default")], "telegram direct:1", "home", "account", 0),
    ([to("work", T, accountId="default"), to("home", T)], "telegram direct:1", "work", "account", 0),
    ([to("home", T, accountId="*"), to("work", T)], "telegram direct:1", "work", "account", 1),
    ([to("home", T, accountId="*"), to("work", T, accountId="*")], "telegram direct:1", "home", "channel", 0),
    # accounts
    (TOLD, "telegram/bot2 direct:1", "home", "account", 0),
    (TOLD, "telegram/BOT2 direct:1", "home", "account", 0),
    (TOLD, "telegram direct:1", "work", "account", 1),
    (TOLD, "telegram/bot3 direct:1", "main", "default", None),
    (TOLD, "telegram/bot3 direct:9", "ops", "peer", 2),
    (TOLD, "telegram direct:9", "ops", "peer", 2),
    (TOLD, "telegram/bot2 group:-100", "kids", "peer", 3),
    (TOLD, "telegram group:-100", "work", "account", 1),
    (TOLD, "telegram/bot2 group:-101", "home", "account", 0),
    # everything that is given must fit
    (TOLD, "slack channel:C1 team=T1", "work", "peer", 4),
    (TOLD, "slack channel:C1 team=T2", "main", "default", None),
    (TOLD, "slack channel:C2 team=T1", "ops", "team", 5),
    (TOLD, "slack/other channel:C1 team=T1", "ops", "team", 5),
    (TOLD, "discord channel:1 guild=g roles=r", "kids", "peer", 6),
    (TOLD, "discord channel:1 guild=g", "main", "default", None),
    (TOLD, "discord channel:1 roles=r", "main", "default", None),
    # peers: ids and spellings
    ([to("home", T, peer="group:*")], "telegram group:1", "home", "peer-wildcard", 0),
    ([to("home", T, peer="direct:*")], "telegram group:1", "main", "default", None),
    ([to("home", T, peer="dm:*")], "telegram direct:1", "home", "peer-wildcard", 0),
    ([to("home", T, peer="channel")], "telegram channel:1", "home", "peer-wildcard", 0),
    ([to("home", "Telegram", peer="direct:ABC")], "telegram direct:abc", "home", "peer", 0),
    ([to("home", "matrix", peer="channel:!r:example.org")], "matrix channel:!R:example.org", "home", "peer", 0),
    ([{"agentId": "Home", "match": {"channel": T, "peer": {"kind": "group", "id": -100}}}], "telegram group:-100",
     "home", "peer", 0),
    ([{"agentId": "home", "comment": "ours", "type": "route", "match": {"channel": T}}], "telegram direct:1", "home",
     "account", 0),
    ([{"agentId": "home", "type": "acp", "match": {"channel": T}}], "telegram direct:1", "main", "default", None),
    # threads
    ([to("home", D, peer="channel:5")], "discord channel:9 parent=5 thread=9", "home", "parent", 0),
    ([to("home", D, peer="channel:5"), to("work", D, peer="channel:9")], "discord channel:9 parent=5 thread=9", "work",
     "peer", 1),
    ([to("home", D, peer="channel"), to("work", D, peer="channel:5")], "discord channel:9 parent=5", "work", "parent",
     1),
    ([to("home", D, peer="group:5")], "discord channel:9 parent=5", "main", "default", None),
    ([to("home", T, peer="group:-1")], "telegram group:-1 thread=3", "home", "peer", 0),
    # nothing at all
    ([], "telegram direct:1", "main", "default", None),
    ([], "cli direct:owner", "main", "default", None),
]  # fmt: skip


@pytest.mark.parametrize(("bindings", "message", "agent", "tier", "index"), CASES)
def test_a_message_goes_to_the_most_exact_binding(
    bindings: list[dict[str, Any]], message: str, agent: str, tier: str, index: int | None
) -> None:
    found = route(config(bindings), message)
    assert (found.agent_id, found.tier, found.binding) == (agent, tier, index)
    assert SessionKey.parse(found.session_key).agent == agent


SCOPES: list[tuple[str, dict[str, Any], str]] = [
    ("telegram direct:42", {}, "agent:main:main"),
    ("telegram direct:42", {"dmScope": "main"}, "agent:main:main"),
    ("telegram direct:42", {"dmScope": "per-peer"}, "agent:main:direct:42"),
    ("telegram direct:42", {"dmScope": "per-channel-peer"}, "agent:main:telegram:direct:42"),
    ("telegram direct:42", {"dmScope": "per-account-channel-peer"}, "agent:main:telegram:default:direct:42"),
    ("telegram/bot2 direct:42", {"dmScope": "per-account-channel-peer"}, "agent:main:telegram:bot2:direct:42"),
    ("telegram/bot2 direct:42", {"dmScope": "per-channel-peer"}, "agent:main:telegram:direct:42"),
    ("telegram direct:U7", {"dmScope": "per-peer"}, "agent:main:direct:u7"),
    ("telegram direct:42", {"scope": "global"}, "agent:main:global"),
    ("telegram group:7", {"scope": "global"}, "agent:main:global"),
    ("telegram group:-1007", {}, "agent:main:telegram:group:-1007"),
    ("telegram/bot2 group:-1007", {"dmScope": "per-account-channel-peer"}, "agent:main:telegram:group:-1007"),
    ("telegram group:-1007 thread=3", {}, "agent:main:telegram:group:-1007:topic:3"),
    ("discord channel:123456 thread=987654", {}, "agent:main:discord:channel:123456:thread:987654"),
    ("slack channel:C1 thread=1712.5", {}, "agent:main:slack:channel:c1:thread:1712.5"),
    ("slack direct:U1 thread=1712.5", {"dmScope": "per-channel-peer"}, "agent:main:slack:direct:u1:thread:1712.5"),
    ("telegram group:7", {"groupScope": "main"}, "agent:main:main"),
    ("telegram direct:1", {"dmScope": "per-peer", "identityLinks": {"Alice": ["telegram:1", "discord:2"]}},
     "agent:main:direct:alice"),
    ("discord direct:2", {"dmScope": "per-peer", "identityLinks": {"Alice": ["tg:1", "discord:2"]}},
     "agent:main:direct:alice"),
    ("telegram direct:1", {"dmScope": "per-channel-peer", "identityLinks": {"alice": ["tg:1"]}},
     "agent:main:telegram:direct:alice"),
    ("telegram direct:1", {"identityLinks": {"alice": ["telegram:1"]}}, "agent:main:main"),
    ("telegram direct:9", {"dmScope": "per-peer", "identityLinks": {"alice": ["telegram:1"]}}, "agent:main:direct:9"),
    ("telegram group:1", {"dmScope": "per-peer", "identityLinks": {"alice": ["telegram:1"]}},
     "agent:main:telegram:group:1"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "session", "key"), SCOPES)
def test_a_message_belongs_to_the_session_of_its_scope(message: str, session: dict[str, Any], key: str) -> None:
    assert route(config(session=session), message).session_key == key


def test_a_binding_may_set_the_scope_of_its_own_messages() -> None:
    made = config([to("work", T, dm="per-peer", group="main")], session={"dmScope": "main"})
    assert route(made, "telegram direct:1").session_key == "agent:work:direct:1"
    assert route(made, "telegram group:1").session_key == "agent:work:main"
    assert route(made, "slack direct:1").session_key == "agent:main:main"


def test_the_main_session_is_the_owners_once_the_owner_is_known() -> None:
    made = config(commands={"ownerAllowFrom": ["telegram:1"]})
    assert route(made, "telegram direct:1").session_key == "agent:main:main"
    assert route(made, "telegram direct:2").session_key == "agent:main:telegram:direct:2"
    assert route(made, "discord direct:1").session_key == "agent:main:discord:direct:1"
    said = config(commands={"ownerAllowFrom": ["telegram:1"]}, session={"dmScope": "main"})
    assert route(said, "telegram direct:2").session_key == "agent:main:main"


def test_a_channel_may_have_another_default_account() -> None:
    made = config([to("work", T)], channels={"telegram": {"defaultAccount": "bot2"}})
    assert route(made, "telegram direct:1").agent_id == "work"
    assert route(made, "telegram/bot2 direct:1").agent_id == "work"
    assert route(made, "telegram/default direct:1").agent_id == "main"


def test_a_broadcast_reaches_every_agent_of_its_chat_and_asks_no_binding() -> None:
    broadcast = {"strategy": "sequential", "-100": ["work", "ops"]}
    found = route(config([to("home", T, peer="group:-100")], broadcast=broadcast), "telegram group:-100")
    assert [(each.agent_id, each.session_key) for each in found.targets] == [
        ("work", "agent:work:telegram:group:-100"),
        ("ops", "agent:ops:telegram:group:-100"),
    ]
    assert (found.agent_id, found.tier, found.binding, found.strategy) == ("work", "broadcast", None, "sequential")
    assert found.near_misses[0].why == "it fits (peer), but a broadcast comes before all bindings"


def test_an_explanation_names_what_nearly_fitted_and_why_it_did_not() -> None:
    found = route(config(ALL), "discord channel:56 guild=g1 roles=user")
    assert found.why == "binding 5 is for all chats of this kind"
    whys = {each.binding: each.why for each in found.near_misses}
    assert whys[3] == "it fits (guild), but binding 5 is more exact (peer-wildcard)"
    assert whys[4] == "the sender has none of its roles: admin, mod"
    assert whys[6] == "it names the channel '55', not '56'"
    assert whys[2] == "it names the team 't1'; the message is of none"
    assert set(whys) == {0, 1, 2, 3, 4, 6}
    twice = route(config(TWO), "telegram group:7")
    assert twice.near_misses[0].why == "it fits as exactly (peer), but binding 0 comes before it in the config"


CHANNELS, IDS = st.sampled_from((T, D)), st.sampled_from(("1", "2", "*"))
MATCHES = st.fixed_dictionaries(
    {"channel": CHANNELS},
    optional={
        "accountId": st.sampled_from(("*", "a", "default")),
        "peer": st.fixed_dictionaries(
            {"kind": st.sampled_from(("direct", "dm", "group", "channel"))}, optional={"id": IDS}
        ),
        "guildId": st.sampled_from(("g", "h")),
        "roles": st.lists(st.sampled_from(("r", "s")), max_size=2),
        "teamId": st.sampled_from(("t", "u")),
    },
)
BINDINGS = st.lists(
    st.builds(lambda agent, match: {"agentId": agent, "match": match}, st.sampled_from(AGENTS), MATCHES)
)
PEERS = st.builds(
    Peer,
    id=st.sampled_from(("1", "2", "3")),
    kind=st.sampled_from(("direct", "group", "channel")),
    thread=st.sampled_from(("", "9")),
    parent=st.sampled_from(("", "1", "2")),
    guild=st.sampled_from(("", "g", "h")),
    roles=st.sampled_from(((), ("r",), ("r", "s"))),
    team=st.sampled_from(("", "t")),
)
ACCOUNTS = st.sampled_from(("", "a", "b"))


@given(BINDINGS, CHANNELS, ACCOUNTS, PEERS, st.data())
def test_an_unrelated_binding_never_changes_a_route(
    bindings: list[dict[str, Any]], channel: str, account: str, peer: Peer, data: st.DataObject
) -> None:
    before = find_route(routing_table(config(bindings)), channel, account, peer)
    unrelated = data.draw(
        st.sampled_from(
            (
                to("ops", "signal"),
                to("ops", channel, peer="direct:nobody"),
                to("ops", channel, accountId="elsewhere"),
                to("ops", channel, accountId="*", guildId="none"),
                to("ops", channel, accountId="*", teamId="none"),
                to("ops", channel, accountId="*", roles=["none"]),
            )
        )
    )
    at = data.draw(st.integers(0, len(bindings)))
    after = find_route(routing_table(config([*bindings[:at], unrelated, *bindings[at:]])), channel, account, peer)
    assert (after.agent_id, after.session_key, after.tier) == (before.agent_id, before.session_key, before.tier)


@given(BINDINGS, CHANNELS, ACCOUNTS, PEERS)
def test_the_binding_that_wins_is_of_the_first_tier_that_fits_and_all_others_are_explained(
    bindings: list[dict[str, Any]], channel: str, account: str, peer: Peer
) -> None:
    found = find_route(routing_table(config(bindings)), channel, account, peer)
    alone = [find_route(routing_table(config([each])), channel, account, peer) for each in bindings]
    fitting = [(TIERS.index(each.tier), at) for at, each in enumerate(alone) if each.binding is not None]
    if fitting:
        rank, at = min(fitting)
        assert (found.tier, found.binding, found.agent_id) == (TIERS[rank], at, bindings[at]["agentId"])
    else:
        assert (found.tier, found.binding, found.agent_id) == ("default", None, "main")
    same = [at for at, each in enumerate(bindings) if each["match"]["channel"] == channel and at != found.binding]
    assert sorted(each.binding for each in found.near_misses) == same[:20] or len(same) > 20


@given(st.text(min_size=1, max_size=300), st.text(min_size=1, max_size=300), st.sampled_from(("direct", "group")))
def test_a_key_is_read_back_as_it_was_and_two_chats_have_two(one: str, other: str, kind: str) -> None:
    table = routing_table(config(session={"dmScope": "per-channel-peer"}))
    keys = []
    for name in (one, other):
        if not name.strip():
            return
        key = find_route(table, T, "", Peer(name, kind)).session_key  # type: ignore[arg-type]
        parsed = SessionKey.parse(key)
        assert (parsed.kind, parsed.channel, parsed.thread) == (kind, T, "")
        keys.append(key)
    if one.strip().lower() != other.strip().lower():
        assert keys[0] != keys[1]


@pytest.mark.parametrize("name", ["7:thread:1", "7:topic:1", "thread", "direct", "a" * 400, "x\ny", "main"])
def test_an_id_that_looks_like_a_key_makes_no_other_session(name: str) -> None:
    key = SessionKey.parse(route(config(), f"telegram group:{name.replace(chr(10), '_')}").session_key)
    assert (key.kind, key.thread) == ("group", "")
    assert key != SessionKey.parse("agent:main:telegram:group:7:topic:1")
