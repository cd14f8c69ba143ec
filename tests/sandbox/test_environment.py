"""Where a session lives: by mode, scope and access; and what a private workspace begins with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.domain.errors import BadRequest
from palinurus.domain.keys import SessionKey
from palinurus.sandbox.environment import ExecEnvironment, clean_env, command_in, exec_environment
from palinurus.sandbox.folders import prepare_private
from palinurus.sandbox.sandbox import MIB, CommandLimits, SandboxMount
from palinurus.sandbox.settings import DockerOptions, SandboxSettings

ROOT, WORKSPACE = Path("/home/of/pal/sandboxes"), Path("/home/of/pal/workspace")
MAIN = SessionKey.main()
GROUP = SessionKey.parse("agent:main:telegram:group:-1001")


def place(key: SessionKey = MAIN, **settings: Any) -> ExecEnvironment:
    return exec_environment(SandboxSettings(ROOT, **settings), WORKSPACE, key)


@pytest.mark.parametrize(
    ("mode", "main", "group"),
    [
        ("auto", "preferred", "preferred"),
        ("off", "no", "no"),
        ("non-main", "no", "required"),
        ("all", "required", "required"),
    ],
)
def test_the_mode_says_who_is_sandboxed(mode: str, main: str, group: str) -> None:
    assert (place(mode=mode).sandboxed, place(GROUP, mode=mode).sandboxed) == (main, group)


@pytest.mark.parametrize("key", ["agent:main:main:thread:9", "agent:main:direct:main", "agent:main:subagent:main"])
def test_what_only_looks_like_the_main_session_is_sandboxed(key: str) -> None:
    assert place(SessionKey.parse(key), mode="non-main").sandboxed == "required"


def test_read_write_shows_the_agents_own_workspace() -> None:
    found = place(access="rw")
    assert (found.workspace, found.writable, found.agent_workspace) == (WORKSPACE, True, None)


def test_read_only_shows_it_and_forbids_writing() -> None:
    found = place(access="ro")
    assert (found.workspace, found.writable, found.agent_workspace) == (WORKSPACE, False, WORKSPACE)


@pytest.mark.parametrize("scope", ["session", "agent", "shared"])
def test_no_access_gives_a_private_workspace_that_the_scope_shares(scope: str) -> None:
    keys = [MAIN, GROUP, SessionKey.main("other")]
    found = [place(key, access="none", scope=scope).workspace for key in keys]
    assert len(set(found)) == {"session": 3, "agent": 2, "shared": 1}[scope]
    assert all(path.parent == ROOT for path in found)


def test_a_session_that_is_not_sandboxed_has_the_agents_own_workspace_whatever_the_access() -> None:
    found = place(mode="non-main", access="none")
    assert (found.workspace, found.writable) == (WORKSPACE, True)


@given(st.text(max_size=80), st.text(max_size=80))
def test_no_name_from_outside_becomes_a_path(one: str, other: str) -> None:
    found = []
    for peer in (one, other):
        try:
            key = SessionKey.parse(f"agent:main:telegram:direct:{peer}")
        except BadRequest:
            continue
        path = place(key, access="none", scope="session").workspace
        assert path.parent == ROOT
        assert set(path.name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
        assert len(path.name) <= 64
        found.append((key, path))
    if len(found) == 2:
        assert (found[0][0] == found[1][0]) == (found[0][1] == found[1][1])


def test_limits_network_and_variables_come_from_the_config() -> None:
    found = place(memory_mb=64, processes=9, cpu_seconds=3, file_mb=1, disk_mb=2, network=True, env={"A": "1"})
    assert found.limits == CommandLimits(64 * MIB, 3, 9, MIB, disk_bytes=2 * MIB)
    assert (found.network, found.env) == (True, {"A": "1"})


def test_the_docker_backend_adds_its_own_variables() -> None:
    docker = DockerOptions(env={"B": "2"})
    assert place(backend="docker", docker=docker, env={"A": "1"}).env == {"A": "1", "B": "2"}
    assert place(docker=docker, env={"A": "1"}).env == {"A": "1"}


def test_a_command_gets_the_workspace_and_a_clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-pal")
    command = command_in(place(env={"A": "1", "B": "2"}), ("ls", "-l"))
    assert command.mounts == (SandboxMount(WORKSPACE, str(WORKSPACE), writable=True),)
    assert (command.argv, command.cwd) == (("ls", "-l"), str(WORKSPACE))
    assert set(command.env) == {"PATH", "HOME", "LANG", "TERM", "USER", "LOGNAME", "A", "B"}
    assert command.env["HOME"] == str(WORKSPACE)


def test_a_command_that_may_only_read_has_its_home_elsewhere_and_the_workspace_at_agent_too() -> None:
    command = command_in(place(access="ro"), ("ls",), cwd="/agent", pty=True)
    assert command.mounts == (SandboxMount(WORKSPACE, str(WORKSPACE)), SandboxMount(WORKSPACE, "/agent"))
    assert (command.env["HOME"], command.cwd, command.env["TERM"]) == ("/tmp", "/agent", "xterm-256color")


def test_a_clean_environment_has_four_variables() -> None:
    assert clean_env("/bin", "/h") == {"PATH": "/bin", "HOME": "/h", "LANG": "C.UTF-8", "TERM": "dumb"}


@pytest.fixture
def private(tmp_path: Path) -> ExecEnvironment:
    return ExecEnvironment("required", tmp_path / "sandboxes" / "agent-main-1", writable=True)


def names(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def test_a_private_workspace_begins_with_the_agents_files_and_skills(private: ExecEnvironment, workspace: Path) -> None:
    (workspace / "skills" / "tide").mkdir(parents=True)
    (workspace / "skills" / "tide" / "SKILL.md").write_text("look at the table")
    (workspace / "skills" / "tide" / "run.sh").write_text("#!/bin/sh\n")
    (workspace / "skills" / "tide" / "run.sh").chmod(0o755)
    (workspace / "other.md").write_text("not a file that an agent needs")
    assert prepare_private(private, workspace)
    expected = {"AGENTS.md", "SOUL.md", "IDENTITY.md", "TOOLS.md", "HEARTBEAT.md"}
    assert names(private.workspace) == expected | {"skills/tide/SKILL.md", "skills/tide/run.sh"}
    assert (private.workspace / "skills" / "tide" / "run.sh").stat().st_mode & 0o111


def test_what_belongs_to_the_owner_alone_is_not_copied(private: ExecEnvironment, workspace: Path) -> None:
    (workspace / "memory").mkdir()
    (workspace / "memory" / "2026-11-15.md").write_text("private")
    prepare_private(private, workspace)
    assert not names(private.workspace) & {"MEMORY.md", "USER.md", "memory/2026-11-15.md"}


def test_links_that_lead_out_are_not_copied(private: ExecEnvironment, workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("sk-secret")
    (workspace / "SOUL.md").unlink()
    (workspace / "SOUL.md").symlink_to(tmp_path / "secret" / "key")
    (workspace / "skills").symlink_to(tmp_path / "secret")
    prepare_private(private, workspace)
    assert names(private.workspace) == {"AGENTS.md", "IDENTITY.md", "TOOLS.md", "HEARTBEAT.md"}


def test_what_a_session_has_made_of_it_is_left_alone(private: ExecEnvironment, workspace: Path) -> None:
    prepare_private(private, workspace)
    (private.workspace / "AGENTS.md").write_text("changed")
    (private.workspace / "SOUL.md").unlink()
    assert not prepare_private(private, workspace)
    assert (private.workspace / "AGENTS.md").read_text() == "changed"
    assert not (private.workspace / "SOUL.md").exists()
    assert [path.name for path in private.workspace.parent.iterdir()] == [private.workspace.name]
