"""A registry that listens, and `pal` on a home that uses it."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosted import Ended, Hosted, Pal

from palinurus.cli.shell import run
from palinurus.config.home import Home
from palinurus.operations.services import Services


@pytest.fixture
def hosted(tmp_path: Path) -> Iterator[Hosted]:
    with Hosted(tmp_path / "registry") as running:
        yield running


@pytest.fixture
def services(home: Home, hosted: Hosted, tmp_path: Path) -> Services:
    return Services(home=home, env={"CLAWHUB_REGISTRY": hosted.url, "HOME": str(tmp_path)})


@pytest.fixture
def pal_skills(home: Home, hosted: Hosted, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pal:
    """`pal_skills("skills", "search", "tide")` with the registry of the test."""
    monkeypatch.setenv("PALINURUS_HOME", str(home.root))
    monkeypatch.setenv("HOME", str(home.user_home))
    monkeypatch.setenv("CLAWHUB_REGISTRY", hosted.url)
    monkeypatch.delenv("CLAWHUB_TOKEN", raising=False)

    def call(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["pal", *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(""))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            run()
        shown = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Ended(ended.value.code, shown.out, shown.err)

    return call
