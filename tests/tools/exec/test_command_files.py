"""What a command has read and changed, at the edges: too many files, input from an untrusted run, the network."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from exec_bench import Bench, a_run, nothing_is_left, until, working_bubblewrap

from palinurus.domain.messages import Origin, OutsideText
from palinurus.tools.exec import command_files
from palinurus.workspace.file_origins import FileOrigins

__all__ = ["nothing_is_left"]

TAINTED = a_run().having_read((OutsideText("d", "host:evil.example"),))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "ws"
    root.mkdir()
    return root


@pytest.fixture
def bench(workspace: Path) -> Bench:
    return Bench(workspace, origins=FileOrigins())


async def runs(bench: Bench, command: str) -> None:
    """In an untrusted run, after a person said yes."""
    prepared = await bench.prepare(TAINTED, command=command)
    assert not (await prepared.run()).is_error


def leave(path: Path) -> None:
    """A file that is older than any command."""
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    while time.clock_gettime_ns(command_files.COARSE) <= path.stat().st_ctime_ns:
        pass  # until the next tick of the file system's clock


def entered(bench: Bench) -> dict[str, bool]:
    """What was entered, by its place; whether it is a folder with all below."""
    root = str(bench.workspace)
    return {each.path[len(root) + 1 :]: each.is_folder for each in bench.desk.origins.below(root)}


async def test_what_it_changed_is_entered_with_what_the_run_had_read(bench: Bench) -> None:
    leave(bench.workspace / "old.txt")
    await runs(bench, "mkdir -p a/.b && echo x > a/.b/c.txt && echo y > d.txt && ln -s d.txt e.txt")
    assert entered(bench) == {"a/.b/c.txt": False, "d.txt": False}
    entry = bench.desk.origins.entry(str(bench.workspace / "d.txt"))
    assert entry is not None
    assert entry.sources == ("host:evil.example",)
    assert entry.digest


async def test_folders_that_were_not_walked_to_their_end_are_entered_whole(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_files, "MAX_WALKED", 3)
    await runs(bench, "mkdir -p a b && echo x > a/1 && echo x > a/2 && echo x > b/1 && echo x > b/2")
    folders = [place for place, folder in entered(bench).items() if folder]
    origins = bench.desk.origins
    assert folders
    for place in ("a/1", "a/2", "b/1", "b/2"):
        assert origins.is_entered(str(bench.workspace / place)), place


async def test_very_many_files_are_entered_by_their_folders(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_files, "MAX_CHANGED", 3)
    await runs(bench, "mkdir -p a/b && for n in 1 2 3 4 5; do echo x > a/b/$n; done")
    assert entered(bench) == {"a/b": True}


async def test_input_of_an_untrusted_run_makes_what_follows_the_strangers(bench: Bench) -> None:
    started = await bench.use(bench.exec, command="read line; echo $line > out.txt; echo done", background=True)
    assert started.details is not None
    process = started.details["processId"]
    assert bench.process.prepare is not None
    prepared = await bench.process.prepare(
        TAINTED, {"action": "write", "process_id": process, "text": "figs\n", "close": True}
    )
    assert not isinstance(prepared, type(started))
    await prepared.run()
    job = bench.processes.get(a_run().key, process)
    await until(lambda: job.ended is not None)
    assert "out.txt" in entered(bench)


async def test_a_command_that_says_nothing_leaves_the_run_as_it_was(bench: Bench) -> None:
    leave(bench.workspace / "inbox" / "1.txt")
    told = await bench.use(bench.exec, command="cp inbox/1.txt plain.txt")
    assert told.origin != Origin.OUTSIDE
    assert entered(bench) == {"plain.txt": False}


async def test_one_that_reaches_the_network_cannot_write_what_conversations_begin_with(workspace: Path) -> None:
    leave(workspace / "AGENTS.md")
    sandbox = await working_bubblewrap()
    bench = Bench(workspace, sandboxed="required", sandbox=sandbox, network=True, origins=FileOrigins())
    await bench.use(bench.exec, command="echo evil > AGENTS.md; echo fetched > page.txt")
    assert (workspace / "AGENTS.md").read_text() == "mine"
    assert entered(bench) == {"page.txt": False}
