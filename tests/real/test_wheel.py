"""The package as others install it: built into a wheel, and installed beside every Python that we promise."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
SECONDS = 540.0  # the first installation downloads everything
PROGRAM = """
import asyncio
from palinurus import Pal

async def main():
    async with Pal.open() as pal:
        await pal.ask("remember that my bicycle is green")
        print((await pal.search("bicycle")).results[0].snippet)

asyncio.run(main())
"""

pytestmark = pytest.mark.real


def run(*command: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=SECONDS)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    built = run(UV, "build", "--wheel", "--out-dir", folder, ROOT)
    if built.returncode and not os.environ.get("CI"):
        pytest.skip(f"the wheel cannot be built: no index can be reached? {built.stderr[-200:]}")
    assert built.returncode == 0, built.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.mark.shows("Python", "`uv pip install` of the wheel: command and library")
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
@pytest.mark.timeout(600)
def test_an_installed_wheel_is_a_command_and_a_library(
    version: str, wheel: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    record_property("version", version)
    found = run(UV, "python", "find", "--no-python-downloads", version)
    if found.returncode:
        pytest.skip(f"there is no Python {version} on this machine")
    python = tmp_path / "venv" / "bin" / "python"
    made = run(UV, "venv", "--python", found.stdout.strip(), tmp_path / "venv")
    assert made.returncode == 0, made.stderr
    installed = run(UV, "pip", "install", "--python", python, wheel)
    assert installed.returncode == 0, installed.stderr
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PALINURUS_HOME": str(tmp_path / "home")}
    assert run(python.with_name("pal"), "--version", env=env).stdout.startswith("pal ")
    used = run(python, "-W", "error", "-c", PROGRAM, env=env)
    assert (used.returncode, used.stderr) == (0, "")
    assert "bicycle is green" in used.stdout
    licensed = "import importlib.metadata as m; print(m.metadata('palinurus')['License-Expression'])"
    assert run(python, "-c", licensed, env=env).stdout.strip() == "MIT"
