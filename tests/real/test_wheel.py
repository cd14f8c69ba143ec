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


def find_python(version: str) -> str:
    """Of this machine, also one of pyenv that is not switched on. Skips where there is none."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for candidate in (version, *sorted(versions.glob(f"{version}.*/bin/python"))):
        found = run(UV, "python", "find", "--no-python-downloads", str(candidate))
        if found.returncode == 0:
            return found.stdout.strip()
    pytest.skip(f"there is no Python {version} on this machine")


def check_command(command: Path, tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PALINURUS_HOME": str(tmp_path / "home")}
    assert run(command, "--version", env=env).stdout.startswith("pal ")
    assert "green" in run(command, "agent", "-m", "remember that my bicycle is green", env=env).stdout


@pytest.mark.shows("Python", "`uv pip install` of the wheel: command and library")
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
@pytest.mark.timeout(600)
def test_an_installed_wheel_is_a_command_and_a_library(
    version: str, wheel: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    record_property("version", version)
    found, python = find_python(version), tmp_path / "venv" / "bin" / "python"
    made = run(UV, "venv", "--python", found, tmp_path / "venv")
    assert made.returncode == 0, made.stderr
    installed = run(UV, "pip", "install", "--python", python, wheel)
    assert installed.returncode == 0, installed.stderr
    check_command(python.with_name("pal"), tmp_path)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PALINURUS_HOME": str(tmp_path / "library")}
    used = run(python, "-W", "error", "-c", PROGRAM, env=env)
    assert (used.returncode, used.stderr) == (0, "")
    assert "bicycle is green" in used.stdout
    licensed = "import importlib.metadata as m; print(m.metadata('palinurus')['License-Expression'])"
    assert run(python, "-c", licensed, env=env).stdout.strip() == "MIT"


@pytest.mark.shows("pip", "`pip install` of the wheel")
@pytest.mark.timeout(600)
def test_pip_installs_it(wheel: Path, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    made = run(sys.executable, "-m", "venv", tmp_path / "venv")
    assert made.returncode == 0, made.stderr
    pip = tmp_path / "venv" / "bin" / "pip"
    record_property("version", run(pip, "--version").stdout.split()[1])
    installed = run(pip, "install", "--quiet", "--disable-pip-version-check", wheel)
    assert installed.returncode == 0, installed.stderr
    check_command(pip.with_name("pal"), tmp_path)


@pytest.mark.shows("uv", "`uv tool install` of the wheel")
@pytest.mark.timeout(600)
def test_uv_installs_it_as_a_tool(wheel: Path, tmp_path: Path) -> None:
    env = {**os.environ, "UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
    installed = run(UV, "tool", "install", "--python", sys.executable, wheel, env=env)
    assert installed.returncode == 0, installed.stderr
    check_command(tmp_path / "bin" / "pal", tmp_path)


@pytest.mark.shows("pipx", "`pipx install` of the wheel")
@pytest.mark.timeout(600)
def test_pipx_installs_it(wheel: Path, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    pipx = (UV, "tool", "run", "--python", sys.executable, "pipx")
    asked = run(*pipx, "--version")
    if asked.returncode and not os.environ.get("CI"):
        pytest.skip(f"pipx cannot be had: {asked.stderr[-200:]}")
    record_property("version", asked.stdout.strip())
    env = {**os.environ, "PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
    installed = run(*pipx, "install", "--python", sys.executable, wheel, env=env)
    assert installed.returncode == 0, installed.stderr
    check_command(tmp_path / "bin" / "pal", tmp_path)
