"""The command `pal` as a shell would call it, in this process: arguments and input in, exit code and output out."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator

import pytest
from called import Ended, Pal
from served_model import ServedModel

from palinurus.cli.shell import run
from palinurus.config.home import Home


@pytest.fixture
def served(home: Home) -> Iterator[ServedModel]:
    """The home's model is `mock/m` of a loopback server."""
    model = ServedModel()
    model.configure(home)
    yield model
    model.close()


@pytest.fixture
def pal_command(home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pal:
    """`pal_command("status", "--json", stdin="…")` on a home whose model is the embedded one."""
    monkeypatch.setenv("PALINURUS_HOME", str(home.root))

    def call(*arguments: str, stdin: str = "") -> Ended:
        monkeypatch.setattr(sys, "argv", ["pal", *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            run()
        shown = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Ended(ended.value.code, shown.out, shown.err)

    return call
