"""What a SKILL.md says about itself, in all the ways in which people write it."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.domain.errors import BadRequest
from palinurus.skills.manifest import read_manifest
from palinurus.skills.skill import Install, Requires, SkillManifest


def manifest(front: str, folder: str = "folder") -> SkillManifest:
    return read_manifest(f"---\n{front}\n---\nBody\n".encode(), folder)


BARE = "name: weather\ndescription: Tells the weather.\n"


def test_the_convention_is_read() -> None:
    found = manifest(
        BARE + "license: MIT\ncompatibility: any\nhomepage: https://example.org\nallowed-tools: Read Bash(git:*)\n"
        "user-invocable: false\ndisable-model-invocation: true\nversion: 1.10"
    )
    assert found == SkillManifest(
        "weather",
        "Tells the weather.",
        homepage="https://example.org",
        version="1.10",
        license="MIT",
        compatibility="any",
        allowed_tools="Read Bash(git:*)",
        user_invocable=False,
        model_invocable=False,
    )


METADATA = {
    "yaml": 'metadata:\n  openclaw:\n    emoji: "⛅"\n    always: true\n    os: [macos, linux]\n    requires:\n'
    "      bins: [curl]\n      anyBins: [a, b]\n      env: [KEY]\n      config: [browser.enabled]\n    primaryEnv: KEY",
    "json in a line": 'metadata: {"openclaw": {"emoji": "⛅", "always": true, "os": ["darwin", "linux"], "requires":'
    ' {"bins": ["curl"], "anyBins": ["a", "b"], "env": ["KEY"], "config": ["browser.enabled"]}, "primaryEnv": "KEY"}}',
    "json5 over lines": "metadata:\n  {\n    openclaw: {\n      emoji: '⛅', always: true,\n"
    "      os: ['darwin', 'linux'],\n"
    "      requires: { bins: ['curl'], anyBins: ['a', 'b'], env: ['KEY'], config: ['browser.enabled'], },\n"
    "      primaryEnv: 'KEY',\n    },\n  }",
    "json as text": 'metadata: \'{"clawdbot": {emoji: "⛅", always: true, os: ["darwin", "linux"], requires: {bins:'
    ' ["curl"], anyBins: ["a", "b"], env: ["KEY"], config: ["browser.enabled"]}, primaryEnv: "KEY"}}\'',
    "an older name": 'metadata: {"moltbot": {"emoji": "⛅", "always": true, "os": ["darwin", "linux"], "requires":'
    ' {"bins": ["curl"], "anyBins": ["a", "b"], "env": ["KEY"], "config": ["browser.enabled"]}, "primaryEnv": "KEY"}}',
}


@pytest.mark.parametrize("how", METADATA)
def test_metadata_means_the_same_however_it_is_written(how: str) -> None:
    found = manifest(BARE + METADATA[how])
    assert found == SkillManifest(
        "weather",
        "Tells the weather.",
        emoji="⛅",
        always=True,
        os=("darwin", "linux"),
        requires=Requires(("curl",), ("a", "b"), ("KEY",), ("browser.enabled",)),
        primary_env="KEY",
    )


def test_ways_to_install_are_read_and_unknown_ones_are_remarked() -> None:
    found = manifest(
        BARE + 'metadata: {"openclaw": {"install": [{"id": "b", "kind": "brew", "formula": "x/y/z", "bins": ["z"],'
        ' "label": "Install z"}, {"kind": "go", "module": "example.org/m@v1"}, {"kind": "curl-pipe-sh"}, 7]}}'
    )
    assert found.install == (
        Install("brew", "b", "Install z", ("z",), package="x/y/z"),
        Install("go", package="example.org/m@v1"),
    )
    assert found.remarks == ("its install kind 'curl-pipe-sh' is unknown", "one of its install specs is not an object")


def test_front_matter_that_is_no_yaml_is_read_line_by_line() -> None:
    found = manifest('name: weather\ndescription: Use when: it rains\nmetadata: {"openclaw": {"emoji": "x"}}')
    assert (found.description, found.emoji) == ("Use when: it rains", "x")
    assert "is not YAML (line 3: mapping values are not allowed" in found.remarks[0]


def test_a_skill_without_a_name_is_called_like_its_folder() -> None:
    assert manifest("description: Something.", "the-folder").name == "the-folder"


def test_words_that_yaml_takes_for_something_else_stay_words() -> None:
    found = manifest("name: on\ndescription: 2026-01-01\nversion: 1.0")
    assert (found.name, found.description, found.version) == ("on", "2026-01-01", "1.0")


def test_a_command_may_call_a_tool_directly() -> None:
    assert manifest(BARE + "command-dispatch: tool\ncommand-tool: web_fetch").dispatch_tool == "web_fetch"
    assert manifest(BARE + "command-dispatch: tool").remarks == ("its command-dispatch names no command-tool",)


def test_capabilities_are_read_where_they_stand() -> None:
    front = BARE + "capabilities:\n  tools: [web_fetch]\n  hosts: [API.example.org, '*.example.net:8443', 'http://x']\n"
    found = manifest(front).capabilities
    assert (found.tools, found.hosts, found.paths) == (("web_fetch",), ("api.example.org", "*.example.net:8443"), None)
    inside = manifest(
        BARE + 'metadata: {"palinurus": {"capabilities": {"tools": ["read"], "paths": ["notes", "../x"]}}}'
    )
    assert (inside.capabilities.tools, inside.capabilities.paths) == (("read",), ("notes",))


def test_capabilities_that_make_no_sense_allow_nothing() -> None:
    assert manifest(BARE + "capabilities: everything").capabilities.tools == ()


REFUSED = {
    "no description": ("name: x", "it has no description"),
    "a path": ("name: ../../etc\ndescription: d", "is a path, not a name"),
    "a hidden folder": ("name: .ssh\ndescription: d", "is a path, not a name"),
    "another path": ("name: 'a\\b'\ndescription: d", "is a path, not a name"),
    "long": (f"name: {'x' * 65}\ndescription: d", "its name has 65 characters"),
    "signs": ("name: '---'\ndescription: d", "contains neither a letter nor a digit"),
    "long talk": (f"name: x\ndescription: {'d' * 5000}", "its description has 5,000 characters"),
    "twice": ("name: x\ndescription: d\nname: y", "has the key 'name' twice"),
    "twice below": ("name: x\ndescription: d\nmetadata: {a: {b: 1, b: 2}}", "has the key 'b' twice"),
    "twice by line": ("name: x\ndescription: a: b\nname: y", "has the key 'name' twice"),
    "deep": ("name: x\ndescription: d\nmetadata: " + "[" * 40 + "]" * 40, "nested more than 16 deep"),
    "wide": ("name: x\ndescription: d\nmetadata: [" + "1," * 5000 + "]", "more than 4,000 values"),
    "a list": ("- a\n- b", "cannot be read"),
    "a bell": ("name: x\ndescription: d\x07", "control character U+0007"),
    "escape": ("name: x\ndescription: \x1b[2J", "control character U+001B"),
    "an escaped bell": ('name: x\ndescription: "d\\a"', "its description contains the control character U+0007"),
    "bidi": ("name: x\ndescription: d\u202egod", "hidden character U+202E"),
    "tags": ("name: x\ndescription: d\U000e0041", "hidden character U+E0041"),
    "an escaped tag": ('name: "x\\u200b"\ndescription: d', "its name contains the hidden character U+200B"),
    "complex key": ("? [a, b]\n: c\nname: x\ndescription: d", "a key that is not plain text"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_skill_is_refused_with_its_reason(case: str) -> None:
    front, reason = REFUSED[case]
    with pytest.raises(BadRequest, match=r"^it") as caught:
        manifest(front)
    assert reason in caught.value.message


@given(st.binary(max_size=400))
def test_any_bytes_are_a_manifest_or_a_reason(data: bytes) -> None:
    for text in (data, b"---\nname: x\ndescription: d\n" + data + b"\n---\n"):
        with suppress(BadRequest):
            found = read_manifest(text, "folder")
            assert found.name
            assert found.description


@given(st.text(alphabet="abn&*:-[]{}!|>'\"\n \t#,?%@", max_size=200))
def test_any_yaml_is_a_manifest_or_a_reason(text: str) -> None:
    with suppress(BadRequest):
        assert manifest(BARE + text).name
