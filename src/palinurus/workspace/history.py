"""The history of a workspace: what the agent's runs and the user changed, stored by git.

An automatic commit is made when runs have ended and files that they wrote differ; it contains only those files, and is
made only in a repository that Palinurus created. A commit that a person requests includes everything. History is never
rewritten, a branch only gets one more commit at its end, and restoring writes the old content into the file as an
ordinary write with a backup: git itself never changes a file of the workspace.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Collection
from pathlib import Path

from msgspec import Struct

from palinurus.config.secrets import Redactor, is_secret_name
from palinurus.domain.errors import BadRequest, NotFound, WorkspaceError
from palinurus.workspace.boundary import MAX_BYTES, Boundary
from palinurus.workspace.git import OURS, Git, GitOutput, find_git, in_the_middle, is_ours, unfit
from palinurus.workspace.steps import OUTSIDE_NAME, leads_out

Redact = Callable[[str], str]
"""Returns the text without secrets. Must not raise."""

NOT_OURS = f"the repository is not one that Palinurus made (`git config {OURS} true` in it lets it commit there)"
STAGED = "it has a staged change"
AUTHOR = "Palinurus"
ADDRESS = "pal@localhost"
MAX_DIFF = 512 * 1024
MAX_NEW_BYTES = 1024 * 1024  # of an untracked file
MAX_NEW_FILES = 500
MAX_FILES = 5_000
_COMMIT = re.compile(r"[0-9a-f]{4,40}")
_FIELDS = "%x1e%H%x1f%at%x1f%an%x1f%s%x1f%b%x1f"


class ChangedFile(Struct, frozen=True):
    path: str
    added: int  # lines; -1: not text
    removed: int


class Commit(Struct, frozen=True):
    id: str
    at: int  # milliseconds
    author: str
    subject: str
    body: str = ""
    files: tuple[ChangedFile, ...] = ()


class Log(Struct, frozen=True):
    commits: tuple[Commit, ...]  # newest first
    has_more: bool


class LeftOut(Struct, frozen=True):
    path: str
    why: str


class CommitResult(Struct, frozen=True):
    commit: Commit | None  # None: nothing has changed
    left_out: tuple[LeftOut, ...] = ()


class WorkspaceHistory:
    """The history of one workspace. Everything here blocks; call it on a thread. Raises WorkspaceError if git fails."""

    def __init__(self, root: Path, program: str | None = None) -> None:
        self._root = root
        self._program = find_git() if program is None else program

    def why_not(self) -> str:
        """Why there is no history, in one sentence; "" if there is one."""
        return unfit(self._root, self._program)

    def why_not_ours(self) -> str:
        """Why there are no automatic commits here, in one sentence; "" if there are."""
        if why := self.why_not():
            return why
        return "" if is_ours(self._root, self._program) or self._made_before() else NOT_OURS

    def log(self, path: str = "", *, limit: int = 50, before: str = "") -> Log:
        git = self._git()
        start = f"{_commit(before)}^" if before else "HEAD"
        if not self._known(git, start):
            return Log((), has_more=False)
        output = git.run(
            "log", f"--max-count={limit + 1}", "--numstat", "-z", "--no-renames", f"--format={_FIELDS}",
            start, "--", *([path] if path else []),
        )  # fmt: skip
        commits = _commits(output)
        return Log(commits[:limit], has_more=len(commits) > limit or output.truncated)

    def diff(self, commit: str = "", path: str = "", *, now: bool = False) -> GitOutput:
        """What a commit changed; with `now`, the difference to the current files. Without a commit, the uncommitted
        changes.
        """
        git = self._git()
        plain = ("--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--unified=3")
        only = ["--", path] if path else ["--"]
        if commit and not now:
            wanted = self._checked(git, commit)
            return git.run("diff-tree", "-p", "--root", "--no-commit-id", *plain, wanted, *only, most=MAX_DIFF)
        if commit or self._known(git, "HEAD"):
            base = self._checked(git, commit) if commit else "HEAD"
            return git.run("diff", *plain, base, *only, most=MAX_DIFF)
        return GitOutput(b"")

    def content(self, commit: str, path: str) -> bytes:
        """The content of a file at a commit. Raises NotFound."""
        git = self._git()
        listed = git.run("ls-tree", "-z", "--long", self._checked(git, commit), "--", path).text
        if not listed:
            raise NotFound(f"{path} was not there at {commit[:12]}", hint="choose another point of its history")
        mode, kind, blob, size = listed.partition("\t")[0].split()
        if kind != "blob" or mode == "120000":
            raise WorkspaceError(f"{path} was not a plain file at {commit[:12]}", hint="choose another one")
        if int(size) > MAX_BYTES:
            raise WorkspaceError(f"{path} had {int(size):,} bytes; {MAX_BYTES:,} are allowed", hint="use git by hand")
        return git.run("cat-file", "blob", blob).data

    def changed(self) -> tuple[str, ...]:
        """Files that differ from the last commit, including new and excluded ones."""
        return tuple(_shown(path) for _, path in self._status(self._git()))

    def commit(self, subject: str = "", body: str = "", author: str = AUTHOR) -> CommitResult:
        """Commits all changes; without a subject the files are named.

        Raises WorkspaceError if another git operation is unfinished.
        """
        git = self._idle_git()
        taken, left_out = self._taken(self._status(git))
        if not taken:
            return CommitResult(None, left_out)
        with git.with_own_index() as own:
            own.run("add", "--all", *_NAMED, given=_as_bytes(taken))
            staged = self._staged(own)
            if staged:
                _make_commit(own, f"{subject or _named(taken)}\n\n{body}", author)
        return CommitResult(self.log(limit=1).commits[0] if staged else None, left_out)

    def commit_written(self, paths: Collection[str], body: str, author: str, redact: Redact) -> CommitResult:
        """Commits only what we ourselves have written: other files and the user's index do not change.

        A file with staged changes is skipped until they are committed. Raises as `commit` does, and NotFound in a
        repository that is not ours.
        """
        if why := self.why_not_ours():
            raise NotFound(f"no automatic commits: {why}")
        git = self._idle_git()
        found = self._status(git, *sorted(paths)) if paths else []
        left = {path: STAGED for code, path in found if code[0] not in " ?"}
        left |= {path: why for code, path in found if path not in left and (why := self._unfit(code, path, redact))}
        taken = [path for _, path in found if path not in left]
        left_out = tuple(LeftOut(_shown(path), why) for path, why in left.items())
        if not taken:
            return CommitResult(None, left_out)
        with git.with_new_index() as own:
            if self._known(git, "HEAD"):
                own.run("read-tree", "HEAD")
            own.run("add", "--all", *_NAMED, given=_as_bytes(taken))
            _make_commit(own, f"{_named(taken)}\n\n{body}", author)
        with git.with_own_index() as theirs:  # removes committed files from the recorded changes; the rest stays
            theirs.run("reset", "--quiet", *_NAMED, "HEAD", given=_as_bytes(taken))
        return CommitResult(self.log(limit=1).commits[0], left_out)

    def _made_before(self) -> bool:
        """Whether we created it before the setting existed: all commits are ours, and it has no remote."""
        git = self._git()
        if not self._known(git, "HEAD") or os.path.lexists(self._root / ".git" / "refs" / "remotes"):
            return False
        makers = git.run("log", f"--max-count={MAX_FILES}", "--format=%ce", "HEAD").text.split()
        return set(makers) == {ADDRESS}

    def _git(self) -> Git:
        if why := self.why_not():
            raise NotFound(f"there is no history: {why}", hint="everything else works without it")
        return Git(self._root, self._program)

    def _idle_git(self) -> Git:
        git = self._git()
        if busy := in_the_middle(self._root):
            raise WorkspaceError(f"nothing was committed: {busy}", hint="it is tried again after the next run")
        return git

    def _known(self, git: Git, name: str) -> bool:
        """Whether this commit exists. A new repository has none."""
        try:
            git.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        except WorkspaceError:
            return False
        return True

    def _checked(self, git: Git, commit: str) -> str:
        wanted = _commit(commit)
        if not self._known(git, wanted):
            raise NotFound(f"there is no commit {wanted}", hint="workspace log lists them")
        return wanted

    def _staged(self, git: Git) -> bool:
        if not self._known(git, "HEAD"):
            return bool(git.run("ls-files", "--cached", "-z").data)
        return bool(git.run("diff", "--cached", "--name-only", "--no-ext-diff", "-z", "HEAD").data)

    def _status(self, git: Git, *paths: str) -> list[tuple[str, str]]:
        """Code and path of every changed file, or of these; a path with a trailing slash is a nested repository."""
        output = git.run("status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", "--", *paths)
        parts = output.data.decode("utf-8", "surrogateescape").split("\0")
        return [(part[:2], part[3:]) for part in parts if len(part) > 3][:MAX_FILES]

    def _taken(self, found: list[tuple[str, str]]) -> tuple[list[str], tuple[LeftOut, ...]]:
        """The files of a commit: all tracked ones, and new files unless they are secret, large or too many."""
        new = [path for code, path in found if code == "??"]
        refused = {path: why for path in new if (why := self._unfit("??", path, Redactor().redact))}
        left = [LeftOut(_shown(path), why) for path, why in refused.items()]
        fitting = [path for path in new if path not in refused]
        if len(fitting) > MAX_NEW_FILES:
            markdown = [path for path in fitting if path.casefold().endswith(".md")][:MAX_NEW_FILES]
            others = len(fitting) - len(markdown)
            left.append(LeftOut("", f"{others:,} new files at once: add them by hand, or name them in .gitignore"))
            fitting = markdown
        return [path for code, path in found if code != "??"] + fitting, tuple(left)

    def _unfit(self, code: str, path: str, redact: Redact) -> str:
        """Why a file is excluded, "" if it is not. A deleted file is a change like others."""
        if path.endswith("/"):
            return "it is a repository of its own"
        if any(is_secret_name(part.partition(".")[0]) for part in path.split("/")):
            return "its name looks like a secret"
        try:
            found = (self._root / path).lstat()
            if not stat.S_ISREG(found.st_mode):
                return ""
            if code == "??" and found.st_size > MAX_NEW_BYTES:
                return f"it has {found.st_size:,} bytes"
            if leads_out(self._root, path, found):
                return f"it {OUTSIDE_NAME}"
            text = Boundary(self._root).read_bytes(path).decode("utf-8", "replace")
        except FileNotFoundError:
            return ""
        except (OSError, NotFound, WorkspaceError) as error:
            return f"it cannot be read: {error}"
        return "something in it looks like a secret" if redact(text) != text else ""


_NAMED = ("--pathspec-from-file=-", "--pathspec-file-nul")


def _as_bytes(paths: list[str]) -> bytes:
    return b"".join(path.encode("utf-8", "surrogateescape") + b"\0" for path in paths)


def _named(paths: list[str]) -> str:
    shown = ", ".join(_shown(path) for path in paths[:3])
    return shown if len(paths) <= 3 else f"{shown} and {len(paths) - 3} more"


def _shown(path: str) -> str:
    """A path as printable text, whatever its bytes are."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _commit(text: str) -> str:
    if not _COMMIT.fullmatch(text):
        raise BadRequest(f"not a commit: {text[:80]!r}", hint="use an id from `pal workspace log`, or its beginning")
    return text


