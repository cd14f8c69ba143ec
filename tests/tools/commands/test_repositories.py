"""git takes programs from the repository it is started in: a grant for git counts only where the agent wrote none."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from palinurus.tools.commands.judge import Allowances, CommandLocation, Judgement, judge
from palinurus.tools.commands.programs import resolve_program
from palinurus.tools.commands.repositories import why_repository_distrusted
from palinurus.tools.commands.shell import parse_shell

PATH = "/usr/bin:/bin"
RULES = (
    *("git status", "git log *", "git push origin *", "git --no-pager log", "git -C sub status", "git commit -m x"),
    "git --no-pager -C sub status",
)
ENV = {"PATH": PATH, "GIT_CONFIG_NOSYSTEM": "1"}

pytestmark = pytest.mark.skipif(shutil.which("git", path=PATH) is None, reason="git is not installed")


class Room:
    """A workspace, and whether a command is covered in a folder of it."""

    def __init__(self, root: Path) -> None:
        self.root = root / "workspace"
        self.root.mkdir()

    def git(self, *words: str, folder: str = ".") -> None:
        call = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main", *words]
        env = {**ENV, "HOME": str(self.root.parent)}
        subprocess.run(call, cwd=self.root / folder, env=env, check=True, timeout=60, capture_output=True)

    def write(self, name: str, text: str, mode: int = 0o644) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)
        (self.root / name).chmod(mode)

    def judge(self, command: str = "git status", folder: str = ".") -> Judgement:
        cwd = os.path.realpath(self.root / folder)
        where = CommandLocation(cwd, PATH, (str(self.root),), str(self.root))
        return judge(parse_shell(command), Allowances(allowlist=RULES), where)


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


@pytest.fixture
def repository(room: Room) -> Room:
    room.git("init", "-q", ".")
    room.write("a", "words")
    room.git("add", "a")
    room.git("commit", "-q", "-m", "first")
    room.git("remote", "add", "origin", "git@example.org:me/it.git")
    return room


def test_where_there_is_no_repository_git_may_run(room: Room) -> None:
    assert room.judge().covered


@pytest.mark.parametrize("command", ["git status", "git log", "git --no-pager log", "git push origin main"])
def test_the_workspaces_own_repository_is_trusted_while_it_names_no_program(repository: Room, command: str) -> None:
    judgement = repository.judge(command)
    assert judgement.covered, judgement.why
    repository.write("below/x", "")
    assert repository.judge(folder="below").covered


def test_a_repository_out_of_reach_is_trusted(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    room = Room(tmp_path)
    assert room.judge().covered


Make = Callable[[Room], None]
MADE_BY_THE_AGENT: dict[str, tuple[str, Make]] = {
    "one of its own below": ("sub", lambda room: room.git("init", "-q", "sub")),
    "one without that name": ("sub", lambda room: room.git("init", "-q", "--bare", "sub")),
    "one of plain files": (
        "sub",
        lambda room: [room.write(f"sub/{name}", "x") for name in ("HEAD", "objects/x", "refs/x", "config")] and None,
    ),
    "a pointer to another": ("sub", lambda room: room.write("sub/.git", "gitdir: ../elsewhere\n")),
    "a link to another": ("sub", lambda room: (room.root / "sub" / ".git").symlink_to("../elsewhere")),
    "a link in the root": (".", lambda room: (room.root / ".git").symlink_to("elsewhere")),
    "the root itself": (".", lambda room: room.git("init", "-q", "--bare", ".")),
    "both in the root": (".", lambda room: room.git("init", "-q", ".") or room.git("init", "-q", "--bare", ".")),
}


@pytest.mark.parametrize("name", MADE_BY_THE_AGENT)
def test_in_a_repository_that_the_agent_can_write_git_asks(room: Room, name: str) -> None:
    folder, make = MADE_BY_THE_AGENT[name]
    (room.root / "sub").mkdir()
    make(room)
    judgement = room.judge(folder=folder)
    assert not judgement.covered
    assert "is writable by the agent" in judgement.why


SETTINGS = {
    "[core]\n\tfsmonitor = ./x\n": "core.fsmonitor",
    "[core] fsmonitor = ./x\n": "core.fsmonitor",
    "[CORE]\nHooksPath=.husky\n": "core.HooksPath",
    "[core]\n\tpager\n": "core.pager",
    "[core]\n\tsshCommand = ./x\n": "core.sshCommand",
    '[filter "x"]\n\tclean = ./x\n': "filter.clean",
    '[diff "x"]\n\ttextconv = ./x\n': "diff.textconv",
    "[diff]\n\texternal = ./x\n": "diff.external",
    "[include]\n\tpath = ../x\n": "include.path",
    '[includeIf "gitdir:."]\n\tpath = ../x\n': "includeif.path",
    "[extensions]\n\tworktreeConfig = true\n": "extensions.worktreeConfig",
    "[alias]\n\tst = !./x\n": "alias.st",
    '[remote "origin"]\n\turl = ./evil.git\n': "remote.url",
    '[remote "origin"]\n\turl = file:///evil.git\n': "remote.url",
    '[remote "origin"]\n\turl = ext::./x\n': "remote.url",
    '[remote "origin"]\n\treceivepack = ./x\n': "remote.receivepack",
    '[url "./evil"]\n\tinsteadOf = https://example.org\n': "url.insteadOf",
    "[core]\n\tabbrev = 7 \\\n\tfsmonitor = ./x\n": "core.abbrev",
    "[core]\n\t= x\n": "= x",
    "[broken\n": "[broken",
    '[core "a\\"] [user"]\n\tfsmonitor = x\n': "core.fsmonitor",
    "\udcff": "cannot be read",
}


@pytest.mark.parametrize("text", SETTINGS, ids=ascii)
def test_a_setting_that_may_start_a_program_makes_git_ask(repository: Room, text: str) -> None:
    config = repository.root / ".git" / "config"
    config.write_bytes(config.read_bytes() + text.encode(errors="surrogateescape"))
    judgement = repository.judge()
    assert not judgement.covered
    assert SETTINGS[text] in judgement.why


def test_a_hook_makes_git_ask_and_an_example_of_one_does_not(repository: Room) -> None:
    repository.write(".git/hooks/post-index-change.sample", "", 0o755)
    repository.write(".git/hooks/README", "")
    assert repository.judge().covered
    repository.write(".git/hooks/post-index-change", "", 0o755)
    assert "the hook post-index-change" in repository.judge().why


def test_a_repository_inside_the_index_makes_git_ask(repository: Room) -> None:
    repository.git("init", "-q", "sub")
    repository.write("sub/a", "words")
    repository.git("add", "a", folder="sub")
    repository.git("commit", "-q", "-m", "first", folder="sub")
    assert repository.judge().covered  # git does not go in as long as it does not belong to it
    repository.git("add", "sub")
    assert "a repository inside it" in repository.judge().why


def test_an_index_that_is_not_understood_makes_git_ask(repository: Room) -> None:
    index = repository.root / ".git" / "index"
    whole = index.read_bytes()
    for data in (
        b"",
        whole[:40],
        b"DIRX" + whole[4:],
        whole[:7] + b"\4" + whole[8:],
        whole[:8] + b"\xff" * 4 + whole[12:],
    ):
        index.write_bytes(data)
        assert not repository.judge().covered


def test_many_names_of_any_length_are_read(repository: Room) -> None:
    for length in range(1, 40):
        repository.write(f"{'n' * length}", "")
    repository.git("add", ".")
    assert repository.judge().covered


def test_another_place_or_setting_asks_although_the_rule_names_it(repository: Room) -> None:
    repository.git("init", "-q", "sub")
    assert "another directory or setting (-C)" in repository.judge("git -C sub status").why
    assert "another directory or setting (-C)" in repository.judge("git --no-pager -C sub status").why


def test_others_that_start_git_are_judged_as_git_is(repository: Room) -> None:
    (repository.root / ".hg").mkdir()
    for name, folder, doubted in (("gh", ".", False), ("gh", "sub", True), ("hg", ".", True), ("ls", "sub", False)):
        (repository.root / "sub" / ".git").mkdir(parents=True, exist_ok=True)
        found = resolve_program(("true",), cwd="/", path=PATH)
        called = type(found)(name, f"/usr/bin/{name}", f"/usr/bin/{name}")
        where = {"cwd": str(repository.root / folder), "workspace": str(repository.root), "writable": ()}
        assert bool(why_repository_distrusted(called, **where)) is doubted


# ——— links


@pytest.mark.parametrize(
    ("command", "astray"),
    [
        ("cat notes.md", False),
        ("cat link", True),
        ("cat sub/deep", True),
        ("cat way/secret", True),
        ("cat inside", False),
        ("cat gone", True),
        ("cat x:link", True),
        ("cat x,link", True),
        ("cat nothing-there", False),
        ("tee link", True),
        ("grep -flink x", True),
        ("grep --file=link x", True),
        ("grep -nflink x", True),
        ("grep --file=a,b x", True),
        ("cat {root}/notes.md", False),
        ("cat {root}/link", True),
        ("cat {root}/sub/../link", True),
        ("cat {root}/way/../secret", True),
        ("cat x={root}/link", True),
        ("cat x:{root}/link", True),
        ("cat y,x:{root}/link", True),
        ("cat {alias}/link", True),
        ("cat {alias}/notes.md", False),
        ("cat {root}/sub/../../secret", False),
        ("cat {elsewhere}", False),
        ("cat '~tilde'", True),
    ],
)
def test_an_argument_that_leads_out_of_the_workspace_by_a_link_asks(tmp_path: Path, command: str, astray: bool) -> None:
    room = Room(tmp_path)
    room.write("notes.md", "")
    room.write("sub/x", "")
    (tmp_path / "secret").write_text("")
    (tmp_path / "alias").symlink_to("workspace")
    (tmp_path / "elsewhere").symlink_to("secret")
    command = command.format(root=room.root, alias=tmp_path / "alias", elsewhere=tmp_path / "elsewhere")
    for name, target in {
        "link": "../secret", "sub/deep": "../link", "way": "..", "inside": "notes.md", "gone": "/no/such/place",
        "a,b": "../secret", "~tilde": "../secret",
    }.items():  # fmt: skip
        (room.root / name).symlink_to(target)
    rules = ("cat *", "tee *", command)
    where = CommandLocation(str(room.root), PATH, (str(room.root),), str(room.root))
    for allowed in (Allowances(allowlist=rules), Allowances(allowlist=(command,))):
        judgement = judge(parse_shell(command), allowed, where)
        assert judgement.covered is not astray
        assert ("leads out of the workspace through a link, to" in judgement.why) is astray
    assert ("leads out" in judge(parse_shell(command), Allowances(), where).why) is astray
