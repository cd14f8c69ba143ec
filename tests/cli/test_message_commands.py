"""`pal message send`: stored, sent once, and what became of it; helpful where it cannot be."""

from __future__ import annotations

import json

import pytest
from called import Pal

from palinurus.cli.jobs import outcome_text
from palinurus.config.home import Home
from palinurus.dispatch.delivery import DeliveryJob, State

CONFIG = {"channels": {"telegram": {"accounts": {"default": {}, "office": {}}}, "slack": {}}}


@pytest.fixture
def configured(home: Home) -> Home:
    own = json.loads(home.config_path.read_text()) if home.config_path.exists() else {}
    home.config_path.write_text(json.dumps({**own, **CONFIG}))
    return home


def test_a_message_is_stored_with_its_session_and_waits_for_the_channel(pal_command: Pal, configured: Home) -> None:
    sent = pal_command("message", "send", "--channel", "Telegram", "--to", "42", "--text", "Hi.", "--json").json
    assert (sent["state"], sent["channel"], sent["to"], sent["account"]) == ("waiting", "telegram", "42", "default")
    assert (sent["agentId"], sent["sessionKey"], sent["isConnected"]) == ("main", "agent:main:main", False)
    (waiting,) = pal_command("delivery", "list", "--json").json["parcels"]
    assert (waiting["id"], waiting["text"]) == (sent["id"], "Hi.")
    assert "Hi." in pal_command("sessions", "show", "main").out


def test_an_address_may_name_kind_account_and_thread(pal_command: Pal, configured: Home) -> None:
    options = ("--account", "office", "--thread", "17.5", "--text", "-", "--json")
    sent = pal_command("message", "send", "--channel", "telegram", "--to", "group:-7", *options, stdin="A report.").json
    assert (sent["to"], sent["account"], sent["thread"]) == ("-7", "office", "17.5")
    assert sent["sessionKey"] == "agent:main:telegram:group:-7:topic:17.5"


def test_a_wait_that_ends_before_the_message_is_sent_says_so(pal_command: Pal, configured: Home) -> None:
    ended = pal_command("message", "send", "--channel", "slack", "--to", "U1", "--text", "Hi.", "--wait", "0.01")
    assert ended.code == 1
    assert "slack:U1 is not sent yet; it stays in the outbox (pal delivery list)." in ended.out
    assert "slack is not connected" in ended.err


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--channel", "telegrem", "--to", "1"), "did you mean telegram? configured: slack, telegram"),
        (("--channel", "pigeon", "--to", "1"), "there is no channel 'pigeon' here"),
        (("--channel", "telegram", "--to", "1", "--account", "home"), "telegram has no account 'home'"),
        (("--channel", "telegram", "--to", "1", "--agent", "ghost"), "telegram:1 is answered by main, not by ghost"),
        (("--channel", "telegram", "--to", " "), "not a recipient"),
    ],
)
def test_what_cannot_be_sent_is_told_with_what_can(
    pal_command: Pal, configured: Home, options: tuple[str, ...], why: str
) -> None:
    ended = pal_command("message", "send", *options, "--text", "Hi.")
    assert ended.code
    assert why in ended.err
    assert pal_command("delivery", "list", "--json").json["parcels"] == []


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("sent", "d1 to slack:U1 was sent."),
        ("ambiguous", "d1 to slack:U1 is ambiguous: cut off\nAn ambiguous message may have arrived: look there first."),
        (
            "failed",
            "d1 to slack:U1 is failed: cut off\nA failed message has not arrived: `pal delivery retry d1` sends",
        ),
        ("dropped", "d1 to slack:U1 is dropped: cut off"),
    ],
)
def test_an_outcome_says_what_a_person_can_do(state: State, told: str) -> None:
    delivery = DeliveryJob("d1", "k", "slack", "U1", "Hi.", state=state, trouble="cut off")
    assert outcome_text(delivery).startswith(told)
