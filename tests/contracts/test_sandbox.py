"""What every place to run commands keeps, with walls or without."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import monotonic

import pytest

from palinurus.domain.errors import BadRequest, PalinurusError
from palinurus.sandbox.bubblewrap import BubblewrapSandbox
from palinurus.sandbox.host import HostSandbox
from palinurus.sandbox.process import read_whole
from palinurus.sandbox.sandbox import CommandLimits, Process, ProcessEnd, Sandbox, SandboxCommand, SandboxMount

ENV = {"PATH": "/usr/bin:/bin", "COLOUR": "green"}
SECONDS = 60.0
Start = Callable[..., Awaitable[Process]]

pytestmark = pytest.mark.slow


@pytest.fixture(params=["host", "bubblewrap"])
async def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    if request.param == "host":
        return HostSandbox()
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed: apt install bubblewrap")
    made = BubblewrapSandbox()
    walls = await made.check()
    if not walls.works:
        pytest.skip(f"bubblewrap does not work here: {walls.why}")
    return made


@pytest.fixture
async def start(sandbox: Sandbox, workspace: Path):
    """Starts a shell line or an argv in the workspace, and leaves nothing behind."""
    started: list[Process] = []

    async def go(line: str | tuple[str, ...], *, pty: bool = False, limits: CommandLimits | None = None) -> Process:
        argv = line if isinstance(line, tuple) else ("/bin/sh", "-c", line)
        mounts = (SandboxMount(workspace, str(workspace), writable=True),)
        allowed = limits or CommandLimits(wall_seconds=SECONDS)
        started.append(await sandbox.start(SandboxCommand(argv, str(workspace), ENV, mounts, pty=pty, limits=allowed)))
        return started[-1]

    yield go
    for process in started:
        await process.kill()


async def told(process: Process) -> tuple[str, ProcessEnd]:
    async with asyncio.timeout(SECONDS):
        said = await read_whole(process)
        return said.decode().replace("\r\n", "\n"), await process.wait()


def alive(mark: str) -> list[str]:
    """Command lines of this machine that hold the mark and are no zombies."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            line = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if mark in line:
            found.append(line)
    return found


async def test_both_outputs_arrive_in_the_order_of_writing(start: Start) -> None:
    assert await told(await start("echo one; echo two >&2; echo three")) == ("one\ntwo\nthree\n", ProcessEnd(0))


@pytest.mark.parametrize(
    ("line", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143), ("nosuch", 127)]
)
async def test_the_code_is_what_a_shell_would_say(start: Start, line: str, code: int) -> None:
    _, ended = await told(await start(line))
    assert ended == ProcessEnd(code)


async def test_it_runs_where_it_is_told_to_with_the_environment_it_is_given(start: Start, workspace: Path) -> None:
    said, _ = await told(await start("pwd; env"))
    where, *variables = said.splitlines()
    given = dict(line.split("=", 1) for line in variables)
    assert where == str(workspace)
    assert given.items() >= ENV.items()
    assert set(given) - set(ENV) <= {"PWD", "OLDPWD", "SHLVL", "_", "PALINURUS_RUN"}


async def test_what_is_written_to_it_is_read_until_its_input_is_closed(start: Start) -> None:
    process = await start("cat; echo end")
    await process.write(b"a" * 30_000)
    await process.write(b"\n", close=True)
    assert await told(process) == ("a" * 30_000 + "\nend\n", ProcessEnd(0))


async def test_writing_to_one_that_has_ended_is_refused(start: Start) -> None:
    process = await start("true")
    await told(process)
    with pytest.raises(BadRequest, match="no longer reads"):
        await process.write(b"hello\n")


async def test_a_flood_waits_for_its_reader(start: Start) -> None:
    process = await start("head -c 20000000 /dev/zero")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(process.wait(), 0.3)
    size = 0
    async with asyncio.timeout(SECONDS):
        while piece := await process.read():
            size += len(piece)
    assert (size, await process.wait()) == (20_000_000, ProcessEnd(0))


async def test_a_terminal_is_one_that_the_command_controls(start: Start) -> None:
    said, ended = await told(
        await start("test -t 0 && test -t 1 && stty size && echo to the terminal > /dev/tty", pty=True)
    )
    assert (said, ended) == ("24 80\nto the terminal\n", ProcessEnd(0))


async def test_ctrl_c_reaches_what_runs_in_a_terminal(start: Start) -> None:
    process = await start("trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.05; done", pty=True)
    async with asyncio.timeout(SECONDS):
        while b"ready" not in await process.read():
            pass
        await process.write(b"\x03")
    said, ended = await told(process)
    assert ("caught" in said, ended) == (True, ProcessEnd(3))


