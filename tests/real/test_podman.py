"""The docker backend with podman in docker's place, in real containers: the contract of every sandbox, and the walls.

There is no registry here, so the image is made of one static program, busybox, which is a shell and all else.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "contracts"))
from test_sandbox import *  # noqa: F403  every test of the contract, with the fixtures below
from test_sandbox import ENV, ProcessEnd, Start, told

from palinurus.sandbox.docker import DockerSandbox
from palinurus.sandbox.environment import ExecEnvironment
from palinurus.sandbox.probes import ProbeRun
from palinurus.sandbox.settings import DockerOptions

OWNER = 48_219
IMAGE = "localhost/palinurus-test:1"
PROGRAMS = "sh cat echo env head id kill ls mkdir nohup pwd rm setsid sleep stty tail test touch wc"
SECONDS = 60.0

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root runs these containers"),
    pytest.mark.skipif(shutil.which("podman") is None, reason="podman is not installed"),
    pytest.mark.skipif(shutil.which("busybox") is None, reason="busybox is not installed"),
]


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    """A program in docker's place: podman with a store of its own, and with limits that a root without all rights may
    set. Skips where it runs no container at all."""
    place = Path(tempfile.mkdtemp(prefix="pal-"))  # short: podman takes no longer path than 50 characters
    runtime = "--runtime runc" if shutil.which("runc") else ""  # it can do with both generations of control groups
    program = place / "docker"
    program.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = run ]; then shift; set -- run --ulimit nofile=1024:1024 --ulimit nproc=4096:4096 "$@"; fi\n'
        f"exec podman --root {place}/store --runroot {place}/run --storage-driver vfs"
        f' --cgroup-manager cgroupfs --events-backend none {runtime} "$@"\n'
    )
    program.chmod(0o755)
    try:
        make_image(place / "root", program)
        tried = ask(program, "run", "--rm", "--network", "none", IMAGE, "/bin/echo", "up")
        if tried.stdout.strip() != "up":
            pytest.skip(f"podman runs no container here: {tried.stderr.strip()}")
        yield str(program)
        left = ask(program, "ps", "--all", "--quiet")
        assert (left.returncode, left.stdout) == (0, ""), "containers were left behind"
    finally:
        ask(program, "rm", "--force", "--all")
        shutil.rmtree(place, ignore_errors=True)


def make_image(root: Path, program: Path) -> None:
    for name in ("bin", "tmp", "proc", "dev", "sys", "etc"):
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    shutil.copy(str(shutil.which("busybox")), root / "bin" / "busybox")
    for name in PROGRAMS.split():
        (root / "bin" / name).symlink_to("busybox")
    packed = subprocess.run(
        ["tar", "-C", str(root), "-c", "."], capture_output=True, check=True, timeout=SECONDS
    ).stdout
    subprocess.run([program, "import", "-", IMAGE], input=packed, capture_output=True, check=True, timeout=SECONDS)


def ask(program: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *words], capture_output=True, text=True, check=False, timeout=SECONDS)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Of an ordinary user: nobody is root in a container."""
    place = tmp_path / "workspace"
    place.mkdir()
    os.chown(place, OWNER, OWNER)
    return place


@pytest.fixture
async def sandbox(engine: str) -> DockerSandbox:
    made = DockerSandbox(DockerOptions(image=IMAGE), program=engine)
    walls = await made.check()
    assert walls.works, walls.why
    return made


# Where a container differs from the contract


@pytest.mark.shows("Podman", "the docker sandbox: commands run in containers")
async def test_it_runs_where_it_is_told_to_with_the_environment_it_is_given(start: Start, workspace: Path) -> None:
    """The engine adds a few variables of its own, and nothing of ours."""
    said, _ = await told(await start("pwd; env"))
    where, *variables = said.splitlines()
    given = dict(line.split("=", 1) for line in variables)
    assert where == str(workspace)
    assert given.items() >= ENV.items()
    assert set(given) - set(ENV) <= {"PWD", "OLDPWD", "SHLVL", "_", "HOME", "HOSTNAME", "TERM", "container"}


async def test_the_input_of_a_terminal_can_be_ended(start: Start) -> None:
    """Once the container is up: what is typed before may be lost."""
    process = await start("echo ready; cat > typed; cat typed; echo end", pty=True)
    async with asyncio.timeout(SECONDS):
        while b"ready" not in await process.read():
            pass
    await process.write(b"hello\n", close=True)
    said, ended = await told(process)
    assert (said.endswith("hello\nend\n"), ended) == (True, ProcessEnd(0))


async def test_what_the_owners_git_would_run_cannot_be_written(start: Start, workspace: Path) -> None:
    (workspace / ".git").mkdir()
    os.chown(workspace / ".git", OWNER, OWNER)
    said, _ = await told(await start("echo x > .git/config || echo refused; rm -r .git || echo kept; echo y > other"))
    assert said.count("refused") + said.count("kept") == 2
    assert sorted(path.name for path in workspace.iterdir()) == [".git", "other"]
    assert not list((workspace / ".git").iterdir())


@pytest.mark.shows("Podman", "the docker sandbox: `pal sandbox test` passes")
async def test_the_probes_find_all_walls_standing(sandbox: DockerSandbox, workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    place = ExecEnvironment("required", workspace, writable=True)
    probes = [probe async for probe in ProbeRun(sandbox, place, tmp_path / "home").run()]
    assert [(probe.name, probe.what) for probe in probes if not probe.passed] == []
