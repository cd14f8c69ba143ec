"""Agents and their files through the gateway: nothing outside the few files, nothing lost, nobody vanishes."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from family_asking import Asking
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palinurus.config.agents import agent_ids, default_agent
from palinurus.config.load import load_config
from palinurus.config.source import parse
from palinurus.domain.errors import BadRequest, NotFound, PalinurusError, Stale, WorkspaceError
from palinurus.gateway.protocol import Refused
from palinurus.operations.workspace import NAMES


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


async def test_agents_are_listed_with_openclaw_s_names(ask: Asking, workspace: Path) -> None:
    listed = await ask("agents.list")
    assert (listed["defaultId"], listed["mainKey"], listed["scope"]) == ("main", "main", "per-sender")
    (main,) = listed["agents"]
    assert (main["id"], main["workspace"], main["model"]) == ("main", str(workspace), {"primary": "embedded/scout"})


async def test_a_new_agent_stands_beside_the_one_that_nobody_had_named(ask: Asking) -> None:
    made = await ask("agents.create", name="Sea Captain", model="embedded/scout", emoji="⚓")
    assert (made["agentId"], made["name"], made["ok"]) == ("sea-captain", "Sea Captain", True)
    assert (Path(made["workspace"]) / "AGENTS.md").is_file()
    config = load_config(ask.home, {}).config
    assert agent_ids(config) == ("main", "sea-captain")
    assert default_agent(config) == "main"
    listed = {agent["id"]: agent for agent in (await ask("agents.list"))["agents"]}
    assert listed["sea-captain"]["identity"] == {"name": "Sea Captain", "emoji": "⚓"}
    with pytest.raises(BadRequest, match="already"):
        await ask("agents.create", name="sea captain")


async def test_an_agent_is_changed_and_leaves_with_its_files_kept(ask: Asking) -> None:
    made = await ask("agents.create", name="Anna", model="embedded/scout")
    await ask("agents.create", name="Berta")
    await ask("agents.update", agentId="anna", name="Anna Maria", model=None)
    listed = {agent["id"]: agent for agent in (await ask("agents.list"))["agents"]}
    assert listed["anna"]["name"] == "Anna Maria"
    gone = await ask("agents.delete", agentId="anna", deleteFiles=True)
    assert gone["failed"] == [{"path": made["workspace"], "reason": "files of an agent are deleted by hand only"}]
    assert Path(made["workspace"]).is_dir()
    assert [agent["id"] for agent in (await ask("agents.list"))["agents"]] == ["main", "berta"]
    with pytest.raises(NotFound):
        await ask("agents.delete", agentId="anna")
    with pytest.raises(BadRequest, match="default"):
        await ask("agents.delete", agentId="main")


async def test_the_config_s_own_words_survive_a_new_agent(ask: Asking) -> None:
    path = ask.home.config_path
    path.write_text('{\n  // mine\n  agents: {entries: {home: {name: "Home"}}}, unknown: 1,\n}\n')
    await ask("agents.create", name="Work")
    await ask("agents.update", agentId="home", emoji="🏠")
    text = path.read_text()
    assert "// mine" in text
    assert "unknown: 1" in text
    assert set(agent_ids(load_config(ask.home, {}).config)) == {"home", "work"}


async def test_where_an_agent_lives_is_not_set_by_a_call(ask: Asking) -> None:
    for params in ({"name": "Spy", "workspace": "/"}, {"name": "Spy", "workspace": "~/.ssh"}):
        with pytest.raises(BadRequest, match="cannot be set by a call"):
            await ask("agents.create", **params)
    with pytest.raises(BadRequest):
        await ask("agents.update", agentId="main", workspace="/")
    for name in ("", "  ", "\x00", "!!!", "x" * 100):
        with pytest.raises(BadRequest):
            await ask("agents.create", name=name)


async def test_an_identity_is_what_the_agent_says_of_itself(ask: Asking) -> None:
    assert await ask("agent.identity.get") == {"agentId": "main", "name": "Pilot"}
    assert (await ask("agent.identity.get", sessionKey="agent:main:direct:x"))["agentId"] == "main"


PNG = b"\x89PNG\r\n\x1a\n" + b"pixels"
LOGIC = {"name": "Logic", "emoji": "🤖", "creature": "owl", "vibe": "calm", "theme": "dark", "avatar": "avatars/me.png"}


async def test_an_identity_has_all_that_its_file_says_and_the_picture_itself(ask: Asking, workspace: Path) -> None:
    (workspace / "IDENTITY.md").write_text("---\n" + "".join(f"{k}: {v}\n" for k, v in LOGIC.items()) + "---\n")
    (workspace / "avatars").mkdir()
    (workspace / "avatars" / "me.png").write_bytes(PNG)
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    assert await ask("agent.identity.get") == {"agentId": "main", **LOGIC, "avatarUrl": url}
    assert (await ask("agents.list"))["agents"][0]["identity"] == LOGIC


@pytest.mark.parametrize(
    ("avatar", "url"),
    [
        ("https://example.org/me.png", ""),
        ("data:image/png;base64,AAAA", "data:image/png;base64,AAAA"),
        ("data:text/html,hello", ""),
        ("../outside.png", ""),
        ("link.png", ""),
        ("MEMORY.md", ""),
        ("nothing.png", ""),
        ("/etc/passwd", ""),
    ],
)
async def test_a_picture_comes_from_the_workspace_or_is_data_and_from_nowhere_else(
    ask: Asking, workspace: Path, avatar: str, url: str
) -> None:
    (workspace.parent / "outside.png").write_bytes(PNG)
    (workspace / "link.png").symlink_to("../outside.png")
    (workspace / "IDENTITY.md").write_text(f"- Avatar: {avatar}\n")
    said = await ask("agent.identity.get")
    assert (said["avatar"], said.get("avatarUrl", "")) == (avatar, url)


async def test_what_the_config_says_of_an_agent_wins_over_its_file_in_lists(ask: Asking, workspace: Path) -> None:
    (workspace / "IDENTITY.md").write_text("Name: Ada\nVibe: calm\nTheme: day\n")
    said = {"name": "Nova", "theme": "night"}
    config = {"agents": {"defaults": {"workspace": str(workspace)}, "list": [{"id": "main", "identity": said}]}}
    ask.home.config_path.write_text(json.dumps(config))
    (main,) = (await ask("agents.list"))["agents"]
    assert main["identity"] == {"name": "Nova", "vibe": "calm", "theme": "night"}


async def test_the_files_are_those_that_make_an_agent(ask: Asking, workspace: Path) -> None:
    (workspace / "memory").mkdir()
    (workspace / "memory" / "2026-11-15.md").write_text("a day")
    (workspace / "memory" / "picture.png").write_bytes(b"x")
    (workspace / "secret.txt").write_text("no")
    listed = await ask("agents.files.list", agentId="main")
    assert [file["name"] for file in listed["files"]] == [*NAMES, "memory/2026-11-15.md"]
    missing = [file["name"] for file in listed["files"] if file["missing"]]
    assert missing == ["BOOTSTRAP.md"]
    got = (await ask("agents.files.get", agentId="main", name="SOUL.md"))["file"]
    text = (workspace / "SOUL.md").read_text()
    assert (got["content"], got["size"], got["hash"]) == (text, len(text), hash_of(text))


async def test_a_file_is_written_with_a_copy_of_what_it_held(ask: Asking, workspace: Path) -> None:
    before = (workspace / "SOUL.md").read_text()
    saved = await ask("agents.files.set", name="SOUL.md", content="# New soul\n", baseHash=hash_of(before))
    assert (workspace / "SOUL.md").read_text() == "# New soul\n"
    assert (workspace / saved["backup"]).read_text() == before
    assert saved["file"]["hash"] == hash_of("# New soul\n")
    fresh = await ask("agents.files.set", name="memory/2026-11-16.md", content="tide at nine\n")
    assert fresh["backup"] == ""
    assert (workspace / "memory/2026-11-16.md").stat().st_mode & 0o777 == 0o600


async def test_a_file_that_changed_meanwhile_is_not_overwritten(ask: Asking, workspace: Path) -> None:
    before = (workspace / "SOUL.md").read_text()
    (workspace / "SOUL.md").write_text("edited by hand")
    for name in ("baseHash", "expectedHash"):
        with pytest.raises(Stale):
            await ask("agents.files.set", name="SOUL.md", content="mine", **{name: hash_of(before)})
    assert (workspace / "SOUL.md").read_text() == "edited by hand"
    with pytest.raises(Stale):
        await ask("agents.files.set", name="BOOTSTRAP.md", content="mine", baseHash=hash_of("gone"))


async def test_the_same_content_sent_again_is_harmless(ask: Asking, workspace: Path) -> None:
    before = (workspace / "SOUL.md").read_text()
    for _ in range(2):
        await ask("agents.files.set", name="SOUL.md", content="new", baseHash=hash_of(before))
    assert (workspace / "SOUL.md").read_text() == "new"
    assert len(list((workspace / ".pal/backups/SOUL.md").iterdir())) == 1


@pytest.mark.parametrize(
    "name",
    [
        "secret.txt",
        "../AGENTS.md",
        "/etc/passwd",
        "memory/../SOUL.md",
        "memory/../../x.md",
        "memory/a/b.md",
        "memory/.hidden.md",
        ".git/config",
        "memory/\x00.md",
        "agents.md",
        "",
        "memory/.md",
        "skills/x.md",
    ],
)
async def test_no_other_file_is_read_or_written(ask: Asking, workspace: Path, name: str) -> None:
    (workspace / "secret.txt").write_text("secret")
    with pytest.raises(BadRequest):
        await ask("agents.files.get", name=name)
    with pytest.raises(BadRequest):
        await ask("agents.files.set", name=name, content="x")


async def test_a_link_out_of_the_workspace_is_not_followed(ask: Asking, workspace: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.md"
    outside.write_text("theirs")
    for name, target in (("BOOTSTRAP.md", outside), ("memory", tmp_path)):
        (workspace / name).symlink_to(target)
    for name in ("BOOTSTRAP.md", "memory/outside.md"):
        with pytest.raises(WorkspaceError):
            await ask("agents.files.get", name=name)
        with pytest.raises(WorkspaceError):
            await ask("agents.files.set", name=name, content="mine")
    assert outside.read_text() == "theirs"
    assert len((await ask("agents.files.list"))["files"]) == len(NAMES)


async def test_a_link_into_git_or_the_backups_is_not_written(ask: Asking, workspace: Path) -> None:
    (workspace / ".git").mkdir()
    (workspace / ".git" / "hook.md").write_text("theirs")
    (workspace / "BOOTSTRAP.md").symlink_to(".git/hook.md")
    with pytest.raises(WorkspaceError, match="not written this way"):
        await ask("agents.files.set", name="BOOTSTRAP.md", content="evil")
    assert (workspace / ".git" / "hook.md").read_text() == "theirs"


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.text(max_size=40), content=st.text(max_size=40))
async def test_whatever_it_is_called_nothing_outside_the_list_appears(ask: Asking, name: str, content: str) -> None:
    root = ask.pal.files.boundary.root
    before = {path for path in root.rglob("*") if ".pal" not in path.parts}
    with contextlib.suppress(PalinurusError):
        await ask("agents.files.set", name=name, content=content)
    after = {path for path in root.rglob("*") if ".pal" not in path.parts}
    assert all(path.parent.name == "memory" or path.name in (*NAMES, "memory") for path in after - before)


async def test_a_client_adds_from_a_template_describes_and_chooses_the_default(ask: Asking) -> None:
    made = await ask("agents.create", name="Sea Captain", template="coder")
    assert "Work on code" in (Path(made["workspace"]) / "AGENTS.md").read_text()
    done = await ask("agents.identity.set", agentId="sea-captain", vibe="salty", emoji="⚓")
    assert done["identity"] == {"name": "Sea Captain", "emoji": "⚓", "vibe": "salty"}
    before = {agent["id"]: agent["workspace"] for agent in (await ask("agents.list"))["agents"]}
    await ask("agents.update", agentId="sea-captain", default=True)
    after = await ask("agents.list")
    assert after["defaultId"] == "sea-captain"
    assert {agent["id"]: agent["workspace"] for agent in after["agents"]} == before
    await ask("agents.bind", agentId="main", where=["telegram"], peer="group:-100")
    shown = await ask("agents.show", agent="main")
    assert [each["text"] for each in shown["bindings"]] == ["telegram --peer group:-100"]
    assert (await ask("agents.delete", agentId="main"))["removedBindings"] == 1
    with pytest.raises(BadRequest):
        await ask("agents.create", name="X", template="wizard")


async def test_a_client_gets_no_folder_and_no_loose_rule_by_way_of_another_agent(ask: Asking, tmp_path: Path) -> None:
    loose = {"id": "main", "tools": {"exec": {"security": "full", "ask": "off"}}}
    ask.home.config_path.write_text(json.dumps({"agents": {"list": [loose]}}))
    text = ask.home.config_path.read_text()
    for wrong in ({"id": "x", "workspace": str(tmp_path / "x")}, {"name": "Y", "source": "main"}, {"id": "../x"}):
        with pytest.raises((PalinurusError, Refused)):
            await ask("agents.create", **wrong)
    assert ask.home.config_path.read_text() == text


PLACE = st.builds(
    lambda channel, account, peer: {"where": [f"{channel}:{account}" if account else channel], "peer": peer},
    st.sampled_from(["telegram", "slack", "discord"]),
    st.sampled_from(["", "ops", "*", "a:b"]),
    st.sampled_from(["", "direct:1", "dm:1", "group:-100", "channel:*"]),
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.sampled_from(["main", "work"]), st.booleans(), PLACE), max_size=6))
async def test_whatever_is_bound_and_unbound_each_place_has_one_agent_and_the_rest_stays(
    ask: Asking, changes: list[tuple[str, bool, dict[str, Any]]]
) -> None:
    head = '{\n  // mine\n  agents: {list: [{id: "main", default: true}, {id: "work"}]},\n  other: [1, /* two */ 2],\n'
    ask.home.config_path.write_text(head + "  bindings: [ // rows\n  ],\n}\n")
    expected: dict[str, str] = {}
    for agent, binds, place in changes:
        name = f"{place['where'][0]} {place['peer'].replace('dm:', 'direct:')}"
        with contextlib.suppress(BadRequest, NotFound):
            await ask("agents.bind" if binds else "agents.unbind", agentId=agent, **place)
        if binds:
            expected.setdefault(name, agent)
        elif expected.get(name) == agent:
            del expected[name]
    text = ask.home.config_path.read_text()
    rows = parse(text)["bindings"]
    said = {_name_of(row["match"]): row["agentId"] for row in rows}
    assert (said, len(rows)) == (expected, len(expected))
    assert text.startswith(head)
    assert "// rows" in text


def _name_of(match: dict[str, Any]) -> str:
    account, peer = match.get("accountId"), match.get("peer")
    where = f"{match['channel']}:{account}" if account else match["channel"]
    return f"{where} {peer['kind']}:{peer['id']}" if peer else f"{where} "
