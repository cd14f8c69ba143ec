"""`pal agents` as a person at a terminal, or a script, uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from called import Pal

from palinurus.config.agents import agent_settings, default_agent
from palinurus.config.home import Home
from palinurus.config.load import load_config
from palinurus.config.source import parse
from palinurus.workspace.seed import KINDS, template

COMMENTED = """{
  // mine
  agents: {
    list: [
      {id: "main", default: true},  // the first
      {id: "old", name: "Old"},
    ],
  },
  bindings: [
    // the family
    {agentId: "old", match: {channel: "telegram", peer: {kind: "dm", id: "7"}}},
  ],
  unknown: 1,
}
"""


@pytest.fixture
def written(home: Home) -> Path:
    home.config_path.write_text(COMMENTED)
    return home.config_path


def test_an_agent_is_added_with_a_folder_of_its_own_and_listed(pal_command: Pal, home: Home) -> None:
    made = pal_command("agents", "add", "work", "--json").json
    assert (made["agentId"], made["ok"], made["workspace"]) == ("work", True, str(home.root / "workspace-work"))
    assert (home.root / "workspace-work" / "AGENTS.md").is_file()
    listed = pal_command("agents", "list", "--json").json
    assert (listed["defaultId"], [each["id"] for each in listed["agents"]]) == ("main", ["main", "work"])
    assert "* main" in pal_command("agents", "list").out


@pytest.mark.parametrize("kind", KINDS)
def test_a_template_is_what_the_files_say_and_which_tools_there_are(pal_command: Pal, home: Home, kind: str) -> None:
    pal_command("agents", "add", "new", "--template", kind)
    assert (home.root / "workspace-new" / "SOUL.md").read_text() == template("SOUL.md", kind)  # type: ignore[arg-type]
    tools = load_config(home, {}).config.data["agents"]["list"][-1].get("tools")
    assert (tools is None) == (kind == "assistant")


def test_a_folder_that_the_owner_names_is_used_and_keeps_its_files(pal_command: Pal, tmp_path: Path) -> None:
    place = tmp_path / "mine"
    place.mkdir()
    (place / "SOUL.md").write_text("my own\n")
    made = pal_command("agents", "add", "work", "--workspace", str(place), "--json").json
    assert (made["workspace"], (place / "SOUL.md").read_text()) == (str(place), "my own\n")
    assert "SOUL.md" not in made["created"]


def test_what_cannot_be_is_one_line_and_changes_nothing(pal_command: Pal, home: Home, tmp_path: Path) -> None:
    pal_command("agents", "add", "work")
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(home.root / "workspace-work")
    before = home.config_path.read_text()
    for arguments, told in (
        (("work",), "there is an agent 'work' already"),
        (("Sea Captain",), "for example sea-captain"),
        (("../x",), "not an agent's id"),
        (("x" * 65,), "not an agent's id"),
        (("",), "not a name"),
        (("x", "--workspace", str(home.root)), "the home"),
        (("x", "--workspace", str(home.root / "derived")), "inside the home"),
        (("x", "--workspace", str(home.root.parent)), "around"),
        (("x", "--workspace", str(home.root / "workspace-work" / "inside")), "inside the home"),
        (("x", "--workspace", str(tmp_path / "workspace" / "inside")), "inside the workspace of main"),
        (("x", "--workspace", str(tmp_path / "link")), "is the workspace of work"),
        (("x", "--workspace", str(tmp_path / "file")), "is not a folder"),
        (("x", "--model", "nonsense/m"), "unknown provider 'nonsense'"),
        (("x", "--from", "wrk"), "did you mean work?"),
        (("x", "--bind", "a b"), "not a place"),
        (("x", "--with-memory"), "--with-memory needs --from"),
        (("x", "--template", "wizard"), "'wizard' is not one of"),
    ):
        ended = pal_command("agents", "add", *arguments)
        assert (ended.code != 0, told in ended.err, ended.out) == (True, True, ""), (arguments, ended.err)
    assert home.config_path.read_text() == before


def test_from_takes_over_files_skills_and_settings_and_nothing_private(
    pal_command: Pal, home: Home, workspace: Path
) -> None:
    (workspace / "SOUL.md").write_text("dry wit\n")
    (workspace / "MEMORY.md").write_text("a secret of ours\n")
    (workspace / "memory").mkdir(exist_ok=True)
    (workspace / "memory" / "2026-11-18.md").write_text("today\n")
    (workspace / "skills" / "sail").mkdir(parents=True)
    (workspace / "skills" / "sail" / "SKILL.md").write_text("---\nname: sail\ndescription: d\n---\n")
    data = json.loads(home.config_path.read_text())
    own = {"id": "main", "tools": {"deny": ["exec"]}, "identity": {"name": "Ada", "theme": "sea"}, "agentDir": "keys"}
    data["agents"] = {**data.get("agents", {}), "list": [own]}
    home.config_path.write_text(json.dumps(data))
    pal_command("agents", "add", "twin", "--from", "main", "--emoji", "⚓")
    twin = load_config(home, {}).config.data["agents"]["list"][-1]
    assert (twin["tools"], twin["identity"]) == ({"deny": ["exec"]}, {"theme": "sea", "emoji": "⚓"})
    assert "agentDir" not in twin
    there = home.root / "workspace-twin"
    assert (there / "SOUL.md").read_text() == "dry wit\n"
    assert (there / "skills" / "sail" / "SKILL.md").is_file()
    assert not (there / "MEMORY.md").exists()
    assert not list((there / "memory").iterdir())
    pal_command("agents", "add", "heir", "--from", "main", "--with-memory")
    assert (home.root / "workspace-heir" / "MEMORY.md").read_text() == "a secret of ours\n"
    assert (home.root / "workspace-heir" / "memory" / "2026-11-18.md").is_file()


def test_another_default_moves_nobody(pal_command: Pal, home: Home) -> None:
    pal_command("agents", "add", "work")
    before = {each["id"]: each["workspace"] for each in pal_command("agents", "list", "--json").json["agents"]}
    for agent in ("work", "main", "work"):
        assert pal_command("agents", "default", agent).code == 0
        listed = pal_command("agents", "list", "--json").json
        assert listed["defaultId"] == agent
        assert {each["id"]: each["workspace"] for each in listed["agents"]} == before
    assert default_agent(load_config(home, {}).config) == "work"
    assert pal_command("agents", "remove", "work", "--yes").code != 0
    assert pal_command("agents", "add", "third", "--default").code == 0
    assert pal_command("status", "--json").json["agent"] == "third"


def test_an_agent_leaves_with_its_bindings_and_its_files_stay(pal_command: Pal, written: Path, home: Home) -> None:
    asked = pal_command("agents", "remove", "old")
    assert (asked.code != 0, "use --yes" in asked.err) == (True, True)
    gone = pal_command("agents", "remove", "old", "--yes", "--json").json
    assert (gone["agentId"], gone["removedBindings"]) == ("old", 1)
    text = written.read_text()
    assert ("// mine" in text, "// the family" in text, "unknown: 1" in text) == (True, True, True)
    assert parse(text)["bindings"] == []
    assert pal_command("agents", "show", "old").code == 1


def test_show_says_what_holds_and_which_line_says_so(pal_command: Pal, written: Path, home: Home) -> None:
    pal_command("config", "set", "agents.list[1].tools.deny", '["exec"]')
    shown = pal_command("agents", "show", "old", "--json").json
    assert (shown["id"], shown["name"], shown["isDefault"]) == ("old", "Old", False)
    assert shown["agentDir"] == str(home.root / "agents" / "old")
    assert [each["text"] for each in shown["bindings"]] == ["telegram --peer dm:7"]
    settings = {each["key"]: each for each in shown["settings"]}
    assert settings["tools.deny"]["value"] == ["exec"]
    assert settings["tools.deny"]["where"].startswith("palinurus.json:")
    assert settings["sandbox.scope"]["where"] == ""
    told = pal_command("agents", "show", "old").out
    assert "agents.list[1].tools.deny" in told
    assert pal_command("agents", "show", "--json").json["id"] == "main"
    assert "did you mean" in pal_command("agents", "set-identity", "olt", "--name", "x").err


def test_who_an_agent_is_goes_to_the_config_or_to_its_file(pal_command: Pal, written: Path, home: Home) -> None:
    pal_command("setup")
    file = agent_settings(load_config(home, {}).config, home, "old").workspace / "IDENTITY.md"
    done = pal_command("agents", "set-identity", "old", "--vibe", "calm", "--name", "Eve", "--file", "--json").json
    assert (done["identity"]["vibe"], done["file"], done["hidden"]) == ("calm", str(file), [])
    assert file.read_text().count("Name:") == 1
    assert "// the first" in written.read_text()
    pal_command("agents", "set-identity", "old", "--name", "Ada", "--theme", "sea")
    assert pal_command("agents", "set-identity", "old", "--name", "Eva", "--file", "--json").json["hidden"] == ["name"]
    taken = pal_command("agents", "set-identity", "old", "--from-file", "--theme", "", "--json").json
    assert taken["identity"] == {"name": "Eva", "vibe": "calm"}
    assert parse(written.read_text())["agents"]["list"][1]["identity"] == {"name": "Eva", "vibe": "calm"}
    assert "// the first" in written.read_text()
    for wrong in ((), ("--from-file", "--file"), ("--name", "a\x1bb")):
        assert pal_command("agents", "set-identity", "old", *wrong).code != 0


def test_bindings_are_written_behind_the_others_and_taken_out_whole(pal_command: Pal, written: Path) -> None:
    done = pal_command("agents", "bind", "main", "slack", "telegram:ops", "--team", "T1", "--json").json
    assert [each["text"] for each in done["changed"]] == ["slack --team T1", "telegram:ops --team T1"]
    rows = parse(written.read_text())["bindings"]
    assert rows[1:] == [
        {"agentId": "main", "match": {"channel": "slack", "teamId": "T1"}},
        {"agentId": "main", "match": {"channel": "telegram", "accountId": "ops", "teamId": "T1"}},
    ]
    assert "already" in pal_command("agents", "bind", "main", "slack", "--team", "T1").out
    pal_command("agents", "bind", "main", "discord", "--guild", "42", "--role", "7", "--role", "8")
    assert parse(written.read_text())["bindings"][3]["match"] == {
        "channel": "discord",
        "guildId": "42",
        "roles": ["7", "8"],
    }
    taken = pal_command("agents", "bind", "main", "telegram", "--peer", "direct:7")
    assert (taken.code != 0, "is bound to old" in taken.err) == (True, True)
    assert pal_command("agents", "unbind", "old", "telegram").code == 1
    assert pal_command("agents", "unbind", "old", "telegram", "--peer", "direct:7").code == 0
    assert [each["text"] for each in pal_command("agents", "unbind", "main", "--all", "--json").json["left"]] == []
    text = written.read_text()
    assert (parse(text)["bindings"], "// the family" in text) == ([], True)
    for wrong in (
        ("main",),
        ("main", ""),
        ("main", "telegram:"),
        ("main", "telegram", "--peer", "7"),
        ("main", "telegram", "--peer", "person:7"),
        ("main", "discord", "--role", "7"),
        ("nobody", "telegram"),
    ):
        assert pal_command("agents", "bind", *wrong).code != 0, wrong
    assert written.read_text() == text


def test_a_piped_chat_changes_the_agent_too(pal_command: Pal, home: Home) -> None:
    pal_command("agents", "add", "work", "--name", "Ada")
    lines = "/agent\n/agent wrok\n/agent work\nhello there\n/agent\n"
    ended = pal_command("chat", stdin=lines)
    assert "did you mean work?" in ended.err
    assert "work  Ada  embedded/scout  ← here" in ended.out
    assert [each["key"] for each in pal_command("sessions", "list", "--json").json["sessions"]] == ["agent:work:main"]
