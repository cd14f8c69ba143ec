"""`pal config set`, `patch` and `validate`: a slip is refused with what was meant, and what nothing reads is told."""

from __future__ import annotations

import re

import pytest
from called import Pal

from palinurus.config.home import Home


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("agents.defaults.modl", "agents.defaults.model"),
        ("agents.default.model", "agents.defaults.model"),
        ("agents.defaults.Model", "agents.defaults.model"),
        ("model", "agents.defaults.model"),
        ("models.providers.mine.baseURL", "models.providers.mine.baseUrl"),
        ("session.reset.idleMinuts", "session.reset.idleMinutes"),
    ],
)
def test_a_key_that_nobody_knows_is_refused_with_the_one_that_was_meant(
    pal_command: Pal, home: Home, typed: str, meant: str
) -> None:
    before = home.config_path.read_text()
    ended = pal_command("config", "set", typed, "x/y")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert f"{typed} is not a config key (did you mean {meant}?" in ended.err
    assert home.config_path.read_text() == before


def test_with_force_it_is_kept_and_may_then_be_changed_like_any_other(pal_command: Pal) -> None:
    forced = pal_command("config", "set", "--force", "plugins2.colour", "green")
    assert (forced.code, "unknown key, kept but not used" in forced.err) == (0, True)
    assert pal_command("config", "set", "plugins2.colour", "red").code == 0
    assert pal_command("config", "get", "plugins2.colour").out == "red\n"
    assert pal_command("config", "set", "agents.defaults.timeoutSeconds", "30").err == ""


def test_a_patch_with_a_slip_is_refused_and_a_good_one_is_merged(pal_command: Pal) -> None:
    slip = pal_command("config", "patch", "{agents: {defaults: {timeoutSecnds: 30}}}")
    assert (slip.code, "did you mean agents.defaults.timeoutSeconds?" in slip.err) == (2, True)
    assert pal_command("config", "patch", "-", stdin="{agents: {defaults: {timeoutSeconds: 30}}}").code == 0
    assert pal_command("config", "get", "agents.defaults.timeoutSeconds").out == "30\n"
    assert pal_command("config", "get", "agents.defaults.model").out == "embedded/scout\n"
    assert "Nothing changes" in pal_command("config", "patch", "{agents: {defaults: {timeoutSeconds: 30}}}").out


UNUSED = {
    "agents.defaults.compaction.mode": "weird",
    "channels.signal": "{enabled: true}",
    "commands.bash": "true",
    "agents.defaults.agentDir": "/x",
    "agents.defaults.humanDelay": "off",
    "session.sendPolicy": "{default: 'deny'}",
    "tools.fs.workspaceOnly": "false",
    "canvasHost.port": "1",
    "browser.enabled": "true",
}


@pytest.mark.parametrize("key", UNUSED)
def test_a_key_that_nothing_reads_is_told_when_it_is_set_and_whenever_somebody_looks(
    pal_command: Pal, key: str
) -> None:
    place = key.split(".", maxsplit=1)[0] if key.startswith(("browser", "canvas")) else key
    told = f"{place}: kept, and not used by this version"
    ended = pal_command("config", "set", key, UNUSED[key])
    assert (ended.code, told in ended.err) == (0, True)
    validated = pal_command("config", "validate")
    assert (validated.code, told in validated.err, "1 warning(s)" in validated.out) == (0, True, True)
    assert any(told in line for line in pal_command("config", "validate", "--json").json["unused"])
    assert told in pal_command("doctor", "--no-model").out
    in_short = f"1 setting is not used by this version ({place}); `pal config validate` says more"
    assert in_short in pal_command("status").out  # one line for all: an OpenClaw config has dozens


