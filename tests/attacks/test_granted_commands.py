"""What was allowed for longer means what it meant then: a workspace that changes underneath gets no more out of it."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "tools" / "exec"))
from exec_bench import PATH, Bench, a_run, nothing_is_left, until, working_bubblewrap

from palinurus.domain.errors import NotFound, SandboxError
from palinurus.sandbox.host import HostSandbox
from palinurus.tools.grants import Grant
from palinurus.tools.settings import ExecSettings

__all__ = ["nothing_is_left"]

GIT = ("git add *", "git status", "git log *", "git diff *")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A repository of the owner's."""
    if shutil.which("git", path=PATH) is None:
        pytest.skip("git is not installed")
    place = tmp_path / "workspace"
    place.mkdir()
    (place / "notes.md").write_text("figs\n")
    git(place, "init", "-q", ".")
    git(place, "add", "notes.md")
    git(place, "commit", "-q", "-m", "first")
    return place


def git(folder: Path, *words: str) -> None:
    call = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main", *words]
    env = {"PATH": PATH, "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(call, cwd=folder, env=env, check=True, timeout=60, capture_output=True)


def make_trap(workspace: Path) -> Path:
    """What an agent does in its sandbox: a repository that names a program. Returns what shows that it ran."""
    ran = workspace.parent / "escaped"
    sub = workspace / "sub"
    sub.mkdir()
    git(sub, "init", "-q", ".")
    (sub / "evil.sh").write_text(f"#!/bin/sh\ntouch {ran}\n")
    (sub / "evil.sh").chmod(0o755)
    git(sub, "add", "evil.sh")
    git(sub, "commit", "-q", "-m", "s")
    git(sub, "config", "core.fsmonitor", "./evil.sh")
    return ran


def bench_of(workspace: Path, rules: Sequence[str]) -> Bench:
    return Bench(workspace, ExecSettings(allowlist=tuple(rules), ask="on-miss"))


def test_the_trap_is_one(workspace: Path) -> None:
    ran = make_trap(workspace)
    git(workspace, "add", "sub")
    git(workspace, "status")
    assert ran.exists()


@pytest.mark.parametrize("joint", ["&&", ";", "|| ls nowhere ;", "\n"])
async def test_a_step_is_judged_after_the_one_before_it_has_run(workspace: Path, joint: str) -> None:
    ran = make_trap(workspace)
    bench = bench_of(workspace, (*GIT, "ls *"))
    text = await bench.runs(f"git add sub {joint} git status")
    assert "not run from here on: the repository names programs that git would run (a repository inside it)" in text
    assert "[exit 126" in text
    assert "On branch" not in text
    assert not ran.exists()


async def test_a_repository_made_in_the_sandbox_is_no_way_out_of_it_by_two_grants(workspace: Path) -> None:
    bench = Bench(
        workspace, ExecSettings(allowlist=GIT), sandboxed="required", sandbox=await working_bubblewrap()
    )  # skips where there is none
    ran = workspace.parent / "escaped"
    (workspace / "evil.sh").write_text(f"#!/bin/sh\ntouch {ran}\n")
    made = (
        "git init -q sub && cd sub && cp ../evil.sh . && chmod +x evil.sh && git add . "
        "&& git -c user.name=a -c user.email=a@b commit -q -m s && git config core.fsmonitor ./evil.sh && echo made"
    )
    assert "made" in await bench.runs(made)
    assert "not run from here on" in await bench.runs("git add sub && git status", elevated=True)
    assert bench.host.started
    assert not ran.exists()


async def test_steps_that_are_still_allowed_run_on_a_terminal_and_in_the_background_too(workspace: Path) -> None:
    bench = bench_of(workspace, (*GIT, "echo *"))
    for more in ({}, {"pty": True}):
        text = await bench.runs("git add notes.md && git status && echo done", **more)
        assert "On branch main" in text
        assert "done" in text
    make_trap(workspace)
    assert "not run from here on" in await bench.runs("git add sub; git status", pty=True)


async def test_a_grant_that_is_withdrawn_meanwhile_covers_no_further_step(workspace: Path) -> None:
    paths = {name: str(shutil.which(name, path=PATH)) for name in ("cat", "echo")}
    grants = [
        Grant(name, "exec", "home", binary=path, resolved=os.path.realpath(path), args=("**",))
        for name, path in paths.items()
    ]
    bench = Bench(workspace, ExecSettings(ask="on-miss"), grants=grants)
    os.mkfifo(workspace / "gate")
    told = await bench.use(bench.exec, command="cat gate; echo more", background=True)
    assert not told.is_error
    await bench.grants.revoke("echo", bench.clock.now_ms())
    (workspace / "gate").write_text("")  # only now the first step ends
    job = bench.processes.of(a_run().key)[0]
    assert await job.wait(60)
    assert "not run from here on: echo more is not on the allowlist" in job.news()


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("sh -c 'git add sub; git status'", "without `sh -c`"),
        ("nice sh -c 'git add sub && git status'", "without `sh -c`"),
        ("git add sub | git status", "starts git twice at the same time"),
        ("git add sub | nice git status", "starts git twice at the same time"),
    ],
)
async def test_what_nobody_can_look_at_in_between_asks(workspace: Path, command: str, why: str) -> None:
    make_trap(workspace)
    bench = bench_of(workspace, GIT)
    assert why in (await bench.prepare(command=command)).ask


