"""Drivers of sandboxes as different users, each with a home, a workspace in it and a secret beside them.

The secret can be read by everybody on this machine: only the walls stand before it. How an ordinary user runs an
interpreter that lies in a directory closed to them: see tests/faults/stranger.py.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest
from msgspec import Struct

import palinurus

SECONDS = 60.0
_DRIVER = Path(__file__).with_name("driver.py")


class Tried(Struct, frozen=True):
    said: str = ""
    code: int = -1
    reason: str = ""
    seconds: float = 0.0
    error: str = ""


class Starter:
    """Whoever starts the sandboxes, and what lies around."""

    def __init__(self, base: Path, process: subprocess.Popen[str], word: str) -> None:
        self.base = base
        self.home = base / "user" / "pal"
        self.workspace = self.home / "workspace"
        self.secret_file = base / "secret.txt"
        self.word = word
        self.pid = 0
        self._process = process

    def tries(self, line: str | Sequence[str], **order: Any) -> Tried:
        """Run a shell line or an argv inside; further keywords as driver.py takes them."""
        argv = ["/bin/sh", "-c", line] if isinstance(line, str) else list(line)
        return Tried(**self.ask({"workspace": str(self.workspace), "argv": argv, **order}))

    def tidy(self) -> None:
        """Take away what an attempt has left in the workspace."""
        for path in self.workspace.iterdir():
            if path.name != "notes.md":
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def perl(self, program: str, **order: Any) -> Tried:
        """Perl comes with every Debian and can make any system call."""
        if not Path("/usr/bin/perl").exists():
            pytest.skip("perl is not installed")
        return self.tries(["/usr/bin/perl", "-e", program], **order)

    def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], SECONDS)
        assert ready, "the driver does not answer"
        line = self._process.stdout.readline()
        assert line, "the driver is gone"
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def starter(user: int | None, before: Sequence[str] = (), workspace_owner: int | None = None) -> Iterator[Starter]:
    """A driver that runs as `user`, or as ourselves. `before` is a command that execs the driver."""
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed: apt install bubblewrap")
    if user is not None and os.geteuid() != 0:
        pytest.skip("only root can run a process as another user")
    base = Path(tempfile.mkdtemp(prefix="pal-escape-"))
    word = f"secret-{secrets.token_hex(16)}"
    try:
        _furnish(base, word, user, workspace_owner)
        with _running(base, word, user, before) as process:
            found = Starter(base, process, word)
            hello = found.answer()
            if not hello["works"]:
                _blame(hello["why"], user)
            found.pid = hello["pid"]
            yield found
    finally:
        shutil.rmtree(base)


def _blame(why: str, user: int | None) -> NoReturn:
    """A machine that forbids sandboxes is a reason to skip; one that allows them is not."""
    as_user = {} if user is None else {"user": user, "group": user, "extra_groups": ()}
    plain = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    done = subprocess.run(plain, capture_output=True, text=True, timeout=SECONDS, check=False, **as_user)
    if done.returncode == 0:
        pytest.fail(f"bubblewrap works here, and our sandbox does not: {why}")
    pytest.skip(f"bubblewrap does not work here: {done.stderr.strip()}")


def _furnish(base: Path, word: str, user: int | None, workspace_owner: int | None) -> None:
    home = base / "user" / "pal"
    (home / "workspace").mkdir(parents=True)
    (home / "workspace" / "notes.md").write_text("in the workspace\n")
    (base / "secret.txt").write_text(word)
    (home / "credentials.json").write_text(word)
    base.chmod(0o755)
    home.chmod(0o700)
    if user is not None:
        for path in (base / "user", home, *home.rglob("*")):
            os.chown(path, user, user)
    if workspace_owner is not None:
        for path in (home / "workspace", home / "workspace" / "notes.md"):
            os.chown(path, workspace_owner, workspace_owner)


@contextmanager
def _running(base: Path, word: str, user: int | None, before: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    source = Path(palinurus.__file__).parent.parent
    paths = (
        Path(sys.executable).resolve(),
        Path(sys.base_prefix),
        Path(sysconfig.get_path("platlib")),
        source,
        _DRIVER,
    )
    files = [os.open(path, os.O_RDONLY) for path in paths]
    python, prefix, packages, source_at, driver = (f"/proc/self/fd/{file}" for file in files)
    env = {"PYTHONHOME": prefix, "PYTHONPATH": f"{packages}:{source_at}", "LD_LIBRARY_PATH": f"{prefix}/lib"}
    as_user = {} if user is None else {"user": user, "group": user, "extra_groups": ()}
    if user is None:
        python, driver, env = sys.executable, str(_DRIVER), {"PYTHONPATH": str(source)}
    env |= {"PATH": "/usr/bin:/bin", "HOME": str(base / "user"), "PAL_SECRET": word, "PYTHONWARNINGS": "error"}
    home = str(base / "user" / "pal")
    process = subprocess.Popen(
        [*(each.replace("HOME_OF_PAL", home) for each in before), python, driver, home], env=env, pass_fds=files,
        cwd="/", text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **as_user,
    )  # fmt: skip
    try:
        yield process
        process.communicate(timeout=SECONDS)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()
        for file in files:
            os.close(file)


def running(mark: str) -> dict[str, int]:
    """Command lines of this machine that hold the mark, and as which user each runs."""
    found = {}
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has just ended
            line = place.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if mark in line:
                found[line] = place.parent.stat().st_uid
    return found