def test_a_value_is_explained_by_the_places_that_say_it(pal_command: Pal, home: Home) -> None:
    home.config_path.write_text(
        "{tools: {exec: {ask: 'off'}},\n agents: {list: [{id: 'ada',\n tools: {exec: {ask: 'always'}}}]},\n"
        " models: {providers: {x: {baseUrl: 'http://127.0.0.1:1', headers: {'X-Key': 'abcdefgh12345678'}}}}}"
    )
    told = pal_command("config", "explain", "tools.exec.ask", "--agent", "ada").out.splitlines()
    assert told[0].startswith("tools.exec.ask: When approval is needed")
    assert told[1:] == [
        '  "always"  agents.list[0].tools.exec.ask (palinurus.json:3), which is used',
        '  "off"  tools.exec.ask (palinurus.json:1)',
        '  "on-miss"  by default',
    ]
    unset = pal_command("config", "explain", "tools.exec.askFallback")
    assert unset.out.endswith('"deny"  by default, which is used\n')
    secret = pal_command("config", "explain", "models.providers.x.headers.X-Key", "--json")
    assert [each["value"] for each in secret.json["said"]] == ["***"]
    assert pal_command("config", "get", "models.providers.x.headers.X-Key").out == "***\n"
    slip = pal_command("config", "explain", "tools.exec.aks")
    assert (slip.code, "did you mean tools.exec.ask?" in slip.err) == (1, True)
    assert pal_command("config", "explain", "tools.exec.ask", "--agent", "bob").code == 1


def test_keys_of_bookkeeping_and_values_that_say_what_is_so_anyway_are_not_told(pal_command: Pal, home: Home) -> None:
    home.config_path.write_text(
        '{"$schema": "x", "meta": {"lastTouchedVersion": "1"}, "session": {"scope": "per-sender", "dmScope": "main"},'
        ' "tools": {"fs": {"workspaceOnly": true}}}'
    )
    ended = pal_command("config", "validate")
    assert (ended.code, ended.err) == (0, "")
    assert "is valid" in ended.out


@pytest.mark.parametrize(("hours", "shape"), [("12", r"\d\d:\d\d [AP]M"), ("24", r"\d\d:\d\d(?! [AP]M)")])
def test_the_time_that_a_message_carries_has_twelve_or_twenty_four_hours(
    pal_command: Pal, hours: str, shape: str
) -> None:
    ended = pal_command("config", "set", "agents.defaults.timeFormat", hours)
    assert (ended.code, ended.err) == (0, "")
    pal_command("agent", "-m", "hi")
    lines = pal_command("sessions", "show", "--json").out
    assert re.search(rf'"time".{{0,40}}\d\d\d\d-\d\d-\d\d {shape}', lines, re.DOTALL)
    assert re.search(rf"time +\w\w\w [-\d]+ {shape}", pal_command("chat", stdin="/status\n").out)
    refused = pal_command("config", "set", "agents.defaults.timeFormat", "13")
    assert (refused.code, "should be auto, 12 or 24" in refused.err) == (2, True)


def test_a_model_of_a_provider_that_nobody_knows_is_set_with_a_word_and_status_says_so_too(pal_command: Pal) -> None:
    ended = pal_command("config", "set", "agents.defaults.model", "opnai/gpt-5")
    assert (ended.code, "did you mean openai/gpt-5?" in ended.err) == (0, True)
    for words in (("status",), ("models", "status")):
        assert "cannot be used: unknown provider 'opnai'" in pal_command(*words).out


def test_a_base_url_that_is_no_address_is_told_when_it_is_set(pal_command: Pal) -> None:
    ended = pal_command("config", "set", "models.providers.mine.baseUrl", "127.0.0.1:8080")
    assert "models.providers.mine.baseUrl: is not an address" in ended.err
    assert pal_command("config", "set", "models.providers.mine.baseUrl", "http://127.0.0.1:8080/v1").err == ""


def test_whoever_reads_or_unsets_what_is_not_there_is_told_what_was_meant(pal_command: Pal) -> None:
    for verb in ("get", "unset"):
        ended = pal_command("config", verb, "agents.defaults.modle")
        assert (ended.code, "did you mean agents.defaults.model?" in ended.err) == (1, True)


def test_an_object_may_be_written_as_it_stands_in_the_guide(pal_command: Pal) -> None:
    assert pal_command("config", "set", "session.reset", "{ mode: 'daily', atHour: 4 }").code == 0
    assert pal_command("config", "get", "session.reset", "--json").json == {"mode": "daily", "atHour": 4}
