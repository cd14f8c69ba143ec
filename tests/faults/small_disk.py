"""A disk that a test can fill or freeze: a small tmpfs, unmounted whatever happens."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from palinurus.testing.loop_time import excuse

BLOCK = b"x" * 4096


class SmallDisk:
    def __init__(self, root: Path) -> None:
        self.root = root
        self._filler = root / "filler"

    def fill(self, leave: int = 0) -> None:
        """Take all space but so many bytes."""
        with excuse("the test fills its disk"):
            with contextlib.suppress(OSError), self._filler.open("wb", buffering=0) as file:
                while file.write(BLOCK) == len(BLOCK):
                    pass
            if leave:
                os.truncate(self._filler, max(0, self._filler.stat().st_size - leave))

    def free(self) -> None:
        with excuse("the test empties its disk"):
            self._filler.unlink()

    def freeze(self) -> None:
        """Nothing can be written any more, not even by root."""
        _mount("-o", "remount,ro", str(self.root))

    def thaw(self) -> None:
        _mount("-o", "remount,rw", str(self.root))


@contextlib.contextmanager
def small_disk(root: Path, kilobytes: int = 4096) -> Iterator[SmallDisk]:
    """Skips the test when this process may not mount."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    root.mkdir()
    _mount("-t", "tmpfs", "-o", f"size={kilobytes}k,mode=755", "tmpfs", str(root))
    try:
        yield SmallDisk(root)
    finally:
        subprocess.run(["umount", "--lazy", str(root)], check=True, timeout=60)


def _mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        pytest.skip(f"this root may not mount: {done.stderr.strip()}")
