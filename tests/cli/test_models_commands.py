"""`pal models` and `pal usage` as a person calls them."""

from __future__ import annotations

import json
import stat

import pytest
from called import Pal

from palinurus.cli.ledger import chart
from palinurus.config.home import Home
from palinurus.domain.messages import Usage
from palinurus.ledger.usage import UsageTotal, grand_total
from palinurus.operations.ledger import UsageReport

SECRET = "sk-ABCDEF0123456789abcdef"


def test_set_takes_a_short_name_and_writes_the_full_one(pal_command: Pal) -> None:
    assert pal_command("models", "set", "sonnet", "--json").json == {"model": "anthropic/claude-sonnet-5-5", "ok": True}
    assert pal_command("config", "get", "agents.defaults.model").out.strip() == "anthropic/claude-sonnet-5-5"


def test_set_refuses_a_provider_that_nothing_is_known_about(pal_command: Pal) -> None:
    ended = pal_command("models", "set", "nobody/model")
    assert ended.code == 2
    assert "unknown provider" in ended.err


def test_fallbacks_are_added_listed_removed_and_cleared_and_the_primary_stays(pal_command: Pal) -> None:
    assert pal_command("models", "fallbacks", "add", "gpt-mini").code == 0
    assert pal_command("models", "fallbacks", "add", "ollama/qwen3", "--json").json == [
        "openai/gpt-6-luna",
        "ollama/qwen3",
    ]
    assert pal_command("models", "fallbacks", "remove", "gpt-mini", "--json").json == ["ollama/qwen3"]
    assert pal_command("config", "get", "agents.defaults.model.primary").out.strip() == "embedded/scout"
    assert pal_command("models", "fallbacks", "remove", "gpt-mini").code == 1
    assert pal_command("models", "fallbacks", "clear").out.strip() == "No fallbacks."


def test_a_short_name_moves_to_another_model_and_goes_away_again(pal_command: Pal) -> None:
    pal_command("models", "aliases", "add", "fast", "groq/openai/gpt-oss-120b")
    pal_command("models", "aliases", "add", "fast", "ollama/qwen3")
    own = [alias for alias in pal_command("models", "aliases", "list", "--json").json if not alias["built_in"]]
    assert own == [{"alias": "fast", "ref": "ollama/qwen3", "built_in": False}]
    assert pal_command("models", "aliases", "remove", "fast").code == 0
    ended = pal_command("models", "aliases", "remove", "opus")
    assert ended.code == 1
    assert "built in" in ended.err


def test_list_shows_what_can_be_used_and_all_shows_the_rest(pal_command: Pal) -> None:
    usable = [model["ref"] for model in pal_command("models", "list", "--json").json]
    assert usable == ["embedded/scout"]
    pal_command("models", "auth", "add", "openai", stdin=SECRET)
    assert "openai/gpt-6-sol" in pal_command("models", "list").out
    assert "(no key)" in pal_command("models", "list", "--all").out


def test_a_key_is_read_from_standard_input_kept_for_its_owner_alone_and_never_shown(
    pal_command: Pal, home: Home
) -> None:
    added = pal_command("models", "auth", "add", "openai", "--name", "work", stdin=f"{SECRET}\n")
    assert added.code == 0, added.err
    path = home.root / "credentials.json"
    assert json.loads(path.read_text())["profiles"]["openai:work"]["key"] == SECRET
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    shown = [added, pal_command("models", "auth", "list"), pal_command("models", "auth", "list", "--json")]
    shown += [pal_command("models", "status"), pal_command("models", "status", "--json")]
    assert all("openai:work" in ended.out for ended in shown)
    assert not any(SECRET in ended.out + ended.err for ended in shown)


def test_removing_a_key_forgets_it_and_one_that_we_do_not_keep_is_explained(
    pal_command: Pal, monkeypatch: pytest.MonkeyPatch, home: Home
) -> None:
    pal_command("models", "auth", "add", "openai", stdin=SECRET)
    assert pal_command("models", "auth", "remove", "openai:default").code == 0
    assert SECRET not in (home.root / "credentials.json").read_text()
    monkeypatch.setenv("GROQ_API_KEY", "groq-key-0123456789")
    assert "groq:env" in pal_command("models", "auth", "list").out
    ended = pal_command("models", "auth", "remove", "groq:env")
    assert ended.code == 1
    assert "unset its variable" in ended.err


def test_a_key_of_a_provider_that_nobody_knows_is_stored_with_a_word(pal_command: Pal) -> None:
    ended = pal_command("models", "auth", "add", "openia", stdin=SECRET)
    assert (ended.code, "did you mean openai?" in ended.err) == (0, True)
    assert pal_command("models", "auth", "add", "openai", stdin=SECRET).err == ""


