"""The program git, run on one workspace without reading what the workspace says about git.

A repository can name programs in many places: hooks, pagers, filters, external diffs, monitors, signers. None of
them is read here. Git gets a directory of ours that has the repository's objects, refs and index and our own config,
so settings of an untrusted `.git/config` are not disabled one by one: they are not there. Environment, time and
output are bounded.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from palinurus.domain.errors import WorkspaceError
from palinurus.workspace.steps import give

SECONDS = 20.0
OURS = "palinurus.history"
MAX_OUTPUT = 4 * 1024 * 1024
_PATH = "/usr/local/bin:/usr/bin:/bin:/opt/homebrew/bin"
# Repository settings that change the meaning of its files; we would read and store them wrongly.
_NOT_PLAIN = r"^(filter\.|extensions\.|include|core\.(worktree|sparsecheckout|splitindex|autocrlf|eol)$)"
_CONFIG = """core.repositoryformatversion=0 core.bare=false core.filemode=true core.fsmonitor=false
core.hooksPath=/dev/null core.attributesFile=/dev/null core.quotePath=false core.untrackedCache=false gc.auto=0
maintenance.auto=false commit.gpgSign=false diff.renames=true"""
_VARIABLES = f"""PATH={_PATH} LC_ALL=C.UTF-8 GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_ATTR_NOSYSTEM=1
GIT_NO_REPLACE_OBJECTS=1 GIT_NO_LAZY_FETCH=1 GIT_ALLOW_PROTOCOL=none GIT_TERMINAL_PROMPT=0 GIT_OPTIONAL_LOCKS=0"""
# Never committed automatically: large, generated or secret files.
_EXCLUDES = """.pal/ .pal-*.tmp node_modules/ .venv/ venv/ __pycache__/ *.pyc *.sqlite *.sqlite-wal *.sqlite-shm
.env .env.* *.pem *.key *.p12 *.pfx *.jks *.kdbx .netrc .npmrc .pypirc .git-credentials id_rsa* id_ed25519*
credentials.json mcp-credentials.json gateway.token"""
_MARKS_OF_WORK = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply", "BISECT_LOG")


class GitOutput(Struct, frozen=True):
    data: bytes
    truncated: bool = False

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


def find_git() -> str:
    """The path of git, "" if it is not installed. Ignores relative entries of PATH."""
    found = shutil.which("git", path=_PATH) or shutil.which("git") or ""
    return found if Path(found).is_absolute() else ""


def unfit(root: Path, git: str) -> str:
    """Why this workspace has no readable history, in one sentence; "" if it has one."""
    if not git:
        return "git is not installed"
    place = root / ".git"
    try:
        if not stat.S_ISDIR(place.lstat().st_mode):
            return "the workspace is a part of another repository, which is left alone"
        for name in ("objects", "refs", "refs/heads"):
            if not stat.S_ISDIR((place / name).lstat().st_mode):
                return "the repository of the workspace is not a plain one"
    except OSError:
        return "the workspace is not a git repository; `git init` in it begins a history"
    # The config is read as text: includes are not followed.
    output = _read_config(place / "config", git, "--no-includes", "--name-only", "--get-regexp", _NOT_PLAIN)
    odd = "its config cannot be read" if output is None else ", ".join(sorted(set(output.split()))[:3])
    return f"the repository of the workspace is not a plain one ({odd})" if odd else ""


def is_ours(root: Path, git: str) -> bool:
    """Whether its config allows automatic commits: repositories that we create do."""
    output = _read_config(root / ".git" / "config", git, "--type=bool", "--get", OURS)
    return output is not None and output.strip() == "true"


def mark_ours(root: Path, git: str) -> None:
    """Writes that setting into its config. If it fails, there are no automatic commits."""
    _read_config(root / ".git" / "config", git, OURS, "true")


def in_the_middle(root: Path) -> str:
    """What unfinished git operation blocks a commit; "" if none."""
    place = root / ".git"
    if found := next((name for name in _MARKS_OF_WORK if os.path.lexists(place / name)), ""):
        return f"another git operation is unfinished there ({found})"
    if os.path.lexists(place / "index.lock"):
        return "another git process is running there"
    return "" if _branch(place) else "no branch is checked out there"


class Git:
    """Git for one workspace that is not `unfit`. Everything here blocks; call it on a thread."""

    def __init__(self, root: Path, program: str, index: Path | None = None) -> None:
        self.root = root
        self._program = program
        self._index = index or root / ".git" / "index"

    @contextmanager
    def with_new_index(self) -> Iterator[Git]:
        """The same with an empty index, for the length of the block. The user's index is not changed."""
        with tempfile.TemporaryDirectory(prefix="pal-index-") as folder:
            yield Git(self.root, self._program, Path(folder) / "index")

    @contextmanager
    def with_own_index(self) -> Iterator[Git]:
        """The same with a copy of the index, which replaces the index at the end of the block.

        So a kill leaves no lock behind that would block later commits. The copy keeps the index's mtime: git uses it to
        know which files may have changed within the second it was written.
        """
        with tempfile.TemporaryDirectory(prefix="pal-index-") as folder:
            copy = Path(folder) / "index"
            with suppress(FileNotFoundError):
                shutil.copy2(self._index, copy)
            yield Git(self.root, self._program, copy)
            _install(copy, self._index)

    def run(self, *arguments: str, given: bytes = b"", most: int = MAX_OUTPUT, **variables: str) -> GitOutput:
        """Runs git and returns its output. Raises WorkspaceError if it fails or times out."""
        command = [self._program, "--no-pager", "--literal-pathspecs", *arguments]
        with self._stage() as environment:
            return _bounded(command, {**environment, **variables}, self.root, given, most)

    @contextmanager
    def _stage(self) -> Iterator[dict[str, str]]:
        """A temporary git directory with our config and the repository's objects, refs and index, for one call."""
        place = self.root / ".git"
        branch = _branch(place)
        with tempfile.TemporaryDirectory(prefix="pal-git-") as folder:
            ours = Path(folder)
            for name in ("objects", "refs", "packed-refs"):
                (ours / name).symlink_to(place / name)
            (ours / "info").mkdir()
            (ours / "info" / "exclude").symlink_to(place / "info" / "exclude")
            detached = _head(place, "([0-9a-f]{40})")
            (ours / "HEAD").write_text(f"{detached}\n" if detached else f"ref: {branch or 'refs/heads/main'}\n")
            (ours / "excludes").write_text("\n".join([*_EXCLUDES.split(), ""]))
            settings = (each.partition(".") for each in (*_CONFIG.split(), f"core.excludesFile={ours / 'excludes'}"))
            (ours / "config").write_text("".join(f"[{section}]\n\t{setting}\n" for section, _, setting in settings))
            fixed = {name: value for name, _, value in (each.partition("=") for each in _VARIABLES.split())}
            tree = {"GIT_WORK_TREE": str(self.root), "GIT_INDEX_FILE": str(self._index)}
            yield {**fixed, "HOME": folder, "GIT_DIR": folder, **tree}


