"""process as a model uses it: commands that go on in the background, and how they are kept in bounds."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import pytest
from exec_bench import FULL, Bench, a_run, nothing_is_left, sleepers, until, working_bubblewrap
from hypothesis import given
from hypothesis import strategies as st

from palinurus.domain.errors import PalinurusError
from palinurus.domain.messages import Origin, ToolCall
from palinurus.domain.tool import PreparedCall, Restriction, ToolRun
from palinurus.testing.fakes import FakeClock
from palinurus.tools.built_in import process_tool
from palinurus.tools.exec.processes import BACKGROUND, REMEMBERED, CommandOutput, Processes
from palinurus.tools.settings import ExecSettings

__all__ = ["nothing_is_left"]  # a fixture for all of them


@pytest.fixture(params=["host", "bubblewrap"])
async def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    if request.param == "host":
        return Bench(tmp_path)
    return Bench(tmp_path, sandboxed="required", sandbox=await working_bubblewrap())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def start(bench: Bench, command: str, run: ToolRun | None = None, **more: Any) -> str:
    told = await bench.use(bench.exec, run, command=command, **{"background": True, **more})
    assert told.details is not None, told.content
    return str(told.details["processId"])


async def does(bench: Bench, action: str, process_id: str = "", **more: Any) -> str:
    told = await bench.registry.run(a_run(), ToolCall("c", "process", _call(action, process_id, **more)))
    return str(told.content)


def _call(action: str, process_id: str = "", **more: Any) -> dict[str, Any]:
    return {"action": action, **({"process_id": process_id} if process_id else {}), **more}


async def test_a_command_goes_on_in_the_background_and_tells_what_is_new(anywhere: Bench) -> None:
    told = await anywhere.use(anywhere.exec, command="echo one; read word; echo two $word; exit 4", background=True)
    assert re.search(r"\[running · \d+\.\d s · (host|sandbox) · process [0-9a-f]{6}\]$", str(told.content))
    assert told.details is not None
    name = told.details["processId"]
    first = str(told.content) + await does(anywhere, "poll", name, wait_ms=5000)
    assert "one\n" in first
    assert (await does(anywhere, "poll", name)).startswith("(nothing new)\n[running")
    assert "written" in await does(anywhere, "write", name, text="more\n")
    assert "two more\n" in await does(anywhere, "poll", name, wait_ms=5000)
    await until(lambda: anywhere.processes.get(a_run().key, name).ended)
    assert "[exit 4 · " in await does(anywhere, "poll", name, wait_ms=5000)
    log = await does(anywhere, "log", name)
    assert log.startswith("one\ntwo more\n[exit 4 · ")
    assert (await does(anywhere, "log", name, lines=1)).startswith("two more\n[")


async def test_a_slow_command_goes_to_the_background_by_itself(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ExecSettings(security="full", ask="off", background_ms=150))
    told = await bench.use(bench.exec, command="echo early; sleep 621.5")
    assert str(told.content).startswith("early\n(goes on in the background")
    assert not told.is_error
    assert "sleep 621.5" in await does(bench, "list")


async def test_a_call_says_by_itself_when_to_go_on_in_the_background(bench: Bench) -> None:
    began = time.monotonic()
    assert "processId" in ((await bench.use(bench.exec, command="sleep 622.5", yield_ms=50)).details or {})
    assert time.monotonic() - began < 60


async def test_the_list_shows_what_runs_and_what_has_ended(bench: Bench) -> None:
    assert await does(bench, "list") == "no command of this session runs in the background"
    first, second = await start(bench, "true"), await start(bench, "sleep 623.5")
    await until(lambda: bench.processes.get(a_run().key, first).ended)
    lines = (await does(bench, "list")).splitlines()
    assert lines[0].startswith(f"{first} · exit 0 · ")
    assert lines[1].startswith(f"{second} · running · ")
    assert lines[1].endswith("sleep 623.5")


async def test_a_command_that_ended_in_time_is_not_in_the_list(bench: Bench) -> None:
    await bench.runs("true")
    assert (await does(bench, "list")).startswith("no command")


async def test_a_killed_command_is_gone_with_all_it_started(anywhere: Bench) -> None:
    name = await start(anywhere, "echo begun; sleep 624.5 & setsid sleep 624.5 & sleep 624.5")
    await until(lambda: len(sleepers("624.5")) == 3)
    told = await anywhere.use(anywhere.process, **_call("kill", name))
    assert not told.is_error
    assert str(told.content).startswith("begun\n[stopped · ")
    assert not sleepers("624.5")


async def test_a_terminal_can_be_interrupted(anywhere: Bench) -> None:
    name = await start(anywhere, "sleep 629.5; echo never", pty=True)
    await until(lambda: sleepers("629.5"))  # earlier, dash would take the signal between fork and exec, and lose it
    await does(anywhere, "write", name, text="\x03")
    await until(lambda: anywhere.processes.get(a_run().key, name).ended)
    assert "[exit 130" in await does(anywhere, "log", name)
    assert not sleepers("629.5")


async def test_closing_its_input_lets_a_reader_end(anywhere: Bench) -> None:
    name = await start(anywhere, "wc -l")
    await does(anywhere, "write", name, text="a\nb\n", close=True)
    await until(lambda: anywhere.processes.get(a_run().key, name).ended)
    assert (await does(anywhere, "log", name)).startswith("2\n[exit 0")


async def test_a_reader_that_does_not_read_costs_ten_seconds_at_most(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palinurus.tools.exec.process_actions.WRITE_SECONDS", 0.1)
    name = await start(bench, "sleep 625.5")
    assert "does not read" in await does(bench, "write", name, text="x" * 100_000)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (_call("poll", "nobody"), "there is no process 'nobody' here"),
        (_call("poll"), "there is no process ''"),
        (_call("dance"), "action"),
        (_call("poll", "x", wait_ms=60_000), "wait_ms"),
        ({}, "needs the argument 'action'"),
    ],
)
async def test_a_mistake_is_told(bench: Bench, call: dict[str, Any], says: str) -> None:
    told = await bench.registry.run(a_run(), ToolCall("c", "process", call))
    assert told.is_error
    assert says in str(told.content)


async def test_one_cannot_write_nothing_nor_to_who_has_ended_or_does_not_listen(bench: Bench) -> None:
    name = await start(bench, "true")
    await until(lambda: bench.processes.get(a_run().key, name).ended)
    assert "has ended" in await does(bench, "write", name, text="x")
    deaf = await start(bench, "sleep 626.5", background=False, yield_ms=20)
    assert "does not read input" in await does(bench, "write", deaf, text="x")
    assert "give text" in await does(bench, "write", deaf)


async def test_a_command_is_seen_by_its_own_session_only(bench: Bench) -> None:
    other = a_run("agent:main:telegram:group:1")
    name = await start(bench, "sleep 627.5", other)
    assert (await does(bench, "list")).startswith("no command")
    for action in ("poll", "log", "write", "kill"):
        assert "there is no process" in await does(bench, action, name, text="x")
    await until(lambda: len(sleepers("627.5")) == 1)
    assert name in str((await bench.use(bench.process, other, action="list")).content)


# Who may write


async def written(bench: Bench, run: ToolRun | None = None) -> PreparedCall:
    name = await start(bench, "cat", run)
    assert bench.process.prepare is not None
    prepared = await bench.process.prepare(run or a_run(), _call("write", name, text="rm -rf ~\n"))
    assert isinstance(prepared, PreparedCall)
    return prepared


async def test_what_is_written_to_a_program_outside_the_sandbox_asks(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ExecSettings(allowlist=("cat",)))
    prepared = await written(bench)
    assert "as good as a command" in prepared.ask
    assert prepared.plan.arguments["text"] == "rm -rf ~\n"
    assert not prepared.unanswered


async def test_where_nobody_may_be_asked_it_is_refused(tmp_path: Path) -> None:
    assert (await written(Bench(tmp_path, ExecSettings(ask="off", allowlist=("cat",))))).refusal


async def test_where_commands_are_free_input_is_too_except_in_an_untrusted_turn(tmp_path: Path) -> None:
    prepared = await written(Bench(tmp_path, FULL))
    assert not prepared.ask
    assert prepared.when_untrusted


async def writes(bench: Bench, name: str, **run: Any) -> PreparedCall:
    assert bench.process.prepare is not None
    prepared = await bench.process.prepare(a_run(**run), _call("write", name, text="x"))
    assert isinstance(prepared, PreparedCall)
    return prepared


async def test_what_the_owner_set_free_is_free_for_the_owner_alone_and_as_long_as_they_want(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ExecSettings())
    name = await start(bench, "sh", a_run(elevated="full"), elevated=True)
    assert not (await writes(bench, name, elevated="full")).ask
    for run in ({"elevated": "full", "owner": False}, {"elevated": "off"}, {"elevated": "ask"}, {}):
        assert "as good as a command" in (await writes(bench, name, **run)).ask


async def test_nothing_is_written_to_the_host_where_commands_may_not_run_there(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FULL)
    name = await start(bench, "cat")
    caged = Restriction("skill:pdf", "it is somebody else's", sandboxed=True)
    assert "it is somebody else's (skill:pdf)" in (await writes(bench, name, restrictions=(caged,))).refusal
    bench.process = process_tool(lambda: bench.processes, ExecSettings(security="deny"))
    assert "switched off" in (await writes(bench, name)).refusal


async def test_inside_the_sandbox_nobody_is_asked(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ExecSettings(), sandboxed="required", sandbox=await working_bubblewrap())
    prepared = await written(bench, a_run(origin=Origin.OUTSIDE))
    assert (prepared.ask, prepared.when_untrusted, prepared.refusal) == ("", "", "")


async def test_an_untrusted_turn_does_not_type_into_what_was_started_before_it(tmp_path: Path) -> None:
    """A command that an untrusted turn starts cannot change AGENTS.md; a shell from before could."""
    bench = Bench(tmp_path, ExecSettings(), sandboxed="required", sandbox=await working_bubblewrap())
    prepared = await written(bench)
    assert (prepared.ask, prepared.refusal) == ("", "")
    assert "started before this turn" in prepared.when_untrusted


async def test_what_a_fetcher_wrote_is_from_outside_when_it_is_polled(bench: Bench) -> None:
    name = await start(bench, "echo curl")
    assert (await bench.use(bench.process, **_call("poll", name, wait_ms=2000))).origin == Origin.OUTSIDE


# Bounds


async def test_an_agent_has_so_many_commands_in_the_background_and_no_more(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ExecSettings(security="full", ask="off", background_ms=30))
    for _ in range(BACKGROUND):
        await start(bench, "sleep 628.5")
    told = await bench.use(bench.exec, command="sleep 628.5", background=True)
    assert "too many commands" in str(told.content)
    await until(lambda: len(sleepers("628.5")) == BACKGROUND)
    assert "\n[exit 0" in await bench.runs("sleep 0.2; echo waited for")  # there is no room to go to
    assert (await bench.use(bench.exec, a_run("agent:other:main"), command="true", background=True)).details


async def test_a_stopped_command_is_not_kept(bench: Bench) -> None:
    work = asyncio.create_task(bench.exec.run(a_run(), {"command": "sleep 630.5"}))
    await until(lambda: sleepers("630.5"))
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert bench.processes.of(a_run().key) == []
    assert not bench.processes._known


async def test_ended_commands_are_forgotten_by_number_and_by_age(bench: Bench) -> None:
    clock = FakeClock()
    bench.processes._clock = clock
    for _ in range(REMEMBERED + 3):
        name = await start(bench, "true")
        await until(lambda name=name: bench.processes.get(a_run().key, name).ended)
    assert len(bench.processes.of(a_run().key)) == REMEMBERED
    clock.advance(minutes=61)
    assert bench.processes.of(a_run().key) == []


async def test_stopping_a_run_ends_what_it_started_and_nothing_else(bench: Bench) -> None:
    await start(bench, "sleep 631.5", a_run(run_id="r1"))
    await start(bench, "sleep 632.5", a_run(run_id="r2"))
    await until(lambda: sleepers("631.5") and sleepers("632.5"))
    assert await bench.processes.stop_run("r1") == 1
    assert await bench.processes.stop_run("r1") == 0
    assert not sleepers("631.5")
    assert sleepers("632.5")


async def test_closing_the_house_ends_all_and_nothing_starts_after(bench: Bench) -> None:
    await start(bench, "sleep 633.5")
    waiting = asyncio.create_task(bench.exec.run(a_run(), {"command": "sleep 633.5"}))
    await until(lambda: len(sleepers("633.5")) == 2)
    began = time.monotonic()
    await bench.processes.close()
    assert time.monotonic() - began < 30
    assert not sleepers("633.5")
    assert (await asyncio.wait_for(waiting, 60)).is_error
    with pytest.raises(PalinurusError, match="shutting down"):
        await bench.exec.run(a_run(), {"command": "true"})


async def test_a_flood_in_the_background_leaves_the_house_awake(bench: Bench) -> None:
    name = await start(bench, "yes")
    job = bench.processes.get(a_run().key, name)
    await until(lambda: job.output.total > 70_000_000)
    assert len(job.output.text()) < 2 * 1024 * 1024 + 100
    await job.kill()


def test_ids_are_short_and_a_taken_one_grows(bench: Bench) -> None:
    processes = Processes(FakeClock(), lambda: "abcdef0123456789")
    assert processes._id() == "abcdef"
    processes._known["abcdef"] = None  # type: ignore[assignment]
    assert processes._id() == "abcdef0"


# What is kept of the output


@given(st.lists(st.binary(max_size=40)), st.integers(1, 20), st.integers(1, 20))
def test_beginning_and_end_are_always_kept_and_the_rest_is_counted(chunks: list[bytes], head: int, tail: int) -> None:
    output = CommandOutput(head=head, tail=tail)
    for chunk in chunks:
        output.add(chunk.replace(b"\x1b", b"e").hex().encode())
    whole = b"".join(chunk.replace(b"\x1b", b"e").hex().encode() for chunk in chunks).decode()
    lost = len(whole) - head - tail
    assert output.total == len(whole)
    assert output.text() == (
        whole if lost <= 0 else f"{whole[:head]}\n[… {lost:,} bytes not kept …]\n{whole[len(whole) - tail :]}"
    )


@given(st.lists(st.text("ab\tä€𝄞\n", max_size=5).map(str.encode), max_size=10), st.data())
def test_news_never_split_a_character(words: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(words)
    output, seen, told = CommandOutput(head=10_000), 0, ""
    while whole:
        cut = data.draw(st.integers(1, len(whole)))
        output.add(whole[:cut])
        whole = whole[cut:]
        until_here = output.boundary()
        told += output.text(seen, until_here)
        seen = until_here
    assert seen == output.total
    assert told == output.text()