async def test_what_was_changed_while_a_person_was_asked_is_judged_again(workspace: Path) -> None:
    """Every command asks here, the granted ones too: half an hour may pass."""
    bench = Bench(workspace, ExecSettings(allowlist=GIT, ask="always"))
    ran = make_trap(workspace)
    prepared = await bench.prepare(command="git status")
    assert prepared.ask
    git(workspace, "add", "sub")
    with pytest.raises(SandboxError, match="no longer allowed: the repository names programs"):
        await prepared.run()
    assert not ran.exists()
    assert not bench.started


async def test_granted_git_takes_no_program_from_a_repository_even_if_nobody_saw_it(workspace: Path) -> None:
    """As if the repository had been changed between our look and git's own."""
    ran = make_trap(workspace)
    bench = bench_of(workspace, GIT)
    await bench.runs("git status")
    (workspace / ".git" / "hooks").mkdir(exist_ok=True)
    (workspace / ".git" / "hooks" / "post-index-change").write_text(f"#!/bin/sh\ntouch {ran}\n")
    (workspace / ".git" / "hooks" / "post-index-change").chmod(0o755)
    git(workspace, "config", "core.fsmonitor", f"touch {ran}; false")
    git(workspace, "config", "core.pager", f"touch {ran}; cat")
    subprocess.run(["git", "add", "sub"], cwd=workspace, env=dict(bench.started[0].env), check=True, timeout=60)
    subprocess.run(["git", "status"], cwd=workspace, env=dict(bench.started[0].env), check=True, timeout=60)
    assert not ran.exists()


async def test_on_a_terminal_granted_git_opens_no_pager_and_no_editor(workspace: Path) -> None:
    """Both run what is typed, and the agent types. Here even HOME is the workspace, so its config is the agent's."""
    ran = workspace.parent / "escaped"
    (workspace / ".gitconfig").write_text(
        f'[core]\n\tpager = "touch {ran}; cat"\n\teditor = "touch {ran}; true"\n[user]\n\tname = a\n\temail = a@b\n'
    )
    bench = bench_of(workspace, ("git log *", "git tag -a x"))
    text = await bench.runs("git log", pty=True)
    assert "first" in text
    assert "[exit 0" in text
    await bench.runs("git tag -a x", pty=True)
    assert not ran.exists()
    variables = bench.started[0].env
    assert (variables["GIT_PAGER"], variables["GIT_EDITOR"]) == ("cat", "false")


# ——— links


@pytest.mark.parametrize("argument", ["{root}/notes.md", "notes.md", "x={root}/notes.md", "a:{root}/notes.md,b"])
async def test_a_file_that_became_a_link_out_is_not_printed_because_it_once_was_allowed(
    workspace: Path, argument: str
) -> None:
    (workspace.parent / "id_rsa").write_text("s3cret\n")
    command = f"cat {argument.format(root=workspace)}"
    bench = bench_of(workspace, (command,))
    assert not (await bench.prepare(command=command)).ask
    (workspace / "notes.md").unlink()
    (workspace / "notes.md").symlink_to("../id_rsa")
    assert "leads out of the workspace through a link" in (await bench.prepare(command=command)).ask


