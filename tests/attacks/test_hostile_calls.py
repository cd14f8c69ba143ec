"""Calls that a model could make to hold up or blow up the process: each is answered in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile_model import HostileHome

from support.wire import WireServer

pytestmark = pytest.mark.slow


async def test_paths_that_begin_with_two_slashes_are_paths(tmp_path: Path) -> None:
    """`//` has no folder above it but itself: looking upwards for a skill went on for ever, and held the event loop."""
    async with WireServer() as server:
        home = HostileHome(tmp_path, server)
        told = await home.use(
            ("exec", {"command": "echo //etc/hostname"}),  # behind walls, or not run: it depends on the machine
            ("exec", {"command": "true", "workdir": "//etc"}),
            ("read", {"path": "//etc/hostname"}),
            ("grep", {"pattern": "x", "path": "//"}),
        )
    assert all(each.startswith("ERROR") for each in told[1:]), told


async def test_a_path_of_a_hundred_thousand_folders_costs_nothing(tmp_path: Path) -> None:
    """Each folder of it was looked at as a copy of all above: quadratic, on the event loop."""
    async with WireServer() as server:
        home = HostileHome(tmp_path, server)
        [told] = await home.use(("read", {"path": "a/" * 450_000}))
    assert told.startswith("ERROR")


async def test_replacements_everywhere_make_no_text_that_no_file_may_hold(tmp_path: Path) -> None:
    """A file of 1 MB and a replacement of 100 kB for each letter of it were 100 GB before the size was asked."""
    async with WireServer() as server:
        home = HostileHome(tmp_path, server)
        await home.pal("setup")
        (home.workspace / "big.txt").write_text("a" * 1_000_000)
        many = [{"old": f"<{number}>", "new": "x"} for number in range(20_000)]
        grown, counted, fine = await home.use(
            ("edit", {"path": "big.txt", "old": "a", "new": "b" * 100_000, "all": True}),
            ("edit", {"path": "big.txt", "edits": many}),
            ("edit", {"path": "big.txt", "old": "a", "new": "b", "all": True}),
        )
    assert "would have more than 2,097,152 bytes" in grown
    assert "20,000 edits are too many" in counted
    assert not fine.startswith("ERROR")
    assert (home.workspace / "big.txt").read_text() == "b" * 1_000_000
