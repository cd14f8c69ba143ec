"""`pal route explain` and `pal pairing`: what people and programs are shown, also after a mistake."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from called import Pal

from palinurus.config.home import Home
from palinurus.dispatch.pairing import Pairing, PairingStore, put_pairing
from palinurus.domain.clock import SystemClock
from palinurus.storage.database import Database

NOW = SystemClock().now_ms()


def set_config(home: Home, **more: object) -> None:
    path = home.root / "palinurus.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **more}))


@pytest.fixture
def asked(home: Home) -> Home:
    async def keep() -> None:
        database = Database(home.root / "home.sqlite", "home")
        for sender, name in (("42", "Eve\x1b[31m"), ("43", "")):
            waits = Pairing("telegram", "default", sender, "pending", NOW, f"ABCDEF{sender}"[:8], name, NOW)
            await PairingStore(database).change(lambda tx, waits=waits: put_pairing(tx, waits))
        await database.close()

    asyncio.run(keep())
    return home


def test_a_route_is_explained_to_programs_in_the_fixed_form(pal_command: Pal, home: Home) -> None:
    binding = {"agentId": "main", "match": {"channel": "slack", "teamId": "T1"}}
    set_config(home, bindings=[binding])
    told = pal_command("route", "explain", "--channel", "slack", "--team", "T1", "--peer", "channel:C1", "--json").json
    assert list(told)[:4] == ["agentId", "sessionKey", "tier", "binding"]
    assert list(told.values())[:4] == ["main", "agent:main:slack:channel:c1", "team", 0]
    other = pal_command("route", "explain", "--channel", "slack", "--peer", "dm:U1", "--json").json
    assert list(other.values())[:4] == ["main", "agent:main:main", "default", None]


def test_a_route_is_explained_to_people_with_what_nearly_fitted(pal_command: Pal, home: Home) -> None:
    match = {"channel": "discord", "guildId": "9", "roles": ["admin"]}
    set_config(home, bindings=[{"agentId": "main", "match": match}])
    shown = pal_command("route", "explain", "--channel", "discord", "--guild", "9", "--peer", "channel:5").out
    assert "because  no binding fits, so the default agent answers" in shown
    assert "  0  main  the sender has none of its roles: admin" in shown
    won = pal_command(
        *("route", "explain", "--channel", "discord", "--guild", "9", "--role", "x", "--role", "admin"),
        *("--parent", "5", "--thread", "7", "--peer", "channel:7"),
    ).out
    assert "because  binding 0 names the server and a role of the sender" in won
    assert "session  agent:main:discord:channel:7:thread:7" in won


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--peer", "direct:1"), "which channel?"),
        (("--channel", "x"), "not a chat: ''"),
        (("--channel", "x", "--peer", "1"), "not a chat: '1'"),
        (("--channel", "x", "--peer", "grup:1"), "did you mean group:1?"),
        (("--channel", "x", "--peer", "group:"), "for example --peer direct:12345"),
    ],
)
def test_a_wrong_place_is_one_sentence_and_a_hint(pal_command: Pal, words: tuple[str, ...], why: str) -> None:
    told = pal_command("route", "explain", *words)
    assert told.code == 2
    assert why in told.err
    assert len(told.err.strip().splitlines()) == 1


def test_a_binding_to_an_unknown_agent_is_reported_by_validate(pal_command: Pal, home: Home) -> None:
    set_config(home, bindings=[{"agentId": "mian", "match": {"channel": "telegram"}}])
    told = pal_command("config", "validate")
    assert told.code != 0
    assert "bindings[0].agentId: there is no agent 'mian'; did you mean main?" in told.err


def test_senders_are_listed_let_in_and_rejected(pal_command: Pal, asked: Home) -> None:
    shown = pal_command("pairing", "list").out
    assert "\x1b" not in shown
    assert "ABCDEF42  telegram:42 (Eve" in shown
    approved = pal_command("pairing", "approve", "abcdef42")
    assert "telegram:42" in approved.out
    assert "They are the owner from now on (commands.ownerAllowFrom)." in approved.out
    config = json.loads((asked.root / "palinurus.json").read_text())
    assert config["commands"] == {"ownerAllowFrom": ["telegram:42"]}
    second = pal_command("pairing", "approve", "telegram:43", "--json").json
    assert (second["isOwner"], second["pairing"]["status"]) == (False, "approved")
    assert pal_command("pairing", "reject", "telegram:43").out == "telegram:43 may not write.\n"
    listed = pal_command("pairing", "list", "--json").json["pairings"]
    assert [(each["sender"], each["status"]) for each in listed] == [("42", "approved")]


def test_a_wrong_code_is_one_sentence_and_a_hint(pal_command: Pal, asked: Home) -> None:
    told = pal_command("pairing", "approve", "WRONG234")
    assert told.code != 0
    assert told.err == ("pal: there is no such code, or it is older than an hour (`pal pairing list` shows them)\n")


@pytest.mark.parametrize(("era", "agent"), [("a", "ledger"), ("b", "weather")])
def test_bindings_and_pairings_of_an_openclaw_home_act_here(pal_command: Pal, home: Home, era: str, agent: str) -> None:
    folder = os.environ.get("FIXTURES")
    if not folder:
        pytest.skip("FIXTURES does not name the OpenClaw homes")
    done = pal_command("migrate", "openclaw", str(Path(folder, f"openclaw-{era}", "home")), "--apply")
    assert "telegram: 1 sender who was let in there may write here too" in done.out
    place = ("--channel", "telegram", "--peer", "group:-1007000000023", "--json")
    route = pal_command("route", "explain", *place).json
    assert (route["agentId"], route["tier"], route["binding"]) == (agent, "peer", 0)
    assert route["sessionKey"] == f"agent:{agent}:telegram:group:-1007000000023"
    person = pal_command("route", "explain", "--channel", "telegram", "--peer", "direct:7000000017", "--json").json
    assert person["sessionKey"] == "agent:main:telegram:direct:7000000017"
    let_in = pal_command("pairing", "list", "--json").json["pairings"]
    assert [each["sender"] for each in let_in] == ["7000000017"]
