"""What a person said yes to is what is done: whatever the command names, or its patterns stand for, is as it was."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

sys.path.insert(0, str(Path(__file__).parent.parent / "tools" / "exec"))
from exec_bench import Bench, a_run, nothing_is_left

from palinurus.domain.clock import random_id
from palinurus.domain.errors import BadRequest, SandboxError
from palinurus.domain.events import ApprovalAsked, RunEvent, render_plan
from palinurus.domain.messages import ToolCall
from palinurus.domain.tool import PreparedCall
from palinurus.ledger.audit_log import AuditLog
from palinurus.storage.database import MemoryDatabase
from palinurus.tools.approval import Approvals, ApprovalStore
from palinurus.tools.built_in import exec_tools
from palinurus.tools.exec.snapshot import MOST_HELD
from palinurus.tools.gate import Gate, GateServices
from palinurus.tools.grant_issuer import GrantIssuer
from palinurus.tools.policy import Policy, Rules
from palinurus.tools.settings import ExecSettings

__all__ = ["nothing_is_left"]

ASKS = ExecSettings(ask="on-miss")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path / "workspace"
    place.mkdir()
    return place


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("cp new.conf ../victim", "new.conf"),
        ("cp --target-directory=.. new.conf", "new.conf"),
        ("sort -onew.conf", "new.conf"),
        ("cd build && sh ./tool", "build/tool"),
        ("cd build; cd deep; sh tool > out", "build/deep/tool"),
        ("tar -C build -cf a.tar tool", "build/tool"),
        ("sh $HOME/new.conf", "new.conf"),
        ("D=build; sh $D/tool", "build/tool"),
        ("sh ${D}/tool; D='build'", "build/tool"),
        ('sh "$PWD"/new.conf > out', "new.conf"),
        ("cat ~/new.conf > out", "new.conf"),
        ("echo x > 'a b'", "a b"),
        ("echo x > a\\ b", "a b"),
        ("sh -c 'cd build && sh tool'", "build/tool"),
        ("true " + " ".join(f"w{number}" for number in range(400)) + "; sh new.conf", "new.conf"),
        ("rm -rf build/deep/fresh", "build/deep/fresh"),
    ],
)
@pytest.mark.parametrize("change", ["write", "edit", "link", "mode"])
async def test_whatever_a_command_names_is_part_of_what_was_seen(
    workspace: Path, command: str, name: str, change: str
) -> None:
    (workspace / "build" / "deep").mkdir(parents=True)
    for each in ("new.conf", "build/tool", "build/deep/tool"):
        (workspace / each).write_text("good\n")
    (workspace.parent / "victim").write_text("good\n")
    bench = Bench(workspace, ASKS)
    prepared = await bench.prepare(command=command)
    assert prepared.ask
    was_there = (workspace / name).exists()
    if change == "edit" and was_there:
        before = (workspace / name).stat()
        let_time_pass(workspace / name)
        (workspace / name).write_text("evil\n")
        os.utime(workspace / name, ns=(before.st_atime_ns, before.st_mtime_ns))
    elif change == "mode" and was_there:
        let_time_pass(workspace / name)
        (workspace / name).chmod(0o700)
    else:
        (workspace / name).unlink(missing_ok=True)
        if change == "link":
            (workspace / name).symlink_to(workspace.parent / "victim")
        else:
            (workspace / name).write_text("evil\n")
    with pytest.raises(SandboxError, match=f"{name} (has changed|now leads elsewhere)"):
        await prepared.run()
    assert not bench.started


def let_time_pass(path: Path) -> None:
    """Until the file system's clock, which is a coarse one, has ticked since this was last changed."""
    probe = path.parent.parent / "probe"
    for _ in range(100_000):
        probe.write_text("")
        if probe.stat().st_ctime_ns > path.stat().st_ctime_ns:
            return
    raise AssertionError("the clock of the file system stands still")