def _install(copy: Path, index: Path) -> None:
    """Installs the index by git's own rule: only the holder of the lock may write. If the lock is taken, the next
    commit repairs the index.
    """
    lock = index.with_name("index.lock")
    with suppress(FileExistsError, FileNotFoundError):
        data = copy.read_bytes()
        fd = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with os.fdopen(fd, "wb") as file:
            give(fd, index.parent.stat())
            file.write(data)
        seen = copy.stat()
        os.utime(lock, ns=(seen.st_atime_ns, seen.st_mtime_ns))
        lock.replace(index)


def _head(place: Path, pattern: str) -> str:
    """The part of HEAD that the pattern names, "" if HEAD has another form."""
    try:
        found = re.fullmatch(pattern, (place / "HEAD").read_text(encoding="utf-8", errors="replace").strip())
    except OSError:
        return ""
    return found[1] if found else ""


def _branch(place: Path) -> str:
    """The branch that HEAD names, "" if it is not in the repository itself."""
    name = _head(place, r"ref: \s*(refs/heads/\S*)")
    return name if ".." not in name and name.isprintable() else ""


def _read_config(config: Path, git: str, *arguments: str) -> str | None:
    """Git's output for one config file; None if it cannot be read."""
    environment = {"PATH": _PATH, "HOME": "/", "GIT_DIR": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            [git, "config", "--file", str(config), *arguments], env=environment, cwd="/", stdin=subprocess.DEVNULL,
            capture_output=True, timeout=SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode in (0, 1) else None  # 1: no such setting


def _bounded(command: list[str], environment: dict[str, str], cwd: Path, given: bytes, most: int) -> GitOutput:
    """Runs to the end or to the output limit. Raises WorkspaceError."""
    with tempfile.TemporaryFile() as input_file, tempfile.TemporaryFile() as trouble:
        input_file.write(given)
        input_file.seek(0)
        try:
            process = subprocess.Popen(
                command, env=environment, cwd=cwd, stdin=input_file, stdout=subprocess.PIPE, stderr=trouble,
                start_new_session=True,  # Ctrl-C in a chat must not reach it
            )  # fmt: skip
        except OSError as error:
            raise WorkspaceError(f"git cannot be started: {error.strerror}", hint="is it installed?") from None
        late = threading.Event()

        def end() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(SECONDS, end)
        timer.start()
        try:
            assert process.stdout is not None  # noqa: S101  # a pipe was asked for
            data = process.stdout.read(most + 1)
            if len(data) > most:
                process.kill()
            process.stdout.close()
            code = process.wait()
        finally:
            timer.cancel()
        if len(data) > most:
            return GitOutput(data[:most], truncated=True)
        if code != 0:
            trouble.seek(0)
            raise _failed(command, late.is_set(), trouble.read(2000).decode("utf-8", "replace"))
        return GitOutput(data)


def _failed(command: list[str], late: bool, output: str) -> WorkspaceError:
    verb = next(word for word in command[1:] if not word.startswith("-"))
    if late:
        return WorkspaceError(f"git {verb} took more than {SECONDS:g} seconds", hint="is the workspace very large?")
    why = output.strip().splitlines()[-1] if output.strip() else "no reason given"
    return WorkspaceError(f"git {verb} failed: {why}", hint="try the same by hand in the workspace")
