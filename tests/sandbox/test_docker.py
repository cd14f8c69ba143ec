"""The docker backend: what it asks the engine for, and that it refuses where there is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from palinurus.domain.errors import SandboxError
from palinurus.sandbox.docker import DockerSandbox, run_arguments, variables_file
from palinurus.sandbox.process import read_whole
from palinurus.sandbox.sandbox import MIB, CommandLimits, SandboxCommand, SandboxMount
from palinurus.sandbox.settings import DockerOptions


def arguments(workspace: Path, options: DockerOptions | None = None, **command: object) -> list[str]:
    mounts = (SandboxMount(workspace, str(workspace), writable=True),)
    asked = SandboxCommand(("sh", "-c", "true"), str(workspace), {"A": "1"}, **{"mounts": mounts, **command})
    return run_arguments("docker", options or DockerOptions(), asked, "palinurus-x", "/dev/fd/9")


@pytest.fixture
def owned(tmp_path: Path) -> Path:
    path = tmp_path / "owned"
    path.mkdir()
    if os.geteuid() == 0:
        os.chown(path, 4711, 4712)
    return path


def value(asked: list[str], option: str) -> str:
    return asked[asked.index(option) + 1]


def test_every_wall_is_asked_for(owned: Path) -> None:
    asked = arguments(owned, limits=CommandLimits(256 * MIB, 5, 32, MIB))
    assert asked[:4] == ["docker", "run", "--rm", "--interactive"]
    assert {"--read-only", "--init"} <= set(asked)
    found = {option: value(asked, option) for option in ("--network", "--cap-drop", "--security-opt", "--pids-limit")}
    assert found == {
        "--network": "none",
        "--cap-drop": "ALL",
        "--security-opt": "no-new-privileges",
        "--pids-limit": "32",
    }
    assert value(asked, "--memory") == value(asked, "--memory-swap") == str(256 * MIB)
    assert value(asked, "--mount") == f"type=bind,source={owned},target={owned}"
    assert value(asked, "--user") == f"{owned.stat().st_uid}:{owned.stat().st_gid}"
    image = asked.index("debian:bookworm-slim")
    assert asked[image - 2 : image] == ["--entrypoint", "/bin/sh"]
    assert asked[image + 1 :] == ["-c", 'exec "$@" 2>&1', "sh", "sh", "-c", "true"]


def test_what_the_owners_git_would_run_cannot_be_written(owned: Path) -> None:
    (owned / ".git").mkdir()
    assert f"type=bind,source={owned}/.git,target={owned}/.git,readonly" in arguments(owned)
    assert f"source={owned}/.git" not in " ".join(arguments(owned, mounts=(SandboxMount(owned, str(owned)),)))


def test_no_variable_stands_in_an_argument(owned: Path) -> None:
    asked = arguments(owned)
    assert value(asked, "--env-file") == "/dev/fd/9"
    assert "A=1" not in " ".join(asked)
    assert variables_file({"A": "1", "B": "2"}) == b"A=1\nB=2\n"
    with pytest.raises(SandboxError, match="several lines"):
        variables_file({"A": "1\nLD_PRELOAD=x"})


@pytest.mark.parametrize("network", ["host", "HOST", "container:other", "ns:/proc/1/ns/net"])
async def test_somebody_elses_network_is_refused(network: str, owned: Path) -> None:
    options = DockerOptions(network=network)
    with pytest.raises(SandboxError, match="another network"):
        arguments(owned, options)
    walls = await DockerSandbox(options).check()
    assert (walls.works, "another network" in walls.why) == (False, True)


def test_a_named_network_is_used_only_when_the_command_may_have_one(owned: Path) -> None:
    options = DockerOptions(network="agents")
    assert value(arguments(owned, options), "--network") == "none"
    assert value(arguments(owned, options, network=True), "--network") == "agents"
    assert value(arguments(owned, network=True), "--network") == "bridge"


def test_what_cannot_be_said_to_docker_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a,readonly=false"
    path.mkdir()
    with pytest.raises(SandboxError, match="comma"):
        arguments(path, mounts=(SandboxMount(path, "/w"),))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root owns what root owns")
def test_a_workspace_of_root_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="belongs to root"):
        arguments(tmp_path)


async def test_a_missing_program_is_told_with_what_to_do(owned: Path) -> None:
    sandbox = DockerSandbox(program="no-such-docker")
    walls = await sandbox.check()
    assert (walls.works, "not installed" in walls.why) == (False, True)
    with pytest.raises(SandboxError, match="docker does not work here"):
        await sandbox.start(SandboxCommand(("true",), str(owned), {}))


@pytest.fixture
def engine(tmp_path: Path):
    """A program in docker's place that answers as the text says."""

    def make(script: str) -> str:
        path = tmp_path / "docker"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return str(path)

    return make


async def test_an_engine_that_does_not_answer_is_told(engine) -> None:
    walls = await DockerSandbox(program=engine("echo 'Cannot connect to the Docker daemon' >&2; exit 1")).check()
    assert walls.works is False
    assert "no engine answers (Cannot connect to the Docker daemon)" in walls.why


async def test_an_image_that_is_not_there_is_told(engine) -> None:
    walls = await DockerSandbox(program=engine('[ "$1" = version ] && echo 27.1 || exit 1')).check()
    assert "docker pull debian:bookworm-slim" in walls.why


async def test_a_container_is_ended_by_its_name(engine, owned: Path, tmp_path: Path) -> None:
    told = tmp_path / "told"
    program = engine(f'case $1 in run) echo up; exec sleep 60;; kill) echo "$@" > {told};; *) echo ok;; esac')
    process = await DockerSandbox(program=program).start(
        SandboxCommand(("true",), str(owned), {}, (SandboxMount(owned, str(owned), writable=True),))
    )
    assert await process.read() == b"up\n"
    await process.kill()
    assert told.read_text().startswith("kill palinurus-")
    assert ((await process.wait()).reason, await read_whole(process)) == ("stopped", b"")