@pytest.mark.parametrize(
    "command",
    [
        "rm *.log",
        "rm ./*.log",
        "rm ?.log > out",
        "rm [ab].log",
        "rm [!x].log",
        "sh -c 'rm *.log'",
        "cd sub && rm *.log",
        "D=sub; rm $D/*.log",
        "rm */*.log",
        'rm "s"ub/*.log',
        "for each in *.log; do rm $each; done",
        "rm {root}/*.log",
        "rm {root}/s*/[a-b].log",
    ],
)
@pytest.mark.parametrize("change", ["new", "gone", "replaced", "edited", "link"])
async def test_what_a_pattern_stands_for_is_part_of_what_was_seen(workspace: Path, command: str, change: str) -> None:
    (workspace / "sub").mkdir()
    places = [workspace, workspace / "sub"]
    for place in places:
        (place / "a.log").write_text("1")
        (place / ".hidden.log").write_text("")
    (workspace.parent / "victim").write_text("1")
    bench = Bench(workspace, ASKS)
    prepared = await bench.prepare(command=command.format(root=workspace))
    assert any("matches 1: " in each and "a.log" in each for each in prepared.plan.patterns)
    for place in places:
        if change == "new":
            (place / "b.log").write_text("")
        elif change == "edited":
            let_time_pass(place / "a.log")
            (place / "a.log").write_text("2")
        else:
            (place / "a.log").unlink()
        if change == "replaced":
            (place / "a.log").write_text("1")
        if change == "link":
            (place / "a.log").symlink_to(workspace.parent / "victim")
    said = r"[ab]\.log (is new|is gone|has changed|now leads elsewhere)"
    with pytest.raises(SandboxError, match=said):
        await prepared.run()
    assert not bench.started


@pytest.mark.parametrize("command", ["prog > out", "sh -c 'prog > out'", "cd . && nice prog"])
@pytest.mark.parametrize("change", ["edited", "swapped", "before"])
async def test_a_program_that_a_shell_would_find_is_part_of_what_was_seen(
    workspace: Path, command: str, change: str
) -> None:
    first, second = workspace.parent / "first", workspace.parent / "second"
    for folder in (first, second):
        folder.mkdir()
    program = second / "prog"
    program.write_text("#!/bin/sh\necho good\n")
    program.chmod(0o755)
    bench = Bench(workspace, ASKS)
    exec_, _ = exec_tools(structs.replace(bench.desk, path=f"{first}:{second}:{bench.desk.path}"))
    assert exec_.prepare is not None
    prepared = await exec_.prepare(a_run(), {"command": command})
    assert isinstance(prepared, PreparedCall)
    if change == "edited":
        let_time_pass(program)
        program.write_text("#!/bin/sh\necho evil\n")
    elif change == "swapped":
        program.rename(second / "old")
        program.symlink_to("old")
    else:
        (first / "prog").write_text("#!/bin/sh\necho evil\n")
        (first / "prog").chmod(0o755)
    with pytest.raises(SandboxError, match="prog has changed since it was inspected"):
        await prepared.run()
    assert not bench.started


async def test_a_pattern_that_stands_for_the_same_files_is_done_and_was_shown(workspace: Path) -> None:
    for name in ("a.log", "b.log", "c.txt"):
        (workspace / name).write_text("")
    bench = Bench(workspace, ASKS)
    prepared = await bench.prepare(command="rm *.log")
    assert prepared.plan.patterns == ("*.log matches 2: a.log, b.log",)
    assert "files     *.log matches 2: a.log, b.log" in render_plan(prepared.plan)
    (workspace / "d.txt").write_text("")
    (workspace / ".e.log").write_text("")
    assert "[exit 0" in str((await prepared.run()).content)
    assert sorted(each.name for each in workspace.glob("[!.]*")) == ["c.txt", "d.txt"]


async def test_a_file_that_comes_and_goes_never_hits_the_moment_in_which_a_pattern_is_expanded(workspace: Path) -> None:
    """Programs take such a name for an option. What we start ourselves gets the names that were shown."""
    (workspace / "a.log").write_text("")
    bench = Bench(workspace, ASKS)
    plain, shell = [await bench.prepare(command=f"echo *{more}") for more in ("", " > out")]
    (workspace / "--checkpoint-action=exec=x").write_text("")
    for prepared in (plain, shell):
        with pytest.raises(SandboxError, match="--checkpoint-action=exec=x is new"):
            await prepared.run()
    (workspace / "--checkpoint-action=exec=x").unlink()
    with pytest.raises(SandboxError, match="workspace, where a shell will look for files, has changed since"):
        await shell.run()
    assert "a.log\n[exit 0" in str((await plain.run()).content)
    assert bench.started[0].argv[1:] == ("a.log",)


