"""A machine of our own to judge commands on: real system directories, and programs that may or may not be there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from palinurus.tools.commands.judge import Allowances, CommandLocation, Judgement, judge
from palinurus.tools.commands.shell import parse_argv, parse_shell

SAFE_BINS = ("cut", "uniq", "head", "tail", "tr", "wc")
ALLOWLIST = (
    *("git *", "ls *", "cat *", "grep *", "find *", "tar *", "echo *", "env", "npm test", "make *", "sort *"),
    # Nobody should write these. They are here so that nothing below is stopped by not being on the list.
    *("awk *", "sed *", "perl *", "python3 *", "node *", "sh *", "bash *", "zsh *", "vim *", "less *", "man *", "ed *"),
    *("sudo *", "ssh *", "xargs *", "nice *", "timeout *", "env *", "busybox *", "rsync *", "zip *", "parallel *"),
    *("sqlite3 *", "npm *", "docker *", "dd *", "tee *", "rg *", "time *", "stdbuf *", "head *", "wc *", "pip *"),
)
PROGRAMS = sorted({line.split()[0] for line in ALLOWLIST} | {"rm", "touch", "curl", "id"})
IN_THE_SYSTEM = {"env", "nice", "timeout", "stdbuf", "time", "sh", "bash", "head", "wc"}  # wrappers and filters


class Machine:
    """`allows` judges a command, as a shell string or as argv, with everything on the allowlist above."""

    def __init__(self, root: Path) -> None:
        self.bin, self.workspace = root / "bin", root / "workspace"
        self.bin.mkdir()
        self.workspace.mkdir()
        for name in PROGRAMS:
            if name not in IN_THE_SYSTEM:
                self.install(self.bin / name)
        self.where = CommandLocation(
            str(self.workspace), f"{self.bin}:/usr/bin:/bin", (str(self.workspace), str(root / "scratch"))
        )
        self.allowed = Allowances(allowlist=ALLOWLIST, safe_bins=SAFE_BINS)

    def install(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        return path

    def judge(self, command: str | Sequence[str]) -> Judgement:
        script = parse_shell(command) if isinstance(command, str) else parse_argv(command)
        return judge(script, self.allowed, self.where)


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(tmp_path_factory.mktemp("machine"))


@pytest.fixture
def fresh_machine(tmp_path: Path) -> Machine:
    """One that a test may change."""
    return Machine(tmp_path)
