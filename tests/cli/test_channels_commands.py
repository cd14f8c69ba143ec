"""`pal channels`: what it writes into the config, what it refuses, and what `pal doctor` says of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from called import Pal
from click.shell_completion import ShellComplete

from palinurus.cli.command import complete_channels
from palinurus.cli.shell import pal
from palinurus.config.home import Home
from palinurus.extensions.channels.commands import channels as group
from support.telegram_server import TelegramServer


@pytest.fixture
def telegram() -> Iterator[TelegramServer]:
    with TelegramServer() as server:
        yield server


@pytest.fixture
def ready(pal_command: Pal, telegram: TelegramServer) -> Pal:
    assert pal_command("config", "set", "channels.telegram.apiRoot", telegram.url).code == 0
    return pal_command


def add(pal_command: Pal, telegram: TelegramServer, *more: str) -> Any:
    return pal_command("channels", "add", "telegram", "--stdin", *more, stdin=f"botToken={telegram.token}\n")


def accounts(pal_command: Pal) -> list[str]:
    listed = pal_command("channels", "list", "--json").json["channels"]
    return [f"{each['channel']}:{each['account']}" for each in listed]


def test_a_second_account_leaves_the_first_one_as_it_is(ready: Pal, telegram: TelegramServer) -> None:
    assert add(ready, telegram).code == 0
    assert add(ready, telegram, "--account", "Work").code == 0
    assert accounts(ready) == ["telegram:default", "telegram:work"]
    assert "telegram:work" in ready("channels", "list").out
    assert ready("channels", "remove", "telegram", "--account", "work").code == 0
    assert accounts(ready) == ["telegram:default"]
    assert "ok " in ready("channels", "test", "telegram").out  # its token is still there
    assert add(ready, telegram).code == 0  # once more, with the token that holds now
    assert accounts(ready) == ["telegram:default"]


def test_the_last_account_takes_its_channel_with_it(ready: Pal, telegram: TelegramServer) -> None:
    assert add(ready, telegram, "--account", "work").code == 0
    assert "there is no account 'home'" in ready("channels", "remove", "telegram", "--account", "home").err
    assert ready("channels", "remove", "telegram", "--account", "work").code == 0
    assert accounts(ready) == []
    assert "there is no channel 'telegram'" in ready("channels", "remove", "telegram").err


def test_a_failed_check_saves_nothing_unless_it_is_forced(ready: Pal, telegram: TelegramServer, home: Home) -> None:
    before = home.config_path.read_text()
    telegram.network.refuse_token()
    ended = add(ready, telegram)
    assert ended.code == 1
    assert "Nothing was saved" in ended.out
    assert telegram.token not in ended.out + ended.err
    assert home.config_path.read_text() == before
    forced = add(ready, telegram, "--force", "--json")
    assert (forced.code, forced.json["saved"]) == (0, True)
    assert json.loads(home.config_path.read_text())["channels"]["telegram"]["botToken"] == telegram.token


@pytest.mark.parametrize(
    ("words", "stdin", "said"),
    [
        (("add", "telegram"), "", "needs botToken"),
        (("add", "telegram", "--stdin"), "", "echo botToken="),
        (("add", "telegram", "--stdin"), "botToken", "not KEY=VALUE"),
        (("add", "telegram", "--set", "colour=red"), "", "has no 'colour'"),
        (("test", "telegrm"), "", "did you mean telegram?"),
        (("test", "slack"), "", "pal channels add slack"),
        (("manifest", "discord"), "", "there is one for slack"),
    ],
)
def test_what_is_wrong_is_one_line_with_what_to_do(
    pal_command: Pal, words: tuple[str, ...], stdin: str, said: str
) -> None:
    ended = pal_command("channels", *words, stdin=stdin)
    assert ended.code in (1, 2)
    assert said in ended.err
    assert len(ended.err.strip().splitlines()) == 1


def test_the_manifest_for_slack_has_our_commands(pal_command: Pal) -> None:
    made = pal_command("channels", "manifest", "slack").json
    assert "/new" in [each["command"] for each in made["features"]["slash_commands"]]
    assert made["settings"]["socket_mode_enabled"] is True
    posted = pal_command("channels", "manifest", "slack", "--url", "https://pal.example.org/slack/events").json
    assert posted["settings"]["event_subscriptions"]["request_url"] == "https://pal.example.org/slack/events"


def test_doctor_says_what_each_account_lacks(pal_command: Pal, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in (("telegram.enabled", "true"), ("discord.token", "abc"), ("slack.enabled", "false")):
        assert pal_command("config", "set", f"channels.{key}", value).code == 0
    checks = pal_command("doctor", "--no-model", "--json").json["checks"]
    found = {each["name"]: each for each in checks if each["name"].startswith("channel ")}
    assert found.keys() == {"channel telegram:default", "channel discord:default"}
    assert found["channel telegram:default"]["state"] == "bad"
    assert "botToken" in found["channel telegram:default"]["what"]
    assert "@BotFather" in found["channel telegram:default"]["todo"]
    assert found["channel discord:default"]["state"] == "ok"
    assert "no gateway runs" in found["channel discord:default"]["what"]
    monkeypatch.setitem(sys.modules, "palinurus.extensions.channels.discord.channel", None)
    checks = pal_command("doctor", "--no-model", "--json").json["checks"]
    [discord] = [each for each in checks if each["name"] == "channel discord:default"]
    assert "library that is not installed" in discord["what"]
    assert discord["todo"] == "pip install 'palinurus[discord]'"


def test_channels_that_are_set_up_are_completed(ready: Pal) -> None:
    for command in ("test", "remove", "logs"):
        assert complete_channels in [each._custom_shell_complete for each in group.commands[command].params]
    found = ShellComplete(pal, {}, "pal", "_PAL_COMPLETE").get_completions(["channels", "remove"], "t")
    assert [each.value for each in found] == ["telegram"]