@pytest.mark.parametrize("command", ["sh -c 'echo *.log'", "bash -ec 'echo *.log'", "eval 'echo *.log'"])
async def test_the_shell_of_a_command_does_not_find_more_either(workspace: Path, command: str) -> None:
    bench = Bench(workspace, ASKS)
    prepared = await bench.prepare(command=command)
    (workspace / "a.log").write_text("")
    (workspace / "a.log").unlink()
    with pytest.raises(SandboxError, match="where a shell will look for files, has changed since"):
        await prepared.run()
    assert not bench.started


@pytest.mark.parametrize(
    "command",
    [
        "echo *",
        "echo *.log ?.log",
        "echo ./* sub/* */*",
        "echo 'a'*.log \"b\"*",
        "echo '*'.log \\*.log a\\?log",
        "echo sub*/ */",
        "echo .h* .g*/*",
        "echo [ab].log [!b].log",
        "echo nothing* *.log | cat",
        "touch z.log && echo *.log",
        "echo *.log && echo *.log",
        "echo ** **/*.log",
        "e*o a",
        "echo 'sub folder'/*",
    ],
)
async def test_a_pattern_stands_for_what_a_shell_makes_of_it(workspace: Path, command: str) -> None:
    for folder in ("sub", "sub folder", ".git"):
        (workspace / folder).mkdir()
        (workspace / folder / "c.log").write_text("")
    for name in ("a.log", "b.log", ".hidden", "a b.log", "é.log", "*.log", "-x.log", "B.log"):
        (workspace / name).write_text("")
    bench = Bench(workspace, ASKS)
    told = str((await bench.approved(command=command)).content)
    (workspace / "z.log").unlink(missing_ok=True)
    shell = ["/bin/sh", "-c", command]
    real = subprocess.run(shell, check=False, cwd=workspace, capture_output=True, text=True, timeout=60)
    assert told.rpartition("[exit")[0] == real.stdout + real.stderr


async def test_a_grant_covers_a_pattern_by_the_names_that_it_stands_for(workspace: Path) -> None:
    bench = Bench(workspace, ExecSettings(allowlist=("cat *",)))
    (workspace / "a.md").write_text("figs\n")
    assert "figs" in await bench.runs("cat *.md")
    (workspace / "-n.md").write_text("")
    assert "-n.md" in (await bench.prepare(command="cat *.md")).ask
    (workspace / "-n.md").unlink()
    (workspace / "b.md").symlink_to("/etc/hostname")
    assert "leads out of the workspace" in (await bench.prepare(command="cat *.md")).ask