def _make_commit(git: Git, message: str, author: str) -> None:
    shown = "".join(char for char in author if char.isprintable() and char not in "<>\n").strip() or AUTHOR
    git.run(
        "commit", "--quiet", "--no-verify", "--file=-", given=message.encode("utf-8", "replace"),
        GIT_AUTHOR_NAME=shown[:80], GIT_AUTHOR_EMAIL=ADDRESS, GIT_COMMITTER_NAME=AUTHOR, GIT_COMMITTER_EMAIL=ADDRESS,
    )  # fmt: skip


def _commits(output: GitOutput) -> tuple[Commit, ...]:
    blocks = output.text.split("\x1e")[1:]
    return tuple(_one(block) for block in (blocks[:-1] if output.truncated else blocks))  # the last one may be cut


def _one(block: str) -> Commit:
    sha, at, author, subject, body, files = (block.split("\x1f") + [""] * 6)[:6]
    listed = [_changed(line) for line in files.strip("\0\n").split("\0") if line.count("\t") >= 2]
    return Commit(sha, int(at or 0) * 1000, author, subject, body.strip(), tuple(listed))


def _changed(line: str) -> ChangedFile:
    added, removed, path = line.strip("\n").split("\t", 2)
    return ChangedFile(path, -1 if added == "-" else int(added), -1 if removed == "-" else int(removed))
