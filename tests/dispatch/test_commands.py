"""Slash commands and bindings: which words are commands, and which session a message belongs to."""

from __future__ import annotations

import pytest

from palinurus.dispatch.agents import session_key_of
from palinurus.dispatch.commands import COMMANDS, Command, help_text, parse
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest, NotFound


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("/new", Command("new")),
        ("/reset", Command("new")),
        ("/NEW  tell me more ", Command("new", "tell me more")),
        ("/new\nsecond line", Command("new", "second line")),
        ("/stop", Command("stop")),
        ("stop", Command("stop")),
        (" STOP ", Command("stop")),
        ("abort", Command("stop")),
        ("/abort", Command("stop")),
        ("/status", Command("status")),
        ("/context", Command("context")),
        ("/help", Command("help")),
        ("stop the music", None),
        ("please /stop", None),
        ("/etc/passwd is a file", None),
        ("/unknown", None),
        ("/newer", None),
        ("/", None),
        ("hello", None),
    ],
)
def test_a_message_is_a_command_only_when_it_begins_with_one(text: str, command: Command | None) -> None:
    assert parse(text) == command


def test_the_words_for_a_fresh_start_come_from_the_config() -> None:
    assert parse("Neustart bitte", ("neustart",)) == Command("new", "bitte")
    assert parse("/reset", ("neustart",)) is None


def test_only_what_changes_a_session_waits_in_the_lane() -> None:
    assert [name for name in COMMANDS if Command(name).waits] == ["new", "compact"]


def test_the_help_names_every_command() -> None:
    assert all(f"/{name}" in help_text() for name in COMMANDS)


AGENTS = ["main", "work"]


@pytest.mark.parametrize(
    ("inbound", "key"),
    [
        (Inbound("x", "k"), "agent:main:main"),
        (Inbound("x", "k", session_key="main"), "agent:main:main"),
        (Inbound("x", "k", agent="Work"), "agent:work:main"),
        (Inbound("x", "k", session_key="holiday"), "agent:main:explicit:holiday"),
        (Inbound("x", "k", session_key="Holiday", agent="work"), "agent:work:explicit:holiday"),
        (Inbound("x", "k", session_key="agent:work:direct:alice"), "agent:work:direct:alice"),
        (Inbound("x", "k", session_key="agent:main:telegram:dm:7"), "agent:main:telegram:direct:7"),
    ],
)
def test_a_message_goes_where_its_sender_says_else_to_the_main_session(inbound: Inbound, key: str) -> None:
    assert str(session_key_of(inbound, AGENTS, "main")) == key


def test_an_agent_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(NotFound, match="'ghost'") as missing:
        session_key_of(Inbound("x", "k", agent="ghost"), AGENTS, "main")
    assert "main, work" in missing.value.hint


def test_a_name_that_can_be_no_key_is_refused() -> None:
    with pytest.raises(BadRequest):
        session_key_of(Inbound("x", "k", session_key="a\nb"), AGENTS, "main")