async def test_a_pattern_for_more_than_can_be_watched_is_refused(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palinurus.tools.exec.snapshot.MOST_MATCHES", 3)
    bench = Bench(workspace, ASKS)
    for number in range(4):
        (workspace / f"{number}.log").write_text("")
    with pytest.raises(BadRequest, match=r"\*\.log matches too many files to watch"):
        await bench.prepare(command="rm *.log")
    assert (await bench.prepare(command="rm 1*.log")).ask


# ——— what a plan holds


async def test_a_folder_that_was_made_anew_is_another_one_though_it_has_the_same_name(workspace: Path) -> None:
    """File systems give a number again once nobody uses it: here somebody does."""
    (workspace / "build").mkdir()
    bench = Bench(workspace, ASKS)
    prepared = await bench.prepare(command="rm -rf a", workdir="build")
    for _ in range(50):
        (workspace / "build").rmdir()
        (workspace / "build").mkdir()
    (workspace / "build" / "a").write_text("")
    with pytest.raises(SandboxError, match="build is not the folder"):
        await prepared.run()
    assert (workspace / "build" / "a").exists()


class Person:
    """Answers the question of one call through a real gate, and sees what is open meanwhile."""

    def __init__(self, bench: Bench, answer: str) -> None:
        self.answer = answer
        self.seen: list[str] = []
        self.going: asyncio.Task[Any] | None = None
        self._tasks: list[asyncio.Task[Any]] = []
        settings = ExecSettings(approval_timeout_sec=0.01 if answer == "expire" else 60.0)
        self.approvals = Approvals(
            ApprovalStore(MemoryDatabase()), GrantIssuer(bench.grants, bench.clock, random_id, lambda _: settings)
        )
        watch = GateServices(
            self.approvals, bench.grants, AuditLog(MemoryDatabase(), bench.clock, random_id), bench.clock, str
        )
        self.gate = Gate(bench.registry, Policy(everybody=Rules(profile="full")), watch)
        self.workspace = bench.workspace

    async def run(self, call: ToolCall) -> str:
        self.going = asyncio.create_task(self.gate.run(a_run(emit=self.hear), call))
        await asyncio.wait({self.going}, timeout=60)
        return "cancelled" if self.going.cancelled() else str(self.going.result().content)

    def hear(self, event: RunEvent) -> None:
        if not isinstance(event, ApprovalAsked):
            return
        self.seen = held_in(self.workspace)
        if self.answer == "fail":
            (self.workspace / "f0").unlink()
        if self.answer == "cancel" and self.going:
            self.going.cancel()
        elif self.answer != "expire":
            said = "deny" if self.answer == "deny" else "allow-once"
            answering = self.approvals.answer(event.id, said, by="owner", where="cli")  # type: ignore[arg-type]
            self._tasks.append(asyncio.create_task(answering))


def held_in(folder: Path) -> list[str]:
    """What of it this process has open, and what it is told of by the kernel."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(str(each.readlink()))
    return [each for each in found if each.startswith((str(folder), "anon_inode:inotify"))]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody remembers what was moved")
@pytest.mark.parametrize(
    ("command", "moved"),
    [
        ("cat sub/deep/notes", "sub"),
        ("cat sub/deep/notes", "sub/deep"),
        ("sh sub/deep/notes", "sub"),
        ("cat sub/deep/* > out", "sub/deep"),
        ("cat way/notes", "way"),
        ("cat way/notes", "sub"),
    ],
)
@pytest.mark.parametrize("allowed", [(), ("cat *",)])
async def test_a_folder_that_went_away_and_came_back_is_not_trusted(
    workspace: Path, command: str, moved: str, allowed: tuple[str, ...]
) -> None:
    """Two looks may both find the good one, and the program the other."""
    (workspace / "sub" / "deep").mkdir(parents=True)
    (workspace / "sub" / "deep" / "notes").write_text("echo figs\n")
    (workspace / "way").symlink_to("sub/deep")
    bench = Bench(workspace, ExecSettings(allowlist=allowed, ask="on-miss"))
    prepared = await bench.prepare(command=command)
    (workspace / moved).rename(workspace / "old")
    (workspace / moved).symlink_to(workspace.parent)
    (workspace / moved).unlink()
    if moved == "way":
        (workspace / "way").symlink_to("sub/deep")
    else:
        (workspace / "old").rename(workspace / moved)
    with pytest.raises(SandboxError, match=f"{moved}(/deep)?(, where a shell| was moved or replaced)"):
        await prepared.run()
    assert not bench.started
    told = await asyncio.wait_for((await bench.prepare(command=command)).run(), 60)
    assert "[exit 0" in str(told.content)


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors are counted in /proc")
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("allow", "[exit 0"),
        ("deny", "the owner said no"),
        ("expire", "not answered in time"),
        ("cancel", "cancelled"),
        ("fail", "f0 has changed since it was inspected"),
    ],
)
async def test_a_plan_holds_few_descriptors_and_only_until_its_question_is_settled(
    workspace: Path, answer: str, told: str
) -> None:
    for number in range(40):
        (workspace / f"f{number}").write_text("")
    person = Person(Bench(workspace, ASKS), answer)
    before = held_in(workspace)
    names = " ".join(f"f{number}" for number in range(40))
    assert told in await person.run(ToolCall("c", "exec", {"command": f"ls f* > /dev/null; true {names}"}))
    assert str(workspace) in person.seen
    assert 2 < len(person.seen) - len(before) <= MOST_HELD + 1  # one more for what is moved
    assert held_in(workspace) == before
