"""What one command can take from everybody else: memory, the disk, and what is left when the disk is full all the same.

Every attack comes as a call of a model. Limits and disks are small, so that nothing of the machine itself runs short.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from besieged import Besieged, besieged

sys.path.insert(0, str(Path(__file__).parent.parent / "faults"))
from serving import request
from small_disk import SmallDisk, small_disk

from homes import PalHome, parrot
from support.behaviours import Calls
from support.wire import WireServer

SECONDS = 60.0
MIB = 1024 * 1024
LIMIT = 96
MEMORY = f"used more than {LIMIT} MiB of memory in all (sandbox.memoryMb)"
PIECE = 'my $piece = "x" x (1 << 20);'
MEMFD = 'my $name = "bomb"; my $m = syscall(319, $name, 0); open(my $f, ">&=", $m) or die;'

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed"),
    pytest.mark.skipif(shutil.which("perl") is None, reason="perl is not installed"),
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of system calls are those of x86-64"),
]


@pytest.fixture
async def wire() -> AsyncIterator[WireServer]:
    async with WireServer(otherwise=parrot) as server:
        yield server


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pal-exhaust-", dir="/var/tmp") as folder:
        yield Path(folder)


def home_of(root: Path, wire: WireServer, **sandbox: Any) -> PalHome:
    home = PalHome(root)
    home.set_up(wire.base_url, agents={"sandbox": {"memoryMb": LIMIT, **sandbox}})
    return home


async def told(home: PalHome, wire: WireServer, **call: Any) -> str:
    """What a model is told of a command that it calls."""
    wire.script.append(Calls(("exec", call)))
    ended = await home.pal("agent", "-m", "go on")
    assert ended.code == 0, ended
    (result,) = [message for message in wire.requests[-1]["messages"] if message["role"] == "tool"]
    return str(result["content"])


BOMBS = {
    "an anonymous file": f"{MEMFD} {PIECE} for (1..200) {{ syswrite $f, $piece }} sleep 60",
    "many processes": 'for (1..8) { unless (fork) { my $own = "y" x (24 << 20); sleep 60 } } sleep 60',
    "files in memory beside memory": (
        f'{PIECE} for my $place ("/tmp", "/dev/shm") {{ open(my $f, ">", "$place/big"); '
        'for (1..40) { syswrite $f, $piece } } my $own = "z" x (40 << 20); sleep 60'
    ),
}


@pytest.mark.parametrize("bomb", BOMBS)
async def test_a_command_has_no_more_memory_than_its_limit(place: Path, wire: WireServer, bomb: str) -> None:
    home = home_of(place / "home", wire)
    assert f"[{MEMORY} · " in await told(home, wire, argv=["/usr/bin/perl", "-e", BOMBS[bomb]])


async def test_a_command_writes_no_more_than_its_limit(place: Path, wire: WireServer) -> None:
    home = home_of(place / "home", wire, diskMb=40)
    line = "i=0; while [ $i -lt 100 ]; do head -c 4000000 /dev/zero > part$i || exit; i=$((i+1)); done; sleep 60"
    assert "[wrote more than 40 MiB to the disk (sandbox.diskMb) · " in await told(home, wire, command=line)


@pytest.fixture
def disk(place: Path) -> Iterator[SmallDisk]:
    with small_disk(place / "disk", kilobytes=200 * 1024) as disk:
        yield disk


async def test_a_command_that_fills_the_disk_is_ended_while_others_can_still_write(
    disk: SmallDisk, wire: WireServer
) -> None:
    home = home_of(disk.root / "home", wire, memoryMb=1024)  # that disk is memory too
    said = await told(home, wire, command="cat /dev/zero > big; echo full; sleep 60")
    assert f"[the disk of {home.workspace} is nearly full: " in said
    assert "10 are kept free" in said
    (home.workspace / "big").unlink()
    assert (await home.pal("agent", "-m", "and now?")).out == "heard: and now?\n"


async def test_a_command_may_still_free_space_when_there_is_little(disk: SmallDisk, wire: WireServer) -> None:
    home = home_of(disk.root / "home", wire)
    (home.workspace / "big").write_bytes(b"x" * MIB)
    disk.fill(leave=2 * MIB)
    said = await told(home, wire, command="sleep 1; rm big; echo done")
    assert said.startswith("done\n[exit 0 · ")


# A full disk


@pytest.fixture
def full(disk: SmallDisk) -> Iterator[Besieged]:
    """A gateway whose disk can be filled."""
    with besieged(disk.root / "here") as gateway:
        yield gateway


async def readiness(gateway: Besieged) -> tuple[int, Any]:
    answer = await request(gateway.port, "/readyz")
    return answer.status, answer.json


async def talk(gateway: Besieged, words: str) -> dict[str, Any]:
    """A run that was accepted and has ended, or the error of one that was not."""
    guest = await gateway.guest()
    try:
        sent = await guest.ask("chat.send", sessionKey="main", message=words, idempotencyKey=os.urandom(8).hex())
        if not sent.ok:
            return sent.error
        ended = await guest.ask("agent.wait", runId=sent.payload["runId"], timeoutMs=int(SECONDS * 1000))
        assert ended.ok, ended
        return dict(ended.payload)
    finally:
        await guest.leave()


async def test_on_a_full_disk_readiness_is_red_what_was_accepted_is_kept_and_the_next_is_refused(
    full: Besieged, disk: SmallDisk
) -> None:
    ready = (200, {"ok": True, "status": "ready"})
    red = (503, {"ok": False, "status": "the disk is full: nothing new is taken until some space is freed"})
    assert await readiness(full) == ready
    assert (await talk(full, "before"))["status"] == "ok"
    reserve = full.home / "derived" / "reserve"
    assert reserve.stat().st_blocks * 512 >= 4 * MIB

    disk.fill()
    assert await readiness(full) == red
    assert (await request(full.port, "/healthz")).status == 200
    last = await fill_until_given(full, reserve)
    assert last["status"] == "ok", last
    refused = await talk(full, "one too many")
    assert "the disk is full" in refused["message"], refused
    assert await readiness(full) == red
    assert any("the disk is full" in line for line in await warnings(full))

    disk.free()
    assert await readiness(full) == ready
    assert reserve.exists()
    assert (await talk(full, "after"))["status"] == "ok"
    assert not await warnings(full)


async def test_on_a_full_disk_the_house_is_shut_in_order_and_keeps_what_it_accepted(
    full: Besieged, disk: SmallDisk
) -> None:
    disk.fill()
    await fill_until_given(full, full.home / "derived" / "reserve")
    full.process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(full.process.wait, SECONDS) == 0
    disk.free()
    home = PalHome(full.home, {"HOME": str(full.root)})
    shown = await home.pal("sessions", "show", "--json")
    said = [json.dumps(entry) for entry in shown.json["entries"]]
    assert shown.code == 0
    assert any("message 0" in each for each in said)
    assert "aye" in said[-1]


async def fill_until_given(gateway: Besieged, reserve: Path) -> dict[str, Any]:
    """Talk until the database finds no space; the last run, which did. The log has a few free pages at first."""
    for number in range(200):
        ended = await talk(gateway, f"message {number} {'x' * 20_000}")
        if not reserve.exists():
            return ended
        assert ended["status"] == "ok", ended
    raise AssertionError("the disk never was full")


async def warnings(gateway: Besieged) -> list[str]:
    home = PalHome(gateway.home, {"HOME": str(gateway.root)})
    return list((await home.pal("status", "--json")).json["warnings"])


# What a kill leaves


async def test_nothing_remains_of_a_trial_whose_maker_was_killed(place: Path, wire: WireServer) -> None:
    home = home_of(place / "home", wire)
    slow = place / "bin"
    slow.mkdir()
    answers = '[ "$1" = --version ] && { echo bubblewrap 0.8.0; exit; }'
    (slow / "bwrap").write_text(f"#!/bin/sh\n{answers}\necho $$ > {place}/pid\nexec sleep 60\n")
    for path in (place, slow, slow / "bwrap"):
        path.chmod(0o755)
    stuck = PalHome(home.root, {"PATH": f"{slow}:{os.environ['PATH']}"})
    async with stuck.talking("sandbox", "explain") as talk:
        async with asyncio.timeout(SECONDS):
            while not list(home.root.glob(".trial-*")):
                assert talk.alive, talk.complaints
                await asyncio.sleep(0.01)
        await talk.kill()
    with contextlib.suppress(FileNotFoundError, ValueError, ProcessLookupError):
        os.kill(int((place / "pid").read_text()), signal.SIGKILL)
    assert len(list(home.root.glob(".trial-*"))) == 1
    assert (await home.pal("sandbox", "explain")).code == 0
    assert not list(home.root.glob(".trial-*"))
