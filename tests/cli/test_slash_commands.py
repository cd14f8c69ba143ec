"""Slash commands and models as a person at a shell meets them, with a model server on this machine."""

from __future__ import annotations

from called import Pal
from served_model import ServedModel

from palinurus.config.home import Home
from palinurus.dispatch.commands import COMMANDS, DIRECTIVES


def test_a_typo_in_piped_chat_is_told_on_the_side_and_the_rest_goes_on(pal_command: Pal, served: ServedModel) -> None:
    ended = pal_command("chat", stdin="/hlep\n/think banana\n/skill\n/queue bogus\nhello\n/quit\nnever read\n")
    assert ended.code == 1
    assert len(served.asked) == 1
    assert "did you mean /help?" in ended.err
    assert "/think cannot be 'banana'" in ended.err
    assert "which skill?" in ended.err
    assert "/queue cannot be 'bogus'" in ended.err


def test_a_typo_in_one_message_fails_and_says_so(pal_command: Pal, served: ServedModel) -> None:
    ended = pal_command("agent", "-m", "/hlep")
    assert (ended.code, ended.out) == (1, "")
    assert "unknown command /hlep; did you mean /help?" in ended.err
    assert pal_command("agent", "-m", "/hlep", "--json").json["errorKind"] == "refused"
    assert served.asked == []


def test_every_command_of_the_help_does_something_without_the_model(pal_command: Pal, served: ServedModel) -> None:
    shown = pal_command("agent", "-m", "/help").out
    for name in (*COMMANDS, *DIRECTIVES, "reset", "id", "model list", "model default", "context detail"):
        assert f"/{name.split()[0]}" in shown
        ended = pal_command("agent", "-m", f"/{name}")
        assert (ended.code, ended.err) == (0, ""), name
        assert ended.out.strip(), name
    assert served.asked == []


def test_a_model_that_is_none_is_refused_and_the_others_are_listed(pal_command: Pal, served: ServedModel) -> None:
    for name in ("nosuch", "mock/nosuch", "nobody/m", "embedded/nope"):
        refused = pal_command("agent", "-m", f"/model {name}")
        assert refused.code == 1, name
        assert "/model list" in refused.err, name
    assert "did you mean mock/m?" in pal_command("agent", "-m", "/model mock/m3").err
    listed = pal_command("agent", "-m", "/model list").out
    assert "mock/m2" in listed
    assert "/model default" in listed
    assert "mock/m2" in pal_command("agent", "-m", "/model m2").out
    pal_command("agent", "-m", "hello")
    assert "mock/m (the default)" in pal_command("agent", "-m", "/model default").out
    pal_command("agent", "-m", "hello")
    assert served.asked == ["m2", "m"]


def test_a_fresh_start_takes_a_model_and_refuses_one_that_is_none(pal_command: Pal, served: ServedModel) -> None:
    assert "The session was reset with mock/m2." in pal_command("agent", "-m", "/new mock/m2").out
    assert pal_command("agent", "-m", "/new mock/nosuch").code == 1
    assert served.asked == []
    pal_command("agent", "-m", "/new m hello")
    assert served.asked == ["m"]


def test_a_model_without_a_key_is_not_confirmed(pal_command: Pal, served: ServedModel) -> None:
    refused = pal_command("agent", "-m", "/model openai/gpt-5-mini")
    assert refused.code == 1
    assert "pal models auth add openai" in refused.err


def test_a_bare_name_means_the_one_provider_that_there_is(pal_command: Pal, home: Home, served: ServedModel) -> None:
    served.configure(home, "m2")
    assert pal_command("models", "status", "--json").json["model"] == "mock/m2"
    assert "is not a model" not in pal_command("doctor").out
    assert "mock/m2" in pal_command("models", "list").out
    assert pal_command("config", "set", "agents.defaults.model", "m2").err == ""
    assert pal_command("agent", "-m", "hello").code == 0
    assert set(served.asked) == {"m2"}


def test_a_bare_name_of_two_providers_is_refused_with_both(pal_command: Pal, home: Home, served: ServedModel) -> None:
    served.configure(home, "m")
    pal_command("config", "set", "models.providers.other.baseUrl", served.server.base_url)
    refused = pal_command("agent", "-m", "hello")
    assert refused.code == 1
    assert "say which: mock/m or other/m" in refused.err
    assert served.asked == []


def test_the_window_is_the_one_that_the_server_tells(pal_command: Pal, home: Home, served: ServedModel) -> None:
    served.server.about = {"m": {"context_length": 131_072}, "m2": {"meta": {"n_ctx_train": 65_536}}}
    assert pal_command("models", "status", "--json").json["contextWindow"] == 131_072
    assert "of 131,072 tokens" in pal_command("agent", "-m", "/status").out
    served.configure(home, "mock/m2")
    assert pal_command("models", "status", "--json").json["contextWindow"] == 65_536
    served.configure(home, "mock/m2", models=[{"id": "m2", "contextWindow": 9_000}])
    assert pal_command("models", "status", "--json").json["contextWindow"] == 9_000


def test_the_list_has_the_models_of_the_configured_provider(pal_command: Pal, home: Home, served: ServedModel) -> None:
    served.server.about = {"m": {"max_model_len": 131_072}}
    served.configure(home, {"primary": "mock/m", "fallbacks": ["mock/unlisted"]})
    listed = {model["ref"]: model["info"] for model in pal_command("models", "list", "--json").json}
    assert {"mock/m", "mock/m2", "mock/unlisted"} <= set(listed)
    assert listed["mock/m"]["contextWindow"] == 131_072
    served.close()
    assert "mock/m" in pal_command("models", "list").out


def test_the_status_counts_compactions_and_the_context_goes_into_detail(pal_command: Pal, served: ServedModel) -> None:
    pal_command("agent", "-m", "hello")
    assert "0 compactions" in pal_command("agent", "-m", "/status").out
    assert pal_command("agent", "-m", "/compact").code == 0
    assert "1 compaction\n" in pal_command("agent", "-m", "/status").out
    plain, detail = (pal_command("agent", "-m", text).out for text in ("/context list", "/context detail"))
    assert len(detail.splitlines()) > len(plain.splitlines())
