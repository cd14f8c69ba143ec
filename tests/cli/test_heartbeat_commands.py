"""`pal heartbeat` as a person at a terminal, or a script, uses it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from called import Pal
from served_model import ServedModel

from palinurus.config.home import Home
from palinurus.config.source import parse
from support.wire import Says

LIST = "- Is the milk out?"


def heartbeat_in(home: Home) -> Any:
    return parse(home.config_path.read_text())["agents"]["defaults"].get("heartbeat")


def test_it_is_off_until_it_is_turned_on_and_says_before_what_it_will_cost(
    pal_command: Pal, served: ServedModel, home: Home
) -> None:
    (status,) = pal_command("heartbeat", "status", "--json").json["heartbeats"]
    assert (status["agent"], status["on"], status["nextAt"]) == ("main", False, None)
    before = home.config_path.read_text()
    seen = pal_command("heartbeat", "enable", "--dry-run", "--json").json
    assert (seen["on"], seen["written"], seen["everyMs"]) == (False, False, 1_800_000)
    made = seen["forecast"]
    assert made["looks"] == 1440
    assert 0 <= made["tokens"]["low"] < made["tokens"]["expected"] < made["tokens"]["high"]
    assert made["dollars"] is None
    assert "The price of the model is not known." in made["remarks"]
    refused = pal_command("heartbeat", "enable")
    assert refused.code != 0
    assert "use --yes" in refused.err
    assert "nine of ten months" in refused.err
    assert home.config_path.read_text() == before

    done = pal_command("heartbeat", "enable", "--every", "1h", "--yes", "--json").json
    assert (done["on"], done["written"], done["everyMs"]) == (True, True, 3_600_000)
    assert heartbeat_in(home) == {"every": "1h"}
    (status,) = pal_command("heartbeat", "status", "--json").json["heartbeats"]
    assert status["on"]
    assert status["nextAt"]
    assert "main: every 1 h, next" in pal_command("heartbeat", "status").out

    assert "is off" in pal_command("heartbeat", "disable").out
    assert heartbeat_in(home) == {"every": "0m"}
    (status,) = pal_command("heartbeat", "status", "--json").json["heartbeats"]
    assert (status["on"], status["nextAt"]) == (False, None)
    assert "was off already" in pal_command("heartbeat", "disable").out


def test_a_price_makes_dollars(pal_command: Pal, served: ServedModel, home: Home) -> None:
    served.configure(home, models=[{"id": "m", "cost": {"input": 3, "output": 15}}])
    made = pal_command("heartbeat", "enable", "--dry-run", "--json").json["forecast"]
    assert 0 < made["dollars"]["expected"] < made["dollars"]["high"]
    assert made["dollars"]["expected"] / made["tokens"]["expected"] == pytest.approx(3.6e-6, rel=0.01)
    assert "cost         $" in pal_command("heartbeat", "enable", "--dry-run").out


def test_run_looks_now_though_nothing_stays_and_wake_needs_one_that_is_on(
    pal_command: Pal, served: ServedModel, home: Home
) -> None:
    (home.root / "workspace").mkdir(exist_ok=True)
    (home.root / "workspace" / "HEARTBEAT.md").write_text(LIST)
    served.says(Says("The milk is out."))
    done = pal_command("heartbeat", "run", "--json").json
    assert (done["status"], done["text"]) == ("ran", "The milk is out.")
    shown = pal_command("sessions", "show", "main").out
    assert "The milk is out." in shown
    off = pal_command("heartbeat", "wake", "hello")
    assert off.code != 0
    assert "the heartbeat of main is off" in off.err
    pal_command("heartbeat", "enable", "--yes")
    assert pal_command("heartbeat", "wake", "hello", "--mode", "next-heartbeat", "--json").json["mode"] == (
        "next-heartbeat"
    )
    assert pal_command("heartbeat", "status", "--json").json["heartbeats"][0]["notes"] == 1


def test_turning_one_agent_on_or_off_leaves_the_others_as_they_are(pal_command: Pal, home: Home) -> None:
    agents = {"list": [{"id": "main", "default": True}, {"id": "work"}, {"id": "idle", "heartbeat": {"every": "0m"}}]}
    home.config_path.write_text(json.dumps({"agents": agents}))

    def on() -> list[str]:
        found = pal_command("heartbeat", "status", "--json").json["heartbeats"]
        return [each["agent"] for each in found if each["on"]]

    assert on() == []
    pal_command("heartbeat", "enable", "--agent", "work", "--yes")
    assert on() == ["work"]
    pal_command("heartbeat", "enable", "--yes")
    assert on() == ["main", "work"]
    pal_command("heartbeat", "disable", "--agent", "work")
    assert on() == ["main"]
    agents = {"defaults": {"heartbeat": {"every": "2h"}}, "list": [{"id": "main"}, {"id": "work"}]}
    home.config_path.write_text(json.dumps({"agents": agents}))
    assert on() == ["main", "work"]
    pal_command("heartbeat", "disable", "--agent", "work")
    assert on() == ["main"]


def test_what_is_no_time_or_too_short_is_refused(pal_command: Pal) -> None:
    for every in ("soon", "10s", "0m"):
        refused = pal_command("heartbeat", "enable", "--every", every, "--yes")
        assert refused.code != 0
        assert "a minute" in refused.err or "is not a time" in refused.err
