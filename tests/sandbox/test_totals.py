"""What a command may use in all: memory of whatever kind, and the disk. Small limits, so that nothing is ever short.

Where the kernel holds memory by a control group, the same is tried once more without one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from starters import Starter

MIB = 1024 * 1024
LIMIT = 96
LIMITS = {"memory_bytes": LIMIT * MIB}
TOLD = f"used more than {LIMIT} MiB of memory in all (sandbox.memoryMb)"
PIECE = 'my $piece = "x" x (1 << 20);'
MEMFD = 'my $name = "bomb"; my $m = syscall(319, $name, 0); open(my $f, ">&=", $m) or die; binmode $f;'
NAP = "sleep 60;"  # far beyond what the test waits for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of system calls are those of x86-64"),
]


@pytest.fixture(params=["as the machine can", "watched"])
def watched(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "watched")


@pytest.fixture(autouse=True)
def tidy(room: Starter) -> Iterator[None]:
    yield
    room.tidy()


BOMBS = {
    "an anonymous file that is only written": f"{MEMFD} {PIECE} for (1..200) {{ syswrite $f, $piece }} {NAP}",
    "one of somebody who wants to be private": (
        f"syscall(157, 4, 0, 0, 0, 0) == 0 or die; {MEMFD} {PIECE} for (1..200) {{ syswrite $f, $piece }} {NAP}"
    ),
    "several of them": (
        f"{PIECE} my @all; for (1..10) {{ {MEMFD} for (1..20) {{ syswrite $f, $piece }} push @all, $f }} {NAP}"
    ),
    "memory that is shared": (
        "my $a = syscall(9, 0, 200 << 20, 3, 0x21, -1, 0); "  # mmap, shared and anonymous
        'open(my $z, "<", "/dev/zero"); for (0..199) { syscall(0, fileno($z), $a + ($_ << 20), 1 << 20) } ' + NAP
    ),
    "many processes, each below the limit": (
        f'for (1..8) {{ unless (fork) {{ my $own = "y" x (24 << 20); {NAP} }} }} {NAP}'
    ),
    "files in memory beside memory": (
        f'{PIECE} for my $place ("/tmp", "/dev/shm") {{ open(my $f, ">", "$place/big"); '
        f'for (1..40) {{ syswrite $f, $piece }} }} my $own = "z" x (40 << 20); {NAP}'
    ),
}  # fmt: skip


@pytest.mark.parametrize("bomb", BOMBS)
def test_memory_is_held_in_all_whatever_its_kind(room: Starter, watched: bool, bomb: str) -> None:
    tried = room.perl(BOMBS[bomb], limits=LIMITS, watched=watched)
    assert (tried.reason, tried.code > 128, tried.error) == (TOLD, True, ""), tried


PEACE = {
    "an anonymous file that is mapped counts once": (
        f"{MEMFD} {PIECE} for (1..60) {{ syswrite $f, $piece }} "
        "my $a = syscall(9, 0, 60 << 20, 3, 1, $m, 0); "
        'open(my $n, ">", "/dev/null"); for (0..59) { syscall(1, fileno($n), $a + ($_ << 20), 1 << 20) } '
    ),
    "what children have from their parent counts once": (
        'my $own = "y" x (20 << 20); for (1..6) { unless (fork) { sleep 1; exit } } 1 while wait > 0; '
    ),
    "a file of the workspace does not count": (
        f'{PIECE} open(my $f, ">", "big"); for (1..150) {{ syswrite $f, $piece }} '
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", PEACE)
def test_what_is_within_the_limit_is_left_alone(room: Starter, watched: bool, kind: str) -> None:
    """Long enough for several looks."""
    tried = room.perl(PEACE[kind] + 'select undef, undef, undef, 0.6; print "done"', limits=LIMITS, watched=watched)
    assert (tried.said, tried.reason, tried.code) == ("done", "", 0)


def test_nothing_is_left_of_who_was_ended(room: Starter, watched: bool) -> None:
    program = f'setpgrp; unless (fork) {{ $SIG{{TERM}} = "IGNORE"; exec "sleep", "618.{os.getpid()}" }} '
    tried = room.perl(program + BOMBS["an anonymous file that is only written"], limits=LIMITS, watched=watched)
    assert tried.reason == TOLD
    assert not [place for place in Path("/proc").glob("[0-9]*/cmdline") if f"618.{os.getpid()}" in _text(place)]


def test_what_a_command_writes_in_all_is_bounded(room: Starter) -> None:
    line = "i=0; while [ $i -lt 100 ]; do head -c 4000000 /dev/zero > part$i || exit; i=$((i+1)); done; sleep 60"
    tried = room.tries(line, limits={"disk_bytes": 40 * MIB})
    assert tried.reason == "wrote more than 40 MiB to the disk (sandbox.diskMb)"


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""
