"""A sandbox that is made when it is needed: what an earlier trial found is told without another."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from palinurus.sandbox.sandbox import DeferredSandbox, Process, SandboxCommand, SandboxStatus


class Backend:
    """A sandbox that counts its trials."""

    name = "bubblewrap"

    def __init__(self, works: bool = True) -> None:
        self.works = works
        self.trials = 0

    async def check(self) -> SandboxStatus:
        self.trials += 1
        return SandboxStatus(self.name, self.works, why="" if self.works else "forbidden here", remarks=("small",))

    async def start(self, command: SandboxCommand) -> Process:
        raise NotImplementedError


def deferred(backend: Backend, record: Path, program: str = "sh") -> DeferredSandbox:
    return DeferredSandbox("bubblewrap", lambda: backend, record, program)


async def test_what_a_trial_found_is_told_in_the_next_process_without_another(tmp_path: Path) -> None:
    record, first, second = tmp_path / "derived" / "sandbox.json", Backend(), Backend()
    found = await deferred(first, record).expect()
    assert await deferred(second, record).expect() == found
    assert (first.trials, second.trials) == (1, 0)


async def test_before_anything_is_done_it_is_tried_whatever_was_found_earlier(tmp_path: Path) -> None:
    record, later = tmp_path / "sandbox.json", Backend(works=False)
    await deferred(Backend(), record).check()
    assert not (await deferred(later, record).check()).works
    assert not record.exists()  # nor is it described as working any more


async def test_trouble_is_not_kept(tmp_path: Path) -> None:
    record, again = tmp_path / "sandbox.json", Backend()
    assert not (await deferred(Backend(works=False), record).expect()).works
    assert (await deferred(again, record).expect()).works
    assert again.trials == 1


async def test_another_program_makes_another_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record, again = tmp_path / "sandbox.json", Backend()
    program = tmp_path / "bin" / "walls"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    await deferred(Backend(), record, "walls").check()
    os.utime(program, ns=(1, 1))
    await deferred(again, record, "walls").expect()
    assert again.trials == 1


async def test_an_old_or_broken_record_counts_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record, again = tmp_path / "sandbox.json", Backend()
    await deferred(Backend(), record).check()
    monkeypatch.setattr("palinurus.sandbox.sandbox.EXPECTED_SECONDS", 0.0)
    await deferred(again, record).expect()
    record.write_text("{")
    await deferred(again, record).expect()
    assert again.trials == 2
