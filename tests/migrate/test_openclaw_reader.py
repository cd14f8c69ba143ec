"""Transcripts as files, in the forms they have had, and all that can be wrong with them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import zstandard
from foreign_trees import T, Tree, header, jsonl, look, only, said, talk

from palinurus.domain.errors import NotFound
from palinurus.extensions.migrate import files as reading
from palinurus.extensions.migrate.files import find_openclaw
from palinurus.extensions.migrate.openclaw.home import OpenClawHome


def test_the_words_of_an_entry_are_kept_as_they_were_written(tree: Tree) -> None:
    odd = b'{"type": "message",  "id":"a","unheardOf":[1.50, 1e3], "message":{"role":"user","content":"\\u00e9"}}'
    tree.session("s", [header("s"), odd], key="agent:main:main")
    with OpenClawHome(tree.root, tree.root) as home:
        (session,) = home.sessions()
        entries = list(session.read())
    assert entries[1].row.payload.encode() == odd
    assert entries[1].text == "é"
    assert json.loads(session.details)["unheardOf"] == {"x": [1]}


def test_a_list_of_bare_messages_is_read(tree: Tree) -> None:
    tree.write("agents/main/sessions/sessions.json", '[{"id": "abc", "name": "tides", "created_at": "2026-04-15"}]')
    bare = [
        {"role": "user", "content": "when?", "timestamp": T},
        {"role": "tool", "name": "exec", "input": {"command": "date"}},
        {"role": "tool_result", "name": "exec", "content": {"exit": 0}},
        {"role": "assistant", "content": [{"type": "text", "text": "now"}, {"type": "text", "text": "or never"}]},
    ]
    tree.write("agents/main/sessions/abc.jsonl", jsonl(bare))
    found = only(tree.root)
    assert found.entries == {"flat:assistant": 1, "flat:tool": 1, "flat:tool_result": 1, "flat:user": 1}
    assert (found.key, found.label, found.texts) == ("agent:main:explicit:abc", "tides", 2)


def test_lines_of_the_first_version_get_ids(tree: Tree) -> None:
    plain = {"type": "message", "timestamp": T, "message": {"role": "user", "content": "hi"}}
    tree.session("s", [{"type": "session", "id": "s", "timestamp": T}, plain, plain], key="main")
    with OpenClawHome(tree.root, tree.root) as home:
        (session,) = home.sessions()
        assert [entry.row.id for entry in session.read()] == ["s", "line-2", "line-3"]
    assert session.key == "agent:main:main"


def test_a_bad_line_costs_that_line(tree: Tree) -> None:
    bad = [b"{not json", b'"a text"', b'{"neither": 1}', b'{"type":"message","id":"x","message":{"role":"user\xff"}}']
    tree.session("s", [header("s"), *bad, said("a", "still here")], key="agent:main:main")
    (found,), skipped = look(tree.root)
    assert found.entries == {"session": 1, "message": 1}
    assert [(loss.line, loss.file.rpartition("/")[2]) for loss in skipped] == [(n, "s.jsonl") for n in (2, 3, 4, 5)]
    assert "JSON" in skipped[0].reason
    assert "UTF-8" in skipped[3].reason


def test_a_file_that_was_cut_off_loses_its_last_line_only(tree: Tree) -> None:
    path = tree.session("s", talk("s", "one", "two"), key="agent:main:main")
    path.write_bytes(path.read_bytes()[:-20])
    (found,), skipped = look(tree.root)
    assert found.messages == {"user": 1}
    assert [loss.line for loss in skipped] == [3]


def test_a_line_beyond_all_measure_is_passed_over(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading.stream_lines, "__defaults__", (1000,))
    tree.session("s", [header("s"), said("long", "x" * 5000), said("a", "short")], key="agent:main:main")
    (found,), skipped = look(tree.root)
    assert found.texts == 1
    assert [(loss.line, "longer" in loss.reason) for loss in skipped] == [(2, True)]


def test_half_a_surrogate_pair_is_no_reason_to_lose_a_message(tree: Tree) -> None:
    half = b'{"type":"message","id":"a","message":{"role":"user","content":"moon \\ud83c"}}'
    tree.session("s", [header("s"), half], key="agent:main:main")
    assert only(tree.root).texts == 1


@pytest.mark.parametrize("what", ["reset", "deleted"])
@pytest.mark.parametrize("packed", [False, True])
def test_archives_are_read(tree: Tree, what: str, packed: bool) -> None:
    data = jsonl(talk("old", "once"))
    name = f"agents/main/sessions/old.jsonl.{what}.2026-11-15T19-50-46.405Z"
    tree.write(f"{name}.abc.zst" if packed else name, zstandard.compress(data) if packed else data)
    found = only(tree.root)
    assert (found.session_id, found.origin, found.archived, found.texts) == ("old", what, True, 1)


def test_a_damaged_archive_gives_what_stands_before_the_damage(tree: Tree) -> None:
    lines = [header("old"), *(said(f"e{n}", os.urandom(3000).hex()) for n in range(200))]
    packed = zstandard.compress(jsonl(lines))
    tree.write("agents/main/sessions/old.jsonl.deleted.2026.zst", packed[: len(packed) // 2])
    (found,), skipped = look(tree.root)
    assert 10 < found.texts < 200
    assert len(skipped) == 1


def test_topics_and_what_nobody_names_are_read(tree: Tree) -> None:
    tree.session("s", talk("s", "hi"), key="agent:main:main")
    tree.session("t-topic-42", talk("t", "in a topic"))
    found, _ = look(tree.root)
    assert [(f.session_id, f.key, f.origin) for f in found] == [
        ("s", "agent:main:main", "live"),
        ("t", "agent:main:explicit:t-topic-42", "unreferenced"),
    ]


def test_two_keys_of_one_transcript_are_told_apart(tree: Tree) -> None:
    tree.session("s", talk("s", "hi"), key="agent:main:cron:1")
    tree.session("s", talk("s", "hi"), key="agent:main:cron:1:run:2")
    found, _ = look(tree.root)
    assert [(f.key, f.same_as) for f in found] == [
        ("agent:main:cron:1", ""),
        ("agent:main:cron:1:run:2", "agent:main:cron:1"),
    ]


def test_a_store_that_is_broken_costs_the_keys_and_not_the_words(tree: Tree) -> None:
    tree.session("s", talk("s", "hi"), key="agent:main:main")
    tree.write("agents/main/sessions/sessions.json", '{"agent:main:main": {"sessionId": "s"')
    (found,), (loss,) = look(tree.root)
    assert (found.session_id, found.texts, found.origin) == ("s", 1, "unreferenced")
    assert loss.file == "agents/main/sessions/sessions.json"


@pytest.mark.parametrize("row", ["[]", "7", '{"sessionId": "../../etc/passwd"}', '{"sessionId": 5}', "{}"])
def test_a_row_that_makes_no_sense_is_told(tree: Tree, row: str) -> None:
    tree.write("agents/main/sessions/sessions.json", f'{{"agent:main:main": {row}}}')
    found, skipped = look(tree.root)
    assert found == []
    assert len(skipped) == 1


def test_links_and_pipes_are_neither_followed_nor_waited_for(tree: Tree, tmp_path: Path) -> None:
    outside = tmp_path / "outside.jsonl"
    outside.write_bytes(jsonl(talk("x", "not yours")))
    folder = tree.session("s", talk("s", "hi"), key="agent:main:main").parent
    (folder / "link.jsonl").symlink_to(outside)
    os.mkfifo(folder / "pipe.jsonl")
    (tree.root / "workspace").mkdir()
    (tree.root / "workspace" / "MEMORY.md").symlink_to(outside)
    found, skipped = look(tree.root)
    assert [f.session_id for f in found] == ["s"]
    assert [loss.file for loss in skipped] == ["agents/main/sessions/link.jsonl"]
    with OpenClawHome(tree.root, tree.root) as home:
        assert list(home.workspace_files()) == []
        assert [loss.file for loss in home.losses.listed] == ["workspace/MEMORY.md"]


@pytest.mark.parametrize("name", ["openclaw", "moltbot", "clawdbot"])
def test_homes_of_every_name_are_found(tmp_path: Path, name: str) -> None:
    tree = Tree(tmp_path / f".{name}")
    (tree.root / "openclaw.json").rename(tree.root / f"{name}.json")
    assert find_openclaw({}, tmp_path) == tree.root
    assert find_openclaw({}, tmp_path, tmp_path) == tree.root
    assert find_openclaw({f"{name.upper()}_STATE_DIR": str(tree.root)}, tmp_path / "else") == tree.root
    with OpenClawHome(tree.root, tmp_path) as home:
        assert home.config.file == f"{name}.json"


def test_where_no_home_is_one_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no OpenClaw home"):
        find_openclaw({}, tmp_path)
    with pytest.raises(NotFound, match="is not an OpenClaw home"):
        find_openclaw({}, tmp_path, tmp_path)


def test_the_oldest_homes_had_one_agent_and_no_folder_for_it(tmp_path: Path) -> None:
    root = tmp_path / ".clawdbot"
    (root / "sessions").mkdir(parents=True)
    (root / "sessions" / "sessions.json").write_text('{"main": {"sessionId": "s", "updatedAt": 1}}')
    (root / "sessions" / "s.jsonl").write_bytes(jsonl(talk("s", "hi")))
    found = only(root)
    assert (found.agent, found.key, found.texts) == ("main", "agent:main:main", 1)


@pytest.mark.parametrize(
    "agents",
    [
        '{"list": [{"id": "main"}, {"id": "Night Watch", "workspace": "/home/sam/.openclaw/spaces/night"}]}',
        '{"entries": {"main": {}, "night-watch": {"workspace": "~/.openclaw/spaces/night"}}}',
    ],
)
def test_a_home_that_was_carried_here_still_has_its_workspaces(tree: Tree, agents: str) -> None:
    tree.write("openclaw.json", f'{{"agents": {agents}}}')
    tree.write("spaces/night/MEMORY.md", "dark")
    tree.write("workspace/MEMORY.md", "light")
    with OpenClawHome(tree.root, Path("/home/nobody")) as home:
        assert {agent.id: agent.workspace for agent in home.agents} == {
            "main": tree.root / "workspace",
            "night-watch": tree.root / "spaces" / "night",
        }


def test_a_config_that_cannot_be_read_costs_the_names_of_agents_only(tree: Tree) -> None:
    tree.write("openclaw.json", "{ agents: ")
    tree.session("s", talk("s", "hi"), key="agent:night:main", agent="night")
    (found,), (loss,) = look(tree.root)
    assert (found.agent, loss.file) == ("night", "openclaw.json")


def test_skills_tell_where_they_came_from(tree: Tree) -> None:
    tree.write("workspace/skills/tides/SKILL.md", "---\nname: tide-table\ndescription: x\n---\n")
    tree.write("workspace/.clawhub/lock.json", '{"version": 1, "skills": {"tides": {"version": "1.2.0"}}}')
    tree.write("skills/deep/er/SKILL.md", "no front matter")
    tree.write(
        "skills/deep/er/.clawdhub/origin.json", '{"registry": "https://hub", "slug": "er", "installedVersion": "3"}'
    )
    with OpenClawHome(tree.root, tree.root) as home:
        skills = {skill.name: (skill.agent, skill.slug, skill.version, skill.registry) for skill in home.skills()}
    assert skills == {"tide-table": ("main", "tides", "1.2.0", ""), "er": ("", "er", "3", "https://hub")}


def test_what_is_not_taken_is_named(tree: Tree) -> None:
    tree.write("devices/paired.json", '{"a": {"deviceId": "a"}, "b": {"deviceId": "b"}}')
    tree.write("identity/device.json", '{"deviceId": "a", "privateKeyPem": "hidden"}')
    tree.write("subagents/runs.json", '{"version": 2, "runs": {"r": {}}}')
    tree.write("canvas/index.html", "")
    state = tree.state_database()
    state.execute("CREATE TABLE audit_events (x)")
    state.execute("CREATE TABLE subagent_runs (x)")
    state.execute("INSERT INTO audit_events VALUES (1), (2)")
    state.execute("INSERT INTO subagent_runs VALUES (1)")
    state.close()
    with OpenClawHome(tree.root, tree.root.parent) as home:
        assert home.notes == [
            "2 paired devices not imported: pair them here again",
            "1 device identity not imported: this home has its own",
            "2 subagent runs not imported: their sessions are",
            "rows that are not imported: audit_events (2)",
            "files that are not imported: canvas",
        ]
