"""Where pal finds control groups of its own, and what it writes there. The second version in a made-up tree: whether a
kernel has it is not for a test to choose. What the kernel then does is tried in test_totals.py, with what there is."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from palinurus.sandbox.totals import Groups, MinimumFree, find_groups

MIB = 1024 * 1024


class Machine:
    """A /proc/self and a tree of groups, in which `own` is this process's."""

    def __init__(self, folder: Path, own: str = "/user.slice/pal.service") -> None:
        self.proc, self.tree = folder / "proc", folder / "cgroup"
        self.own = self.tree / own.lstrip("/")
        self.proc.mkdir()
        self.own.mkdir(parents=True)
        (self.proc / "cgroup").write_text(f"0::{own}\n")
        (self.proc / "mountinfo").write_text(
            f"21 1 0:20 / / rw - ext4 /dev/root rw\n30 21 0:26 / {self.tree} rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
        )
        for place in (self.tree, *(each for each in self.tree.rglob("*") if each.is_dir())):
            (place / "cgroup.controllers").write_text("cpu memory pids\n")
            (place / "cgroup.subtree_control").write_text("")
            (place / "cgroup.procs").write_text("")

    def find(self, *, root: bool = False) -> Groups | None:
        return find_groups(self.proc, root=root)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_pal_steps_aside_so_that_groups_below_its_own_may_hold_memory(machine: Machine) -> None:
    groups = machine.find()
    assert groups is not None
    assert (machine.own / "pal" / "cgroup.procs").read_text() == str(os.getpid())
    assert (machine.own / "cgroup.subtree_control").read_text() == "+memory"
    group = groups.make(64 * MIB)
    (made,) = machine.own.glob("pal-*")
    found = {name: (made / name).read_text() for name in ("memory.max", "memory.swap.max", "memory.oom.group")}
    assert found == {"memory.max": str(64 * MIB), "memory.swap.max": "0", "memory.oom.group": "1"}
    group.take(4711)
    assert (made / "cgroup.procs").read_text() == "4711"


def test_what_the_kernel_has_ended_is_known(machine: Machine) -> None:
    groups = machine.find()
    assert groups is not None
    group = groups.make(MIB)
    (made,) = machine.own.glob("pal-*")
    (made / "memory.events").write_text("low 0\nhigh 0\nmax 12\noom 1\noom_kill 0\noom_group_kill 0\n")
    assert not group.was_exceeded()
    (made / "memory.events").write_text("low 0\nhigh 0\nmax 12\noom 1\noom_kill 3\noom_group_kill 1\n")
    assert group.was_exceeded()


def test_one_that_has_stepped_aside_uses_the_same_place_again(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "/user.slice/pal.service/pal")
    (machine.own.parent / "cgroup.subtree_control").write_text("memory pids\n")
    groups = machine.find()
    assert groups is not None
    groups.make(MIB)
    assert list(machine.own.parent.glob("pal-*"))
    assert not (machine.own / "pal").exists()


def test_root_leaves_groups_alone_that_were_not_handed_over_to_it(machine: Machine) -> None:
    assert machine.find(root=True) is None
    assert not list(machine.tree.rglob("pal"))


def test_where_memory_is_not_counted_there_are_none(machine: Machine) -> None:
    (machine.own / "cgroup.controllers").write_text("cpu pids\n")
    assert machine.find() is None
    (machine.proc / "cgroup").write_text("not a list of groups\n")
    assert machine.find() is None


def test_groups_of_a_process_that_is_gone_are_swept() -> None:
    groups = find_groups()
    if groups is None:
        pytest.skip("this process may make no control groups here")
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = groups.place / f"pal-{gone.pid}-0"
    left.mkdir()
    assert groups.make(64 * MIB).remove()
    assert not left.exists()


@pytest.mark.parametrize(
    ("begun_with", "free", "passed"),
    [(500, 40, True), (500, 60, False), (40, 38, False), (40, 34, True), (40, 45, False), (0, 0, False)],
)
def test_a_command_that_begins_with_little_may_take_little_of_it(begun_with: int, free: int, passed: bool) -> None:
    floor = MinimumFree(begun_with * MIB, 1000 * MIB)
    assert floor.least == 50 * MIB
    assert floor.is_passed(free * MIB) is passed
