"""`pal webhooks` and what `pal doctor` says of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from called import Pal

from palinurus.config.home import Home

TOKEN = "a-hook-token-that-is-long"
SECRET = "a-shared-secret-that-is-long"
SIGNED = {"id": "signed", "signature": {"secret": SECRET}}
GITHUB = {
    "id": "github",
    "name": "GitHub",
    "sessionKey": "hook:issue:{{issue.number}}",
    "messageTemplate": "{{issue.title}} by {{issue.user.login}}",
    "signature": {"secret": SECRET, "scheme": "github"},
}
PING = {"id": "ping", "action": "wake", "match": {"path": "monitor/ping"}}


def configure(home: Home, **sections: Any) -> None:
    home.config_path.write_text(json.dumps(json.loads(home.config_path.read_text()) | sections))


def enable(home: Home, **hooks: Any) -> None:
    configure(home, hooks={"enabled": True, "token": TOKEN, "mappings": [GITHUB, PING], **hooks})


def test_list_shows_paths_and_how_to_authenticate_and_no_secret(pal_command: Pal, home: Home) -> None:
    assert "There are no webhooks" in pal_command("webhooks", "list").out
    enable(home)
    shown = pal_command("webhooks", "list")
    assert shown.out.splitlines() == [
        "/hooks/wake  wake  bearer token",
        "/hooks/agent  agent  bearer token",
        "/hooks/github  agent  signature in x-hub-signature-256  hook:issue:{{issue.number}}",
        "/hooks/monitor/ping  wake  bearer token  main",
    ]
    listed = pal_command("webhooks", "list", "--json").json
    assert listed["enabled"]
    assert listed["webhooks"][2]["auth"] == "signature in x-hub-signature-256"
    enable(home, enabled=False)
    off = pal_command("webhooks", "list").out
    assert "switched off" in off
    assert SECRET not in shown.out + off


def test_test_shows_what_the_agent_would_get_and_runs_nothing(pal_command: Pal, home: Home, tmp_path: Path) -> None:
    enable(home)
    issue = tmp_path / "issue.json"
    issue.write_text('{"issue": {"number": 7, "title": "Rudder {{stuck}}"}}')
    shown = pal_command("webhooks", "test", "github", "--data", str(issue)).out
    assert shown.startswith("agent: agent main, agent:main:hook:issue:7\n[Webhook GitHub:")
    assert "\nRudder {{stuck}} by \n" in shown
    assert "Not in the data: issue.user.login" in shown
    preview = pal_command("webhooks", "test", "/hooks/monitor/ping", "--data", "-", "--json", stdin="disk full").json
    assert (preview["action"], preview["session"]) == ("wake", "main")
    assert preview["text"].endswith("\ndisk full")
    assert pal_command("sessions", "list", "--json").json["sessions"] == []
    wrong = pal_command("webhooks", "test", "gitlab", "--data", str(issue))
    assert wrong.code == 1
    assert "there are: github, monitor/ping" in wrong.err
    broken = pal_command("webhooks", "test", "github", "--data", "-", stdin="{")
    assert broken.code == 2
    assert len(broken.err.strip().splitlines()) <= 2


@pytest.mark.parametrize(
    ("hooks", "gateway", "why"),
    [
        ({"token": "short"}, {}, "could be guessed"),
        ({"token": {"source": "env", "id": "NOT_SET"}}, {}, "does not exist"),
        ({}, {"auth": {"token": TOKEN}}, "the gateway's token"),
        ({"allowRequestSessionKey": True}, {}, "any session"),
        ({"mappings": [SIGNED | {"signature": {"secret": "tiny"}}]}, {}, "hooks.mappings[0].signature.secret"),
    ],
)
def test_doctor_says_what_is_wrong(
    pal_command: Pal, home: Home, hooks: dict[str, Any], gateway: dict[str, Any], why: str
) -> None:
    enable(home, **hooks)
    configure(home, gateway=gateway)
    found = [
        each for each in pal_command("doctor", "--no-model", "--json").json["checks"] if each["name"] == "webhooks"
    ]
    assert any(why in each["what"] for each in found)
    assert all(each["state"] in ("warning", "bad") for each in found)


def test_doctor_is_silent_without_webhooks_and_content_with_good_ones(pal_command: Pal, home: Home) -> None:
    def found() -> list[str]:
        checks = pal_command("doctor", "--no-model", "--json").json["checks"]
        return [each["state"] for each in checks if each["name"] == "webhooks"]

    assert found() == []
    enable(home)
    assert found() == ["ok"]


def test_what_is_wrong_with_the_section_is_said_with_its_place(pal_command: Pal, home: Home) -> None:
    enable(home, mappings=[{"id": "a", "messageTemplate": "{{a b}}"}, {"id": "b", "mesageTemplate": "x"}])
    shown = pal_command("config", "validate")
    assert shown.code == 2
    assert "hooks.mappings[0].messageTemplate" in shown.out + shown.err
    enable(home, mappings=[{"id": "b", "mesageTemplate": "x", "transform": {}}], internal={"enabled": True})
    shown = pal_command("config", "validate")
    assert "did you mean hooks.mappings[0].messageTemplate" in shown.out + shown.err
    assert "hooks.internal: unknown" not in shown.out + shown.err
