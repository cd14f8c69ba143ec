"""Channels of an OpenClaw home: the same people are let in here, and there again after an export."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from called import Pal

from palinurus.config.home import Home
from palinurus.config.load import load_config
from palinurus.dispatch.admission import admission_policy, admit
from palinurus.domain.envelope import Peer
from palinurus.extensions.migrate.channel_export import channel_config

KNOWN, UNKNOWN, GROUP = "7000000017", "7000000019", "-1007000000023"
TELEGRAM = {"enabled": False, "dmPolicy": "pairing", "groups": {GROUP: {"requireMention": True}}}


def let_in(pal_command: Pal) -> list[str]:
    listed = pal_command("pairing", "list", "--json").json["pairings"]
    return [f"{each['channel']}:{each['account']}:{each['sender']}" for each in listed if each["status"] == "approved"]


@pytest.fixture
def bare(home: Home) -> Home:
    home.config_path.write_text("{}\n")
    return home


@pytest.mark.parametrize("name", ["openclaw-a", "openclaw-b", "openclaw-c"])
def test_the_same_people_are_let_in_here_and_after_an_export_there(
    pal_command: Pal, bare: Home, tmp_path: Path, name: str
) -> None:
    if not (folder := os.environ.get("FIXTURES")):
        pytest.skip("FIXTURES does not name the OpenClaw homes")
    source = Path(folder, name, "home")
    report = pal_command("migrate", "openclaw", str(source), "--apply", "--json").json
    files = sorted(path.name for path in source.glob("credentials/*.json"))
    paired = bool(files)  # the home of era C has none
    config = load_config(bare, {}).config
    policy = admission_policy(config, "telegram", "default")
    assert policy.settings.dm_policy == "pairing"
    assert policy.settings.groups[GROUP].require_mention is True
    on = msgspec.structs.replace(policy, settings=msgspec.structs.replace(policy.settings, enabled=True))
    assert admit(policy, Peer(KNOWN), KNOWN, paired=paired).outcome == "refused"  # it is switched off there too
    assert admit(on, Peer(KNOWN), KNOWN, paired=paired).outcome == ("admitted" if paired else "pairing")
    assert admit(on, Peer(UNKNOWN), UNKNOWN, paired=False).outcome == "pairing"
    assert let_in(pal_command) == ([f"telegram:default:{KNOWN}"] if paired else [])
    secret = "telegram: its secrets are imported by `--keys`; or `pal config set channels.telegram.botToken`"
    assert secret in report["notes"]

    assert pal_command("export", str(tmp_path / "out")).code == 0
    written = json.loads((tmp_path / "out" / "openclaw.json").read_text())
    said = json.loads((source / "openclaw.json").read_text())
    assert written["channels"] == {"telegram": TELEGRAM}
    assert {name: each for name, each in written["session"].items() if name != "reset"} == said["session"]
    assert written.get("bindings") == said.get("bindings")
    assert sorted(path.name for path in tmp_path.glob("out/credentials/*")) == files
    for file in files:
        assert (tmp_path / "out" / "credentials" / file).read_bytes() == (source / "credentials" / file).read_bytes()


def test_who_was_removed_or_let_in_here_is_so_in_an_export(pal_command: Pal, bare: Home, tmp_path: Path) -> None:
    theirs = tmp_path / ".openclaw"
    (theirs / "credentials").mkdir(parents=True)
    (theirs / "openclaw.json").write_text("{}")
    for name, senders in (("telegram", ["1", "2"]), ("telegram-office", ["3"]), ("slack", ["U4"])):
        listed = json.dumps({"version": 1, "allowFrom": senders})
        (theirs / "credentials" / f"{name}-allowFrom.json").write_text(listed)
    assert pal_command("migrate", "openclaw", str(theirs), "--apply").code == 0
    for sender in ("telegram:1", "telegram:office:3"):
        assert pal_command("pairing", "reject", sender).code == 0
    assert pal_command("export", str(tmp_path / "out")).code == 0
    folder = tmp_path / "out" / "credentials"
    now = {path.name: json.loads(path.read_text())["allowFrom"] for path in folder.iterdir()}
    assert now == {
        "telegram-allowFrom.json": ["2"],
        "telegram-office-allowFrom.json": [],
        "slack-allowFrom.json": ["U4"],
    }


def test_whatsapp_by_qr_code_is_named_with_what_to_do(pal_command: Pal, bare: Home, tmp_path: Path) -> None:
    theirs = tmp_path / ".openclaw"
    (theirs / "credentials" / "whatsapp" / "home").mkdir(parents=True)
    (theirs / "credentials" / "whatsapp" / "home" / "creds.json").write_text("{}")
    (theirs / "openclaw.json").write_text(json.dumps({"channels": {"whatsapp": {"allowFrom": ["+491"]}}}))
    notes = pal_command("migrate", "openclaw", str(theirs), "--json").json["notes"]
    (note,) = [each for each in notes if each.startswith("whatsapp: ")]
    assert note.startswith("whatsapp: account home is paired by QR code, which is not carried over: set up a number")
    (theirs / "credentials" / "whatsapp" / "home" / "creds.json").unlink()
    notes = pal_command("migrate", "openclaw", str(theirs), "--json").json["notes"]
    assert any(each.startswith("whatsapp: account default is paired by QR code") for each in notes)


@pytest.mark.parametrize(
    ("channels", "written"),
    [
        ({"telegram": {"botToken": "1:x", "tokenFile": "/t", "apiRoot": "http://x"}}, {}),
        ({"email": {"address": "a@b"}, "webhook": {"secret": "s"}, "defaults": {"historyLimit": 3}}, {}),
        ({"whatsapp": {"phoneNumberId": "1", "allowFrom": ["+1"]}}, {"whatsapp": {"allowFrom": ["+1"]}}),
        ({"discord": {"token": "x", "groups": {"1": {}}, "historyLimit": 3}}, {"discord": {"historyLimit": 3}}),
        (
            {"telegram": {"defaultAccount": "a", "accounts": {"a": {"botToken": "1:x", "dmPolicy": "open"}}}},
            {"telegram": {"defaultAccount": "a", "accounts": {"a": {"dmPolicy": "allowlist"}}}},
        ),
    ],
)
def test_openclaw_gets_only_the_keys_that_it_has_and_no_secret(
    channels: dict[str, Any], written: dict[str, Any]
) -> None:
    assert channel_config({"channels": channels}).get("channels", {}) == written
