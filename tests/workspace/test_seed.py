"""Seeding a workspace: complete for a new one, silent where somebody lives."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from palinurus.domain.errors import WorkspaceError
from palinurus.domain.identity import AgentIdentity
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.files import WorkspaceFiles, read_identity
from palinurus.workspace.seed import (
    FIRST_RUN,
    KINDS,
    TEMPLATES,
    TemplateKind,
    is_brand_new,
    retire_first_run,
    seed_workspace,
    template,
    untouched_templates,
)

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def tree(root: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in root.iterdir() if path.is_file()}


def test_a_new_workspace_gets_every_template_the_first_run_file_and_its_directories(tmp_path: Path) -> None:
    root = tmp_path / "new" / "ws"
    report = seed_workspace(root, git=False)
    assert set(report.created) == {FIRST_RUN, *TEMPLATES, "memory/", "skills/"}
    assert report.kept == ()
    assert tree(root) == {name: template(name) for name in (FIRST_RUN, *TEMPLATES)}
    assert (root / "memory").is_dir()
    assert (root / "skills").is_dir()


def test_seeding_again_changes_nothing_and_a_finished_first_run_stays_finished(tmp_path: Path) -> None:
    seed_workspace(tmp_path, git=False)
    (tmp_path / FIRST_RUN).unlink()
    (tmp_path / "SOUL.md").write_text("mine")
    (tmp_path / "TOOLS.md").write_text("")
    before = tree(tmp_path)
    report = seed_workspace(tmp_path, git=False)
    assert report.created == ()
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    ("place", "mark"),
    [
        (".pal/workspace-state.json", '{"version": 1, "setupCompletedAt": "2026-11-15T09:00:00.000Z"}'),
        (".openclaw/workspace-state.json", '{"version": 1, "onboardingCompletedAt": "2026-02-01T09:00:00.000Z"}'),
        ("openclaw-workspace-state.json", '{"bootstrapSeededAt": "x", "setupCompletedAt": "2026-05-01T09:00:00.000Z"}'),
    ],
)
def test_a_setup_that_was_marked_as_complete_does_not_begin_again(tmp_path: Path, place: str, mark: str) -> None:
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text(mark)
    assert FIRST_RUN not in seed_workspace(tmp_path / ".", git=False).created
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "openclaw-workspace-state.json").write_text("not JSON")
    assert FIRST_RUN in seed_workspace(tmp_path / "other", git=False).created


@pytest.mark.parametrize("sign", ["SOUL.md", "MEMORY.md", "memory/", ".git/", "HEARTBEAT.md"])
def test_a_workspace_with_any_sign_of_life_gets_no_first_run_file(tmp_path: Path, sign: str) -> None:
    if sign.endswith("/"):
        (tmp_path / sign).mkdir()
    else:
        (tmp_path / sign).write_text("mine")
    assert not is_brand_new(tmp_path)
    report = seed_workspace(tmp_path)
    assert not (tmp_path / FIRST_RUN).exists()
    assert not report.git_initialised
    assert set(TEMPLATES) <= {*report.created, *report.kept}
    if not sign.endswith("/"):
        assert (tmp_path / sign).read_text() == "mine"


def test_a_link_in_a_templates_place_is_left_alone_wherever_it_leads(tmp_path: Path) -> None:
    root = tmp_path / "ws"
    root.mkdir()
    (tmp_path / "elsewhere.md").write_text("theirs")
    (root / "USER.md").symlink_to("../elsewhere.md")
    (root / "SOUL.md").symlink_to("nowhere.md")
    report = seed_workspace(root, git=False)
    assert {"USER.md", "SOUL.md"} <= set(report.kept)
    assert (tmp_path / "elsewhere.md").read_text() == "theirs"
    assert not (root / "nowhere.md").exists()


def test_a_seeding_cut_short_after_its_first_file_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from palinurus.workspace import seed

    create, calls = seed.create_file, []

    def dying(boundary: Boundary, name: str, data: bytes) -> bool:
        if calls:
            raise KeyboardInterrupt
        calls.append(name)
        return create(boundary, name, data)

    monkeypatch.setattr(seed, "create_file", dying)
    with pytest.raises(KeyboardInterrupt):
        seed_workspace(tmp_path, git=False)
    monkeypatch.undo()
    seed_workspace(tmp_path, git=False)
    assert set(tree(tmp_path)) == {FIRST_RUN, *TEMPLATES}


def test_skipping_the_bootstrap_makes_only_the_directory(tmp_path: Path) -> None:
    report = seed_workspace(tmp_path / "ws", skip_bootstrap=True)
    assert report.created == ()
    assert list((tmp_path / "ws").iterdir()) == []


def test_optional_files_can_be_left_out(tmp_path: Path) -> None:
    seed_workspace(tmp_path, skip_optional=("SOUL.md", "USER.md"), git=False)
    assert set(tree(tmp_path)) == {FIRST_RUN, *TEMPLATES} - {"SOUL.md", "USER.md"}


@needs_git
def test_a_new_workspace_becomes_a_repository_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "somebody-elses.git"))
    report = seed_workspace(tmp_path / "ws")
    assert report.git_initialised
    monkeypatch.delenv("GIT_DIR")
    head = subprocess.run(
        ["git", "-C", str(tmp_path / "ws"), "symbolic-ref", "HEAD"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert head.stdout.strip() == "refs/heads/main"
    assert not (tmp_path / "somebody-elses.git").exists()
    assert not seed_workspace(tmp_path / "ws").git_initialised


def test_without_git_the_workspace_is_made_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    report = seed_workspace(tmp_path / "ws")
    assert not report.git_initialised
    assert "AGENTS.md" in report.created


def test_a_file_where_the_workspace_should_be_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "ws").write_text("")
    with pytest.raises(WorkspaceError, match=r"ws is in the way"):
        seed_workspace(tmp_path / "ws")


def test_what_a_first_prompt_reads_of_the_templates_stays_small(tmp_path: Path) -> None:
    seed_workspace(tmp_path, git=False)
    shown = WorkspaceFiles(Boundary(tmp_path)).bootstrap_files("full", private=True)
    assert [file.name for file in shown] == [
        "AGENTS.md", "SOUL.md", "IDENTITY.md", "USER.md", "TOOLS.md", "BOOTSTRAP.md",
    ]  # fmt: skip
    assert all(file.state == "present" for file in shown)
    assert sum(len(file.text) for file in shown) < 3_600


def test_the_heartbeat_template_asks_for_no_run() -> None:
    assert all(line.startswith("#") or not line.strip() for line in template("HEARTBEAT.md").split("\n"))


def test_the_templates_lie_inside_the_package() -> None:
    import palinurus.workspace

    shipped = list(Path(palinurus.workspace.__file__).with_name("templates").iterdir())
    assert {FIRST_RUN, *TEMPLATES} == {path.name for path in shipped if path.is_file()}
    assert {*KINDS, "assistant"} == {path.name for path in shipped if path.is_dir()} | {"assistant"}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_agent_keeps_the_rules_of_all_and_has_nothing_filled_in(
    kind: TemplateKind, tmp_path: Path
) -> None:
    seed_workspace(tmp_path, git=False, kind=kind)
    assert all((tmp_path / name).read_text().startswith(template(name)) for name in ("AGENTS.md", "SOUL.md"))
    assert (kind == "assistant") == ((tmp_path / "AGENTS.md").read_text() == template("AGENTS.md"))
    assert untouched_templates(tmp_path) == {FIRST_RUN, *TEMPLATES}
    assert read_identity(WorkspaceFiles(Boundary(tmp_path))) == AgentIdentity()
    assert retire_first_run(WorkspaceFiles(Boundary(tmp_path)), 0) == ""


# --- the end of the first conversation ---

ASKED = "# Identity\n\n- **Name:**\n  _(pick something you like)_\n- **Vibe:** _(sharp? warm?)_\n<!-- fill in -->\n"


@pytest.mark.parametrize(
    ("identity", "user", "over"),
    [
        ("- Name: Ada\n", "- Name: Anna\n", True),
        ("---\nname: Ada\n---\n", "Anna bakes bread.\n", True),
        (template("IDENTITY.md") + "I am an owl.\n", template("USER.md") + "- Notes: likes the sea\n", True),
        ("- Name: Ada\n", None, True),
        (None, None, False),
        ("- Name: Ada\n", template("USER.md"), False),
        (template("IDENTITY.md"), "- Name: Anna\n", False),
        (ASKED, "- Name: Anna\n", False),
        ("\n", "- Name: Anna\n", False),
    ],
)
def test_the_first_run_file_goes_when_both_files_say_something(
    tmp_path: Path, identity: str | None, user: str | None, over: bool
) -> None:
    seed_workspace(tmp_path, git=False)
    for name, text in (("IDENTITY.md", identity), ("USER.md", user)):
        (tmp_path / name).unlink()
        if text is not None:
            (tmp_path / name).write_text(text)
    kept = retire_first_run(WorkspaceFiles(Boundary(tmp_path)), 1_700_000_000_000)
    assert (tmp_path / FIRST_RUN).exists() is not over
    assert bool(kept) is over
    if over:
        assert (tmp_path / kept).read_text() == template(FIRST_RUN)
        assert retire_first_run(WorkspaceFiles(Boundary(tmp_path)), 1_700_000_000_000) == ""


def test_a_first_run_file_that_is_a_link_stays_where_its_owner_put_it(tmp_path: Path) -> None:
    seed_workspace(tmp_path, git=False)
    (tmp_path / "theirs.md").write_text(template(FIRST_RUN))
    (tmp_path / FIRST_RUN).unlink()
    (tmp_path / FIRST_RUN).symlink_to("theirs.md")
    (tmp_path / "IDENTITY.md").write_text("- Name: Ada\n")
    (tmp_path / "USER.md").write_text("- Name: Anna\n")
    assert retire_first_run(WorkspaceFiles(Boundary(tmp_path)), 0) == ""
    assert (tmp_path / "theirs.md").exists()


def test_what_cannot_be_kept_is_not_removed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    seed_workspace(tmp_path, git=False)
    (tmp_path / ".pal").write_text("in the way")
    (tmp_path / "IDENTITY.md").write_text("- Name: Ada\n")
    (tmp_path / "USER.md").write_text("- Name: Anna\n")
    assert retire_first_run(WorkspaceFiles(Boundary(tmp_path)), 0) == ""
    assert (tmp_path / FIRST_RUN).read_text() == template(FIRST_RUN)
    assert "could not be moved" in caplog.text
