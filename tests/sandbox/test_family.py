"""Who belongs to a command; and, above all, who never does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from palinurus.sandbox.family import COOKIE, Marks, alive, descendants, end_family, everybody, family, gone, signal_all

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process with a cookie, in a session of its own."""
    process = subprocess.Popen(
        ["sleep", "60"], env={"PATH": os.defpath, COOKIE: "of-this-test"}, start_new_session=True
    )
    until = monotonic() + 60
    while not Path(f"/proc/{process.pid}/environ").read_bytes() and monotonic() < until:
        pass  # a program that has just taken its place has no environment yet, for a moment
    yield process
    process.kill()
    process.wait()


def test_no_marks_are_nobodys() -> None:
    assert family(Marks()) == []


@pytest.mark.parametrize("pid", [-1, 0, 1])
def test_nobody_is_said_to_descend_from_the_first_process(pid: int) -> None:
    assert descendants(pid) == []


def test_we_and_those_we_descend_from_are_spared_whatever_the_marks() -> None:
    parents = {each.pid: each.parent for each in everybody()}
    ours, pid = {1}, os.getpid()
    while pid > 1:
        ours.add(pid)
        pid = parents.get(pid, 0)
    for marks in (Marks(os.getpid()), Marks(os.getppid()), Marks(1), Marks(0, os.getsid(0)), Marks(1, 1)):
        assert not ours & {each.pid for each in family(marks)}


def test_a_member_is_found_by_number_session_or_cookie(sleeper: subprocess.Popen[bytes]) -> None:
    for marks in (Marks(sleeper.pid), Marks(0, sleeper.pid), Marks(cookie="of-this-test")):
        assert [each.pid for each in family(marks)] == [sleeper.pid]
    assert family(Marks(cookie="of-this-tes")) == []


async def test_a_number_that_was_given_to_somebody_else_is_left_alone(sleeper: subprocess.Popen[bytes]) -> None:
    found = alive(sleeper.pid)
    assert found is not None
    earlier = type(found)(found.pid, found.parent, found.session, found.born - 1)
    assert await gone([earlier], 5) == []
    signal_all([earlier], 9)
    assert sleeper.poll() is None


async def test_an_ended_family_is_no_trouble(sleeper: subprocess.Popen[bytes]) -> None:
    assert await end_family(Marks(cookie="of-this-test")) == []
    assert sleeper.wait(60) == -15
    assert await end_family(Marks(cookie="of-this-test")) == []