async def test_the_input_of_a_terminal_can_be_ended(start: Start) -> None:
    process = await start("cat > typed; cat typed; echo end", pty=True)
    await process.write(b"hello\n", close=True)
    said, ended = await told(process)
    assert (said.endswith("hello\nend\n"), ended) == (True, ProcessEnd(0))


async def test_what_takes_too_long_is_ended_and_says_so(start: Start) -> None:
    process = await start("echo begun; sleep 60", limits=CommandLimits(wall_seconds=0.5))
    said, ended = await told(process)
    assert (said, ended.reason) == ("begun\n", "took longer than 0.5 s")
    assert ended.code > 128


async def test_a_stop_ends_everything_it_started_and_waits_for_no_nap(start: Start) -> None:
    mark = secrets.token_hex(6)
    nap = f"sleep 600.{int(mark, 16)}"
    process = await start(
        f"{nap} & setsid {nap} & (nohup {nap} >/dev/null 2>&1 &) ; (setsid sh -c '{nap} & {nap}' &)"
        f" ; (env -i setsid {nap} &) ; (trap '' TERM HUP INT; {nap}; {nap}) & trap '' TERM; echo up; {nap}; {nap}"
    )
    async with asyncio.timeout(SECONDS):
        assert await process.read() == b"up\n"
        while len(alive(nap)) < 8:
            await asyncio.sleep(0.02)
    began = monotonic()
    await process.kill()
    assert monotonic() - began < 30
    assert alive(nap) == []
    assert (await process.wait()).reason == "stopped"


async def test_what_was_written_before_a_stop_can_still_be_read(start: Start) -> None:
    process = await start("echo kept; touch ready; sleep 60")
    async with asyncio.timeout(SECONDS):
        first = await process.read(2)
    await process.kill("enough")
    assert (first + await process.read(), await process.read()) == (b"kept\n", b"")
    assert (await process.wait()).reason == "enough"


async def test_whoever_waits_may_be_cancelled_and_the_command_goes_on(start: Start) -> None:
    process = await start("read line; echo heard $line")
    for wait in (process.wait, process.read):
        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await process.write(b"you\n")
    assert await told(process) == ("heard you\n", ProcessEnd(0))


async def test_a_stop_goes_on_when_whoever_asked_is_cancelled(start: Start) -> None:
    process = await start("trap '' TERM; echo up; sleep 60; sleep 60")
    await process.read()
    task = asyncio.create_task(process.kill())
    await asyncio.sleep(0)
    task.cancel()
    async with asyncio.timeout(SECONDS):
        assert (await process.wait()).reason == "stopped"


async def test_stopping_twice_or_after_the_end_does_no_harm(start: Start) -> None:
    process = await start("echo x")
    assert await told(process) == ("x\n", ProcessEnd(0))
    await process.kill()
    await process.kill()
    assert await process.wait() == ProcessEnd(0)


async def test_reading_ends_with_the_command_though_something_holds_its_output(start: Start) -> None:
    began = monotonic()
    said, ended = await told(await start("sleep 30 & echo left"))
    assert (said, ended, monotonic() - began < 20) == ("left\n", ProcessEnd(0), True)


async def test_a_program_that_is_not_there_is_told(start: Start) -> None:
    try:
        said, ended = await told(await start(("no-such-program",)))
    except PalinurusError as error:
        said, ended = str(error), ProcessEnd(127)
    assert "no-such-program" in said
    assert ended.code != 0


async def test_no_descriptor_and_no_child_is_left_behind(start: Start) -> None:
    async def use() -> None:
        await told(await start("echo x"))
        await told(await start("echo x", pty=True))
        process = await start("sleep 60")
        await process.kill()
        cut_off = asyncio.create_task(start("sleep 60"))
        await asyncio.sleep(0)
        cut_off.cancel()
        (outcome,) = await asyncio.gather(cut_off, return_exceptions=True)
        if not isinstance(outcome, BaseException):  # the host was too quick to be cut off
            await outcome.kill()

    await use()
    before = sorted(Path("/proc/self/fd").iterdir())
    for _ in range(3):
        await use()
    assert sorted(Path("/proc/self/fd").iterdir()) == before
    children = [stat.parent.name for stat in Path("/proc").glob("[0-9]*/stat") if f") Z {os.getpid()} " in _text(stat)]
    assert children == []


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
