"""How bubblewrap is started: by whom, for whom, and what is said when it cannot be."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic, sleep

import pytest
from starters import Starter, running, starter

from palinurus.domain.errors import SandboxError
from palinurus.sandbox.bubblewrap import BubblewrapSandbox
from palinurus.sandbox.environment import ExecEnvironment, command_in
from palinurus.sandbox.probes import ProbeRun
from palinurus.sandbox.process import read_whole
from palinurus.sandbox.sandbox import SandboxCommand

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="this is not root")
needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
OWNER = 48_218


async def test_a_missing_program_is_told_with_how_to_install_it(workspace: Path) -> None:
    sandbox = BubblewrapSandbox(program="no-such-bwrap")
    walls = await sandbox.check()
    assert (walls.works, "apt install bubblewrap" in walls.why) == (False, True)
    with pytest.raises(SandboxError, match="bubblewrap does not work here: no-such-bwrap is not installed"):
        await sandbox.start(SandboxCommand(("true",), str(workspace), {}))


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo bubblewrap 0.3.1", "older than 0.5.0"),
        (
            '[ "$1" = --version ] && echo bubblewrap 0.8.0 || { echo "bwrap: it is broken" >&2; exit 1; }',
            "it is broken",
        ),
        ('[ "$1" = --version ] && echo bubblewrap 0.8.0', "ended without a message"),
    ],
)
async def test_a_program_that_makes_no_walls_is_found_out_by_trying(script: str, told: str) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        program = Path(folder, "bwrap")
        program.write_text(f"#!/bin/sh\n{script}\n")
        for path in (program.parent, program):
            path.chmod(0o755)
        walls = await BubblewrapSandbox(program=str(program)).check()
    assert walls.works is False
    assert told in walls.why


@pytest.fixture
async def sandbox(tmp_path: Path) -> BubblewrapSandbox:
    made = BubblewrapSandbox(tmp_path / "home", tmp_path)
    walls = await made.check()
    if not walls.works:
        pytest.skip(f"bubblewrap does not work here: {walls.why}")
    return made


@pytest.mark.slow
async def test_the_probes_find_all_walls_standing(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    (tmp_path / "home" / "workspace").mkdir(parents=True)
    place = ExecEnvironment("required", tmp_path / "home" / "workspace", writable=True)
    probes = [probe async for probe in ProbeRun(sandbox, place, tmp_path / "home").run()]
    assert [(probe.name, probe.what) for probe in probes if not probe.passed] == []
    assert len(probes) == 11


@pytest.mark.slow
async def test_the_home_of_pal_is_empty_where_a_workspace_holds_it(tmp_path: Path) -> None:
    (tmp_path / "all" / "pal").mkdir(parents=True)
    (tmp_path / "all" / "pal" / "credentials.json").write_text("sk-secret")
    (tmp_path / "all" / "notes.md").write_text("seen")
    sandbox = BubblewrapSandbox(tmp_path / "all" / "pal", Path("/nobody"))
    if not (await sandbox.check()).works:
        pytest.skip("bubblewrap does not work here")
    place = ExecEnvironment("required", tmp_path / "all", writable=True)
    process = await sandbox.start(command_in(place, ("/bin/sh", "-c", "cat notes.md pal/*; ls -A pal; touch pal/x")))
    said = (await read_whole(process)).decode()
    assert said.startswith("seen")
    assert "sk-secret" not in said
    assert [path.name for path in (tmp_path / "all" / "pal").iterdir()] == ["credentials.json"]


@pytest.mark.slow
async def test_a_start_that_is_cancelled_leaves_nothing_running(sandbox: BubblewrapSandbox, workspace: Path) -> None:
    nap = f"sleep 596.{os.getpid()}"
    place = ExecEnvironment("required", workspace, writable=True)
    for pause in (0, 0.005, 0.02, 0.05):
        starting = asyncio.create_task(sandbox.start(command_in(place, ("/bin/sh", "-c", nap))))
        await asyncio.sleep(pause)
        starting.cancel()
        (outcome,) = await asyncio.gather(starting, return_exceptions=True)
        if not isinstance(outcome, BaseException):
            await outcome.kill()
    async with asyncio.timeout(60):  # what was killed may need a moment until it is gone
        while running(nap):
            await asyncio.sleep(0.02)


@pytest.mark.slow
def test_sandboxes_end_when_pal_is_killed() -> None:
    with starter(None) as room:
        nap = f"sleep 595.{room.pid}"
        assert room._process.stdin is not None
        order = f'{{"workspace": "{room.workspace}", "argv": ["/bin/sh", "-c", "{nap}"]}}\n'
        room._process.stdin.write(order)
        room._process.stdin.flush()
        _until(lambda: any(line.startswith("sleep") for line in running(nap)))
        os.kill(room.pid, signal.SIGKILL)
        room._process.wait(60)
        _until(lambda: not running(nap))
        room._process.returncode = 0  # as was meant


def _until(condition) -> None:
    until = monotonic() + 60
    while not condition():
        assert monotonic() < until
        sleep(0.02)


# Root


@pytest.fixture(scope="module")
def of_another() -> Iterator[Starter]:
    """Root's pal with a workspace that belongs to somebody else."""
    with starter(None, workspace_owner=OWNER) as room:
        yield room


@needs_root
@needs_bwrap
@pytest.mark.slow
def test_started_by_root_nobody_inside_is_root_and_files_are_the_owners(of_another: Starter) -> None:
    nap = f"sleep 0.{of_another.pid}"
    with ThreadPoolExecutor(1) as pool:
        trying = pool.submit(of_another.tries, f"echo x > made; while [ ! -e go ]; do {nap}; done; id -u")
        _until((of_another.workspace / "made").exists)
        users = set(running(nap).values())
        (of_another.workspace / "go").touch()
        assert trying.result(60).said == "1000\n"
    assert users
    assert not users & {0, OWNER}
    made = (of_another.workspace / "made").stat()
    assert (made.st_uid, made.st_gid) == (OWNER, OWNER)


@needs_root
@needs_bwrap
@pytest.mark.slow
@pytest.mark.parametrize(("owner", "works"), [(OWNER, True), (0, False)])
def test_where_ids_cannot_be_mapped_the_owner_is_used_and_root_is_refused(owner: int, works: bool) -> None:
    """A ramfs, which has no id-mapped mounts, over the workspace, in a mount namespace of the driver's own."""
    script = (
        'mount -t ramfs none "$0/workspace" && echo "in the workspace" > "$0/workspace/notes.md"'
        f' && chown -R {owner}:{owner} "$0/workspace" && exec "$@"'
    )
    with starter(None, before=("unshare", "--mount", "sh", "-c", script, "HOME_OF_PAL")) as room:
        tried = room.tries("id -u; cat notes.md; echo x > made; stat -c %u made")
        if works:
            assert tried.said == "1000\nin the workspace\n1000\n"
        else:
            assert "owned by root on a file system without id-mapped mounts" in tried.error
            assert "chown" in tried.error