async def test_of_several_arguments_none_becomes_a_link_out_unseen(workspace: Path) -> None:
    """One that leads out was told, and a person said yes to that one."""
    (workspace / "link").symlink_to("/etc/hostname")
    bench = bench_of(workspace, ())
    prepared = await bench.prepare(command=f"cat link {workspace}/notes.md")
    assert prepared.ask
    (workspace / "notes.md").unlink()
    (workspace / "notes.md").symlink_to(workspace.parent / "victim")
    with pytest.raises(SandboxError, match="now leads elsewhere"):
        await prepared.run()
    assert not bench.started


async def test_a_step_that_makes_a_link_does_not_help_the_next_one(workspace: Path) -> None:
    (workspace.parent / "id_rsa").write_text("s3cret\n")
    (workspace / "way").mkdir()
    (workspace / "way" / "notes.md").symlink_to(workspace.parent / "id_rsa")
    packed = ["tar", "-C", str(workspace / "way"), "-cf", str(workspace / "a.tar"), "notes.md"]
    subprocess.run(packed, check=True, timeout=60)
    bench = bench_of(workspace, ("tar xf a.tar", "cat *"))
    text = await bench.runs("tar xf a.tar && cat notes.md")
    assert "not run from here on: notes.md leads out of the workspace through a link" in text
    assert "s3cret" not in text


# ——— what changes while a person is asked


@pytest.mark.parametrize("command", ["rm -rf *", "rm -rf a", "sh -c 'rm -rf *'"])
async def test_a_folder_that_was_swapped_while_a_person_was_asked_is_not_entered(workspace: Path, command: str) -> None:
    photos = workspace.parent / "photos"
    for folder in (photos, workspace / "build"):
        folder.mkdir()
        (folder / "a").write_text("")
    bench = bench_of(workspace, ())
    prepared = await bench.prepare(command=command, workdir="build")
    assert prepared.ask
    (workspace / "build").rename(workspace / "old")
    (workspace / "build").symlink_to(photos)
    with pytest.raises(SandboxError, match="build is not the folder that was inspected"):
        await prepared.run()
    assert (photos / "a").exists()
    assert not bench.started


async def test_the_folder_is_compared_once_more_where_the_command_starts(workspace: Path) -> None:
    """As if it had been swapped behind our last look."""
    photos = workspace.parent / "photos"
    photos.mkdir()
    (workspace / "build").mkdir()
    bench = bench_of(workspace, ())
    assert "[exit 0" in str((await bench.approved(command="rm -rf *", workdir="build")).content)
    command = bench.started[0]
    (workspace / "build").rmdir()
    (workspace / "build").symlink_to(photos)
    with pytest.raises(SandboxError, match="not the folder that was inspected"):
        await HostSandbox().start(command)
    (workspace / "build").unlink()
    with pytest.raises(NotFound, match="there is no directory"):
        await HostSandbox().start(command)


async def test_between_two_steps_the_folder_stays_the_same_too(workspace: Path) -> None:
    (workspace / "build").mkdir()
    os.mkfifo(workspace / "build" / "gate")
    bench = bench_of(workspace, ("cat gate", "echo *"))
    await bench.use(bench.exec, command="cat gate; echo more", workdir="build", background=True)
    (workspace / "build").rename(workspace / "old")
    (workspace / "old" / "gate").write_text("")
    job = bench.processes.of(a_run().key)[0]
    assert await job.wait(60)
    assert "not run from here on" in (text := job.news())
    assert "build is not the folder" in text


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("sh tool > out", "tool"),
        ("./tool > out", "tool"),
        ("cd . && sh ./tool", "tool"),
        ("cat {root}/tool > out", "tool"),
        ("echo hi > fresh", "fresh"),
        ("X=tool; sh $X", "tool"),
        ("cp tool 'sub folder'/x; ls folder > out", "folder"),
    ],
)
@pytest.mark.parametrize("change", ["write", "link"])
async def test_a_file_that_a_shell_string_names_is_part_of_what_was_seen(
    workspace: Path, command: str, name: str, change: str
) -> None:
    (workspace / "tool").write_text("echo good\n")
    (workspace / "tool").chmod(0o755)
    (workspace.parent / "victim").write_text("")  # none of the machine's own: where the mend fails, this is written
    bench = bench_of(workspace, ())
    prepared = await bench.prepare(command=command.format(root=workspace))
    assert prepared.ask
    (workspace / name).unlink(missing_ok=True)
    if change == "write":
        (workspace / name).write_text("echo evil\n")
    else:
        (workspace / name).symlink_to(workspace.parent / "victim")
    with pytest.raises(SandboxError, match=f"{name} has changed since it was inspected"):
        await prepared.run()
    assert not bench.started


