"""Copy files of a workspace byte for byte, and never over what somebody wrote here.

A file that is still exactly our template is no work of anybody and gives way. Nothing of a git repository comes: its
hooks and its config name programs, which whoever says `git status` there would start.
"""

from __future__ import annotations

import os
import shutil
import unicodedata
from contextlib import suppress
from pathlib import Path

from palinurus.migrate.openclaw.files import open_plain, why
from palinurus.migrate.report import Losses, Outcome
from palinurus.workspace.links import OUTSIDE_NAME, leads_out
from palinurus.workspace.seed import FIRST_RUN, TEMPLATES, template

PIECE = 1024 * 1024
BARE = ("HEAD", "config", "config.worktree", "hooks", "info", "objects", "packed-refs", "refs", "worktrees")


def copy_file(source: Path, target: Path, path: str, shown: str, losses: Losses, *, apply: bool) -> Outcome:
    """What became, or would become, of the file at `path` of a workspace. What cannot be done is told."""
    try:
        if leads_out(source.parents[path.count("/")], path, source.lstat()):
            losses.add(shown, 0, f"it {OUTSIDE_NAME}; it was left there")
            return "left"
        if not os.path.lexists(target):
            if apply:
                _copy(source, target, replace=False)
            return "new"
        if target.is_symlink() or not target.is_file():
            losses.add(shown, 0, f"something else stands at {target}")
            return "left"
        if _equal(source, target):
            return "same"
        if _is_template(target, path):
            if apply:
                _copy(source, target, replace=True)
            return "new"
    except OSError as error:
        losses.add(shown, 0, f"it cannot be copied: {why(error)}")
        return "left"
    losses.add(shown, 0, f"another file stands at {target}, and was left as it is")
    return "left"


def repository_of(source: Path, path: str) -> str:
    """The git repository, by its path in the workspace, to whose insides the file belongs; empty: to none.

    `source` is the file itself, `path` its path in the workspace.
    """
    steps = path.split("/")
    for at, step in enumerate(steps):
        if _is_git_name(step):
            return "/".join(steps[: at + 1])
    for size in range(len(steps)):  # one without a `.git` folder is a repository, too
        folder = source.parents[len(steps) - size - 1]
        if steps[size] in BARE and (folder / "HEAD").is_file() and (folder / "objects").is_dir():
            return "/".join(steps[:size]) or "."
    return ""


def _is_git_name(step: str) -> bool:
    """`.git` as any file system may read it."""
    plain = "".join(letter for letter in step if unicodedata.category(letter) != "Cf")
    return plain.casefold().rstrip(". ") in (".git", "git~1")


def retire_first_run(workspace: Path) -> None:
    """Somebody who comes with a past is not to be asked who they are; a template of ours that says so goes."""
    target = workspace / FIRST_RUN
    if target.is_file() and not target.is_symlink() and _is_template(target, FIRST_RUN):
        with suppress(OSError):
            target.unlink()


def _copy(source: Path, target: Path, *, replace: bool) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name[:100]}.{os.urandom(6).hex()}.tmp")
    with open_plain(source) as file:
        stat = os.fstat(file.fileno())
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as copy:
                shutil.copyfileobj(file, copy, PIECE)
                os.fchmod(copy.fileno(), 0o600 | (stat.st_mode & 0o100))
            os.utime(beside, ns=(stat.st_atime_ns, stat.st_mtime_ns))
            if replace:
                beside.replace(target)
            else:
                os.link(beside, target, follow_symlinks=False)  # fails where somebody was quicker
        finally:
            with suppress(FileNotFoundError):
                beside.unlink()


def _equal(source: Path, target: Path) -> bool:
    with open_plain(source) as one, open_plain(target) as other:
        if os.fstat(one.fileno()).st_size != os.fstat(other.fileno()).st_size:
            return False
        while piece := one.read(PIECE):
            if piece != other.read(PIECE):
                return False
        return True


def _is_template(target: Path, path: str) -> bool:
    if path not in (*TEMPLATES, FIRST_RUN):
        return False
    with open_plain(target) as file:
        return file.read(PIECE) == template(path).encode()
