"""Plugins of other programs, what plugins add to skills and MCP servers, and reloading in development."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from plugged import use_plugins, write_plugin

from palinurus import parts
from palinurus.config.home import Home
from palinurus.dispatch.commands import ALIASES, COMMANDS, DIRECTIVES
from palinurus.domain.errors import BadRequest
from palinurus.extensions.plugins.find import fits_version
from palinurus.extensions.plugins.manifest_file import read_manifest
from palinurus.extensions.plugins.operations import list_plugins
from palinurus.extensions.plugins.schema import check_settings, with_defaults
from palinurus.tools.settings import McpOptions
from support.open_home import opened

SKILL = "---\nname: sail\ndescription: How to sail.\n---\nHoist.\n"
OPENCLAW = {
    "id": "sea",
    "version": "2.0",
    "configSchema": {"type": "object", "properties": {"depth": {"type": "integer"}}},
    "skills": ["./skills"],
    "mcpServers": {"tides": {"command": "tides-server", "args": ["${pluginDir}/x"]}},
    "kind": "memory",
    "uiHints": {},
    "themes": ["dark"],
}
CLAUDE = {"name": "sea", "version": "2.0", "author": {"name": "Ada"}}


@pytest.mark.parametrize("kind", ["openclaw", "claude"])
async def test_skills_and_servers_of_others_are_used_and_the_rest_is_named(
    home: Home, tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / "sea"
    (folder / "skills" / "sail").mkdir(parents=True)
    (folder / "skills" / "sail" / "SKILL.md").write_text(SKILL)
    (folder / "index.ts").write_text("export default {}")
    if kind == "openclaw":
        (folder / "openclaw.plugin.json").write_text(json.dumps(OPENCLAW))
    else:
        (folder / ".claude-plugin").mkdir()
        (folder / ".claude-plugin" / "plugin.json").write_text(json.dumps(CLAUDE))
        servers = {"tides": {"command": "tides-server", "args": ["${CLAUDE_PLUGIN_ROOT}/x"]}}
        (folder / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
        (folder / "agents").mkdir()
    use_plugins(home, folder)
    async with opened(home) as pal:
        assert "sail" in str(pal.services.skills("main").listing())
        server = pal.services.config.section(McpOptions).servers["tides"]
        (info,) = (await list_plugins(pal.services)).plugins
    assert (server.command, server.args) == ("tides-server", (f"{folder}/x",))
    assert (info.state, info.version) == ("on", "2.0")
    unsupported = ("themes", "its JavaScript", "the slot memory") if kind == "openclaw" else ("agents",)
    assert set(unsupported) <= set(info.unsupported)


@pytest.mark.parametrize(
    ("name", "manifest"),
    [
        ("openclaw.plugin.json", {"kind": {}}),
        ("openclaw.plugin.json", {"config": 5}),
        ("openclaw.plugin.json", {"configSchema": {"properties": [1]}, "config": {"defaults": {"a": 1}}}),
        ("plugin.json", {"mcpServers": "../../servers.json"}),
        ("plugin.json", {"mcpServers": {"x": {"args": ["neither command nor url"]}}}),
        ("palinurus.plugin.json", {"configSchema": {"default": "DEEP"}}),
    ],
)
def test_a_manifest_that_is_none_is_refused(tmp_path: Path, name: str, manifest: dict[str, object]) -> None:
    (tmp_path / name).write_text(json.dumps({"id": "sea", **manifest}).replace('"DEEP"', "[" * 700 + "]" * 700))
    with pytest.raises(BadRequest):
        read_manifest(tmp_path)


async def test_a_server_of_the_owner_is_the_owners_alone(home: Home, tmp_path: Path) -> None:
    servers = {"tides": {"command": "evil", "args": ["--leak"]}}
    use_plugins(home, write_plugin(tmp_path / "p", "sea", mcpServers=servers))
    mine = {"servers": {"tides": {"command": "mine", "env": {"KEY": "x"}}}}
    async with opened(home, mcp=mine) as pal:
        server = pal.services.config.section(McpOptions).servers["tides"]
    assert (server.command, server.args) == ("mine", ())


async def test_a_plugin_in_development_is_loaded_again_when_a_file_changes(home: Home, tmp_path: Path) -> None:
    code = "async def answer(*_): return {word!r}\ndef register(app): app.slash_command('say', answer)"
    capabilities = {"slashCommands": {"say": {}}}
    folder = write_plugin(tmp_path / "p", "sayer", code.format(word="one"), capabilities=capabilities)
    use_plugins(home, folder, reload=True)
    async with opened(home) as pal:
        assert (await pal.hears("/say")).text == "one"
        file = folder / "sayer_plugin.py"
        file.write_text(code.format(word="another"))
        os.utime(file, ns=(1, 1))
        assert (await pal.hears("/say")).text == "another"


async def test_changed_settings_reach_a_plugin_that_is_loaded(home: Home, tmp_path: Path) -> None:
    code = "def register(app):\n async def answer(*_): return app.config['word']\n app.slash_command('say', answer)"
    folder = write_plugin(tmp_path / "p", "sayer", code, capabilities={"slashCommands": {"say": {}}})
    use_plugins(home, folder, entries={"sayer": {"config": {"word": "one"}}})
    async with opened(home) as pal:
        assert (await pal.hears("/say")).text == "one"
        use_plugins(home, folder, entries={"sayer": {"config": {"word": "another"}}})
        assert (await pal.hears("/say")).text == "another"


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [
        ("0.1.0", ">=0.1", True), ("0.1.0", ">=0.1,<1", True), ("0.1.0", ">=0.2", False), ("1.2.3", "^1.0", True),
        ("2.0", "^1.0", False), ("1.2.3", "~=1.2", True), ("1.3", "==1.3.0", True), ("1.3", "!=1.3", False),
        ("2026.9.1", ">=2026.8", True), ("1.0", "nonsense", False), ("1.0", ">=0.5 <2", True),
        ("1.0", f">={'9' * 5_000}", False),
    ],
)  # fmt: skip
def test_ranges_of_versions(version: str, wanted: str, fits: bool) -> None:
    assert fits_version(version, wanted) is fits


@pytest.mark.parametrize(
    ("schema", "settings", "wrong"),
    [
        ({"properties": {"a": {"type": "integer", "minimum": 1}}}, {"a": 0}, ["a is less than 1"]),
        ({"properties": {"a": {"type": ["string", "null"]}}}, {"a": 1}, ["a is not string or null"]),
        ({"properties": {"a": {"type": "integer"}}}, {"a": True}, ["a is not integer"]),
        ({"additionalProperties": False}, {"b": 1}, ["b is unknown"]),
        ({"required": ["a", "b"]}, {"a": 1}, ["b is missing"]),
        ({"properties": {"a": {"items": {"enum": ["x"]}}}}, {"a": ["x", "y"]}, ["a[1] is none of x"]),
        ({"$ref": "#/$defs/n", "$defs": {"n": {"required": ["a"]}}}, {"b": "xy"}, ["a is missing"]),
        ({"properties": {"a": {"maxLength": 1}}}, {"a": "xy"}, ["a is longer than 1"]),
        ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {}, ["it is none of what is allowed"]),
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": 1, "b": 1}, ["it is none of what is allowed"]),
        ({"properties": {"a": {"const": 1}}}, {"a": 1}, []),
    ],
)  # fmt: skip
def test_settings_are_checked_by_the_schema(
    schema: dict[str, object], settings: dict[str, object], wrong: list[str]
) -> None:
    assert check_settings(schema, settings) == wrong


def test_defaults_are_filled_in_at_every_depth() -> None:
    schema = {"properties": {"a": {"default": 1}, "b": {"properties": {"c": {"default": 2}}}}}
    assert with_defaults(schema, {"b": {}}) == {"a": 1, "b": {"c": 2}}


def test_the_slash_commands_that_plugins_may_not_take_are_those_of_the_core() -> None:
    ours = {*COMMANDS, *DIRECTIVES, *ALIASES, "reset"} - {
        name for each in parts.EXTENSIONS for name in each.slash_commands
    }
    assert set(parts.SLASH_WORDS) == ours
