"""Session keys: every form that homes hold is read, and what is written is read back as the same key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.domain.errors import BadRequest
from palinurus.domain.keys import PEER_KINDS, RUN_KINDS, SessionKey

IDS = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,20}", fullmatch=True)
RESERVED = {*PEER_KINDS, *RUN_KINDS, "dm", "main", "thread", "topic", "agent"}
NAMES = st.from_regex(r"[a-z0-9+@._-]{1,24}", fullmatch=True).filter(lambda name: name not in RESERVED)
# A peer may be called anything, the words of the grammar included, and may hold colons of its own.
PEERS = st.one_of(NAMES, st.sampled_from(["dm", "direct", "group", "main"]), st.tuples(NAMES, NAMES).map(":".join))


@st.composite
def keys(draw: st.DrawFn) -> SessionKey:
    agent = draw(IDS)
    kind = draw(st.sampled_from(["main", "named", *PEER_KINDS, *RUN_KINDS]))
    if kind == "main":
        return SessionKey(agent)
    if kind == "named":
        return SessionKey(agent, "named", peer=draw(NAMES))
    if kind in RUN_KINDS:
        return SessionKey(agent, kind, peer=draw(PEERS))
    channel = draw(st.one_of(st.just(""), NAMES))
    account = draw(st.one_of(st.just(""), NAMES)) if channel else ""
    thread_kind = draw(st.sampled_from(["", "thread", "topic"]))
    thread = draw(NAMES) if thread_kind else ""
    return SessionKey(agent, kind, channel, account, draw(PEERS), thread_kind, thread)


@given(keys())
def test_a_key_that_is_written_and_read_is_the_same_key(key: SessionKey) -> None:
    assert SessionKey.parse(str(key)) == key


@given(st.text(max_size=60))
def test_any_text_is_a_key_that_reads_as_itself_or_is_refused(text: str) -> None:
    try:
        key = SessionKey.parse(text)
    except BadRequest:
        return
    assert SessionKey.parse(str(key)) == key


UUID = "0b5e7a58-6b4e-4c3e-9a54-0d7b2f6f2f11"


@pytest.mark.parametrize(
    ("text", "kind", "channel", "peer"),
    [
        ("agent:main:main", "main", "", ""),
        ("agent:main", "main", "", ""),
        ("main", "main", "", ""),
        ("agent:work:direct:alice", "direct", "", "alice"),
        ("agent:main:whatsapp:direct:+15551234567", "direct", "whatsapp", "+15551234567"),
        ("agent:main:telegram:default:direct:42", "direct", "telegram", "42"),
        ("agent:main:telegram:group:-1001234567890", "group", "telegram", "-1001234567890"),
        ("agent:main:discord:channel:998877", "channel", "discord", "998877"),
        ("agent:main:matrix:channel:!room:example.org", "channel", "matrix", "!room:example.org"),
        (f"agent:main:subagent:{UUID}", "subagent", "", UUID),
        (f"agent:main:subagent:{UUID}:subagent:{UUID}", "subagent", "", f"{UUID}:subagent:{UUID}"),
        ("agent:main:cron:job-1:run:7", "cron", "", "job-1:run:7"),
        ("agent:main:explicit:holiday", "explicit", "", "holiday"),
        ("cron:job-1", "cron", "", "job-1"),
        (f"hook:{UUID}", "hook", "", UUID),
        ("group:-100", "group", "", "-100"),
        ("node-17", "named", "", "node-17"),
        ("global", "named", "", "global"),
        ("unknown", "named", "", "unknown"),
    ],
)
def test_keys_seen_in_real_homes_are_read(text: str, kind: str, channel: str, peer: str) -> None:
    key = SessionKey.parse(text)
    assert (key.kind, key.channel, key.peer) == (kind, channel, peer)
    assert SessionKey.parse(str(key)) == key


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("agent:main:dm:alice", "agent:main:direct:alice"),
        ("agent:main:telegram:dm:42", "agent:main:telegram:direct:42"),
        ("agent:main:telegram:default:dm:42", "agent:main:telegram:default:direct:42"),
        ("AGENT:Main:Telegram:DM:Bob", "agent:main:telegram:direct:bob"),
        (" agent:main:main ", "agent:main:main"),
    ],
)
def test_old_spellings_are_the_same_session_as_the_new_ones(old: str, new: str) -> None:
    assert str(SessionKey.parse(old)) == new


def test_a_peer_called_dm_keeps_its_name() -> None:
    assert str(SessionKey.parse("agent:main:telegram:group:dm")) == "agent:main:telegram:group:dm"
    assert SessionKey.parse("agent:main:direct:dm").peer == "dm"


def test_threads_and_topics_are_parts_of_their_room() -> None:
    thread = SessionKey.parse("agent:main:slack:channel:c1:thread:1700000000.0001")
    topic = SessionKey.parse("agent:main:telegram:group:-100:topic:7")
    assert (thread.peer, thread.thread_kind, thread.thread) == ("c1", "thread", "1700000000.0001")
    assert (topic.peer, topic.thread_kind, topic.thread) == ("-100", "topic", "7")
    assert thread.chat_type == topic.chat_type == "thread"


@pytest.mark.parametrize(
    "text", ["", "   ", "agent:", "agent::main", "agent:not an id:main", "agent:main:subagent:", "a\nb", "x" * 513]
)
def test_what_can_be_no_key_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadRequest) as refused:
        SessionKey.parse(text)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("text", "private", "chat_type"),
    [
        ("agent:main:main", True, "direct"),
        ("agent:main:direct:alice", True, "direct"),
        ("agent:main:explicit:holiday", True, "direct"),
        ("agent:main:telegram:group:1", False, "group"),
        ("agent:main:discord:channel:1", False, "channel"),
        ("agent:main:slack:direct:u1:thread:2", False, "thread"),
        (f"agent:main:subagent:{UUID}", False, "direct"),
        ("agent:main:cron:job", False, "direct"),
        ("agent:main:hook:job", False, "direct"),
        ("agent:main:main:thread:9", False, "thread"),
        ("agent:main:global", False, "group"),
    ],
)
def test_a_session_is_private_only_when_nobody_but_the_owner_listens(text: str, private: bool, chat_type: str) -> None:
    key = SessionKey.parse(text)
    assert (key.is_private, key.chat_type) == (private, chat_type)