def test_a_provider_with_one_key_names_it_and_one_with_several_is_asked_which(pal_command: Pal, home: Home) -> None:
    pal_command("models", "auth", "add", "openai", stdin=SECRET)
    pal_command("models", "auth", "add", "openai", "--name", "work", stdin=f"{SECRET}work")
    several = pal_command("models", "auth", "remove", "openai")
    assert (several.code, "openai:default, openai:work" in several.err) == (2, True)
    pal_command("models", "auth", "remove", "openai:work")
    assert "openai:default is removed" in pal_command("models", "auth", "remove", "openai").out
    assert SECRET not in (home.root / "credentials.json").read_text()
    assert pal_command("models", "auth", "remove", "openai").code == 1


def test_a_key_that_is_not_ours_to_remove_says_where_it_is(pal_command: Pal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "groq-key-0123456789")
    assert "unset its variable" in pal_command("models", "auth", "remove", "groq").err


@pytest.mark.parametrize("typed", ["", "   \n", "two words", "schlüssel"])
def test_what_can_be_no_key_is_refused_and_not_stored(pal_command: Pal, home: Home, typed: str) -> None:
    assert pal_command("models", "auth", "add", "openai", stdin=typed).code == 2
    assert not (home.root / "credentials.json").exists()


def test_a_test_of_the_embedded_model_succeeds(pal_command: Pal) -> None:
    ended = pal_command("models", "test", "scout")
    assert ended.code == 0, ended.err
    assert ended.out.startswith("embedded/scout answers")


def test_a_test_of_a_model_without_a_key_fails_with_its_type(pal_command: Pal) -> None:
    ended = pal_command("models", "test", "openai/gpt-5-mini", "--json")
    assert ended.code == 1
    assert ended.json["errorKind"] == "auth"


def test_a_fallback_is_told_on_the_side_and_its_answer_is_the_output(pal_command: Pal) -> None:
    pal_command("models", "set", "openai/gpt-5-mini")
    pal_command("models", "fallbacks", "add", "scout")
    told = "openai/gpt-5-mini has no key; going on with embedded/scout"
    for ended in (pal_command("agent", "-m", "help"), pal_command("chat", stdin="help\n")):
        assert ended.code == 0
        assert told in ended.err
        assert told not in ended.out
        assert "No language model" in ended.out


def test_usage_counts_the_calls_that_were_made(pal_command: Pal) -> None:
    assert pal_command("usage").out.strip() == "No usage yet."
    pal_command("agent", "-m", "hello")
    report = pal_command("usage", "--by", "model", "--json").json
    assert [(total["name"], total["calls"]) for total in report["totals"]] == [("embedded/scout", 1)]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_chart_fits_the_terminal_and_its_bars_show_the_shares(width: int) -> None:
    totals = (
        UsageTotal("2026-11-14", 4, Usage(input=2_000_000), 1.5),
        UsageTotal("2026-11-15", 2, Usage(input=1_000_000), 0.0, 2),
        UsageTotal("2026-11-16", 1, Usage(input=1), 0.001),
    )
    lines = chart(UsageReport("day", totals, grand_total(totals)), width).splitlines()
    assert max(map(len, lines)) <= max(width, 46)
    bars = [line.count("#") for line in lines[:3]]
    assert bars[0] > bars[1] > bars[2] >= 1
    assert abs(bars[0] - 2 * bars[1]) <= 1
    assert lines[0].endswith("$1.50")
    assert lines[1].endswith("-")
    assert lines[-1] == "2 of 7 calls have no known price."


def test_a_long_name_is_shortened_in_the_middle() -> None:
    name = "agent:main:telegram:group:" + "x" * 80 + ":topic:7"
    totals = (UsageTotal(name, 1, Usage(input=10), 0.0),)
    line = chart(UsageReport("session", totals, grand_total(totals)), 80).splitlines()[0]
    assert len(line) <= 80
    assert line.startswith("agent:main")
    assert "topic:7" in line


def test_a_stored_key_is_used_for_the_address_that_it_was_stored_for(pal_command: Pal) -> None:
    pal_command("config", "set", "models.providers.house.baseUrl", "http://127.0.0.1:8001/v1")
    pal_command("models", "auth", "add", "house", stdin=SECRET)

    def listed() -> tuple[list[str], str]:
        told = pal_command("models", "auth", "list", "--json").json
        return [each["id"] for each in told["credentials"]], " ".join(told["troubles"])

    assert listed() == (["house:default"], "")
    pal_command("config", "set", "models.providers.house.baseUrl", "http://127.0.0.1:8001/v2")
    assert listed() == (["house:default"], "")
    pal_command("config", "set", "models.providers.house.baseUrl", "http://127.0.0.1:8002/v1")
    known, troubles = listed()
    assert known == []
    assert "house:default was stored for http://127.0.0.1:8001" in troubles
    pal_command("models", "auth", "add", "house", stdin=SECRET)
    assert listed() == (["house:default"], "")
