"""exec as a model uses it, on the real host and in a real bubblewrap."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from exec_bench import FULL, Bench, NoSandbox, a_run, nothing_is_left, sleepers, until, working_bubblewrap
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palinurus.domain.errors import SandboxError
from palinurus.domain.events import Notice
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin, ToolCall
from palinurus.domain.tool import Restriction, ToolRun
from palinurus.sandbox.sandbox import Sandbox
from palinurus.tools.exec.pipelines import Step, helper_argv, read_steps
from palinurus.tools.grants import Grant
from palinurus.tools.settings import ElevatedSettings, ExecSettings

__all__ = ["nothing_is_left"]  # a fixture for all of them

ALLOWLIST = ExecSettings(allowlist=("seq *", "yes", "echo *", "true", "false", "sleep *", "git status"))
CAGED = Restriction("skill:pdf", "it is somebody else's", sandboxed=True)
GUEST: dict[str, Any] = {"owner": False, "channel": "telegram", "sender": "42"}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "ws" / "sub").mkdir(parents=True)
    return tmp_path / "ws"


@pytest.fixture
def bench(place: Path) -> Bench:
    """Everything on the host, nobody is asked."""
    return Bench(place)


@pytest.fixture
async def bubblewrap() -> Sandbox:
    return await working_bubblewrap()


@pytest.fixture(params=["host", "bubblewrap"])
async def anywhere(request: pytest.FixtureRequest, place: Path) -> Bench:
    if request.param == "host":
        return Bench(place)
    return Bench(place, sandboxed="required", sandbox=await working_bubblewrap())


# What comes back


async def test_a_string_goes_to_a_shell_and_its_output_comes_back_with_how_it_ended(anywhere: Bench) -> None:
    told = await anywhere.use(anywhere.exec, command='echo out; echo "err $((1 + 1))" >&2')
    where = "host" if anywhere.host.started else "sandbox"
    lines = str(told.content).splitlines()
    assert lines[:2] == ["out", "err 2"]
    assert lines[2].startswith("[exit 0 · ")
    assert lines[2].endswith(f" s · {where}]")
    assert told.details is not None
    assert (told.details["exitCode"], told.details["where"]) == (0, where)


async def test_argv_is_run_word_by_word_without_a_shell(anywhere: Bench) -> None:
    assert (await anywhere.runs(argv=["echo", "$HOME;", "a b", "*"])).startswith("$HOME; a b *\n")


async def test_a_failing_command_is_a_result_and_no_mistake(anywhere: Bench) -> None:
    assert "(no output)\n[exit 3 · " in await anywhere.runs("exit 3")


async def test_a_signal_is_told_as_a_shell_tells_it(bench: Bench) -> None:
    assert "[exit 137 · " in await bench.runs("kill -9 $$")


async def test_it_starts_in_the_workspace_or_in_a_directory_of_it(anywhere: Bench) -> None:
    assert (await anywhere.runs("pwd")).startswith(f"{anywhere.workspace}\n")
    assert (await anywhere.runs("pwd", workdir="sub")).startswith(f"{anywhere.workspace}/sub\n")


async def test_what_it_writes_in_the_workspace_stays_there(anywhere: Bench) -> None:
    await anywhere.runs("echo kept > note.txt")
    assert (anywhere.workspace / "note.txt").read_text() == "kept\n"


async def test_variables_are_set_and_nothing_of_ours_is_seen(anywhere: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "of-pal-itself")
    text = await anywhere.runs("env", env={"TIDE": "high"})
    assert "TIDE=high\n" in text
    assert "of-pal-itself" not in text


async def test_input_that_nobody_will_write_has_ended(anywhere: Bench) -> None:
    assert "[exit 0 · " in await anywhere.runs("cat")


async def test_with_a_pty_it_finds_a_terminal_and_its_colours_are_not_shown(anywhere: Bench) -> None:
    text = await anywhere.runs(r"test -t 0 && test -t 1 && printf '\033[31mred\033[0m 10%%\r100%%\n'", pty=True)
    assert text.startswith("100%\n[exit 0")


async def test_without_a_pty_it_finds_none(anywhere: Bench) -> None:
    assert (await anywhere.runs("test -t 1 || echo plain")).startswith("plain\n")


async def test_of_a_flood_the_beginning_and_the_end_are_kept_and_the_rest_is_counted(bench: Bench) -> None:
    text = await bench.runs("echo first; head -c 5000000 /dev/zero | tr '\\0' x; echo; echo last")
    assert text.startswith("first\nxxx")
    assert "\nlast\n[exit 0" in text
    assert "[… 2,902,8" in text
    assert len(text) < 2 * 1024 * 1024 + 200


async def test_a_command_that_takes_too_long_is_ended_with_all_it_started(anywhere: Bench) -> None:
    began = time.monotonic()
    told = await anywhere.use(anywhere.exec, command="sleep 611.5 & sleep 611.5", timeout=0.3)
    assert told.is_error
    assert "took longer than 0.3 s" in str(told.content)
    assert time.monotonic() - began < 60  # and not the ten minutes that it would sleep
    assert not sleepers("611.5")


async def test_the_limit_of_the_settings_is_the_most_a_model_can_have(place: Path) -> None:
    bench = Bench(place, ExecSettings(security="full", ask="off", timeout_sec=0.3))
    assert "took longer than 0.3 s" in str((await bench.use(bench.exec, command="sleep 30", timeout=60)).content)


async def test_what_it_leaves_behind_on_the_host_does_not_outlive_it(bench: Bench) -> None:
    began = time.monotonic()
    assert (await bench.runs("sleep 612.5 & setsid sleep 612.5 >/dev/null 2>&1 & echo done")).startswith("done\n")
    assert time.monotonic() - began < 60
    assert not sleepers("612.5")


# STOP


@pytest.mark.slow
@pytest.mark.parametrize("background", [False, True])
async def test_stop_ends_a_command_its_children_and_who_has_left_its_session(anywhere: Bench, background: bool) -> None:
    mark = f"6{os.getpid()}.{int(background)}"
    command = f"sleep {mark} & setsid sleep {mark} & (setsid nohup sleep {mark} >/dev/null 2>&1 &); sleep {mark}"
    work = asyncio.create_task(anywhere.exec.run(a_run(), {"command": command, "background": background}))
    await until(lambda: len(sleepers(mark)) == 4)
    began = time.monotonic()
    if background:
        await work
        assert await anywhere.processes.stop_run("r1") == 1
    else:
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
    assert not sleepers(mark)
    assert time.monotonic() - began < 30


async def test_a_stop_while_a_command_is_being_started_leaves_nothing(bench: Bench) -> None:
    for delay in range(4):
        work = asyncio.create_task(bench.exec.run(a_run(), {"command": "sleep 613.5"}))
        for _ in range(delay):
            await asyncio.sleep(0)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
    assert not sleepers("613.5")


# Pipelines without a shell


@pytest.mark.parametrize(
    ("command", "output", "code"),
    [
        ("seq 1 3 | tail -n 1", "3\n", 0),
        ("yes | head -n 1", "y\n", 0),
        ("seq 1 400000 | wc -l", "400000\n", 0),
        ("seq 1 400000 | head -n 1 | tr 1 2", "2\n", 0),
        ("true | false", "", 1),
        ("false | true", "", 0),
        ("false && echo no || echo yes; echo more", "yes\nmore\n", 0),
        ("true || echo no && echo yes", "yes\n", 0),
        ("echo 'a  b' \"c;d\" '|'", "a  b c;d |\n", 0),
        ("echo a; false", "a\n", 1),
    ],
)
async def test_an_allowed_pipeline_runs_without_a_shell_as_a_shell_would(
    place: Path, command: str, output: str, code: int
) -> None:
    bench = Bench(place, ALLOWLIST)
    text = await bench.runs(command)
    assert text.startswith((output or "(no output)\n") + f"[exit {code} · ")
    assert all(Path(word).name not in ("sh", "bash") for word in bench.host.started[0].argv)


async def test_errors_of_a_pipeline_do_not_run_through_its_pipes(place: Path) -> None:
    bench = Bench(place, ExecSettings(allowlist=("ls *",)))
    text = await bench.runs("ls nowhere-at-all | wc -l")
    assert "nowhere-at-all" in text
    assert "\n0\n[exit 0" in text


async def test_stop_ends_all_programs_of_a_pipeline(place: Path) -> None:
    bench = Bench(place, ALLOWLIST)
    mark = f"7{os.getpid()}"
    work = asyncio.create_task(bench.exec.run(a_run(), {"command": f"sleep {mark} | sleep {mark} | wc -l"}))
    await until(lambda: len(sleepers(mark)) >= 2)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert not sleepers(mark)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["always", "and", "or"]),
            st.lists(st.tuples(st.text(), st.lists(st.text()).map(tuple)), min_size=1).map(tuple),
        )
    )
)
def test_steps_are_read_as_they_were_written(steps: list[Step]) -> None:
    assert list(read_steps(helper_argv(steps)[4:])) == steps


# What the model has to mend


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "either command"),
        ({"command": "  "}, "either command"),
        ({"command": "ls", "argv": ["ls"]}, "either command"),
        ({"argv": [""]}, "names the program"),
        ({"command": "-s"}, "for options"),
        ({"command": "+x\nls"}, "for options"),
        ({"argv": ["echo", "a\0b"]}, "NUL"),
        ({"command": "echo \ud800"}, "half a character"),
        ({"command": "x" * 70_000}, "65536"),
        ({"command": "ls", "workdir": "nowhere"}, "there is no directory nowhere"),
        ({"argv": ["no-such-program"]}, "there is no program 'no-such-program'"),
        ({"command": "ls", "env": {"PATH": "/evil"}}, "PATH may not be set"),
        ({"command": "ls", "env": {"LD_PRELOAD": "x"}}, "LD_PRELOAD may not be set"),
        ({"command": "ls", "env": {"DYLD_INSERT_LIBRARIES": "x"}}, "may not be set"),
        ({"command": "ls", "env": {"BASH_ENV": "x"}}, "may not be set"),
        ({"command": "ls", "env": {"GIT_SSH_COMMAND": "x"}}, "may not be set"),
        ({"command": "ls", "env": {"node_options": "x"}}, "may not be set"),
        ({"command": "ls", "env": {"A B": "x"}}, "not a valid variable name"),
        ({"command": "ls", "timeout": -1}, "timeout"),
        ({"command": "ls", "host": "gateway"}, "no argument 'host'"),
    ],
)
async def test_a_mistake_is_told_and_nothing_starts(bench: Bench, arguments: dict[str, Any], says: str) -> None:
    told = await bench.registry.run(a_run(), ToolCall("c", "exec", arguments))
    assert told.is_error
    assert says in str(told.content)
    assert not bench.started


async def test_in_the_sandbox_the_working_directory_is_inside_the_workspace(place: Path, bubblewrap: Sandbox) -> None:
    bench = Bench(place, sandboxed="required", sandbox=bubblewrap)
    (place / "way-out").symlink_to("/usr")
    for workdir in ("..", "/usr", "way-out", "sub/../.."):
        told = await bench.registry.run(a_run(), ToolCall("c", "exec", {"command": "ls", "workdir": workdir}))
        assert "outside the workspace" in str(told.content)
    assert not bench.started


def test_the_schema_is_short(bench: Bench) -> None:
    assert len(msgspec.json.encode(bench.exec.spec)) <= 900
    assert len(msgspec.json.encode(bench.process.spec)) <= 750


# Where it runs and who is asked

OFF = ExecSettings(ask="off")
DENY = ExecSettings(security="deny")
ALWAYS = ExecSettings(security="full", ask="always")
LISTED = ElevatedSettings(allow_from={"telegram": ("42",)})

Case = tuple[str, dict[str, Any], dict[str, Any], dict[str, Any], str]
CASES: list[Case] = [
    # name, of the bench, of the run, of the call, what comes of it: sandbox, host, ask: …, no: …
    ("sandboxed", {"sandboxed": "required", "walls": True}, {}, {}, "sandbox"),
    ("preferred", {"sandboxed": "preferred", "walls": True}, {}, {}, "sandbox"),
    ("asked always, but inside", {"sandboxed": "required", "walls": True, "settings": ALWAYS}, {}, {}, "sandbox"),
    ("denied outside, but inside", {"sandboxed": "required", "walls": True, "settings": DENY}, {}, {}, "sandbox"),
    ("required and missing", {"sandboxed": "required"}, {}, {}, "no: there is none: bwrap is not installed"),
    ("preferred and missing", {"sandboxed": "preferred"}, {}, {}, "ask: rm -rf build is not on the allowlist"),
    ("missing but covered", {"sandboxed": "preferred"}, {}, {"command": "git status"}, "host"),
    ("caged, no sandbox", {"sandboxed": "preferred"}, {"restrictions": (CAGED,)}, {}, "no: there is none"),
    ("caged where none is used", {"walls": True}, {"restrictions": (CAGED,)}, {}, "sandbox"),
    ("caged and missing", {}, {"restrictions": (CAGED,)}, {}, "no: there is none"),
    (
        "caged, elevated",
        {"walls": True},
        {"restrictions": (CAGED,), "elevated": "full"},
        {"elevated": True},
        "no: it is somebody else's (skill:pdf)",
    ),
    ("host", {}, {}, {}, "ask: rm -rf build is not on the allowlist"),
    ("host, covered", {}, {}, {"command": "git status | wc -l"}, "host"),
    ("host, one of two covered", {}, {}, {"command": "git status && git push"}, "ask: git push"),
    ("host, not understood", {}, {}, {"command": "echo $(id)"}, "ask: it has a variable or a substitution"),
    ("host, variable", {}, {}, {"command": "git status", "env": {"FOO": "1"}}, "ask: it sets variables (FOO)"),
    ("host, plain variable", {}, {}, {"command": "git status", "env": {"TZ": "UTC", "LC_ALL": "C"}}, "host"),
    ("host, plain name, path", {}, {}, {"command": "git status", "env": {"TZ": ":/etc/x"}}, "ask: it sets variables"),
    ("host, elsewhere", {}, {}, {"command": "git status", "workdir": "/usr"}, "ask: it runs outside the workspace"),
    ("host, deny", {"settings": DENY}, {}, {"command": "git status"}, "no: switched off"),
    ("host, ask off", {"settings": OFF}, {}, {}, "no: approvals are off: rm -rf build is not on the allowlist"),
    ("host, ask off, opaque", {"settings": OFF}, {}, {"command": "echo >x"}, "no: it redirects (>)"),
    ("host, full", {"settings": FULL}, {}, {}, "host"),
    ("host, full, always", {"settings": ALWAYS}, {}, {}, "ask: tools.exec.ask is always"),
    (
        "host, covered, always",
        {"settings": ExecSettings(ask="always", allowlist=("git status",))},
        {},
        {"command": "git status"},
        "ask: tools.exec.ask is always",
    ),
    ("elevated", {"sandboxed": "required", "walls": True}, {}, {"elevated": True}, "ask: rm -rf build"),
    (
        "elevated, covered",
        {"sandboxed": "required", "walls": True},
        {},
        {"elevated": True, "command": "git status"},
        "host",
    ),
    ("elevated, ask", {"sandboxed": "required", "walls": True}, {"elevated": "ask"}, {"elevated": True}, "ask: rm"),
    (
        "elevated, off",
        {"sandboxed": "required", "walls": True},
        {"elevated": "off"},
        {"elevated": True},
        "no: /elevated",
    ),
    ("elevated, full", {"sandboxed": "required", "walls": True}, {"elevated": "full"}, {"elevated": True}, "host"),
    ("full, not elevated", {"sandboxed": "required", "walls": True}, {"elevated": "full"}, {}, "sandbox"),
    (
        "elevated, switched off",
        {"sandboxed": "required", "walls": True, "elevated": ElevatedSettings(enabled=False)},
        {"elevated": "full"},
        {"elevated": True},
        "no: tools.elevated.enabled is false",
    ),
    ("elevated, guest", {"sandboxed": "required", "walls": True}, GUEST, {"elevated": True}, "no: only the owner"),
    (
        "elevated, listed guest",
        {"sandboxed": "required", "walls": True, "elevated": LISTED},
        GUEST,
        {"elevated": True},
        "ask: rm -rf build",
    ),
    (
        "elevated, listed elsewhere",
        {"sandboxed": "required", "walls": True, "elevated": LISTED},
        {**GUEST, "channel": "irc"},
        {"elevated": True},
        "no: only the owner",
    ),
    (
        "full is the owner's",
        {"sandboxed": "required", "walls": True, "elevated": LISTED},
        {**GUEST, "elevated": "full"},
        {"elevated": True},
        "ask: rm -rf build",
    ),
    ("elevated where none is used", {}, {"elevated": "off"}, {"elevated": True}, "ask: rm -rf build"),
]


class PaperWalls(NoSandbox):
    """A sandbox that would work, for those who only make plans."""

    async def check(self) -> Any:
        return msgspec.structs.replace(await super().check(), works=True)


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
async def test_a_call_is_judged_before_anything_happens(place: Path, case: Case) -> None:
    _, about, run, call, outcome = case
    about = {"settings": ALLOWLIST, **about}
    walls = about.pop("walls", False)
    bench = Bench(place, about.pop("settings"), sandbox=PaperWalls() if walls else None, **about)
    prepared = await bench.prepare(a_run(**run), **{"command": "rm -rf build", **call})
    verdict, _, words = outcome.partition(": ")
    assert bool(prepared.refusal) == (verdict == "no"), prepared
    assert bool(prepared.ask) == (verdict == "ask"), prepared
    assert words in (prepared.refusal or prepared.ask)
    if verdict in ("sandbox", "host"):
        assert prepared.plan.where == verdict
        assert bool(prepared.when_untrusted) == (verdict == "host")
    assert not bench.started


async def test_full_is_not_to_be_had_where_others_speak(place: Path) -> None:
    bench = Bench(place, ALLOWLIST, sandboxed="required", sandbox=PaperWalls())
    group = ToolRun(SessionKey.parse("agent:main:telegram:group:7"), "r", private=False, elevated="full")
    assert "rm -rf build" in (await bench.prepare(group, command="rm -rf build", elevated=True)).ask


@pytest.mark.parametrize(
    ("fallback", "command", "done"),
    [
        ("deny", "rm x", False),
        ("deny", "git status", False),
        ("allowlist", "rm x", False),
        ("allowlist", "git status", True),
        ("full", "rm x", True),
    ],
)
async def test_what_holds_when_nobody_answers(place: Path, fallback: Any, command: str, done: bool) -> None:
    bench = Bench(place, ExecSettings(ask="always", ask_fallback=fallback, allowlist=("git status",)))
    prepared = await bench.prepare(command=command)
    assert prepared.ask
    assert prepared.unanswered == done


async def test_the_plan_shows_exactly_what_runs_and_no_value_of_a_variable(place: Path) -> None:
    bench = Bench(place, ALLOWLIST)
    prepared = await bench.prepare(
        command="git push 'a b'|wc -l", workdir="sub", env={"ZEBRA": "s3cret", "ALPHA": "s3cret"}
    )
    plan = prepared.plan
    assert plan.summary == "git push 'a b' | wc -l"
    assert plan.argv == ("git", "push", "a b", "|", "wc", "-l")
    assert (plan.cwd, plan.env, plan.network) == (str(place / "sub"), ("ALPHA", "ZEBRA"), True)
    assert [(each.name, each.resolved) for each in plan.invocations] == [
        (name, os.path.realpath(str(shutil.which(name)))) for name in ("git", "wc")
    ]
    assert "s3cret" not in json.dumps(msgspec.to_builtins(plan))


async def test_what_acts_on_a_screen_is_written_out_in_the_plan(place: Path) -> None:
    bench = Bench(place, ALLOWLIST)
    plan = (await bench.prepare(command="rm -rf x # \x1b[2K\u202e harmless")).plan
    assert plan.summary == "rm -rf x # \\u001b[2K\\u202e harmless"
    assert plan.argv == ("/bin/sh", "-c", "rm -rf x # \x1b[2K\u202e harmless")


async def test_after_a_yes_an_understood_command_runs_without_a_shell(place: Path) -> None:
    bench = Bench(place, ALLOWLIST)
    (place / "old").mkdir()
    told = await bench.approved(command="rmdir old && echo gone")
    assert str(told.content).startswith("gone\n[exit 0")
    assert "/bin/sh" not in bench.started[0].argv
    assert not (place / "old").exists()


async def test_after_a_yes_what_needs_a_shell_gets_exactly_the_string_that_was_shown(place: Path) -> None:
    bench = Bench(place, ALLOWLIST)
    told = await bench.approved(command="cd sub && echo $((20 + 3)) > n; cat n")
    assert str(told.content).startswith("23\n[exit 0")
    assert bench.started[0].argv == ("/bin/sh", "-c", "cd sub && echo $((20 + 3)) > n; cat n")


async def test_a_program_that_was_swapped_after_the_yes_does_not_run(place: Path) -> None:
    bench = Bench(place, ALLOWLIST)
    (place / "tool").symlink_to("/bin/true")
    prepared = await bench.prepare(command="./tool")
    (place / "tool").unlink()
    (place / "tool").symlink_to("/bin/false")
    assert prepared.ask
    with pytest.raises(Exception, match="is no longer"):
        await prepared.run()
    assert not bench.started


@pytest.mark.parametrize(
    ("command", "file"),
    [
        ("./tool a", "tool"),
        ("sh tool a", "tool"),
        ("nice sh tool", "tool"),
        ("python3 tool", "tool"),
        ("ls|./tool", "tool"),
    ],
)
async def test_a_program_or_script_that_was_changed_after_it_was_shown_does_not_run(
    place: Path, command: str, file: str
) -> None:
    bench = Bench(place, ALLOWLIST)
    (place / file).write_text("#!/bin/sh\necho good\n")
    (place / file).chmod(0o755)
    before = (place / file).stat()
    prepared = await bench.prepare(command=command)
    (place / file).write_text("#!/bin/sh\necho evil\n")
    os.utime(place / file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert prepared.ask
    with pytest.raises(SandboxError, match="has changed since it was inspected"):
        await prepared.run()
    assert not bench.started


async def test_an_argument_that_became_a_link_out_after_it_was_shown_is_not_followed(place: Path) -> None:
    bench = Bench(place, ALLOWLIST)
    (place / "notes").write_text("")
    prepared = await bench.prepare(command="cat notes")
    (place / "notes").unlink()
    (place / "notes").symlink_to("/etc/passwd")
    with pytest.raises(SandboxError, match="notes now leads elsewhere"):
        await prepared.run()
    told = await bench.approved(command="cat notes")  # now that it was told, a person may want it
    assert "root" in str(told.content)


async def test_a_repository_of_the_agents_own_making_is_no_way_out_of_the_sandbox(
    place: Path, bubblewrap: Sandbox
) -> None:
    bench = Bench(place, ALLOWLIST, sandboxed="required", sandbox=bubblewrap)
    made = f"git init -q sub && cd sub && git config core.fsmonitor 'touch {place}/../escaped; false' && echo made"
    assert "made" in await bench.runs(made)
    prepared = await bench.prepare(command="git status", workdir="sub", elevated=True)
    assert "is writable by the agent" in prepared.ask
    assert not bench.host.started


async def test_what_is_the_owners_alone_is_not_seen_by_commands_of_a_group(place: Path, bubblewrap: Sandbox) -> None:
    (place / "MEMORY.md").write_text("the owner likes figs")
    bench = Bench(place, sandboxed="required", sandbox=bubblewrap)
    group = ToolRun(SessionKey.parse("agent:main:telegram:group:7"), "r", private=False)
    assert "figs" not in str((await bench.use(bench.exec, group, command="cat MEMORY.md; grep -r figs .")).content)
    assert "figs" in await bench.runs("cat MEMORY.md")


async def test_a_command_of_an_untrusted_turn_cannot_speak_to_later_conversations(
    place: Path, bubblewrap: Sandbox
) -> None:
    bench = Bench(place, sandboxed="required", sandbox=bubblewrap)
    (place / "AGENTS.md").write_text("mine")
    write = "echo obey > AGENTS.md; echo obey > BOOTSTRAP.md; mkdir -p skills/x; echo fine > plan.md"
    await bench.use(bench.exec, a_run(origin=Origin.OUTSIDE), command=write)
    assert ((place / "AGENTS.md").read_text(), (place / "BOOTSTRAP.md").read_text()) == ("mine", "")
    assert ((place / "skills" / "x").exists(), (place / "plan.md").read_text()) == (False, "fine\n")
    await bench.runs("echo ours > AGENTS.md")
    assert (place / "AGENTS.md").read_text() == "ours\n"


async def test_a_grant_covers_its_command_and_its_use_is_noted(place: Path) -> None:
    git = str(shutil.which("git"))
    grant = Grant("g1", "exec", "agent", agent="main", binary=git, resolved=os.path.realpath(git), args=("--version",))
    bench = Bench(place, ExecSettings(ask="off"), grants=[grant])
    prepared = await bench.prepare(command="git --version | head -n 1")
    assert prepared.granted == ("g1",)
    assert (await bench.grants.all())[0].last_used_at is None
    await prepared.run()
    assert (await bench.grants.all())[0].last_used_command == "git --version | head -n 1"


async def test_without_a_gate_what_needs_an_answer_is_not_run(place: Path) -> None:
    bench = Bench(place, ALLOWLIST)
    assert (await bench.use(bench.exec, command="rm -rf sub")).is_error
    assert (await bench.use(bench.exec, a_run(origin=Origin.OUTSIDE), command="git status")).is_error
    assert not bench.started


async def test_the_first_command_without_a_sandbox_says_so_and_the_next_does_not(place: Path) -> None:
    bench = Bench(place, ALLOWLIST, sandboxed="preferred")
    heard: list[Any] = []
    first = await bench.use(bench.exec, a_run(emit=heard.append), command="echo one")
    second = await bench.use(bench.exec, a_run(emit=heard.append), command="echo two")
    assert "without a sandbox" in str(first.content)
    assert "apt install bubblewrap" in str(first.content)
    assert str(second.content).startswith("two\n")
    assert [type(event) for event in heard] == [Notice]


# Whose words come back


@pytest.mark.parametrize(
    ("command", "origin"),
    [
        ("echo hello", Origin.AGENT),
        ("echo git status", Origin.AGENT),
        ("curl --version || true", Origin.OUTSIDE),
        ("true; /usr/bin/wget --version || true", Origin.OUTSIDE),
        ("git -C . fetch --dry-run || true", Origin.OUTSIDE),
    ],
)
async def test_what_a_fetcher_brings_is_from_outside(bench: Bench, command: str, origin: Origin) -> None:
    assert (await bench.use(bench.exec, command=command)).origin == origin


async def test_what_comes_out_of_a_sandbox_with_a_network_is_from_outside(place: Path, bubblewrap: Sandbox) -> None:
    for network, origin in ((False, Origin.AGENT), (True, Origin.OUTSIDE)):
        bench = Bench(place, sandboxed="required", sandbox=bubblewrap, network=network)
        assert (await bench.use(bench.exec, command="echo hello")).origin == origin


# Whatever the model sends

PIECES = (
    "ls", "git", "$(id)", "`id`", ">", "<", "|", "||", "&&", ";", "&", "sh", "-c", "env", "nice", "xargs", "echo",
    "echo a", "seq 1", "'1 2'", '"$HOME"', "~", "*", "sudo", "PATH=x", "\n", "\\", "sh -c 'echo a'", "| wc -l",
)  # fmt: skip
words = st.sampled_from(PIECES)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(st.lists(words, min_size=1, max_size=6).map(" ".join) | st.text(min_size=1, max_size=20), st.booleans())
async def test_where_nobody_may_be_asked_nothing_uncovered_ever_starts(place: Path, text: str, split: bool) -> None:
    bench = Bench(place, ExecSettings(ask="off", allowlist=("echo *", "seq 1"), safe_bins=()))
    arguments: dict[str, Any] = {"argv": text.split()} if split else {"command": text}
    await bench.registry.run(a_run(), ToolCall("c", "exec", arguments))
    if bench.started:
        plan = (await bench.prepare(**arguments)).plan
        assert plan.invocations
        for each in plan.invocations:
            assert Path(each.binary).name == "echo" or (Path(each.binary).name, *each.args) == ("seq", "1")
        assert bench.started[0].argv[:2] != ("/bin/sh", "-c")  # by its other name, /usr/bin/sh, if it was asked for
