"""The history of a workspace: what was changed is kept and can be put back, and the repository can start no program."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from palinurus.domain.errors import BadRequest, NotFound, WorkspaceError
from palinurus.workspace import history as module
from palinurus.workspace.history import WorkspaceHistory
from palinurus.workspace.seed import seed_workspace

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(root: Path, *arguments: str) -> str:
    """Git as the owner uses it, with their own name."""
    named = ["-c", "user.name=Owner", "-c", "user.email=owner@localhost"]
    done = subprocess.run(
        ["git", *named, *arguments], cwd=root, capture_output=True, text=True, timeout=60, check=True,
        env={"PATH": "/usr/bin:/bin", "HOME": str(root.parent), "GIT_CONFIG_NOSYSTEM": "1"},
    )  # fmt: skip
    return done.stdout


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path / "ws"
    assert seed_workspace(place).git_initialised
    return place


def test_a_new_workspace_has_a_history_that_begins_with_the_first_commit(root: Path) -> None:
    history = WorkspaceHistory(root)
    assert history.why_not() == ""
    assert history.log().commits == ()
    assert history.diff().text == ""
    done = history.commit("The beginning", "by hand", "pilot")
    assert done.commit is not None
    assert (done.commit.subject, done.commit.body, done.commit.author) == ("The beginning", "by hand", "pilot")
    assert {"SOUL.md", "AGENTS.md"} <= {file.path for file in done.commit.files}
    assert history.commit().commit is None
    assert git(root, "status", "--porcelain") == ""
    assert git(root, "log", "--format=%s %an %cn") == "The beginning pilot Palinurus\n"


def test_what_changed_is_told_by_file_and_line(root: Path) -> None:
    history = WorkspaceHistory(root)
    history.commit("The beginning")
    (root / "SOUL.md").write_text("Calm.\n")
    (root / "memory" / "2026-11-16.md").write_text("- one\n- two\n")
    (root / "USER.md").unlink()
    assert set(history.changed()) == {"SOUL.md", "USER.md", "memory/2026-11-16.md"}
    assert "+Calm." in history.diff().text
    done = history.commit()
    assert done.commit is not None
    assert done.commit.subject == "SOUL.md, USER.md, memory/2026-11-16.md"
    changed = {file.path: file for file in done.commit.files}
    assert changed["memory/2026-11-16.md"].added == 2
    assert changed["USER.md"].added == 0
    assert "+- two" in history.diff(done.commit.id, "memory/2026-11-16.md").text
    assert "Calm" not in history.diff(done.commit.id, "memory/2026-11-16.md").text


def test_a_log_is_read_in_pages_and_by_file(root: Path) -> None:
    history = WorkspaceHistory(root)
    for number in range(5):
        (root / "SOUL.md").write_text(f"{number}\n")
        history.commit(f"Number {number}")
    (root / "TOOLS.md").write_text("new\n")
    history.commit("Tools")
    first = history.log(limit=2)
    assert [commit.subject for commit in first.commits] == ["Tools", "Number 4"]
    assert first.has_more
    rest = history.log(limit=10, before=first.commits[-1].id)
    assert [commit.subject for commit in rest.commits] == ["Number 3", "Number 2", "Number 1", "Number 0"]
    assert not rest.has_more
    assert history.log(before=rest.commits[-1].id).commits == ()
    assert [commit.subject for commit in history.log("TOOLS.md").commits] == ["Tools", "Number 0"]


def test_changes_of_the_same_size_within_one_second_are_all_seen(root: Path) -> None:
    history = WorkspaceHistory(root)
    for number in range(8):
        (root / "SOUL.md").write_text(f"{number}\n")
        assert history.commit(f"Number {number}").commit is not None
        if number % 2:
            (root / "TOOLS.md").write_text(f"{number}\n")
            assert history.changed() == ("TOOLS.md",)
            assert history.commit("Tools").commit is not None
    assert git(root, "status", "--porcelain") == ""


def test_the_content_of_any_commit_can_be_had(root: Path) -> None:
    history = WorkspaceHistory(root)
    (root / "SOUL.md").write_bytes(b"first \xff\r\n")
    first = history.commit().commit
    (root / "SOUL.md").write_text("second")
    assert first is not None
    assert history.content(first.id[:8], "SOUL.md") == b"first \xff\r\n"
    assert "-first" in history.diff(first.id, "SOUL.md", now=True).text
    with pytest.raises(NotFound, match="was not there"):
        history.content(first.id, "nothing.md")
    with pytest.raises(NotFound, match="no commit"):
        history.content("0000000", "SOUL.md")
    for wrong in ("HEAD", "--output=x", "main", "", "abc;", "HEAD^{tree}", "-p"):
        with pytest.raises(BadRequest):
            history.content(wrong, "SOUL.md")


def test_nothing_that_the_repository_names_is_run(root: Path, tmp_path: Path) -> None:
    """Hooks, monitors, filters, external diffs, pagers, editors, signers, includes: none of them starts."""
    mark = tmp_path / "ran"
    program = tmp_path / "evil"
    program.write_text(f"#!/bin/sh\necho $0 >> {mark}\ncat\n")
    program.chmod(0o755)
    history = WorkspaceHistory(root)
    history.commit("The beginning")
    for name in (
        "pre-commit",
        "post-commit",
        "commit-msg",
        "prepare-commit-msg",
        "post-index-change",
        "reference-transaction",
    ):
        hook = root / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        shutil.copy(program, hook)
    settings = {
        "core.fsmonitor": program, "core.hooksPath": root / ".git" / "hooks", "core.pager": program,
        "core.editor": program, "core.sshCommand": program, "diff.external": program, "diff.evil.textconv": program,
        "diff.evil.command": program, "gpg.program": program, "commit.gpgSign": "true", "log.showSignature": "true",
        "pager.log": program, "pager.diff": program, "alias.log": f"!{program}", "core.attributesFile": root / "a",
    }  # fmt: skip
    for name, value in settings.items():
        git(root, "config", name, str(value))
    (root / ".gitattributes").write_text("* diff=evil filter=evil merge=evil\n")
    (root / "SOUL.md").write_text("changed\n")
    done = history.commit("Changed")
    assert done.commit is not None
    (root / "SOUL.md").write_text("changed again\n")
    history.log("SOUL.md")
    history.changed()
    assert "+changed again" in history.diff().text
    assert "+changed" in history.diff(done.commit.id).text
    history.diff(done.commit.id, now=True)
    history.content(done.commit.id, "SOUL.md")
    assert not mark.exists()


@pytest.mark.parametrize(
    "setting",
    [
        ("filter.lfs.clean", "git-lfs clean"),
        ("core.worktree", "/"),
        ("core.autocrlf", "true"),
        ("extensions.worktreeConfig", "true"),
        ("include.path", "/etc/passwd"),
        ("includeIf.gitdir:/.path", "/etc/passwd"),
        ("core.sparseCheckout", "true"),
    ],
)
def test_a_repository_whose_files_we_would_read_wrongly_is_left_alone(root: Path, setting: tuple[str, str]) -> None:
    git(root, "config", *setting)
    assert "not a plain one" in WorkspaceHistory(root).why_not()
    with pytest.raises(NotFound):
        WorkspaceHistory(root).commit("No")


def test_without_git_or_a_repository_of_its_own_the_reason_is_one_sentence(root: Path, tmp_path: Path) -> None:
    assert WorkspaceHistory(root, program="").why_not() == "git is not installed"
    other = tmp_path / "other"
    other.mkdir()
    assert "not a git repository" in WorkspaceHistory(other).why_not()
    (other / ".git").write_text(f"gitdir: {root / '.git'}\n")
    assert "another repository" in WorkspaceHistory(other).why_not()
    (other / ".git").unlink()
    (other / ".git").symlink_to(root / ".git")
    assert "another repository" in WorkspaceHistory(other).why_not()
    below = root / "memory"
    assert "not a git repository" in WorkspaceHistory(below).why_not()  # it is the workspace above that has one


@pytest.mark.parametrize("mark", ["MERGE_HEAD", "rebase-merge", "index.lock"])
def test_nobody_commits_while_the_owner_is_in_the_middle_of_something(root: Path, mark: str) -> None:
    WorkspaceHistory(root).commit("The beginning")
    (root / ".git" / mark).touch()
    (root / "SOUL.md").write_text("x")
    with pytest.raises(WorkspaceError, match="nothing was committed"):
        WorkspaceHistory(root).commit("No")
    assert len(WorkspaceHistory(root).log().commits) == 1


def test_what_the_owner_has_staged_and_committed_stays_as_they_made_it(root: Path) -> None:
    git(root, "add", "SOUL.md")
    git(root, "commit", "-m", "Mine")
    (root / "TOOLS.md").write_text("staged\n")
    git(root, "add", "TOOLS.md")
    WorkspaceHistory(root).commit("Theirs")
    assert git(root, "log", "--format=%s").splitlines() == ["Theirs", "Mine"]
    assert git(root, "status", "--porcelain") == ""
    assert git(root, "fsck", "--strict") == ""


def test_large_new_files_secrets_and_repositories_inside_are_left_out(root: Path) -> None:
    history = WorkspaceHistory(root)
    history.commit("The beginning")
    (root / "big.bin").write_bytes(b"x" * (module.MAX_NEW_BYTES + 1))
    (root / ".env").write_text("KEY=secret")
    for name in ("server.pem", "credentials.json", "mcp-credentials.json", "gateway.token"):
        (root / name).write_text("secret")
    (root / "node_modules").mkdir()
    (root / "node_modules" / "a.js").write_text("x")
    (root / ".pal" / "backups").mkdir(parents=True)
    (root / ".pal" / "backups" / "a.md").write_text("x")
    inner = root / "inner"
    inner.mkdir()
    git(inner, "init", "--quiet")
    (inner / "a.md").write_text("x")
    (root / "note.md").write_text("x")
    done = history.commit()
    assert done.commit is not None
    assert [file.path for file in done.commit.files] == ["note.md"]
    assert {left.path for left in done.left_out} == {"big.bin", "inner/"}


def test_a_flood_of_new_files_costs_only_the_markdown(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = WorkspaceHistory(root)
    history.commit("The beginning")
    monkeypatch.setattr(module, "MAX_NEW_FILES", 3)
    for number in range(9):
        (root / f"{number}.txt").write_text("x")
    (root / "note.md").write_text("x")
    (root / "SOUL.md").write_text("x")
    done = history.commit()
    assert done.commit is not None
    assert {file.path for file in done.commit.files} == {"note.md", "SOUL.md"}
    assert "9 new files at once" in done.left_out[-1].why


def test_odd_names_are_kept_and_shown(root: Path) -> None:
    names = ["-n.md", "a b.md", "'; rm -rf.md", ":(top)x.md", "*.md", "ünï 自転車.md", 'q"q.md', "line\nbreak.md"]
    for name in names:
        (root / name).write_text("x")
    (Path(str(root)) / "bad\udcff.md").write_text("x")
    done = WorkspaceHistory(root).commit()
    assert done.commit is not None
    assert set(names) <= {file.path for file in done.commit.files}
    assert WorkspaceHistory(root).content(done.commit.id, "*.md") == b"x"
    assert WorkspaceHistory(root).log(":(top)x.md").commits[0].id == done.commit.id


def test_a_link_is_kept_as_a_link_and_never_followed(root: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("do not read me")
    (root / "link.md").symlink_to(secret)
    done = WorkspaceHistory(root).commit()
    assert done.commit is not None
    assert "do not read me" not in WorkspaceHistory(root).diff(done.commit.id).text
    with pytest.raises(WorkspaceError, match="not a plain file"):
        WorkspaceHistory(root).content(done.commit.id, "link.md")


def test_a_diff_that_is_too_long_is_cut_and_says_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DIFF", 1000)
    (root / "long.md").write_text("a line of text\n" * 1000)
    done = WorkspaceHistory(root).commit()
    assert done.commit is not None
    told = WorkspaceHistory(root).diff(done.commit.id)
    assert told.truncated
    assert len(told.data) == 1000


def test_an_index_that_a_kill_left_behind_is_mended_by_the_next_commit(root: Path) -> None:
    history = WorkspaceHistory(root)
    history.commit("The beginning")
    old = (root / ".git" / "index").read_bytes()
    (root / "SOUL.md").write_text("x")
    history.commit("Killed before its index was put in place")
    (root / ".git" / "index").write_bytes(old)
    assert history.commit().commit is None
    assert git(root, "status", "--porcelain") == ""


def test_of_what_was_written_nothing_is_crowded_out_by_other_files(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FILES", 3)
    for number in range(9):
        (root / f"{number}.txt").write_text("theirs")
    names = ["written.md", "*.md", "deep/ünï.md", "gone.md"]
    (root / "deep").mkdir()
    for name in names[:3]:
        (root / name).write_text("x")
    done = WorkspaceHistory(root).commit_written(set(names), "by a run", "pilot", lambda text: text)
    assert done.commit is not None
    assert {file.path for file in done.commit.files} == set(names[:3])
    (root / "written.md").unlink()
    gone = WorkspaceHistory(root).commit_written({"written.md"}, "by a run", "pilot", lambda text: text)
    assert gone.commit is not None
    assert "written.md" not in git(root, "ls-files")
    assert "?? 0.txt" in git(root, "status", "--porcelain")


def test_a_file_of_which_its_owner_has_staged_something_is_left_to_them(root: Path) -> None:
    WorkspaceHistory(root).commit("The beginning")
    (root / "SOUL.md").write_text("the owner's\n")
    git(root, "add", "SOUL.md")
    (root / "SOUL.md").write_text("the owner's, and the agent's\n")
    done = WorkspaceHistory(root).commit_written({"SOUL.md"}, "by a run", "pilot", lambda text: text)
    assert (done.commit, [left.path for left in done.left_out]) == (None, ["SOUL.md"])
    assert git(root, "status", "--porcelain") == "MM SOUL.md\n"
    assert "+the owner's\n" in git(root, "diff", "--cached")
