"""Another user of this machine, who owns nothing: root reads everything, so permissions only show to somebody else.

The venv's Python may lie where that user cannot enter (below root's own home). Directories that were opened before the
change of user can still be walked through /proc/self/fd, so the same interpreter, packages and source are used as
everywhere else, with nothing copied and nothing mounted.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import palinurus
from homes import PalHome

NOBODY = 65534


@contextmanager
def stranger(home: PalHome) -> Iterator[PalHome]:
    """The same home, entered by somebody else. Skips the test when this process may not become another user."""
    if os.geteuid() != 0:
        pytest.skip("only root can run a process as another user")
    source = Path(palinurus.__file__).parent.parent
    python = Path(sys.executable).resolve()
    paths = (python, Path(sys.base_prefix), Path(sysconfig.get_path("platlib")), source)
    files = [os.open(path, os.O_RDONLY) for path in paths]
    try:
        executable, prefix, packages, source_at = (f"/proc/self/fd/{file}" for file in files)
        variables = {"PYTHONHOME": prefix, "PYTHONPATH": f"{packages}:{source_at}", "LD_LIBRARY_PATH": f"{prefix}/lib"}
        spawn = {"user": NOBODY, "group": NOBODY, "extra_groups": (), "pass_fds": tuple(files)}
        other = PalHome(home.root, home.variables | variables, [executable, "-m", "palinurus"], spawn)
        _check_runs(other)
        yield other
    finally:
        for file in files:
            os.close(file)


def _check_runs(home: PalHome) -> None:
    """A Python that does not start would look like a refusal: rule that out first."""
    argv = [*home.command, "--version"]
    tried = subprocess.run(argv, env=home.env, capture_output=True, text=True, check=False, timeout=60, **home.spawn)
    assert tried.returncode == 0, tried