async def test_what_a_shell_string_does_not_name_may_change_and_a_folder_may_fill(workspace: Path) -> None:
    (workspace / "build").mkdir()
    bench = bench_of(workspace, ())
    prepared = await bench.prepare(command="ls build > out; cat out")
    (workspace / "build" / "new").write_text("")
    (workspace / "other").write_text("")
    assert "new\n[exit 0" in str((await prepared.run()).content)


# ——— what is written to a console later


@pytest.mark.parametrize("ask", ["on-miss", "off"])
async def test_a_granted_console_runs_nothing_that_is_written_to_it_unasked(tmp_path: Path, ask: Any) -> None:
    if shutil.which("sqlite3", path=PATH) is None:
        pytest.skip("sqlite3 is not installed")
    rules = ("sqlite3 *", "sqlite3 x.db", "sqlite3 x.db 'select 1'", "echo *")
    bench = Bench(tmp_path, ExecSettings(allowlist=rules, ask=ask))
    shell = f".shell touch {tmp_path}/escaped"
    for command in ("sqlite3 x.db", f"echo '{shell}' | sqlite3 x.db", f"sqlite3 x.db '{shell}'"):
        prepared = await bench.prepare(command=command, background=True)
        assert prepared.ask or prepared.refusal
    assert "1\n[exit 0" in await bench.runs("sqlite3 x.db 'select 1'")
    if ask == "off":
        return
    prepared = await bench.prepare(command="sqlite3 x.db", background=True)
    await prepared.run()  # a person has let it run: that is all they did
    job = bench.processes.of(a_run().key)[0]
    told = await bench.use(bench.process, action="write", process_id=job.id, text=f"{shell}\n.quit\n")
    assert told.is_error
    assert "as good as a command" in str(told.content)
    assert not (tmp_path / "escaped").exists()


# ——— two at once


async def test_two_granted_gits_run_one_after_the_other(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one may change what the second one means, so that is judged when the first one has ended."""
    bench = bench_of(workspace, (*GIT, "git tag -a x -F gate"))
    git(workspace, "config", "user.name", "a")
    git(workspace, "config", "user.email", "a@b")
    os.mkfifo(workspace / "gate")
    await bench.use(bench.exec, command="git tag -a x -F gate", background=True)
    job = bench.processes.of(a_run().key)[0]
    with monkeypatch.context() as patience:
        patience.setattr("palinurus.tools.exec.exec.REPOSITORY_SECONDS", 0.05)
        with pytest.raises(SandboxError, match="another granted command is still using a repository"):
            await bench.use(bench.exec, command="git status")
    assert "figs" in str((await bench.approved(command="cat notes.md")).content)  # others need not wait
    (workspace / "gate").write_text("a tag\n")
    assert await job.wait(60)
    ran = make_trap(workspace)
    both = [await bench.prepare(command=command) for command in ("git add sub", "git status")]  # each is allowed by now
    add, status = await asyncio.gather(*(asyncio.wait_for(each.run(), 60) for each in both), return_exceptions=True)
    assert not isinstance(add, BaseException)
    assert isinstance(status, SandboxError)
    assert "the repository names programs that git would run (a repository inside it)" in str(status)
    assert not ran.exists()


async def test_who_gives_up_or_fails_does_not_keep_the_others_waiting(workspace: Path) -> None:
    bench = Bench(workspace, ExecSettings(allowlist=(*GIT, "git tag -a x -F gate"), ask="on-miss"))
    os.mkfifo(workspace / "gate")
    going = asyncio.create_task(bench.use(bench.exec, command="git tag -a x -F gate"))
    await until(lambda: bench.started)
    going.cancel()
    await asyncio.wait({going}, timeout=60)
    prepared = await bench.prepare(command="git status")
    git(workspace, "config", "core.fsmonitor", "x")
    with pytest.raises(SandboxError, match="no longer allowed"):
        await prepared.run()
    git(workspace, "config", "--unset", "core.fsmonitor")
    told = await asyncio.gather(
        *(bench.runs(command) for command in ("git status", "git log", "git diff", "git status"))
    )
    assert all("[exit 0" in each for each in told)
