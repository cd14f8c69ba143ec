"""`pal tools` on a real home: what it shows to people and to programs."""

from __future__ import annotations

from called import Pal

GROUP = "agent:main:telegram:group:-100"


def test_tools_are_listed_with_what_decided(pal_command: Pal) -> None:
    pal_command("config", "set", "tools.deny", '["memory_write"]')
    shown = pal_command("tools", "list")
    assert (shown.code, shown.err) == (0, "")
    rows = {line.split()[1]: line for line in shown.out.splitlines()[1:]}
    assert rows["read"].startswith("yes")
    assert rows["memory_write"].startswith("no")
    assert "tools.deny has memory_write" in rows["memory_write"]
    listed = pal_command("tools", "list", "--session-key", GROUP, "--json").json
    assert {tool["name"]: tool["allowed"] for tool in listed["tools"]}["read"] is False


def test_a_tool_is_explained_layer_by_layer_under_any_of_its_names(pal_command: Pal) -> None:
    shown = pal_command("tools", "explain", "file_read", "--session-key", GROUP)
    lines = shown.out.splitlines()
    assert lines[1].startswith("- profile")
    assert lines[-1].startswith("read may not be used")
    told = pal_command("tools", "explain", "read", "--json").json
    assert (told["name"], told["verdict"]["allowed"]) == ("read", True)
    assert [step["layer"] for step in told["verdict"]["chain"]][-1] == "restriction"


def test_before_the_first_run_the_configured_provider_decides_too(pal_command: Pal) -> None:
    pal_command("config", "set", "models.providers.mine.baseUrl", "http://127.0.0.1:9/v1")
    pal_command("config", "set", "agents.defaults.model", "mine/small")
    pal_command("config", "set", "tools.byProvider", '{"mine": {"deny": ["exec"]}}')
    told = pal_command("tools", "explain", "exec", "--json").json
    assert (told["model"], told["verdict"]["allowed"], told["verdict"]["layer"]) == ("mine/small", False, "provider")
    listed = pal_command("tools", "list", "--json").json
    assert {tool["name"]: tool["allowed"] for tool in listed["tools"]}["exec"] is False


def test_the_help_says_what_form_a_value_has(pal_command: Pal) -> None:
    told = pal_command("tools", "explain", "--help").out
    assert "pal tools explain [OPTIONS] NAME" in told
    assert "--model PROVIDER/MODEL" in told
    assert "--sender CHANNEL:ID" in told


def test_a_tool_that_there_is_not_is_one_clear_line(pal_command: Pal) -> None:
    ended = pal_command("tools", "explain", "raed")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "pal: there is no tool 'raed' (`pal tools list` shows them)\n"


def test_what_other_homes_have_is_known_to_the_config_and_said_to_be_absent(pal_command: Pal) -> None:
    wanted = '["group:ui", "group:nodes", "browser", "canvas", "nodes"]'
    assert pal_command("config", "set", "tools.deny", wanted).code == 0
    checked = pal_command("config", "validate")
    assert (checked.code, checked.err) == (0, "")
    assert "no tool called" not in pal_command("doctor").out
    for name in ("browser", "canvas", "nodes"):
        shown = pal_command("tools", "explain", name).out
        assert f"But there is no tool {name} here: this version has no such tool." in shown
    assert "the config leaves it out" in pal_command("tools", "explain", "apply_patch").out
    assert "(this version has no such tool)" in pal_command("tools", "explain", "group:ui").err
